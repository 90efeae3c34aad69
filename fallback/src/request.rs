//! Requests and what they end with.

use tagmatch_hw::{Buffer, PeerId};
use tagmatch_soft::Tag;

use crate::error::Fault;
use crate::slab::Key;

/// Names a request of one engine. A stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub(crate) Key);

impl RequestId {
    /// Names no request, ever.
    pub const NONE: RequestId = RequestId(Key { index: u32::MAX, generation: 0 });

    /// Its place in the engine's table, which is used again when the request is gone.
    pub fn index(&self) -> u32 {
        self.0.index
    }
}

/// Names a message that a matched probe took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(crate) Key);

/// The envelope of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who sent it. For a send: whom it went to.
    pub source: PeerId,
    /// Its tag, all 64 bits.
    pub tag: Tag,
    /// Its full length in bytes, also when less fitted into the buffer.
    pub length: u64,
    /// Whether the buffer was too small: it holds the message's first bytes.
    pub truncated: bool,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
}

/// How an operation ended, and its buffer.
#[derive(Debug)]
pub struct Completion {
    /// The message's envelope, or what went wrong.
    pub result: Result<Status, Fault>,
    /// The buffer that the operation was given.
    pub buffer: Buffer,
}

// It is moved from table to caller; a cache line is what that may cost.
const _: () = assert!(size_of::<Completion>() <= 64);

/// What became of an operation at once.
#[derive(Debug)]
pub enum Started {
    /// It is in the engine's table; [`crate::Engine::take`] gives its result once it is over, which a
    /// receive that found its message waiting is already.
    Pending(RequestId),
    /// A send that is complete; its buffer.
    Sent(Buffer),
    /// It was refused.
    Refused(Box<Refused>),
}

/// An operation that was refused at once.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub fault: Fault,
    /// The buffer that the operation was given.
    pub buffer: Buffer,
}

// It is moved from call to call.
const _: () = assert!(size_of::<Started>() <= 32);

/// When a send is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMode {
    /// When its buffer may be used again.
    #[default]
    Standard,
    /// When it was matched, and the matching receive has begun (MPI-4.1 section 3.4, synchronous mode).
    Synchronous,
    /// When its bytes are in the receiver's buffer.
    Delivered,
}
