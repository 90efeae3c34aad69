//! The contents of a TCP device's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tagmatch_device::bytes::array_at;
use tagmatch_device::{Address, DeviceError};

/// The first bytes of each address and of each connection.
pub(crate) const MAGIC: [u8; 4] = *b"TMtp";
/// Version of addresses and of the protocol. Every change of either increases it.
pub(crate) const VERSION: u8 = 1;
/// Magic, version, name, port.
const FIXED: usize = 4 + 1 + 8 + 2;
const V4: u8 = 4;
const V6: u8 = 6;

/// Where a device accepts connections. The secret is not in the address.
///
/// | bytes | contents |
/// |---|---|
/// | 0..4 | `TMtp` |
/// | 4 | version |
/// | 5..13 | name: random; tells the worker from others that listened on the same port before |
/// | 13..15 | port, little-endian |
/// | 15.. | hosts: 4 or 6, and the 4 or 16 bytes of an IP address |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpAddress {
    pub(crate) name: [u8; 8],
    pub(crate) port: u16,
    /// The addresses of the device's machine, in the order in which a peer tries them.
    pub(crate) hosts: Vec<IpAddr>,
}

impl TcpAddress {
    /// Reads an address.
    pub(crate) fn parse(address: &Address) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let bytes = address.as_bytes();
        if bytes.len() < FIXED || bytes[..4] != MAGIC {
            return Err(bad("not the address of a TCP device"));
        }
        if bytes[4] != VERSION {
            return Err(bad("the worker speaks another version"));
        }
        let (name, port) = (array_at(bytes, 5), u16::from_le_bytes(array_at(bytes, 13)));
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
        if hosts.is_empty() || port == 0 {
            return Err(bad("an address without a host or a port"));
        }
        Ok(TcpAddress { name, port, hosts })
    }

    /// The address with these contents, with as many hosts as fit.
    pub(crate) fn address(&self) -> Result<Address, DeviceError> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&self.port.to_le_bytes());
        for host in &self.hosts {
            let entry = match host {
                IpAddr::V4(host) => [&[V4][..], &host.octets()].concat(),
                IpAddr::V6(host) => [&[V6][..], &host.octets()].concat(),
            };
            if bytes.len() + entry.len() <= Address::MAX {
                bytes.extend_from_slice(&entry);
            }
        }
        Address::from_bytes(&bytes).map_err(|_| DeviceError::BadAddress { why: "its length" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(hosts: &[&str]) -> TcpAddress {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        TcpAddress { name: *b"01234567", port: 4711, hosts }
    }

    #[test]
    fn hosts_of_both_families_round_trip() {
        for hosts in [&["127.0.0.1"][..], &["10.0.0.1", "fd00::1"], &["::1"]] {
            let sample = sample(hosts);
            assert_eq!(TcpAddress::parse(&sample.address().unwrap()).unwrap(), sample);
        }
    }

    #[test]
    fn hosts_that_do_not_fit_are_left_out() {
        let many = sample(&["fd00::1", "fd00::2", "fd00::3", "10.0.0.1"]);
        let parsed = TcpAddress::parse(&many.address().unwrap()).unwrap();
        assert_eq!(parsed, sample(&["fd00::1", "fd00::2", "10.0.0.1"]));
    }

    #[test]
    fn addresses_without_a_place_are_refused() {
        for bytes in [
            &b"TMtp"[..],
            b"TMux\x01012345671104\x7f\0\0\x01",
            b"TMtp\x0201234567\x01\x01\x04\x7f\0\0\x01",
            b"TMtp\x0101234567\x01\x01",
            b"TMtp\x0101234567\0\0\x04\x7f\0\0\x01",
            b"TMtp\x0101234567\x01\x01\x05\x7f\0\0\x01",
            b"TMtp\x0101234567\x01\x01\x06\x7f\0\0\x01",
        ] {
            assert!(TcpAddress::parse(&Address::from_bytes(bytes).unwrap()).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_refused(bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let mut bytes = bytes;
            let _ = TcpAddress::parse(&Address::from_bytes(&bytes).unwrap());
            let magic = bytes.len().min(5);
            bytes[..magic].copy_from_slice(&b"TMtp\x01"[..magic]);
            let _ = TcpAddress::parse(&Address::from_bytes(&bytes).unwrap());
        }
    }
}
