//! Choosing one of a port's GIDs.
//!
//! On RoCE a port has a GID for each address of its network interface and each version of RoCE, in
//! no defined order. So the choice is made by type and address, never by position.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;

use tagmatch_device::DeviceError;
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
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// How well a GID suits a RoCE port; less is better. RoCE version 2 can be routed. Most networks
/// have IPv4 addresses. Link-local addresses are valid on one link only.
fn rank(kind: sys::ibv_gid_type, gid: Gid) -> u32 {
    let version = u32::from(kind != sys::IBV_GID_TYPE_ROCE_V2) * 10;
    let address = match gid.address().to_ipv4_mapped() {
        Some(ipv4) if ipv4.is_link_local() => 2,
        Some(_) => 0,
        None if gid.address().is_unicast_link_local() => 3,
        None => 1,
    };
    version + address
}

/// Chooses a GID from a port's table. `wanted` names a row.
pub(super) fn choose(
    context: &Context,
    port: u8,
    attr: &sys::ibv_port_attr,
    wanted: Option<u8>,
) -> Result<Chosen, DeviceError> {
    let count = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let rows = (0..count).filter(|index| wanted.is_none_or(|wanted| wanted == *index));
    let rows = rows.filter_map(|index| {
        let entry = context.gid_entry(port, u32::from(index))?;
        let gid = Gid::of(&entry);
        (gid.0 != [0; 16]).then_some(Chosen { index, gid, kind: entry.gid_type })
    });
    let is_ethernet = attr.link_layer == sys::IBV_LINK_LAYER_ETHERNET;
    let best = rows.min_by_key(|row| if is_ethernet { rank(row.kind, row.gid) } else { 0 });
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

/// Whether a datagram on RoCE was sent from `gid`, by the 40 bytes before it. They hold an IPv6
/// header, or an IPv4 header in their last 20 bytes, in which case the first 20 are undefined. The
/// IPv4 checksum can't tell which it is: soft-RoCE omits it within one machine. So the form of
/// `gid` decides. Another sender could pass as this one only if our own address looked like its
/// header.
pub(super) fn is_from(header: &[u8; 40], gid: Gid) -> bool {
    let ipv4 = &header[20..];
    match gid.address().to_ipv4_mapped() {
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

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    #[test]
    fn routable_ipv4_of_version_2_is_best() {
        let (v1, v2) = (sys::IBV_GID_TYPE_ROCE_V1, sys::IBV_GID_TYPE_ROCE_V2);
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
        assert!(is_from(&ipv6, gid("fe80::2")) && !is_from(&ipv6, gid("fe80::3")));
        assert!(!is_from(&ipv6, gid("::ffff:10.77.0.1")));
        let mut ipv4 = [0u8; 40];
        // As soft-RoCE delivers it.
        ipv4[20..].copy_from_slice(&[
            0x45, 0, 0, 148, 48, 108, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
        ]);
        assert!(is_from(&ipv4, gid("::ffff:10.77.0.1")));
        assert!(!is_from(&ipv4, gid("::ffff:10.77.0.2")) && !is_from(&ipv4, gid("fe80::2")));
        ipv4[29] = 6;
        assert!(!is_from(&ipv4, gid("::ffff:10.77.0.1")), "that is TCP");
    }
}
