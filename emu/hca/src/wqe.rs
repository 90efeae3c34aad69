//! What programs write into send queues: `mlx5dv.h`, and `providers/mlx5/qp.c` of rdma-core.

use std::ops::Range;

/// Bytes of a block of a send queue: `MLX5_SEND_WQE_BB`.
pub(crate) const BLOCK: u64 = 64;
/// Blocks of the longest request: a count of 6 bits of 16 bytes.
pub(crate) const BLOCKS_MAX: usize = 16;
/// The key that ends a list of segments: `MLX5_INVALID_LKEY`.
const LAST_KEY: u32 = 0x100;
const INLINE: u32 = 1 << 31;
/// `MLX5_EXTENDED_UD_AV`.
const EXTENDED_AV: u32 = 1 << 31;

/// A piece of the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) at: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// A piece of the data of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// These bytes of the request.
    Inline(Range<usize>),
    Segment(Segment),
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) at: u64,
    pub(crate) rkey: u32,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressVector {
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) lid: u16,
    pub(crate) has_grh: bool,
}

/// A change of eight bytes of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    CompareAndSwap { compare: u64, swap: u64 },
    FetchAndAdd { add: u64 },
}

/// An operation on a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagCommand {
    Nop,
    /// Appends an entry at the place that the last one named. This one names the next.
    Append {
        next: u16,
        tag: u64,
        mask: u64,
        buffer: Option<Segment>,
    },
    Remove {
        index: u16,
    },
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nop,
    Send,
    Write(Remote),
    Read(Remote),
    Atomic(Remote, Atomic),
    Tags {
        command: TagCommand,
        /// The count of unexpected messages that the program has seen.
        count: Option<u16>,
        is_signalled: bool,
    },
}

/// A request of a send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wqe {
    /// The number of its first block, as the program counts.
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    pub(crate) kind: Kind,
    pub(crate) immediate: Option<u32>,
    pub(crate) to: Option<AddressVector>,
    pub(crate) data: Vec<Piece>,
    pub(crate) is_signalled: bool,
    pub(crate) is_solicited: bool,
    pub(crate) is_fenced: bool,
}

/// Why a request can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

fn be32(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or(Malformed)?;
    Ok(u32::from_be_bytes(word))
}

fn be64(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).ok_or(Malformed)?;
    Ok(u64::from_be_bytes(word))
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok()).ok_or(Malformed)?;
    Ok(u16::from_be_bytes(word))
}

fn segment(bytes: &[u8], at: usize) -> Result<Segment, Malformed> {
    let (length, lkey) = (be32(bytes, at)?, be32(bytes, at + 4)?);
    // A length of 0 is 2 GiB, as in the mlx5 driver's own structure.
    Ok(Segment { at: be64(bytes, at + 8)?, length: length & !INLINE, lkey })
}

/// The segments of a receive, up to the key that ends them.
pub(crate) fn receive_segments(bytes: &[u8]) -> Vec<Segment> {
    (0..bytes.len() / 16)
        .filter_map(|at| segment(bytes, at * 16).ok())
        .take_while(|segment| segment.lkey != LAST_KEY)
        .collect()
}

/// Bytes of a request, from its first block.
pub(crate) fn length(first: &[u8]) -> Result<usize, Malformed> {
    let units = be32(first, 4)? & 0x3f;
    if units == 0 { Err(Malformed) } else { Ok(units as usize * 16) }
}

