//! Plain values that a transport takes and returns.

use tagmatch::{Address, Buffer, Tag, TagMask};

/// A process's number for a process that it knows. Processes of its own job have their ranks in the
/// job as numbers. Processes of other jobs are numbered after them, in the order in which it
/// learned of them. So only the numbers of its own job mean the same in other processes, and only
/// in those of that job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// The largest number of processes of other jobs that one process can know. It never forgets one,
/// since a process that is down stays down.
pub const FOREIGN_MAX: u32 = 1 << 16;

/// A process's name: a few opaque bytes that only the transport interprets, such as the address of
/// the process's worker. A process has the same name everywhere, and two processes that can meet
/// have different names. Whether a process exists whose name was received is checked when the name
/// is [admitted](crate::net::Directory::admit).
pub type ProcessName = Address;

/// When a send is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The send is complete when its buffer may be used again.
    Standard,
    /// The send is complete when a receive has matched its message.
    Synchronous,
}

/// The messages that a receive or a probe matches: their tags agree with `tag` in the bits of
/// `mask`, and they are from one process or from any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The tag.
    pub tag: Tag,
    /// The bits of the tag that are compared.
    pub mask: TagMask,
    /// The sender; `None`: any process.
    pub from: Option<ProcessId>,
}

/// Sender, tag and length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender; `None`: a process that could not be [admitted](crate::net::Directory::admit).
    pub from: Option<ProcessId>,
    /// The message's tag.
    pub tag: Tag,
    /// The message's full length in bytes, even if the receive's buffer was shorter.
    pub length: u64,
}

/// A received message.
#[derive(Debug)]
pub struct Arrived {
    /// The message's envelope.
    pub envelope: Envelope,
    /// The receive's buffer, with as many of the message's bytes as fit.
    pub buffer: Buffer,
}

/// Errors of a transport.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A process is down, and stays down.
    #[error("process {} is down", .0.0)]
    Down(ProcessId),
    /// The receive was cancelled before a message matched it.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// A receive for messages of this process was matched with a message of another process. That
    /// message is lost.
    #[error("a message with a tag of process {} came from another process", .0.0)]
    Forged(ProcessId),
    /// Another error, as text of the transport.
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
