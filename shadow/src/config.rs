//! What the shadow is told about the NIC, and what it tells about receives.

use std::fmt;

use tagmatch_soft::TagMask;

/// What the NIC's list can do, and which receives are worth giving to it.
#[derive(Clone, Copy, Debug)]
pub struct ShadowConfig {
    /// Entries that the list holds at once.
    pub slots: u32,
    /// Operations that may be outstanding. With fewer than 2 the list is not used.
    pub operations: u32,
    /// Messages come up after which the NIC must have been told a count again, at least 1.
    pub sync_every: u16,
    /// What the count of messages starts at.
    pub first_count: u16,
    /// Receives shorter than this, in bytes, stay in software.
    pub threshold: u64,
    /// Receives longer than this, in bytes, stay in software.
    pub read_max: u64,
    /// The bits of a tag that name its source; zero if none do.
    pub source_bits: TagMask,
}

/// Why a receive is in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is shorter than the threshold.
    TooSmall,
    /// The list has no room for it now.
    ListFull,
    /// An older receive that overlaps it is in its way.
    Order,
    /// Its messages may come up elsewhere, or it names a source apart from the tag.
    Source,
    /// The NIC can't use its buffer.
    Memory,
    /// Messages that came up are still to be searched for, or it missed its phase.
    Phase,
    /// There is no list, or it is out of order.
    Off,
}

impl Why {
    /// All of them, in the order of [`Counters::software`](crate::Counters::software).
    pub const ALL: [Why; 7] =
        [Why::TooSmall, Why::ListFull, Why::Order, Why::Source, Why::Memory, Why::Phase, Why::Off];
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::TooSmall => "too small",
            Why::ListFull => "list full",
            Why::Order => "order",
            Why::Source => "source not pinned",
            Why::Memory => "memory",
            Why::Phase => "phase",
            Why::Off => "off",
        })
    }
}
