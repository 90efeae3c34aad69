//! Operations on the NIC's list, and why the NIC may refuse them.

/// The most waiting receives that are examined per event.
pub const LOOKS_MAX: u32 = 16;

/// An operation for the NIC's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Append an entry to the list.
    Add {
        /// The receive's id.
        id: u32,
        /// The shadow's number for the entry. Events name the entry by it.
        slot: u32,
        /// Unexpected messages for which software has searched, modulo 2^16.
        count: u16,
    },
    /// Remove an entry.
    Delete {
        /// The device's handle of the entry.
        handle: u32,
        /// The shadow's number for the entry.
        slot: u32,
        /// Whether the NIC reports the outcome.
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

/// Why the NIC refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The list has no free entry.
    ListFull,
    /// Too many operations are outstanding.
    QueueFull,
    /// The NIC can't use the receive's buffer.
    Buffer,
    /// The NIC's list can't be used any more.
    Broken,
}
