//! Choosing one of a port's GIDs.
//!
//! On RoCE a port has a GID for each address of its network interface and each version of RoCE, in
//! no defined order. So the choice is made by type and address, never by position.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use tagmatch_device::DeviceError;
use tagmatch_device::verbs_port::RoceNetwork;
use tagmatch_os::routes;
use tagmatch_rdma_core_sys as sys;

use super::context::Context;

/// A GID: the identifier of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// A row of the GID table, and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) kind: sys::ibv_gid_type,
    /// The network behind it, on RoCE.
    pub(super) network: RoceNetwork,
}

/// A network of ports that reach each other. The same on each machine, and in the same order: the
/// networks of the better GIDs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoceOrder {
    rank: u32,
    vlan: u16,
    /// The part of the GID that all have in common.
    prefix: [u8; 16],
    reach: u8,
}

impl Chosen {
    /// The network behind a GID of RoCE.
    pub(super) fn order(&self) -> RoceOrder {
        let RoceNetwork { vlan, reach, .. } = self.network;
        let kept = u128::MAX.checked_shl(128 - u32::from(reach.min(128))).unwrap_or(0);
        let prefix = (u128::from_be_bytes(self.gid.0) & kept).to_be_bytes();
        let rank = rank(self.kind, self.gid);
        // VLANs that a gateway connects are one network.
        let vlan = if reach == 0 && self.is_routable() { 0 } else { vlan };
        RoceOrder { rank, vlan, prefix, reach }
    }

    fn is_routable(&self) -> bool {
        self.kind == sys::IBV_GID_TYPE_ROCE_V2 && !self.gid.is_link_local()
    }

    /// Finds out how far the network goes, by the network interface of the GID; 0 is none.
    fn with_network(mut self, interface: u32) -> Self {
        let is_version_1 = self.kind != sys::IBV_GID_TYPE_ROCE_V2;
        self.network = RoceNetwork { is_version_1, ..RoceNetwork::default() };
        if interface != 0 {
            self.network.vlan = routes::vlan(interface).unwrap_or(0);
            self.network.reach = self.reach(interface);
        }
        self
    }

    fn reach(&self, interface: u32) -> u8 {
        let own = self.gid.ip_address();
        let mut routes = routes::of_interface(interface, own).unwrap_or_default();
        if !self.is_routable() {
            // What a gateway passes on has another form, or none.
            routes.retain(|route| !route.has_gateway);
        }
        match (routes::reach(own, &routes), own) {
            (_, IpAddr::V6(_)) if self.gid.is_link_local() => 64,
            (0, _) => 0,
            (bits, IpAddr::V4(_)) => 96 + bits,
            (bits, IpAddr::V6(_)) => bits,
        }
    }
}

impl fmt::Display for RoceOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.rank < VERSION_1 { 2 } else { 1 };
        write!(f, "RoCE v{version}")?;
        if self.vlan != 0 {
            write!(f, ", VLAN {}", self.vlan)?;
        }
        match self.reach {
            0 => Ok(()),
            reach => match Gid(self.prefix).ip_address() {
                IpAddr::V4(network) => write!(f, ", {network}/{}", reach.saturating_sub(96)),
                IpAddr::V6(network) => write!(f, ", {network}/{reach}"),
            },
        }
    }
}

impl Gid {
    pub(super) fn of(entry: &sys::ibv_gid_entry) -> Self {
        // SAFETY: every form of the union is plain bytes.
        Gid(unsafe { entry.gid.raw })
    }

    /// The prefix of its subnet.
    pub(super) fn subnet(self) -> u64 {
        let [high @ .., _, _, _, _, _, _, _, _] = self.0;
        u64::from_be_bytes(high)
    }

    pub(super) fn raw(self) -> sys::ibv_gid {
        sys::ibv_gid { raw: self.0 }
    }

