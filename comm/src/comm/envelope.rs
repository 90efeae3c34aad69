//! Destinations, sources, tags and lengths of messages.

use tagmatch::Buffer;

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The member of this rank.
    Rank(u32),
    /// No process (`MPI_PROC_NULL`): the send is complete at once.
    NoProcess,
}

impl From<u32> for Destination {
    fn from(rank: u32) -> Self {
        Destination::Rank(rank)
    }
}

/// The source of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The member of this rank.
    Rank(u32),
    /// Any member (`MPI_ANY_SOURCE`).
    Any,
    /// No process (`MPI_PROC_NULL`): the receive gets an empty message at once.
    NoProcess,
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Source::Rank(rank)
    }
}

/// The tags that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagChoice {
    /// This tag.
    Tag(u32),
    /// Any tag (`MPI_ANY_TAG`).
    Any,
}

impl From<u32> for TagChoice {
    fn from(tag: u32) -> Self {
        TagChoice::Tag(tag)
    }
}

/// A message's envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The sender's rank; `None` for a message of no process.
    pub source: Option<u32>,
    /// Its tag; `None` for a message of no process.
    pub tag: Option<u32>,
    /// Its length in bytes.
    pub length: usize,
}

impl Status {
    /// The status of a message from no process (MPI-4.1 section 3.10).
    pub(crate) const NO_PROCESS: Status = Status { source: None, tag: None, length: 0 };
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// The buffer that the receive was given.
    pub buffer: Buffer,
    /// The message's envelope.
    pub status: Status,
}

impl Received {
    /// The message's bytes.
    pub fn data(&self) -> &[u8] {
        self.buffer.first_bytes(self.status.length)
    }
}
