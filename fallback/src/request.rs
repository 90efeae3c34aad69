//! Requests and what they end with.

use tagmatch_hw::{Buffer, PeerId};
use tagmatch_soft::{PostedHandle, Tag};

use crate::error::Fault;
use crate::slab::Key;
use crate::wire::AppCtx;

/// Names a request of one engine. A stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub(crate) Key);

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
    /// It is over.
    Done(Completion),
    /// It is under way.
    Pending(RequestId),
}

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

/// What a request is doing.
#[derive(Debug)]
pub(crate) enum State {
    /// A receive on the posted list.
    Posted { handle: PostedHandle, buffer: Buffer },
    /// A receive whose bytes are being read out of the sender's memory.
    Reading { status: Status, operation: AppCtx },
    /// A send that waits for room, for credit or for its FIN.
    Sending,
    /// Over, and not yet taken by its owner.
    Done(Completion),
}

/// A request's place in the table.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) state: State,
    /// Someone wants to be woken when it is done.
    pub(crate) interest: bool,
    /// Nobody will ask for the result.
    pub(crate) detached: bool,
}

impl Request {
    pub(crate) fn new(state: State) -> Self {
        Request { state, interest: false, detached: false }
    }
}
