//! The headers that a tag-matching NIC reads and writes: `struct ibv_tmh` and `struct ibv_rvh` of
//! `infiniband/tm_types.h` (rdma-core), byte for byte. All numbers are big-endian.

/// Bytes in a [`Tmh`].
pub const TMH_BYTES: usize = 16;
/// Bytes in an [`Rvh`].
pub const RVH_BYTES: usize = 16;

/// Kinds of messages, `enum ibv_tmh_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// `IBV_TMH_NO_TAG`: the NIC doesn't search its list for it.
    NoTag = 0,
    /// `IBV_TMH_RNDV`: a rendezvous request.
    Rendezvous = 1,
    /// `IBV_TMH_FIN`: the end of a rendezvous.
    Fin = 2,
    /// `IBV_TMH_EAGER`: the payload follows.
    Eager = 3,
}

impl TryFrom<u8> for Opcode {
    type Error = u8;

    #[inline]
    fn try_from(byte: u8) -> Result<Self, u8> {
        match byte {
            0 => Ok(Opcode::NoTag),
            1 => Ok(Opcode::Rendezvous),
            2 => Ok(Opcode::Fin),
            3 => Ok(Opcode::Eager),
            other => Err(other),
        }
    }
}

/// The tag-matching header: opcode at 0, three reserved bytes, `app_ctx` at 4, tag at 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmh {
    /// The kind of the message.
    pub opcode: Opcode,
    /// A number of the sender. The receiver that matches gets it, and a FIN returns it.
    pub app_ctx: u32,
    /// The tag to match.
    pub tag: u64,
}

impl Tmh {
    /// Writes the header.
    // As one number, and always inlined: of a header that is written in pieces, each byte would be
    // copied through memory.
    #[inline(always)]
    pub fn emit(&self) -> [u8; TMH_BYTES] {
        let fields = u128::from(self.opcode as u8) << 120
            | u128::from(self.app_ctx) << 64
            | u128::from(self.tag);
        fields.to_be_bytes()
    }

    /// Reads the header if it has this opcode, as one number.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the number apart")]
    pub fn parse_of(bytes: [u8; TMH_BYTES], opcode: Opcode) -> Option<Self> {
        let fields = u128::from_be_bytes(bytes);
        let is_of_opcode = (fields >> 120) as u8 == opcode as u8;
        is_of_opcode.then_some(Tmh { opcode, app_ctx: (fields >> 64) as u32, tag: fields as u64 })
    }

    /// Reads the header. The reserved bytes are ignored, since UCX stores data of its own there.
    ///
    /// # Errors
    /// The first byte, if it is not an opcode.
    #[inline]
    pub fn parse(bytes: &[u8; TMH_BYTES]) -> Result<Self, u8> {
        let opcode = Opcode::try_from(bytes[0])?;
        Ok(Tmh { opcode, app_ctx: be32(bytes, 4), tag: be64(bytes, 8) })
    }
}

/// The rendezvous header: `va` at 0, `rkey` at 8, `len` at 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rvh {
    /// Address of the sender's buffer.
    pub va: u64,
    /// The key of the sender's buffer.
    pub rkey: u32,
    /// The length of the sender's buffer. `u32::MAX` stands for every length that doesn't fit.
    pub len: u32,
}

impl Rvh {
    /// Writes the header.
    #[inline]
    pub fn emit(&self) -> [u8; RVH_BYTES] {
        let mut out = [0; RVH_BYTES];
        out[0..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..16].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8; RVH_BYTES]) -> Self {
        Rvh { va: be64(bytes, 0), rkey: be32(bytes, 8), len: be32(bytes, 12) }
    }
}

/// The big-endian number at an offset in a header.
#[inline]
pub fn be32(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The big-endian number at an offset in a header.
#[inline]
pub fn be64(bytes: &[u8; 16], at: usize) -> u64 {
    (u64::from(be32(bytes, at)) << 32) | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_rdma_core_byte_for_byte() {
        let tmh =
            Tmh { opcode: Opcode::Rendezvous, app_ctx: 0x8182_8384, tag: 0x9192_9394_9596_9798 };
        let bytes = *b"\x01\0\0\0\x81\x82\x83\x84\x91\x92\x93\x94\x95\x96\x97\x98";
        assert_eq!((tmh.emit(), Tmh::parse(&bytes)), (bytes, Ok(tmh)));

        let rvh = Rvh { va: 0x8182_8384_8586_8788, rkey: 0x9192_9394, len: 0xa1a2_a3a4 };
        let bytes = *b"\x81\x82\x83\x84\x85\x86\x87\x88\x91\x92\x93\x94\xa1\xa2\xa3\xa4";
        assert_eq!((rvh.emit(), Rvh::parse(&bytes)), (bytes, rvh));
    }

    #[test]
    fn the_first_byte_is_an_opcode_and_the_reserved_bytes_are_anything() {
        let opcodes = [Opcode::NoTag, Opcode::Rendezvous, Opcode::Fin, Opcode::Eager];
        for (byte, opcode) in (0..).zip(opcodes) {
            let mut bytes = [0xff; TMH_BYTES];
            bytes[0] = byte;
            assert_eq!(Tmh::parse(&bytes), Ok(Tmh { opcode, app_ctx: u32::MAX, tag: u64::MAX }));
            assert_eq!(Tmh::parse_of(bytes, opcode).as_ref(), Tmh::parse(&bytes).as_ref().ok());
            assert_eq!(Tmh::parse_of([byte ^ 1; TMH_BYTES], opcode), None);
            assert_eq!(Tmh { opcode, app_ctx: 0, tag: 0 }.emit()[0], byte);
        }
        for byte in 4..=u8::MAX {
            let mut bytes = [0; TMH_BYTES];
            bytes[0] = byte;
            assert_eq!(Tmh::parse(&bytes), Err(byte));
        }
    }
}
