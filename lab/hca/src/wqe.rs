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
pub(crate) struct RemoteAddress {
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
    /// The row of the sender's table of GIDs.
    pub(crate) sgid_index: u8,
    /// The GID of the receiver's port.
    pub(crate) gid: [u8; 16],
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
    Write(RemoteAddress),
    Read(RemoteAddress),
    Atomic(RemoteAddress, Atomic),
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
    let length = be32(bytes, at)?;
    let lkey = be32(bytes, at + 4)?;
    // A length of 0 is taken as it stands: libmlx5 writes it for an empty element of a shared
    // receive queue.
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
        let opcode = (word & 0xff) as u8;
        let index = (word >> 8 & 0xffff) as u16;
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
            let mut has_grh = false;
            let mut sgid_index = 0;
            let mut gid = [0; 16];
            if is_extended {
                let word = be32(bytes, at + 28)?;
                (has_grh, sgid_index) = (word >> 30 & 1 != 0, (word >> 20 & 0xff) as u8);
                gid.copy_from_slice(bytes.get(at + 32..at + 48).ok_or(Malformed)?);
            }
            let qkey = be32(bytes, at)?;
            let lid = be16(bytes, at + 14)?;
            let qpn = qpn & 0xff_ffff;
            wqe.to = Some(AddressVector { qpn, qkey, lid, has_grh, sgid_index, gid });
            at += if is_extended { 48 } else { 16 };
        }
        let mut remote = || -> Result<RemoteAddress, Malformed> {
            let found = RemoteAddress { at: be64(bytes, at)?, rkey: be32(bytes, at + 8)? };
            at += 16;
            Ok(found)
        };
        wqe.kind = match opcode {
            opcode::SEND | opcode::SEND_IMM => Kind::Send,
            opcode::WRITE | opcode::WRITE_IMM => Kind::Write(remote()?),
            opcode::READ => Kind::Read(remote()?),
            opcode::COMPARE_AND_SWAP | opcode::FETCH_AND_ADD => {
                let remote = remote()?;
                let first = be64(bytes, at)?;
                let second = be64(bytes, at + 8)?;
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
    let opcode = bytes.get(16).ok_or(Malformed)? >> 4;
    let flags = *bytes.get(17).ok_or(Malformed)?;
    let index = be16(bytes, 18)?;
    let count = be16(bytes, 22)?;
    let command = match opcode {
        0 => TagCommand::Nop,
        1 => {
            let buffer = segment(bytes, 48).ok().filter(|buffer| buffer.lkey != LAST_KEY);
            let tag = be64(bytes, 32)?;
            let mask = be64(bytes, 40)?;
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

/// Requests as libmlx5 writes them (`struct mlx5_wqe_ctrl_seg` and those behind it, `mlx5dv.h`).
#[cfg(test)]
mod tests {
    use super::*;

    /// A request with these flags; its first block is number 0x8182, its immediate data 7.
    fn request(opcode: u8, flags: u8, rest: &[&[u8]]) -> Vec<u8> {
        let rest = rest.concat();
        let units = 1 + rest.len() / 16;
        let control = [0, 0x81, 0x82, opcode, 0, 0, 9, units as u8, 0, 0, 0, flags, 0, 0, 0, 7];
        [&control[..], &rest].concat()
    }

    fn parse(bytes: &[u8]) -> Wqe {
        Wqe::parse(bytes, false).unwrap()
    }

    const PLACE: [u8; 16] = [0, 0, 0, 50, 0, 0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const SEGMENT: Segment = Segment { at: 0x0102_0304_0506_0708, length: 50, lkey: 0x200 };
    const END: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const REMOTE: [u8; 16] = [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 3, 0, 0, 0, 0, 0];

    #[test]
    fn a_request_says_which_it_is_and_how_it_ends() {
        for (flags, is_signalled, is_solicited, is_fenced) in [
            (0x00, false, false, false),
            (0x08, true, false, false),
            // Completions on errors alone.
            (0x04, false, false, false),
            (0x0c, false, false, false),
            (0x02, false, true, false),
            (0x80, false, false, true),
            (0x28, true, false, true),
            (0x11, false, false, false),
        ] {
            let wqe = parse(&request(opcode::NOP, flags, &[]));
            assert_eq!((wqe.index, wqe.opcode, wqe.kind), (0x8182, opcode::NOP, Kind::Nop));
            let ends = (wqe.is_signalled, wqe.is_solicited, wqe.is_fenced);
            assert_eq!(ends, (is_signalled, is_solicited, is_fenced), "{flags:#x}");
        }
    }

    #[test]
    fn data_are_segments_and_bytes_of_the_request_up_to_the_last_key() {
        let inline = [&[0x80, 0, 0, 20][..], &[5; 20], &[0; 8]].concat();
        let bytes = request(opcode::SEND_IMM, 0, &[&PLACE, &inline, &PLACE, &END, &PLACE]);
        let wqe = parse(&bytes);
        let segment = Piece::Segment(SEGMENT);
        assert_eq!(wqe.data, [segment.clone(), Piece::Inline(36..56), segment]);
        assert_eq!((wqe.kind, wqe.immediate, wqe.to), (Kind::Send, Some(7), None));
        assert_eq!(parse(&request(opcode::SEND, 0, &[&PLACE])).immediate, None);
        let beyond = [&[0x80, 0, 0, 13][..], &[5; 12]].concat();
        assert_eq!(Wqe::parse(&request(opcode::SEND, 0, &[&beyond]), false), Err(Malformed));
        assert_eq!(receive_segments(&[PLACE, PLACE, END, PLACE].concat()), [SEGMENT; 2]);
        let long = [&[0x80, 0, 0, 50][..], &PLACE[4..]].concat();
        assert_eq!(receive_segments(&long), [SEGMENT], "the highest bit is no length");
    }

    #[test]
    fn reads_writes_and_changes_name_the_peers_memory() {
        let remote = RemoteAddress { at: 0x0807_0605_0403_0201, rkey: 0x300 };
        for (opcode, kind, immediate) in [
            (opcode::WRITE, Kind::Write(remote), None),
            (opcode::WRITE_IMM, Kind::Write(remote), Some(7)),
            (opcode::READ, Kind::Read(remote), None),
        ] {
            let wqe = parse(&request(opcode, 0, &[&REMOTE, &PLACE]));
            assert_eq!((wqe.kind, wqe.immediate), (kind, immediate));
            assert_eq!(wqe.data, [Piece::Segment(SEGMENT)]);
        }
        let words = [[0, 0, 0, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0, 0, 4]].concat();
        for (opcode, atomic) in [
            (opcode::FETCH_AND_ADD, Atomic::FetchAndAdd { add: 3 }),
            (opcode::COMPARE_AND_SWAP, Atomic::CompareAndSwap { swap: 3, compare: 4 }),
        ] {
            let wqe = parse(&request(opcode, 0, &[&REMOTE, &words, &PLACE]));
            assert_eq!((wqe.kind, wqe.data.len()), (Kind::Atomic(remote, atomic), 1));
        }
    }

    #[test]
    fn a_datagram_has_an_address_of_one_unit_or_three() {
        let short = [0, 0, 0, 5, 0, 0, 0, 0, 0x7f, 1, 2, 3, 0, 0, 0x0a, 0x0b];
        let to = |has_grh| AddressVector {
            qpn: 0x0001_0203,
            qkey: 5,
            lid: 0x0a0b,
            has_grh,
            sgid_index: if has_grh { 3 } else { 0 },
            gid: if has_grh { [9; 16] } else { [0; 16] },
        };
        let of = |address: &[u8]| {
            let wqe = Wqe::parse(&request(opcode::SEND, 0, &[address, &PLACE]), true).unwrap();
            assert_eq!(wqe.data, [Piece::Segment(SEGMENT)]);
            wqe.to.unwrap()
        };
        assert_eq!(of(&short), to(false));
        let mut long = [&short[..], &[0; 32]].concat();
        long[8] = 0xff;
        assert_eq!(of(&long), to(false));
        long[28..30].copy_from_slice(&[0x40, 0x30]);
        long[32..].fill(9);
        assert_eq!(of(&long), to(true));
    }

    #[test]
    fn an_operation_on_a_list_has_its_index_its_count_and_its_entry() {
        let of = |command: u8, flags: u8| {
            let head = [command << 4, flags, 0x0a, 0x0b, 0, 0, 0x0c, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0];
            let words = [[1; 8], [2; 8]].concat();
            let bytes = request(opcode::TAG_MATCHING, 0, &[&head, &words, &PLACE]);
            Wqe::parse(&bytes, false).map(|wqe| wqe.kind)
        };
        let tags = |command, count, is_signalled| Ok(Kind::Tags { command, count, is_signalled });
        assert_eq!(of(0, 0), tags(TagCommand::Nop, None, false));
        assert_eq!(of(0, 0x3f), tags(TagCommand::Nop, None, false));
        assert_eq!(of(2, 0x40), tags(TagCommand::Remove { index: 0x0a0b }, Some(0x0c0d), false));
        let tag = 0x0101_0101_0101_0101;
        let mask = 0x0202_0202_0202_0202;
        let append = TagCommand::Append { next: 0x0a0b, tag, mask, buffer: Some(SEGMENT) };
        assert_eq!(of(1, 0xc0), tags(append, Some(0x0c0d), true));
        assert_eq!(of(3, 0), Err(Malformed));
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_malformed() {
        let whole = request(opcode::WRITE, 0, &[&REMOTE, &PLACE]);
        for length in 0..whole.len() {
            assert_eq!(Wqe::parse(&whole[..length], false), Err(Malformed), "{length}");
        }
        assert_eq!(length(&whole), Ok(48));
        for opcode in [opcode::WRITE, opcode::READ, opcode::FETCH_AND_ADD, 0x30] {
            assert_eq!(Wqe::parse(&request(opcode, 0, &[]), false), Err(Malformed), "{opcode}");
        }
        assert_eq!(Wqe::parse(&request(opcode::SEND, 0, &[]), true), Err(Malformed));
        assert_eq!(length(&[0; 64]), Err(Malformed));
    }
}
