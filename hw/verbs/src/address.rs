//! What the address of a worker on verbs says.

use tagmatch_device::contents::{Contents, Name};
use tagmatch_device::verbs_port::{RoceNetwork, VerbsLink, VerbsPort};
use tagmatch_device::{Address, DeviceError, Network};
use tagmatch_rdma_core_sys as sys;

use super::gid::Gid;
use super::partition::is_key;

/// The worker's name, and the part of its [`Address`] about verbs:
///
/// | bytes | content |
/// |---|---|
/// | 0..19 | the port ([`VerbsPort`]); plus 0x80 in the first byte if the worker's NIC matches tags |
/// | 19..22 | number of the datagram queue pair |
/// | 22..25 | key of the datagram queue pair (Q_Key): a random byte, and the partition key (P_Key) |
///
/// Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VerbsAddress {
    pub(super) link_layer: u8,
    pub(super) lid: u16,
    pub(super) gid: Gid,
    /// The network behind the GID, on Ethernet.
    pub(super) roce: RoceNetwork,
    pub(super) qp_num: u32,
    /// Made by [`qkey`].
    pub(super) qkey: u32,
    /// The worker's name.
    pub(super) name: Name,
    /// Whether the worker's NIC matches tags. Both sides of a connection have two queue pairs then.
    pub(super) matches_tags: bool,
}

const MATCHES_TAGS: u8 = 0x80;
/// Version of the handshake and of the messages. It goes up with every change to either.
pub(super) const VERSION: u8 = 3;
/// Queue pair numbers and packet sequence numbers have 24 bits.
pub(super) const BITS_24: u32 = (1 << 24) - 1;

/// The key of a worker's datagram queue pair. It has 24 bits, so the highest bit, which privileged
/// keys have, is clear. The partition key is part of it because an address has no room to spare.
pub(super) fn qkey(partition_key: u16, random: u8) -> u32 {
    u32::from(partition_key) << 8 | u32::from(random)
}

impl VerbsAddress {
    /// The key of the partition that the worker is in.
    pub(super) fn partition_key(&self) -> u16 {
        let [_, low, high, _] = self.qkey.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// The part of the address.
    pub(super) fn section(&self) -> [u8; Network::VERBS_BYTES] {
        let mut bytes = [0; Network::VERBS_BYTES];
        let link = match self.link_layer {
            sys::IBV_LINK_LAYER_ETHERNET => VerbsLink::Ethernet(self.roce),
            _ => VerbsLink::InfiniBand { lid: self.lid },
        };
        let port = VerbsPort { link, gid: self.gid.0 }.emit();
        bytes[..VerbsPort::BYTES].copy_from_slice(&port);
        bytes[0] |= if self.matches_tags { MATCHES_TAGS } else { 0 };
        bytes[19..22].copy_from_slice(&self.qp_num.to_le_bytes()[..3]);
        bytes[22..25].copy_from_slice(&self.qkey.to_le_bytes()[..3]);
        bytes
    }

    /// The address of a worker that is on no other network.
    pub(super) fn address(&self) -> Result<Address, DeviceError> {
        Contents::new(self.name).with(Network::Verbs, &self.section()).address()
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it isn't an address of this version, or says nothing about
    /// verbs.
    pub(super) fn parse(address: &Address) -> Result<Self, DeviceError> {
        let bad = |why| Err(DeviceError::BadAddress { why });
        let contents = Contents::of(address)?;
        let Some(bytes) = contents.section_of::<{ Network::VERBS_BYTES }>(Network::Verbs) else {
            return bad("its worker is not on verbs");
        };
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let Some(port) = VerbsPort::parse(bytes) else {
            return bad("its link layer is neither InfiniBand nor Ethernet");
        };
        let (link_layer, lid, roce) = match port.link {
            VerbsLink::InfiniBand { lid } => {
                (sys::IBV_LINK_LAYER_INFINIBAND, lid, RoceNetwork::default())
            }
            VerbsLink::Ethernet(roce) => (sys::IBV_LINK_LAYER_ETHERNET, 0, roce),
        };
        let address = VerbsAddress {
            link_layer,
            matches_tags: bytes[0] & MATCHES_TAGS != 0,
            lid,
            gid: Gid(port.gid),
            roce,
            qp_num: number(19),
            qkey: number(22),
            name: contents.name,
        };
        if !is_key(address.partition_key()) {
            return bad("it has no partition key");
        }
        if link_layer == sys::IBV_LINK_LAYER_ETHERNET && port.gid == [0; 16] {
            return bad("its port has no GID");
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> VerbsAddress {
        VerbsAddress {
            link_layer: sys::IBV_LINK_LAYER_ETHERNET,
            lid: 0,
            gid: Gid([7; 16]),
            roce: RoceNetwork { is_version_1: true, vlan: 0xabc, reach: 120 },
            qp_num: 0x123456,
            qkey: qkey(0x8005, 0xfe),
            name: *b"0123456",
            matches_tags: true,
        }
    }

    #[test]
    fn round_trips() {
        let address = example();
        assert_eq!(address.partition_key(), 0x8005);
        assert_eq!(VerbsAddress::parse(&address.address().unwrap()).unwrap(), address);
        let address = VerbsAddress {
            link_layer: sys::IBV_LINK_LAYER_INFINIBAND,
            lid: 0x1234,
            roce: RoceNetwork::default(),
            ..address
        };
        assert_eq!(VerbsAddress::parse(&address.address().unwrap()).unwrap(), address);
    }

    #[test]
    fn impossible_addresses_are_refused() {
        let refused =
            |change: VerbsAddress| VerbsAddress::parse(&change.address().unwrap()).is_err();
        assert!(!refused(example()));
        assert!(refused(VerbsAddress { gid: Gid([0; 16]), ..example() }));
        assert!(refused(VerbsAddress { qkey: qkey(0x8000, 1), ..example() }));
        let mut unknown = example().section();
        unknown[0] = 3;
        let unknown = Contents::new(*b"0123456").with(Network::Verbs, &unknown);
        assert!(VerbsAddress::parse(&unknown.address().unwrap()).is_err(), "an unknown link");
        let elsewhere = Contents::new(*b"0123456").with(Network::Tcp, &[1; 7]).address().unwrap();
        assert!(VerbsAddress::parse(&elsewhere).is_err());
    }
}
