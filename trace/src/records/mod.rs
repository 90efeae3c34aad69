//! `tagtrace 2`: what a recorder writes while a program runs, as binary records.
//!
//! The file begins with the line `tagtrace 2` and a line of text about the process, and zeros up to
//! [`HEADER_BYTES`]. Then come blocks of [`BLOCK_BYTES`]. The first one is the window, in which the
//! process stored its records; the others are what it held before, in their order.
//!
//! A record has one to four words of 64 bits each, little endian. In word 0:
//!
//! | bits | what |
//! |---|---|
//! | 0 to 7 | the [`Kind`]; 0 is the end of the block |
//! | 8 to 15 | [`flag`]s |
//! | 16 to 23 | the slot of a [`Kind::Shape`] |
//! | 32 to 63 | the number of a posted receive or of an unexpected message |
//!
//! A *shape* is what a receive, a probe or a message asks for or has: tag, mask, source, length.
//! [`Kind::Shape`] puts one into a slot, where it stays until another one is put there, so a
//! receive and a message take one word each as long as a program uses the same few shapes. The
//! source takes the place of the number.
//!
//! All other bits are 0. The numbers are those of the program's memory: used again once a receive
//! or a message is gone. `reader` gives each a name of its own.

mod blocks;
#[doc(hidden)]
pub mod fuzzing;
mod reader;

pub(crate) use reader::read;

/// The first line.
pub(crate) const HEADER: &str = "tagtrace 2";
/// What stands before the window.
pub(crate) const HEADER_BYTES: usize = 4096;
/// The bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 8 * 4096;
/// The words of the longest record.
pub(crate) const WORDS_MAX: usize = 4;
/// How many shapes are kept.
pub(crate) const SLOTS: usize = 256;

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
    /// The length of the message that a NIC matched to this receive, in word 1.
    Landed = 6,
    /// A posted receive left the list without a message.
    Withdrawn = 7,
    /// A cancel of a posted receive came too late.
    CancelledLate = 8,
    /// A probe.
    Probed = 9,
    /// A matched probe.
    Held = 10,
    /// A message that a matched probe held was received into as many bytes as word 1 says.
    Received = 11,
    /// A message that a matched probe held was discarded.
    Discarded = 12,
    /// An unexpected message of a dead peer left the list.
    Lost = 13,
    /// A shape: the tag in word 1, the length in word 2, the mask, if it isn't all ones, in word 3.
    Shape = 14,
    /// The probe of the record before, which found nothing, was repeated as often as word 1 says.
    Repeated = 15,
    /// The beginning of a block, whose number is in word 1.
    Block = 16,
    /// The recorder stopped here; word 1 says why.
    Stopped = 17,
    /// The bits of a tag that name its sender are those of word 1. Without this record there are
    /// none.
    SourceBits = 18,
}

impl Kind {
    const ALL: [Kind; 18] = [
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
        Kind::Shape,
        Kind::Repeated,
        Kind::Block,
        Kind::Stopped,
        Kind::SourceBits,
    ];

    /// The kind of a record, by its first word.
    fn of(first: u64) -> Option<Self> {
        let at = usize::from(first.to_le_bytes()[0]).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// How many words a record of this kind has, and which bits of its first word it may have set.
    fn layout(self, first: u64) -> (usize, u64) {
        const NUMBER: u64 = 0xffff_ffff << 32;
        const SLOT: u64 = 0xff << 16;
        let (words, bits) = match self {
            Kind::Posted | Kind::Found | Kind::Unexpected => (1, SLOT | NUMBER),
            Kind::Matched => (1, SLOT | NUMBER | flag::NIC),
            Kind::Taken => (1, NUMBER | flag::NIC),
            Kind::Probed | Kind::Held => (1, SLOT | NUMBER | flag::FOUND),
            Kind::Withdrawn | Kind::CancelledLate | Kind::Discarded | Kind::Lost => (1, NUMBER),
            Kind::Landed | Kind::Received => (2, NUMBER),
            Kind::Shape => {
                let words = if first & flag::MASKED == 0 { 3 } else { 4 };
                (words, SLOT | NUMBER | flag::SOURCE | flag::SOLE | flag::MASKED)
            }
            Kind::Repeated | Kind::Block | Kind::Stopped | Kind::SourceBits => (2, 0),
        };
        (words, 0xff | bits)
    }
}

/// Bits 8 to 15 of a record.
pub(crate) mod flag {
    /// The shape names its source.
    pub(crate) const SOURCE: u64 = 1 << 8;
    /// Only that source sends messages that the shape matches.
    pub(crate) const SOLE: u64 = 1 << 9;
    /// The mask is not all ones, and has a word.
    pub(crate) const MASKED: u64 = 1 << 10;
    /// A probe found the message with the record's number.
    pub(crate) const FOUND: u64 = 1 << 11;
    /// A NIC has matched the receive. Its matches are told in their order, so those that are told
    /// while a [`Kind::Taken`] with this flag has no message yet were made before it.
    pub(crate) const NIC: u64 = 1 << 12;
}

/// Why a recorder stopped: word 1 of [`Kind::Stopped`].
pub(crate) const FULL: u64 = 1;
pub(crate) const NO_SPACE: u64 = 2;
