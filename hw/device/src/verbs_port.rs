//! What an address says of the worker's port on InfiniBand or RoCE, and which ports reach each
//! other.
//!
//! Both workers of a pair find the same from both addresses, as they do for their route. The rules
//! are those of UCX (`uct_ib_iface_roce_is_reachable`), with one difference: UCX asks each side's
//! own table of routes, of which the other side knows nothing. Here each address says how far its
//! port reaches.

use crate::Network;
use crate::bytes::array_at;

/// The port of a worker on verbs: the first bytes of the address's part about verbs.
///
/// | bytes | content |
/// |---|---|
/// | 0 | link layer in two bits: 1 InfiniBand, 2 Ethernet; five bits of RoCE; the highest isn't the port's |
/// | 1..3 | on InfiniBand the LID, on Ethernet the rest of RoCE |
/// | 3..19 | GID |
///
/// What it says of RoCE are 21 bits: the VLAN in 12, then whether it is version 1, then in 8 the
/// [reach](RoceNetwork::reach). Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbsPort {
    /// Its kind of link, with what is known of its network.
    pub link: VerbsLink,
    /// Its GID.
    pub gid: [u8; 16],
}

/// The kind of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbsLink {
    /// InfiniBand. The first half of the GID names the subnet.
    InfiniBand {
        /// The number of the port in its subnet.
        lid: u16,
    },
    /// Ethernet.
    Ethernet(RoceNetwork),
}

/// The network behind a GID of RoCE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoceNetwork {
    /// Whether packets have the form of version 1, which can't be routed.
    pub is_version_1: bool,
    /// The VLAN whose tag packets have; 0 if they have none, or if that isn't known.
    pub vlan: u16,
    /// The leading bits of the GID that another one must have for the two to reach each other: 0 if
    /// a gateway leads further, or if that isn't known.
    pub reach: u8,
}

const LINK: u8 = 0b11;
const INFINIBAND: u8 = 1;
const ETHERNET: u8 = 2;
const VLAN: u32 = (1 << 12) - 1;

impl VerbsPort {
    /// The length in bytes.
    pub const BYTES: usize = 19;

