//! Mistakes of the host, most of which hardware does not report.

use crate::Handle;

/// A rule of the NIC that the host has broken. A correct driver breaks none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An operation names an entry that has ended. Hardware would use the entry that is in the slot
    /// now.
    #[error("{0:?} is stale: the entry has ended, and its last completion was polled")]
    StaleHandle(Handle),
    /// A second delete of the same entry.
    #[error("{0:?} was deleted twice")]
    DeletedTwice(Handle),
    /// An unsignalled delete of an entry that was matched. On hardware, the driver then has no
    /// record of the entry.
    #[error("{0:?} was matched before its unsignalled delete")]
    DeleteLost(Handle),
    /// An add names the slot of an entry that is in the list: see
    /// [`Nic::post_at`](crate::Nic::post_at).
    #[error("{0:?} was in the list when an entry was added in its slot")]
    SlotTaken(Handle),
    /// A tag with bits outside of its mask, so that the entry never matches.
    #[error("{0:?} never matches: its tag has bits outside of its mask")]
    TagOutsideMask(Handle),
    /// The two counts of unexpected messages are so far apart that they may soon wrap and seem
    /// equal.
    #[error(
        "the NIC has counted {counted} unexpected messages, and software's last count was {software_count}"
    )]
    CountsApart {
        /// The NIC's count.
        counted: u16,
        /// The last count from software.
        software_count: u16,
    },
    /// An operation's count is ahead of the completions that the host has polled, or behind an
    /// earlier count.
    #[error(
        "an operation has the count {given}, after {before}; {taken} unexpected messages were polled"
    )]
    CountNotTaken {
        /// The operation's count.
        given: u16,
        /// The count of the operation before.
        before: u16,
        /// The number of unexpected messages that were polled.
        taken: u16,
    },
    /// An entry's buffer is shorter than the eager payload, or the headers, of the message that
    /// matched it. On hardware the queue pair ends, and the error completion names no entry.
    #[error("{handle:?} has a buffer of {room} bytes for {length} bytes")]
    BufferTooShort {
        /// The matched entry.
        handle: Handle,
        /// Bytes to store.
        length: u64,
        /// Bytes that the entry has room for.
        room: u64,
    },
    /// An ordinary buffer is shorter than the message that took it.
    #[error("an ordinary buffer has {room} bytes for a message of {length}")]
    OrdinaryTooShort {
        /// Bytes to store.
        length: u64,
        /// Bytes in the buffer.
        room: u64,
    },
    /// A message matched an entry whose buffer had been reclaimed.
    #[error("{0:?} was matched after its buffer was reclaimed")]
    BufferGone(Handle),
    /// The host reported the end of a READ or FIN that was not under way.
    #[error("{0:?} has no READ or FIN under way")]
    NotUnderWay(Handle),
}

/// The first faults, each once, since a host that breaks a rule often repeats it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    kept: Vec<Fault>,
}

impl Faults {
    const KEPT_MAX: usize = 64;

    pub(crate) fn record(&mut self, fault: Fault) {
        if self.kept.len() < Self::KEPT_MAX && !self.kept.contains(&fault) {
            self.kept.push(fault);
        }
    }

    pub(crate) fn kept(&self) -> &[Fault] {
        &self.kept
    }
}
