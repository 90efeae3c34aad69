//! Plain values that a transport takes and returns.

use tagmatch::{Buffer, Tag, TagMask};

/// A process, as another one numbers those that it knows: those of its job by their ranks there, the others in
/// the order in which it came to know them. So only the numbers of a job are the same elsewhere, in that job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// When a send is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// When its buffer may be used again.
    Standard,
    /// When it was matched, and the matching receive has begun.
    Synchronous,
}

/// Which messages a receive or a probe takes: those whose tag agrees with `tag` in the bits of `mask`, of
/// one process or of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The tag.
    pub tag: Tag,
    /// Which bits of it count.
    pub mask: TagMask,
    /// Whose messages; `None`: anyone's.
    pub from: Option<ProcessId>,
}

/// What is known of a message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it; `None`: someone who could not be [admitted](Net::admit).
    pub from: Option<ProcessId>,
    /// Its tag.
    pub tag: Tag,
    /// Its full length in bytes, also when less fitted into the buffer.
    pub length: u64,
}

/// A received message.
#[derive(Debug)]
pub struct Arrived {
    /// Its envelope.
    pub envelope: Envelope,
    /// The buffer of the receive, with as many of its bytes as fitted.
    pub buffer: Buffer,
}

/// Why a transport could not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A process is down, for good.
    #[error("process {} is down", .0.0)]
    Down(ProcessId),
    /// The receive was cancelled before a message matched it.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// A receive that only messages of this process could match was matched to another one's, which is lost.
    #[error("a message with a tag of process {} came from another process", .0.0)]
    Forged(ProcessId),
    /// Something else, in the transport's words.
    #[error("{0}")]
    Other(String),
}

/// A failed operation and the buffer that it owned.
#[derive(Debug)]
pub struct NetFailed {
    /// What went wrong.
    pub error: NetError,
    /// The operation's buffer.
    pub buffer: Buffer,
}
