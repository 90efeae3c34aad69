//! The names of a port in its table of GIDs, and the route that a datagram has taken.

use std::net::{IpAddr, Ipv6Addr};

/// Rows of a port's table.
pub(crate) const GIDS: usize = 8;
/// Bytes of a route, before the data of a datagram.
pub(crate) const ROUTE_BYTES: usize = 40;

/// `enum ib_uverbs_gid_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum GidKind {
    InfiniBand = 0,
    RoceV1 = 1,
    RoceV2 = 2,
}

impl GidKind {
    /// What sysfs says of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GidKind::InfiniBand | GidKind::RoceV1 => "IB/RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
        }
    }
}

/// A row of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortGid {
    pub(crate) kind: GidKind,
    pub(crate) gid: [u8; 16],
}

/// A table: rows may be empty.
pub(crate) type GidTable = [Option<PortGid>; GIDS];

/// An IPv4 address as a GID.
pub(crate) fn of_ipv4(address: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address);
    gid
}

/// An address as a GID.
pub(crate) fn of_address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => of_ipv4(address.octets()),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address that a GID is.
pub(crate) fn to_address(gid: &[u8; 16]) -> IpAddr {
    Ipv6Addr::from(*gid).to_canonical()
}

/// The IPv4 address that a GID is.
fn ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let address = Ipv6Addr::from(*gid).to_ipv4_mapped()?;
    Some(address.octets())
}

/// From where to where a datagram has gone, if its packet says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) from: PortGid,
    pub(crate) to: [u8; 16],
}

impl Route {
    /// The kind of the packet, as a completion says it: GRH is 0, IPv6 1 and IPv4 2; 8: over UDP.
    pub(crate) fn packet(&self) -> u8 {
        match self.from.kind {
            GidKind::InfiniBand | GidKind::RoceV1 => 0,
            GidKind::RoceV2 if ipv4(&self.from.gid).is_some() => 8 | 2,
            GidKind::RoceV2 => 8 | 1,
        }
    }

    /// The header as a receiver gets it: a GRH, or for RoCE version 2 the header of IPv6, or of
    /// IPv4 in the second half (`ib_get_gids_from_rdma_hdr`).
    pub(crate) fn bytes(&self) -> [u8; ROUTE_BYTES] {
        const UDP: u8 = 17;
        const GRH_NEXT: u8 = 0x1b;
        let is_v2 = self.from.kind == GidKind::RoceV2;
        let mut bytes = [0; ROUTE_BYTES];
        if is_v2 && let (Some(from), Some(to)) = (ipv4(&self.from.gid), ipv4(&self.to)) {
            let header = &mut bytes[20..];
            (header[0], header[8], header[9]) = (0x45, 64, UDP);
            header[12..16].copy_from_slice(&from);
            header[16..].copy_from_slice(&to);
            return bytes;
        }
        (bytes[0], bytes[6], bytes[7]) = (0x60, if is_v2 { UDP } else { GRH_NEXT }, 64);
        bytes[8..24].copy_from_slice(&self.from.gid);
        bytes[24..].copy_from_slice(&self.to);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMA_NETWORK_ROCE_V1 has a GRH whatever its GIDs are.
    #[test]
    fn a_route_is_an_ipv4_header_for_version_two_alone() {
        let one = of_ipv4([10, 0, 0, 1]);
        let other = of_ipv4([10, 0, 0, 2]);
        let bytes = |kind, gid| Route { from: PortGid { kind, gid }, to: other }.bytes();
        let v2 = bytes(GidKind::RoceV2, one);
        assert_eq!((&v2[..20], v2[20], v2[29]), (&[0; 20][..], 0x45, 17));
        assert_eq!((&v2[32..36], &v2[36..]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        for (kind, gid) in [(GidKind::RoceV1, one), (GidKind::InfiniBand, [0xfe; 16])] {
            let bytes = bytes(kind, gid);
            assert_eq!((bytes[0], &bytes[8..24], &bytes[24..]), (0x60, &gid[..], &other[..]));
        }
        assert_eq!(bytes(GidKind::RoceV2, [0xfe; 16])[6], 17);
        let packet = |kind, gid| Route { from: PortGid { kind, gid }, to: other }.packet();
        let v1 = GidKind::RoceV1;
        let v2 = GidKind::RoceV2;
        assert_eq!([packet(v1, one), packet(v2, one), packet(v2, [0xfe; 16])], [0, 10, 9]);
    }
}
