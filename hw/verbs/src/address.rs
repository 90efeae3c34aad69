//! The address of a verbs worker.

use tagmatch_device::bytes::{array_at, u32_at};
use tagmatch_device::{Address, DeviceError};
use tagmatch_rdma_core_sys as sys;

use super::gid::Gid;

/// The contents of an [`Address`] of this device.
///
/// | bytes | content |
/// |---|---|
/// | 0..4 | `TMvb` |
/// | 4 | version of the handshake and of the messages |
/// | 5 | link layer: 1 InfiniBand, 2 Ethernet; plus 0x80 if the worker's NIC matches tags |
/// | 6..8 | LID, on InfiniBand |
/// | 8..24 | GID |
/// | 24..28 | number of the datagram queue pair |
/// | 28..32 | key of the datagram queue pair (Q_Key) |
/// | 32..48 | random instance number of the worker |
///
/// Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VerbsAddress {
    pub(super) link_layer: u8,
    pub(super) lid: u16,
    pub(super) gid: Gid,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
    pub(super) instance: [u8; 16],
    /// Whether the worker's NIC matches tags. Both sides of a connection have two queue pairs then.
    pub(super) matches_tags: bool,
}

const MAGIC: [u8; 4] = *b"TMvb";
const MATCHES_TAGS: u8 = 0x80;
/// Version of the handshake and of the messages. It goes up with every change to either.
pub(super) const VERSION: u8 = 1;
/// The length of an address, in bytes.
pub(super) const LENGTH: usize = 48;
/// Queue pair numbers and packet sequence numbers have 24 bits.
pub(super) const BITS_24: u32 = (1 << 24) - 1;

impl VerbsAddress {
    pub(super) fn emit(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.link_layer | if self.matches_tags { MATCHES_TAGS } else { 0 };
        bytes[6..8].copy_from_slice(&self.lid.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.gid.0);
        bytes[24..28].copy_from_slice(&self.qp_num.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.qkey.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.instance);
        bytes
    }

    pub(super) fn address(&self) -> Result<Address, DeviceError> {
        Address::from_bytes(&self.emit())
            .map_err(|_| DeviceError::BadAddress { why: "it is longer than an address can be" })
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it isn't an address of this device and version.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DeviceError> {
        let bad = |why| Err(DeviceError::BadAddress { why });
        let Ok(bytes) = <&[u8; LENGTH]>::try_from(bytes) else {
            return bad("a verbs address has 48 bytes");
        };
        if bytes[0..4] != MAGIC {
            return bad("it belongs to another kind of device");
        }
        if bytes[4] != VERSION {
            return bad("its worker uses another version of the protocol");
        }
        let address = VerbsAddress {
            link_layer: bytes[5] & !MATCHES_TAGS,
            matches_tags: bytes[5] & MATCHES_TAGS != 0,
            lid: u16::from_le_bytes(array_at(bytes, 6)),
            gid: Gid(array_at(bytes, 8)),
            qp_num: u32_at(bytes, 24),
            qkey: u32_at(bytes, 28),
            instance: array_at(bytes, 32),
        };
        match address.link_layer {
            sys::IBV_LINK_LAYER_INFINIBAND => {}
            sys::IBV_LINK_LAYER_ETHERNET if address.gid.0 != [0; 16] => {}
            _ => return bad("its link layer is neither InfiniBand nor Ethernet"),
        }
        if address.qp_num > BITS_24 {
            return bad("a queue pair's number has 24 bits");
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
            qp_num: 0x123456,
            qkey: 0x0bad_cafe,
            instance: *b"0123456789abcdef",
            matches_tags: true,
        }
    }

    #[test]
    fn round_trips() {
        let address = example();
        assert_eq!(VerbsAddress::parse(&address.emit()).unwrap(), address);
        assert_eq!(address.address().unwrap().as_bytes(), address.emit());
    }

    #[test]
    fn impossible_addresses_are_refused() {
        let refused = |change: fn(&mut [u8; LENGTH])| {
            let mut bytes = example().emit();
            change(&mut bytes);
            VerbsAddress::parse(&bytes).is_err()
        };
        assert!(VerbsAddress::parse(b"TMvb").is_err());
        assert!(refused(|b| b[0] = b'X'));
        assert!(refused(|b| b[4] = VERSION + 1));
        assert!(refused(|b| b[5] = 0));
        assert!(refused(|b| b[8..24].fill(0)));
        assert!(refused(|b| b[27] = 1));
    }
}
