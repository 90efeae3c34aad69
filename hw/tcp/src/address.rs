//! What the address of a worker on TCP says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tagmatch_device::bytes::array_at;
use tagmatch_device::contents::{Contents, Name};
use tagmatch_device::{Address, DeviceError, Network};

/// The first bytes of each connection.
pub(crate) const MAGIC: [u8; 4] = *b"TMtp";
/// Version of the protocol. Every change of it increases it.
pub(crate) const VERSION: u8 = 2;
/// The port.
const FIXED: usize = 2;
const V4: u8 = 4;
const V6: u8 = 6;

/// Where a device accepts connections: the part of a worker's [`Address`] about TCP. The secret is
/// not in the address.
///
/// | bytes | contents |
/// |---|---|
/// | 0..2 | port, little-endian |
/// | 2.. | hosts: 4 or 6, and the 4 or 16 bytes of an IP address; or the 16 bytes of one IPv6 address alone |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpAddress {
    pub(crate) port: u16,
    /// The addresses of the device's machine, in the order in which a peer tries them.
    pub(crate) hosts: Vec<IpAddr>,
}

/// A port and one IPv6 host.
const LONE_BYTES: usize = FIXED + 16;
// One host fits beside all other networks.
const _: () = assert!(Contents::ROOM >= Network::SHM_BYTES + Network::VERBS_BYTES + LONE_BYTES);

/// Whether peers on another network can't reach this address.
fn is_link_local(host: &IpAddr) -> bool {
    match host {
        IpAddr::V4(host) => host.is_link_local(),
        IpAddr::V6(host) => host.is_unicast_link_local(),
    }
}

