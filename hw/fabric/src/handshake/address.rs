//! The contents of the address of a device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tagmatch_device::bytes::array_at;
use tagmatch_device::{Address, DeviceError, Release};

use super::kind::MeetingKind;
use super::proof::Secret;

/// Magic, release, name, secret, port.
const FIXED: usize = 4 + 1 + 8 + 16 + 2;
const V4: u8 = 4;
const V6: u8 = 6;

/// Where a device accepts connections.
///
/// | bytes | contents |
/// |---|---|
/// | 0..4 | [`MeetingKind::magic`] |
/// | 4 | the [`Release`] |
/// | 5..13 | name: random; names the device's socket on its machine, where every user can read it |
/// | 13..29 | secret: random; a peer that connects proves that it knows the secret |
/// | 29..31 | TCP port, little-endian |
/// | 31.. | hosts: 4 or 6, and the 4 or 16 bytes of an address |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeetingAddress {
    pub(crate) name: [u8; 8],
    pub(crate) secret: Secret,
    /// The TCP port.
    pub(crate) port: u16,
    /// The addresses of the device's machine, in the order in which a peer tries them.
    pub(crate) hosts: Vec<IpAddr>,
}

impl MeetingAddress {
    /// Reads an address.
    pub(crate) fn parse(address: &Address, kind: &MeetingKind) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let bytes = address.as_bytes();
        if bytes.len() < FIXED || bytes[..4] != kind.magic {
            return Err(bad(kind.another_address));
        }
        Release::check(bytes[4])?;
        let name = array_at(bytes, 5);
        let secret = array_at(bytes, 13);
        let port = u16::from_le_bytes(array_at(bytes, 29));
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
        Ok(MeetingAddress { name, secret, port, hosts })
    }

    /// The address with these contents, with as many hosts as fit.
    pub(crate) fn address(&self, kind: &MeetingKind) -> Result<Address, DeviceError> {
        let mut bytes = kind.magic.to_vec();
        bytes.push(Release::OWN.byte());
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&self.secret);
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

    /// Name of the device's socket in the abstract namespace. `/proc/net/unix` shows the name to
    /// every user.
    pub(crate) fn socket_name(&self, kind: &MeetingKind) -> String {
        let name = String::from(kind.socket_prefix);
        self.name.iter().fold(name, |name, byte| format!("{name}{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::handshake::kind::KIND;

    fn sample(hosts: &[&str]) -> MeetingAddress {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        MeetingAddress { name: *b"01234567", secret: *b"0123456789abcdef", port: 4711, hosts }
    }

    #[test]
    fn round_trips() {
        let some = sample(&["10.1.2.3", "2001:db8::1", "127.0.0.1"]);
        let address = some.address(&KIND).unwrap();
        assert_eq!(MeetingAddress::parse(&address, &KIND).unwrap(), some);
    }

    #[test]
    fn the_name_of_the_socket_tells_nothing_of_the_secret() {
        let one = sample(&[]);
        let other = MeetingAddress { secret: [9; 16], ..one.clone() };
        assert_eq!(one.socket_name(&KIND), other.socket_name(&KIND));
        assert_eq!(one.socket_name(&KIND), "tagmatch-test-3031323334353637");
    }

    #[test]
    fn takes_as_many_hosts_as_fit() {
        let many = sample(&["2001:db8::1", "2001:db8::2", "10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let parsed = MeetingAddress::parse(&many.address(&KIND).unwrap(), &KIND).unwrap();
        assert_eq!(parsed.hosts, [&many.hosts[..1], &many.hosts[2..]].concat());
    }

    #[test]
    fn a_host_that_is_cut_off_is_refused() {
        let address = sample(&["10.1.2.3"]).address(&KIND).unwrap();
        let bytes = address.as_bytes();
        for length in 1..bytes.len() {
            let cut = Address::from_bytes(&bytes[..length]).unwrap();
            assert_eq!(MeetingAddress::parse(&cut, &KIND).is_ok(), length == FIXED, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let _ = MeetingAddress::parse(&Address::from_bytes(&bytes).unwrap(), &KIND);
            for (at, magic) in KIND.magic.iter().chain(&[Release::OWN.byte()]).enumerate().take(bytes.len()) {
                bytes[at] = *magic;
            }
            let _ = MeetingAddress::parse(&Address::from_bytes(&bytes).unwrap(), &KIND);
        }
    }
}
