//! The network interface behind an Ethernet port, and its addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::str::FromStr;

use tagmatch_os::interfaces;

use super::packet::MTU_MAX;
use crate::gid::{GIDS, of_address};

/// What a user says that a port is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortPlace {
    /// The InfiniBand of this command, which leads to no other one.
    InfiniBand,
    /// Ethernet: the name of an interface, or one of this machine's addresses.
    Roce(String),
}

impl FromStr for PortPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "ib" => Ok(PortPlace::InfiniBand),
            Some(("roce", place)) if !place.is_empty() => Ok(PortPlace::Roce(place.to_owned())),
            _ => Err(format!(
                "invalid port `{text}`: expected ib, roce:INTERFACE or roce:ADDRESS such as \
                 roce:eth0"
            )),
        }
    }
}

/// Why a port has no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error("--port: the addresses of this machine can't be listed: {0}")]
    Addresses(io::Error),
    #[error("--port roce:{0}: no interface that is up has this name or address; try: ip address")]
    Unknown(String),
    #[error("--port roce:{0}: the interface's MTU can't be read: {1}")]
    Mtu(String, io::Error),
    #[error(
        "--port roce:{0}: packets of {1} bytes are too short for RoCE, whose least are 352 bytes"
    )]
    Short(String, u32),
    #[error("--port roce: two ports have the address {0}")]
    Twice(IpAddr),
}

/// A port of Ethernet with its interface.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RocePort {
    pub(crate) interface: String,
    /// The number of the interface; 0: unknown.
    pub(crate) index: u32,
    /// Bytes of data in the longest packet.
    pub(crate) mtu: u16,
    /// At most as many as a table of GIDs has rows for.
    pub(crate) addresses: Vec<IpAddr>,
}

impl fmt::Debug for RocePort {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {:?} {}", self.interface, self.addresses, self.mtu)
    }
}

/// The longest path MTU for packets of so many bytes: the kernel's `iboe_get_mtu`, which leaves
/// room for a GRH, UDP's header, a BTH, the headers of XRC and of atomic operations, and the ICRC.
fn path_mtu(packet: u32) -> Option<u16> {
    const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;
    let room = packet.checked_sub(HEADERS)?;
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| u32::from(*mtu) <= room)
}

impl RocePort {
    /// Asks the system for the interface with this name or address.
    pub(crate) fn find(place: &str) -> Result<Self, PortError> {
        let all = interfaces::addresses().map_err(PortError::Addresses)?;
        let named = place.parse::<IpAddr>().ok();
        let unknown = || PortError::Unknown(place.to_owned());
        let interface = match named {
            // All of 127.0.0.0/8 is this machine, whatever the interface's address is.
            Some(IpAddr::V4(address)) if address.is_loopback() => "lo",
            Some(address) => {
                let of = all.iter().find(|of| of.address == address).ok_or_else(unknown)?;
                &of.interface
            }
            None => place,
        };
        let own = all.iter().filter(|of| of.interface == interface).map(|of| of.address);
        let mut addresses = named.map_or_else(|| own.collect(), |address| vec![address]);
        // As the kernel fills its table: the link-local address is first.
        addresses.sort_by_key(|address| !of_address(*address).starts_with(&[0xfe, 0x80]));
        addresses.dedup();
        addresses.truncate(GIDS / 2);
        if addresses.is_empty() {
            return Err(unknown());
        }
        let bytes = interfaces::mtu(interface);
        let bytes = bytes.map_err(|error| PortError::Mtu(place.to_owned(), error))?;
        let mtu = path_mtu(bytes).ok_or_else(|| PortError::Short(place.to_owned(), bytes))?;
        debug_assert!(usize::from(mtu) <= MTU_MAX);
        let interface = interface.to_owned();
        let index = number_of(&interface).unwrap_or(0);
        Ok(RocePort { interface, index, mtu, addresses })
    }

    /// The ports of these choices. Two of them may not have one address.
    pub(crate) fn find_all(places: &[&str]) -> Result<Vec<Self>, PortError> {
        let ports: Vec<Self> =
            places.iter().map(|place| Self::find(place)).collect::<Result<_, _>>()?;
        let mut all: Vec<IpAddr> = ports.iter().flat_map(|port| port.addresses.clone()).collect();
        all.sort();
        match all.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(PortError::Twice(two[0])),
            None => Ok(ports),
        }
    }
}

fn number_of(interface: &str) -> io::Result<u32> {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(rustix::net::netdevice::name_to_index(socket.as_fd(), interface)?)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_port_is_infiniband_or_an_interface() {
        let parse = |text: &str| text.parse::<PortPlace>().ok();
        assert_eq!(parse("ib"), Some(PortPlace::InfiniBand));
        assert_eq!(parse("roce:eth0"), Some(PortPlace::Roce("eth0".to_owned())));
        assert_eq!(parse("roce:fe80::1"), Some(PortPlace::Roce("fe80::1".to_owned())));
        for wrong in ["", "roce", "roce:", "ib:eth0", "eth0"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    /// `iboe_get_mtu`
    #[test]
    fn the_path_mtu_leaves_room_for_all_headers() {
        let mtus = [65536, 9000, 4192, 4191, 1500, 1120, 1119, 352, 351, 0].map(path_mtu);
        let some = [4096, 4096, 4096, 2048, 1024, 1024, 512, 256].map(Some);
        assert_eq!(mtus[..8], some);
        assert_eq!(mtus[8..], [None, None]);
    }

    #[test]
    fn each_address_of_loopback_is_a_port() {
        for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
            let port = RocePort::find(&address.to_string()).unwrap();
            assert_eq!((port.interface.as_str(), port.addresses), ("lo", vec![address.into()]));
            assert!(port.index > 0);
        }
        let port = RocePort::find("lo").unwrap();
        assert!(port.addresses.contains(&Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn what_no_interface_has_is_refused_in_words() {
        for place in ["no-such", "192.0.2.77"] {
            let error = RocePort::find(place).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--port roce:{place}: no interface")), "{error}");
        }
        let error = RocePort::find_all(&["lo", "127.0.0.1"]).unwrap_err().to_string();
        assert_eq!(error, "--port roce: two ports have the address 127.0.0.1");
        assert_eq!(RocePort::find_all(&["127.0.0.1", "127.0.0.2"]).unwrap().len(), 2);
    }
}
