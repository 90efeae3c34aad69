//! `tagtrace 2`: what a recorder writes while a program runs, as binary records.
//!
//! The file begins with the line `tagtrace 2` and a line of text about the process, and zeros up to
//! [`HEADER_BYTES`]. Then come blocks of [`BLOCK_BYTES`]. The first one is the window, in which the
//! process stored its records; the others are what it held before, in their order. A block begins
//! with a [`Kind::Block`], which has the block's number in word 1, and ends with the first record
//! whose word 0 is 0. Records have three words of 64 bits each, little endian:
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0 to 7 | the [`Kind`]; 0 is the end |
//! | 0 | 8 to 15 | [`flag`]s |
//! | 0 | 32 to 63 | the number of a posted receive or of an unexpected message |
//! | 1 | all | a tag; or the value of a record that has no tag |
//! | 2 | 0 to 31 | the source |
//! | 2 | 32 to 63 | the length in bytes |
//!
//! All other bits are 0. The numbers are those of the program's memory: used again once a receive
//! or a message is gone. `reader` gives each a name of its own.
//!
//! A mask that is not all ones stands in a [`Kind::Mask`] before the first pattern that has it, and
//! holds until the next one. A length of 4 GiB and more stands in a [`Kind::Length`] before its
//! record.

mod blocks;
mod reader;

pub(crate) use reader::read;

/// The first line.
pub(crate) const HEADER: &str = "tagtrace 2";
/// What stands before the window.
pub(crate) const HEADER_BYTES: usize = 4096;
/// The bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 9 * 4096;
/// The bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;
/// The words of a record.
pub(crate) type Words = [u64; 3];

/// What a record tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A receive joined the posted list.
    Posted = 1,
    /// A receive took an unexpected message.
    Found = 2,
    /// A message matched a posted receive.
    Matched = 3,
    /// A message joined the unexpected list.
    Unexpected = 4,
    /// A posted receive left the list; a later [`Kind::Matched`] or [`Kind::Withdrawn`] tells why.
    Taken = 5,
    /// The length of the message that a NIC matched to this receive.
    Landed = 6,
    /// A posted receive left the list without a message.
    Withdrawn = 7,
    /// A cancel of a posted receive came too late.
    CancelledLate = 8,
    /// A probe.
    Probed = 9,
    /// A matched probe.
    Held = 10,
    /// A message that a matched probe held was received.
    Received = 11,
    /// A message that a matched probe held was discarded.
    Discarded = 12,
    /// An unexpected message of a dead peer left the list.
    Lost = 13,
    /// The mask of the patterns that follow.
    Mask = 14,
    /// The length of the next record, and no more.
    Length = 15,
    /// The beginning of a block.
    Block = 16,
    /// The recorder stopped here; word 1 says why.
    Stopped = 17,
}

impl Kind {
    const ALL: [Kind; 17] = [
        Kind::Posted,
        Kind::Found,
        Kind::Matched,
        Kind::Unexpected,
        Kind::Taken,
        Kind::Landed,
        Kind::Withdrawn,
        Kind::CancelledLate,
        Kind::Probed,
        Kind::Held,
        Kind::Received,
        Kind::Discarded,
        Kind::Lost,
        Kind::Mask,
        Kind::Length,
        Kind::Block,
        Kind::Stopped,
    ];

    fn of(first: u64) -> Option<Self> {
        let at = usize::from(first.to_le_bytes()[0]).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }
}

/// Bits 8 to 15 of a record.
pub(crate) mod flag {
    /// The pattern names its source.
    pub(crate) const SOURCE: u64 = 1 << 8;
    /// Only that source sends messages that the pattern matches.
    pub(crate) const SOLE: u64 = 1 << 9;
    /// The mask is all ones.
    pub(crate) const EXACT: u64 = 1 << 10;
    /// The length stands in the record before.
    pub(crate) const LONG: u64 = 1 << 11;
    /// A probe found the message with the record's number.
    pub(crate) const FOUND: u64 = 1 << 12;
}

/// Why a recorder stopped: word 1 of [`Kind::Stopped`].
pub(crate) const FULL: u64 = 1;
pub(crate) const NO_SPACE: u64 = 2;
