//! What is in the address of a UCX device.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Address, DeviceError};

const MAGIC: [u8; 4] = *b"TMux";
/// Of addresses and greetings alike.
pub(super) const VERSION: u8 = 1;
/// Magic, version, random bytes, port.
const FIXED: usize = 4 + 1 + 16 + 2;
const V4: u8 = 4;
const V6: u8 = 6;

/// Random bytes that name a device. Who doesn't know them gets no answer from it.
pub(super) type Nonce = [u8; 16];

/// Where a device takes greetings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UcxAddress {
    pub(super) nonce: Nonce,
    /// Of TCP.
    pub(super) port: u16,
    /// To be tried in this order.
    pub(super) hosts: Vec<IpAddr>,
}

impl UcxAddress {
    /// Reads an address.
    pub(super) fn parse(address: &Address) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let bytes = address.as_bytes();
        if bytes.len() < FIXED || bytes[..4] != MAGIC {
            return Err(bad("not the address of a UCX device"));
        }
        if bytes[4] != VERSION {
            return Err(bad("the worker speaks another version"));
        }
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&bytes[5..21]);
        let port = u16::from_le_bytes([bytes[21], bytes[22]]);
        let mut hosts = Vec::new();
        let mut rest = &bytes[FIXED..];
        while let Some((kind, after)) = rest.split_first() {
            let host = match *kind {
                V4 => after.first_chunk::<4>().map(|b| (IpAddr::from(Ipv4Addr::from(*b)), 4)),
                V6 => after.first_chunk::<16>().map(|b| (IpAddr::from(Ipv6Addr::from(*b)), 16)),
                _ => None,
            };
            let (host, length) = host.ok_or(bad("a host that is none"))?;
            hosts.push(host);
            rest = &after[length..];
        }
        Ok(UcxAddress { nonce, port, hosts })
    }

    /// The address that says so, with as many hosts as fit.
    pub(super) fn address(&self) -> Result<Address, DeviceError> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&self.port.to_le_bytes());
        for host in &self.hosts {
            let mut entry = Vec::new();
            match host {
                IpAddr::V4(host) => {
                    entry.push(V4);
                    entry.extend_from_slice(&host.octets());
                }
                IpAddr::V6(host) => {
                    entry.push(V6);
                    entry.extend_from_slice(&host.octets());
                }
            }
            if bytes.len() + entry.len() <= Address::MAX {
                bytes.extend_from_slice(&entry);
            }
        }
        Address::from_bytes(&bytes).map_err(|_| DeviceError::BadAddress { why: "its length" })
    }

    /// Name of the device's socket in the abstract namespace.
    pub(super) fn socket_name(&self) -> String {
        let mut name = String::from("tagmatch-ucx-");
        for byte in self.nonce {
            // Writing to a string can't fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(hosts: &[&str]) -> UcxAddress {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        UcxAddress { nonce: *b"0123456789abcdef", port: 4711, hosts }
    }

    #[test]
    fn round_trips() {
        let some = sample(&["10.1.2.3", "2001:db8::1", "127.0.0.1"]);
        let address = some.address().unwrap();
        assert_eq!(UcxAddress::parse(&address).unwrap(), some);
        assert_eq!(some.socket_name().len(), "tagmatch-ucx-".len() + 32);
    }

    #[test]
    fn takes_as_many_hosts_as_fit() {
        let many = sample(&["2001:db8::1", "2001:db8::2", "2001:db8::3", "10.0.0.1"]);
        let parsed = UcxAddress::parse(&many.address().unwrap()).unwrap();
        assert_eq!(parsed.hosts, [many.hosts[0], many.hosts[1], many.hosts[3]]);
    }

    #[test]
    fn a_host_that_is_cut_off_is_refused() {
        let address = sample(&["10.1.2.3"]).address().unwrap();
        let bytes = address.as_bytes();
        for length in 1..bytes.len() {
            let cut = Address::from_bytes(&bytes[..length]).unwrap();
            assert_eq!(UcxAddress::parse(&cut).is_ok(), length == FIXED, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let _ = UcxAddress::parse(&Address::from_bytes(&bytes).unwrap());
            for (at, magic) in MAGIC.iter().chain(&[VERSION]).enumerate().take(bytes.len()) {
                bytes[at] = *magic;
            }
            let _ = UcxAddress::parse(&Address::from_bytes(&bytes).unwrap());
        }
    }
}