    /// The bytes. The highest bit of the first one is clear.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        let (link, word) = match self.link {
            VerbsLink::InfiniBand { lid } => (INFINIBAND, u32::from(lid)),
            VerbsLink::Ethernet(RoceNetwork { is_version_1, vlan, reach }) => {
                let vlan = u32::from(vlan) & VLAN;
                (ETHERNET, vlan | u32::from(is_version_1) << 12 | u32::from(reach) << 13)
            }
        };
        let [low, high, rest, _] = word.to_le_bytes();
        let mut bytes = [0; Self::BYTES];
        bytes[..3].copy_from_slice(&[link | rest << 2, low, high]);
        bytes[3..].copy_from_slice(&self.gid);
        bytes
    }

    /// The port that an address's part about verbs begins with; `None` if its link is of no known
    /// kind.
    pub fn parse(bytes: &[u8; Network::VERBS_BYTES]) -> Option<Self> {
        let rest = bytes[0] >> 2 & 0b1_1111;
        let word = u32::from_le_bytes([bytes[1], bytes[2], rest, 0]);
        let [low, high, ..] = word.to_le_bytes();
        let link = match bytes[0] & LINK {
            INFINIBAND if rest == 0 => {
                VerbsLink::InfiniBand { lid: u16::from_le_bytes([low, high]) }
            }
            ETHERNET => VerbsLink::Ethernet(RoceNetwork {
                is_version_1: word >> 12 & 1 != 0,
                vlan: u16::try_from(word & VLAN).unwrap_or(0),
                reach: u8::try_from(word >> 13).unwrap_or(0),
            }),
            _ => return None,
        };
        Some(VerbsPort { link, gid: array_at(bytes, 3) })
    }

    /// Why this port and another one don't reach each other; `None` if they do, as far as is known.
    /// The same whichever of the two asks.
    pub fn apart(&self, other: &Self) -> Option<&'static str> {
        let (one, two) = match (self.link, other.link) {
            (VerbsLink::Ethernet(one), VerbsLink::Ethernet(two)) => (one, two),
            (VerbsLink::InfiniBand { .. }, VerbsLink::InfiniBand { .. }) => {
                let is_one_subnet = self.gid[..8] == other.gid[..8];
                return (!is_one_subnet)
                    .then_some("the two ports are in different InfiniBand subnets");
            }
            _ => return Some("one of the two ports is on InfiniBand, the other on Ethernet"),
        };
        if one.is_version_1 != two.is_version_1 {
            return Some("one of the two ports uses version 1 of RoCE, the other version 2");
        }
        if self.is_ipv4() != other.is_ipv4() {
            return Some("one of the two ports has an IPv4 address, the other an IPv6 address");
        }
        if self.is_link_local() != other.is_link_local() {
            return Some("only one of the two ports has a link-local address");
        }
        let is_routable = !one.is_version_1 && !self.is_link_local();
        if is_routable && (one.reach, two.reach) == (0, 0) {
            return None;
        }
        if one.vlan != two.vlan && one.vlan != 0 && two.vlan != 0 {
            return Some("the two ports are in different VLANs");
        }
        let common = u128::from_be_bytes(self.gid) ^ u128::from_be_bytes(other.gid);
        let is_within = common.leading_zeros() >= u32::from(one.reach.max(two.reach)).min(128);
        (!is_within).then_some("the two ports are in different IP networks without a gateway")
    }

    fn is_ipv4(&self) -> bool {
        self.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    fn is_link_local(&self) -> bool {
        match self.gid {
            [0xfe, second, ..] => second & 0xc0 == 0x80,
            [.., 169, 254, _, _] => self.is_ipv4(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn roce(address: &str, network: RoceNetwork) -> VerbsPort {
        let gid = address.parse::<Ipv6Addr>().unwrap().octets();
        VerbsPort { link: VerbsLink::Ethernet(network), gid }
    }

    fn infiniband(address: &str) -> VerbsPort {
        VerbsPort {
            link: VerbsLink::InfiniBand { lid: 7 },
            ..roce(address, RoceNetwork::default())
        }
    }

    fn within(reach: u8) -> RoceNetwork {
        RoceNetwork { reach, ..RoceNetwork::default() }
    }

    #[test]
    fn ports_reach_each_other_by_kind_family_prefix_and_vlan() {
        let v1 = |network| RoceNetwork { is_version_1: true, ..network };
        let tagged = |vlan, network| RoceNetwork { vlan, ..network };
        let here = "::ffff:10.1.0.1";
        let beside = "::ffff:10.1.0.2";
        let beyond = "::ffff:10.2.0.2";
        let cases = [
            (infiniband("fe80::1"), infiniband("fe80::2"), None),
            (infiniband("fe80::1"), infiniband("fec0::2"), Some("subnets")),
            (infiniband("fe80::1"), roce("fe80::2", within(64)), Some("InfiniBand")),
            (roce(here, within(112)), roce(beside, within(112)), None),
            (roce(here, within(112)), roce(beyond, within(112)), Some("IP networks")),
            // A gateway that only one of them has leads there, and not back.
            (roce(here, within(0)), roce(beyond, within(112)), Some("IP networks")),
            (roce(here, within(0)), roce(beyond, within(0)), None),
            (roce(here, within(0)), roce(beside, within(112)), None),
            // Who has the longer prefix decides.
            (roce(here, within(104)), roce(beyond, within(112)), Some("IP networks")),
            (roce(here, within(104)), roce(beyond, within(104)), None),
            (roce(here, v1(within(112))), roce(beside, within(112)), Some("version")),
            (roce(here, v1(within(112))), roce(beside, v1(within(112))), None),
            (roce(here, within(0)), roce("2001:db8::1", within(0)), Some("IPv4")),
            (roce("fe80::1", within(0)), roce("2001:db8::1", within(0)), Some("link-local")),
            (roce("::ffff:169.254.0.1", within(0)), roce(here, within(0)), Some("link-local")),
            (roce("fe80::1", within(64)), roce("fe80::2", within(64)), None),
            (roce(here, tagged(5, within(112))), roce(beside, tagged(5, within(112))), None),
            (
                roce(here, tagged(5, within(112))),
                roce(beside, tagged(6, within(112))),
                Some("VLANs"),
            ),
            (
                roce("fe80::1", tagged(5, within(64))),
                roce("fe80::2", tagged(6, within(64))),
                Some("VLANs"),
            ),
            // A switch may give packets without a tag to any VLAN.
            (roce(here, tagged(5, within(112))), roce(beside, within(112)), None),
            (roce(here, tagged(5, within(0))), roce(beyond, tagged(6, within(0))), None),
        ];
        for (one, other, expected) in cases {
            for (one, other) in [(one, other), (other, one)] {
                let why = one.apart(&other);
                assert_eq!(why.is_some(), expected.is_some(), "{one:?} {other:?}: {why:?}");
                assert!(why.is_none_or(|why| why.contains(expected.unwrap())), "{why:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_port_round_trips_and_both_sides_find_the_same(
            one in any::<[u8; VerbsPort::BYTES]>(),
            other in any::<[u8; VerbsPort::BYTES]>(),
        ) {
            let parse = |bytes: [u8; VerbsPort::BYTES]| {
                let mut section = [0; Network::VERBS_BYTES];
                section[..VerbsPort::BYTES].copy_from_slice(&bytes);
                VerbsPort::parse(&section)
            };
            let one = parse(one);
            let other = parse(other);
            for port in one.iter().chain(&other) {
                prop_assert_eq!(parse(port.emit()), Some(*port));
                prop_assert_eq!(port.apart(port), None);
            }
            if let (Some(one), Some(other)) = (one, other) {
                prop_assert_eq!(one.apart(&other), other.apart(&one));
            }
        }
    }
}