impl Wqe {
    /// Reads a request whose bytes are all there. `is_datagram`: of a queue pair of datagrams.
    pub(crate) fn parse(bytes: &[u8], is_datagram: bool) -> Result<Self, Malformed> {
        let bytes = bytes.get(..length(bytes)?).ok_or(Malformed)?;
        let word = be32(bytes, 0)?;
        let (opcode, index) = ((word & 0xff) as u8, (word >> 8 & 0xffff) as u16);
        let flags = bytes[11];
        let immediate = be32(bytes, 12)?;
        let mut at = 16;
        let mut wqe = Wqe {
            index,
            opcode,
            kind: Kind::Nop,
            immediate: None,
            to: None,
            data: Vec::new(),
            is_signalled: flags & 0x0c == 0x08,
            is_solicited: flags & 2 != 0,
            is_fenced: flags & 0xe0 != 0,
        };
        if opcode == opcode::TAG_MATCHING {
            wqe.kind = tags(bytes)?;
            return Ok(wqe);
        }
        if opcode == opcode::NOP {
            return Ok(wqe);
        }
        if is_datagram {
            let qpn = be32(bytes, at + 8)?;
            let is_extended = qpn & EXTENDED_AV != 0;
            let has_grh = is_extended && be32(bytes, at + 28)? >> 30 & 1 != 0;
            let (qkey, lid) = (be32(bytes, at)?, be16(bytes, at + 14)?);
            wqe.to = Some(AddressVector { qpn: qpn & 0xff_ffff, qkey, lid, has_grh });
            at += if is_extended { 48 } else { 16 };
        }
        let mut remote = || -> Result<Remote, Malformed> {
            let found = Remote { at: be64(bytes, at)?, rkey: be32(bytes, at + 8)? };
            at += 16;
            Ok(found)
        };
        wqe.kind = match opcode {
            opcode::SEND | opcode::SEND_IMM => Kind::Send,
            opcode::WRITE | opcode::WRITE_IMM => Kind::Write(remote()?),
            opcode::READ => Kind::Read(remote()?),
            opcode::COMPARE_AND_SWAP | opcode::FETCH_AND_ADD => {
                let remote = remote()?;
                let (first, second) = (be64(bytes, at)?, be64(bytes, at + 8)?);
                at += 16;
                let atomic = match opcode {
                    opcode::FETCH_AND_ADD => Atomic::FetchAndAdd { add: first },
                    _ => Atomic::CompareAndSwap { swap: first, compare: second },
                };
                Kind::Atomic(remote, atomic)
            }
            _ => return Err(Malformed),
        };
        let has_immediate = matches!(opcode, opcode::SEND_IMM | opcode::WRITE_IMM);
        wqe.immediate = has_immediate.then_some(immediate);
        wqe.data = pieces(bytes, at)?;
        Ok(wqe)
    }
}

fn pieces(bytes: &[u8], mut at: usize) -> Result<Vec<Piece>, Malformed> {
    let mut pieces = Vec::new();
    while at + 4 <= bytes.len() {
        let count = be32(bytes, at)?;
        if count & INLINE != 0 {
            let end = at + 4 + (count & 0x3ff) as usize;
            if end > bytes.len() {
                return Err(Malformed);
            }
            pieces.push(Piece::Inline(at + 4..end));
            at = end.next_multiple_of(16);
        } else {
            let found = segment(bytes, at)?;
            if found.lkey == LAST_KEY {
                break;
            }
            pieces.push(Piece::Segment(found));
            at += 16;
        }
    }
    Ok(pieces)
}

/// The segment of tag matching: `struct mlx5_wqe_tm_seg`.
fn tags(bytes: &[u8]) -> Result<Kind, Malformed> {
    const COUNT: u8 = 0x40;
    const SIGNALLED: u8 = 0x80;
    let (opcode, flags) = (bytes.get(16).ok_or(Malformed)? >> 4, *bytes.get(17).ok_or(Malformed)?);
    let index = be16(bytes, 18)?;
    let count = be16(bytes, 22)?;
    let command = match opcode {
        0 => TagCommand::Nop,
        1 => {
            let buffer = segment(bytes, 48).ok().filter(|buffer| buffer.lkey != LAST_KEY);
            let (tag, mask) = (be64(bytes, 32)?, be64(bytes, 40)?);
            TagCommand::Append { next: index, tag, mask, buffer }
        }
        2 => TagCommand::Remove { index },
        _ => return Err(Malformed),
    };
    let count = (flags & COUNT != 0).then_some(count);
    Ok(Kind::Tags { command, count, is_signalled: flags & SIGNALLED != 0 })
}

/// `MLX5_OPCODE_*`.
pub(crate) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x08;
    pub(crate) const WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const READ: u8 = 0x10;
    pub(crate) const COMPARE_AND_SWAP: u8 = 0x11;
    pub(crate) const FETCH_AND_ADD: u8 = 0x12;
    pub(crate) const TAG_MATCHING: u8 = 0x28;
}
