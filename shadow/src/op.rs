//! Operations on the NIC's list, and why the NIC may refuse them.

/// The most waiting receives that are examined per event.
pub const LOOKS_MAX: u32 = 16;

/// An operation for the NIC's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Append an entry.
    Add {
        /// The receive.
        id: u32,
        /// The entry's name in events.
        slot: u32,
        /// Unexpected messages for which software has searched, modulo 2^16.
        count: u16,
    },
    /// Remove an entry.
    Delete {
        /// The device's name for the entry.
        handle: u32,
        /// The shadow's name for the entry.
        slot: u32,
        /// Whether the NIC is to report the outcome.
        answer: bool,
        /// Unexpected messages for which software has searched, modulo 2^16.
        count: u16,
    },
    /// Tell the NIC the count.
    Sync {
        /// Unexpected messages for which software has searched, modulo 2^16.
        count: u16,
    },
}

/// Why the NIC did not take an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No entry is free.
    ListFull,
    /// Too many operations are outstanding.
    QueueFull,
    /// The buffer can't be used.
    Buffer,
    /// The NIC's list can't be used any more.
    Broken,
}