impl TcpAddress {
    /// Reads an address.
    pub(crate) fn parse(address: &Address) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let section = Contents::of(address)?.section(Network::Tcp);
        let bytes = section.ok_or(bad("its worker is not on TCP"))?;
        let (port, mut rest) = bytes.split_at_checked(FIXED).ok_or(bad("it has no port"))?;
        let port = u16::from_le_bytes(array_at(port, 0));
        let mut hosts = Vec::new();
        if let Ok(host) = <[u8; 16]>::try_from(rest) {
            hosts.push(IpAddr::from(host));
            rest = &[];
        }
        while let Some((kind, after)) = rest.split_first() {
            let host = match *kind {
                V4 => after.first_chunk::<4>().map(|b| (IpAddr::from(Ipv4Addr::from(*b)), 4)),
                V6 => after.first_chunk::<16>().map(|b| (IpAddr::from(Ipv6Addr::from(*b)), 16)),
                _ => None,
            };
            let (host, length) = host.ok_or(bad("a host of an unknown kind"))?;
            hosts.push(host);
            rest = &after[length..];
        }
        if hosts.is_empty() || port == 0 {
            return Err(bad("an address without a host or a port"));
        }
        Ok(TcpAddress { port, hosts })
    }

    /// What an address says about TCP, with as many hosts as fit into `room` bytes. Those that
    /// reach other networks come first. An IPv6 host that has no room with its kind stands alone,
    /// without it: of the other entries none makes a section of the same length.
    pub(crate) fn section(&self, room: usize) -> Vec<u8> {
        let mut bytes = self.port.to_le_bytes().to_vec();
        let mut left_out = Vec::new();
        let (near, far): (Vec<IpAddr>, Vec<IpAddr>) =
            self.hosts.iter().partition(|host| is_link_local(host));
        for hosts in [far, near] {
            for host in &hosts {
                let entry = match host {
                    IpAddr::V4(host) => [&[V4][..], &host.octets()].concat(),
                    IpAddr::V6(host) => [&[V6][..], &host.octets()].concat(),
                };
                if bytes.len() + entry.len() <= room {
                    bytes.extend_from_slice(&entry);
                } else {
                    left_out.push(*host);
                }
            }
            if bytes.len() == FIXED
                && let Some(at) = left_out.iter().position(IpAddr::is_ipv6)
                && let IpAddr::V6(host) = left_out.remove(at)
            {
                bytes.extend_from_slice(&host.octets());
            }
        }
        if !left_out.is_empty() {
            log::info!(
                "the worker's address has no room for {left_out:?}, so no peer tries these hosts \
                 (TcpConfig::announce chooses others)"
            );
        }
        bytes
    }

    /// The address of a worker that is on no other network.
    pub(crate) fn address(&self, name: Name) -> Result<Address, DeviceError> {
        let section = self.section(Contents::ROOM);
        Contents::new(name).with(Network::Tcp, &section).address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: Name = *b"0123456";

    fn sample(hosts: &[&str]) -> TcpAddress {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        TcpAddress { port: 4711, hosts }
    }

    #[test]
    fn hosts_of_both_families_round_trip() {
        for hosts in [&["127.0.0.1"][..], &["10.0.0.1", "fd00::1"], &["::1"]] {
            let sample = sample(hosts);
            assert_eq!(TcpAddress::parse(&sample.address(NAME).unwrap()).unwrap(), sample);
        }
    }

    #[test]
    fn hosts_that_do_not_fit_are_left_out() {
        let many = sample(&["fd00::1", "fd00::2", "fd00::3", "fd00::4", "10.0.0.1"]);
        let parsed = TcpAddress::parse(&many.address(NAME).unwrap()).unwrap();
        assert_eq!(parsed, sample(&["fd00::1", "fd00::2", "fd00::3"]), "a fourth has no room");
        assert_eq!(many.section(19), sample(&["fd00::1"]).section(19));
        assert_eq!(many.section(18), sample(&["10.0.0.1"]).section(18));
    }

    /// Shared memory and verbs leave 18 bytes.
    #[test]
    fn one_host_of_either_family_fits_beside_all_other_networks() {
        let shm = [1; Network::SHM_BYTES];
        let verbs = [1; Network::VERBS_BYTES];
        let room = Contents::ROOM - shm.len() - verbs.len();
        let left = |hosts: &[&str]| {
            let section = sample(hosts).section(room);
            let contents = Contents::new(NAME).with(Network::Shm, &shm);
            let contents = contents.with(Network::Verbs, &verbs).with(Network::Tcp, &section);
            TcpAddress::parse(&contents.address().unwrap()).unwrap()
        };
        assert_eq!(left(&["2001:db8::1"]), sample(&["2001:db8::1"]));
        assert_eq!(left(&["2001:db8::1", "2001:db8::2"]), sample(&["2001:db8::1"]));
        assert_eq!(left(&["10.0.0.1", "2001:db8::2"]), sample(&["10.0.0.1"]));
        assert_eq!(left(&["fe80::1", "2001:db8::2"]), sample(&["2001:db8::2"]));
        assert_eq!(left(&["fe80::1", "fe80::2"]), sample(&["fe80::1"]));
        assert_eq!(left(&["169.254.1.1", "2001:db8::2"]), sample(&["2001:db8::2"]));
    }

    #[test]
    fn addresses_without_a_place_are_refused() {
        let address = |section: &[u8]| Contents::new(NAME).with(Network::Tcp, section).address();
        assert!(TcpAddress::parse(&address(b"\x01\x01\x04\x7f\0\0\x01").unwrap()).is_ok());
        for section in [
            &b""[..],
            b"\x01",
            b"\x01\x01",
            b"\0\0\x04\x7f\0\0\x01",
            b"\x01\x01\x05\x7f\0\0\x01",
            b"\x01\x01\x06\x7f\0\0\x01",
        ] {
            assert!(TcpAddress::parse(&address(section).unwrap()).is_err(), "{section:?}");
        }
        let elsewhere = [1; Network::SHM_BYTES];
        let elsewhere = Contents::new(NAME).with(Network::Shm, &elsewhere).address().unwrap();
        assert!(TcpAddress::parse(&elsewhere).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..=53)) {
            let address = Contents::new(NAME).with(Network::Tcp, &bytes).address().unwrap();
            let _ = TcpAddress::parse(&address);
        }
    }
}