    fn address(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    fn ip_address(self) -> IpAddr {
        self.address().to_canonical()
    }

    fn is_link_local(self) -> bool {
        match self.ip_address() {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// How well a GID suits a RoCE port; less is better. RoCE version 2 can be routed. Most networks
/// have IPv4 addresses. Link-local addresses are valid on one link only.
fn rank(kind: sys::ibv_gid_type, gid: Gid) -> u32 {
    let version = u32::from(kind != sys::IBV_GID_TYPE_ROCE_V2) * VERSION_1;
    let address = match (gid.ip_address(), gid.is_link_local()) {
        (IpAddr::V4(_), true) => 2,
        (IpAddr::V4(_), false) => 0,
        (IpAddr::V6(_), true) => 3,
        (IpAddr::V6(_), false) => 1,
    };
    version + address
}

/// What version 1 adds to a rank.
const VERSION_1: u32 = 10;

/// Chooses a GID from a port's table. `wanted` names a row.
pub(super) fn choose(
    context: &Context,
    port: u8,
    attr: &sys::ibv_port_attr,
    wanted: Option<u8>,
) -> Result<Chosen, DeviceError> {
    let count = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let rows = (0..count).filter(|index| wanted.is_none_or(|wanted| wanted == *index));
    let is_ethernet = attr.link_layer == sys::IBV_LINK_LAYER_ETHERNET;
    if is_ethernet && context.has_old_library() {
        return Err(DeviceError::System {
            call: "ibv_query_gid_ex",
            source: io::Error::from_raw_os_error(libc::ENOSYS),
            hint: "; libibverbs is older than rdma-core 32 and doesn't tell the versions of RoCE: \
                   install a newer one",
        });
    }
    let rows = rows.filter_map(|index| {
        let entry = context.gid_entry(port, u32::from(index))?;
        let gid = Gid::of(&entry);
        let network = RoceNetwork::default();
        let row = Chosen { index, gid, kind: entry.gid_type, network };
        (gid.0 != [0; 16]).then_some((row, entry.ndev_ifindex))
    });
    let mut rows: Vec<_> = rows.collect();
    let best = if is_ethernet {
        let rank = |row: &Chosen| rank(row.kind, row.gid);
        let best = rows.iter().map(|(row, _)| rank(row)).min();
        rows.retain(|(row, _)| Some(rank(row)) == best);
        let rows = rows.into_iter().map(|(row, interface)| row.with_network(interface));
        rows.min_by_key(Chosen::order)
    } else {
        rows.first().map(|(row, _)| *row)
    };
    best.ok_or(DeviceError::System {
        call: "ibv_query_gid_ex",
        source: io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
        hint: match wanted {
            Some(_) => "; that row of the port's GID table is empty",
            None => "; the port has no address (ip addr add ... dev ...)",
        },
    })
}

/// Where a port's table has this GID now: at its old index if it is still there.
pub(super) fn index_of(
    context: &Context,
    port: u8,
    attr: &sys::ibv_port_attr,
    known: &Chosen,
) -> Option<u8> {
    let count = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let is_there = |index: &u8| {
        let entry = context.gid_entry(port, u32::from(*index));
        entry.is_some_and(|entry| Gid::of(&entry) == known.gid && entry.gid_type == known.kind)
    };
    [known.index].into_iter().chain(0..count).find(is_there)
}

/// Whether a datagram on RoCE was sent from `gid`, by the 40 bytes before it. They hold a header of
/// IPv6, or an IPv4 header in their last 20 bytes, in which case the first 20 are undefined. The
/// IPv4 checksum can't tell which it is: soft-RoCE omits it within one machine. So the form of
/// `gid` and the version decide: packets of version 1 have the header of InfiniBand, of IPv6's
/// form, whatever the GID is. Another sender could pass as this one only if our own address looked
/// like its header.
pub(super) fn is_from(header: &[u8; 40], gid: Gid, is_version_1: bool) -> bool {
    let ipv4 = &header[20..];
    match gid.address().to_ipv4_mapped().filter(|_| !is_version_1) {
        Some(address) => {
            let is_udp = ipv4[0] == 0x45 && ipv4[9] == 17;
            is_udp && ipv4[12..16] == address.octets()
        }
        None => header[0] >> 4 == 6 && header[8..24] == gid.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: sys::ibv_gid_type = sys::IBV_GID_TYPE_ROCE_V2;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    #[test]
    fn routable_ipv4_of_version_2_is_best() {
        let v1 = sys::IBV_GID_TYPE_ROCE_V1;
        let v2 = sys::IBV_GID_TYPE_ROCE_V2;
        let ordered = [
            rank(v2, gid("::ffff:10.77.0.1")),
            rank(v2, gid("2001:db8::1")),
            rank(v2, gid("::ffff:169.254.3.4")),
            rank(v2, gid("fe80::1")),
            rank(v1, gid("::ffff:10.77.0.1")),
            rank(v1, gid("fe80::1")),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b), "{ordered:?}");
    }

    #[test]
    fn the_sender_is_read_from_either_header() {
        let mut ipv6 = [0u8; 40];
        ipv6[0] = 0x60;
        ipv6[8..24].copy_from_slice(&gid("fe80::2").0);
        assert!(is_from(&ipv6, gid("fe80::2"), false) && !is_from(&ipv6, gid("fe80::3"), false));
        assert!(!is_from(&ipv6, gid("::ffff:10.77.0.1"), false));
        let mut ipv4 = [0u8; 40];
        // As soft-RoCE delivers it.
        ipv4[20..].copy_from_slice(&[
            0x45, 0, 0, 148, 48, 108, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
        ]);
        assert!(is_from(&ipv4, gid("::ffff:10.77.0.1"), false));
        assert!(
            !is_from(&ipv4, gid("::ffff:10.77.0.2"), false)
                && !is_from(&ipv4, gid("fe80::2"), false)
        );
        // Of version 1.
        let mut global = [0u8; 40];
        global[0] = 0x60;
        global[8..24].copy_from_slice(&gid("::ffff:10.77.0.1").0);
        assert!(is_from(&global, gid("::ffff:10.77.0.1"), true));
        assert!(!is_from(&global, gid("::ffff:10.77.0.2"), true));
        assert!(!is_from(&global, gid("::ffff:10.77.0.1"), false));
        assert!(!is_from(&ipv4, gid("::ffff:10.77.0.1"), true));
        ipv4[29] = 6;
        assert!(!is_from(&ipv4, gid("::ffff:10.77.0.1"), false), "that is TCP");
    }

    #[test]
    fn gids_of_one_network_are_in_one_place_of_the_order() {
        let row = |text: &str, kind, vlan, reach| {
            let network = RoceNetwork { is_version_1: kind != V2, vlan, reach };
            Chosen { index: 0, gid: gid(text), kind, network }
        };
        let order = |text: &str, reach| row(text, V2, 0, reach).order();
        assert_eq!(order("::ffff:10.1.0.1", 112), order("::ffff:10.1.7.9", 112));
        assert_eq!(order("::ffff:10.1.0.1", 0), order("::ffff:10.2.0.1", 0));
        let networks = [
            order("::ffff:10.1.0.1", 0),
            order("::ffff:10.1.0.1", 112),
            order("::ffff:10.2.0.1", 112),
            row("::ffff:10.1.0.1", V2, 5, 112).order(),
            order("2001:db8::1", 64),
            order("fe80::1", 64),
            row("::ffff:10.1.0.1", sys::IBV_GID_TYPE_ROCE_V1, 0, 112).order(),
        ];
        assert!(networks.is_sorted_by(|one, other| one < other), "{networks:?}");
        let shown = networks.map(|network| network.to_string());
        let expected = [
            "RoCE v2",
            "RoCE v2, 10.1.0.0/16",
            "RoCE v2, 10.2.0.0/16",
            "RoCE v2, VLAN 5, 10.1.0.0/16",
            "RoCE v2, 2001:db8::/64",
            "RoCE v2, fe80::/64",
            "RoCE v1, 10.1.0.0/16",
        ];
        assert_eq!(shown, expected);
        // VLANs that a gateway connects are one network.
        let routed = |vlan| row("::ffff:10.1.0.1", V2, vlan, 0).order();
        assert_eq!(routed(5), routed(6));
        assert_ne!(row("fe80::1", V2, 5, 0).order(), row("fe80::1", V2, 6, 0).order());
    }
}
