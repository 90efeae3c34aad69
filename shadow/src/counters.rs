//! What happened so far.

use crate::config::Why;

/// Counts since the start, and what is held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Receives that the NIC gave a message.
    pub hardware: u64,
    /// Receives that software gave a message, by [`Why::ALL`].
    pub software: [u64; Why::ALL.len()],
    /// Entries added.
    pub added: u64,
    /// Entries that missed their phase and were deleted for that.
    pub again: u64,
    /// Messages that came up through the list and took an entry out of the NIC.
    pub withdrawn: u64,
    /// Messages that came up elsewhere and had to wait for the NIC.
    pub waited: u64,
    /// Deletes that came after a match.
    pub lost: u64,
    /// Counts told with an operation of their own.
    pub synced: u64,
    /// Times that the NIC refused an operation.
    pub refused: u64,
    /// Receives posted and not gone.
    pub receives: usize,
    /// Receives in software that may go to the NIC yet.
    pub waiting: usize,
    /// Slots in use.
    pub slots: usize,
    /// Whether the list is out of order and gets no more receives.
    pub broken: bool,
}

impl Counters {
    pub(crate) fn in_software(&mut self, why: Why) {
        self.software[why as usize] += 1;
    }
}
