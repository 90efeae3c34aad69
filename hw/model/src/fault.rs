//! What the host did that hardware would punish, silently more often than not.

use super::Handle;

/// A rule of the NIC that its host has broken. A driver that works has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An operation names an entry that has ended; hardware would look at another one.
    #[error("{0:?} is stale: the entry has ended, and its last completion was taken")]
    StaleHandle(Handle),
    /// A second delete of one entry.
    #[error("{0:?} was deleted twice")]
    DeletedTwice(Handle),
    /// A delete without an answer of an entry that was matched. Of hardware's entry, the driver then knows
    /// nothing any more.
    #[error("{0:?} was deleted without an answer, but it has been matched")]
    DeleteLost(Handle),
    /// Bits of the tag outside of the mask: it never matches.
    #[error("{0:?} never matches: its tag has bits outside of its mask")]
    TagOutsideMask(Handle),
    /// The counts are so far apart that they may soon be taken for equal.
    #[error("the NIC has counted {counted} unexpected messages, and was told of {told}")]
    CountsApart {
        /// The NIC's count.
        counted: u16,
        /// What it was told last.
        told: u16,
    },
    /// An operation's count is ahead of the completions that the host has taken, or behind what it said
    /// before.
    #[error("a count of {given}, after {before}, with {taken} taken")]
    CountNotTaken {
        /// What the operation says.
        given: u16,
        /// What the operation before it said.
        before: u16,
        /// How far the completion queue was read.
        taken: u16,
    },
    /// An entry's buffer is shorter than the eager payload, or the headers, that were matched with it. On
    /// hardware the queue pair ends, and the completion can't be told from others.
    #[error("{handle:?} has {room} bytes of buffer for {length}")]
    BufferTooShort {
        /// Which entry.
        handle: Handle,
        /// Bytes that came.
        length: u64,
        /// Bytes that the entry has room for.
        room: u64,
    },
    /// An ordinary buffer is shorter than the message that took it.
    #[error("an ordinary buffer has {room} bytes for a message of {length}")]
    OrdinaryTooShort {
        /// Bytes that came.
        length: u64,
        /// Bytes in the buffer.
        room: u64,
    },
    /// A message matched an entry whose buffer had been taken back.
    #[error("{0:?} was matched after its buffer had been taken back")]
    BufferGone(Handle),
    /// A READ or FIN was reported done that was not under way.
    #[error("{0:?} has nothing under way that could be done")]
    NotUnderWay(Handle),
}

/// The first faults, each once: a host that breaks a rule does so often.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    kept: Vec<Fault>,
}

impl Faults {
    const KEPT_MAX: usize = 64;

    pub(super) fn record(&mut self, fault: Fault) {
        if self.kept.len() < Self::KEPT_MAX && !self.kept.contains(&fault) {
            self.kept.push(fault);
        }
    }

    pub(super) fn kept(&self) -> &[Fault] {
        &self.kept
    }
}
