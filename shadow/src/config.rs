//! The shadow's configuration, and the reasons for which a receive stays in software.

use std::fmt;

use tagmatch_soft::TagMask;

/// The limits of the NIC's list, and the sizes of the receives that are worth adding to it.
#[derive(Clone, Copy, Debug)]
pub struct ShadowConfig {
    /// The most entries that the list holds at once.
    pub slots: u32,
    /// The most operations that may be outstanding. With fewer than 2 the list is not used.
    pub operations: u32,
    /// The NIC must have been told a new count after this many unexpected messages. At least 1.
    pub sync_every: u16,
    /// The first value of the count of unexpected messages.
    pub first_count: u16,
    /// Receives shorter than this, in bytes, stay in software.
    pub threshold: u64,
    /// Receives longer than this, in bytes, stay in software.
    pub read_max: u64,
    /// The bits of a tag that name the sender; zero if tags don't name their sender.
    pub source_bits: TagMask,
}

/// The reason for which a receive is matched in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The receive is shorter than the threshold.
    TooSmall,
    /// The list has no room now.
    ListFull,
    /// An older receive could take the same messages and is not known to be active in the NIC.
    Order,
    /// Its messages may arrive on another path than through the NIC's list, or its pattern names a
    /// source that the tag doesn't contain.
    Source,
    /// The NIC can't use the receive's buffer.
    Memory,
    /// The receive's buffer is one of several slices.
    Slices,
    /// Software has not yet searched for all unexpected messages, or the entry missed its phase.
    Phase,
    /// The NIC has no list, or the list is broken.
    Off,
}

impl Why {
    /// All reasons, in the order of [`Counters::software`](crate::Counters::software).
    pub const ALL: [Why; 8] = [
        Why::TooSmall,
        Why::ListFull,
        Why::Order,
        Why::Source,
        Why::Memory,
        Why::Slices,
        Why::Phase,
        Why::Off,
    ];
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::TooSmall => "too small",
            Why::ListFull => "list full",
            Why::Order => "order",
            Why::Source => "source not pinned",
            Why::Memory => "memory",
            Why::Slices => "several slices",
            Why::Phase => "phase",
            Why::Off => "off",
        })
    }
}
