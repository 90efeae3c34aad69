//! Names of requests, and the results of operations.

use std::fmt;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, PeerId};
use tagmatch_soft::Tag;

use crate::error::{Fault, PeerFault};

/// Names a request of one engine. Once the request is gone, its name names nothing.
///
/// A line of the table of requests, and a generation, which changes each time the line is freed. In
/// one word, since it is stored and loaded as one; the index is in the upper half, and below 2^30.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Names no request, ever.
    pub const NONE: RequestId = RequestId::new(u32::MAX, 0);

    #[inline(always)]
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        RequestId(Key { index, generation }.to_bits())
    }

    /// The request that a device was given this token for.
    #[inline(always)]
    pub(crate) const fn from_token(token: u64) -> Self {
        RequestId(token)
    }

    /// The name as a token for a device. Its top bit is clear: devices keep that for themselves.
    #[inline(always)]
    pub(crate) const fn token(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn generation(self) -> u32 {
        Key::from_bits(self.0).generation
    }

    /// The line of the engine's table, which another request uses once this one is gone.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        Key::from_bits(self.0).index
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({}.{})", self.index(), self.generation())
    }
}

/// Names a message that a matched probe took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(crate) Key);

/// The envelope of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender. For a send: the receiver.
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

/// The state of a request, for a caller that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitedEnd {
    /// The request is under way, or gone.
    UnderWay,
    /// It is over with success: [`Requests::ended`](crate::Requests::ended) has the result.
    Done,
    /// It is over without success: [`Requests::take`](crate::Requests::take) gives the reason.
    Failed,
}

/// An entry of the completion queue: the end of an operation, or news of a peer.
#[derive(Debug)]
pub enum End {
    /// A queued operation is over.
    Operation {
        /// The number that the caller gave with the operation.
        context: u64,
        /// How it ended.
        completion: Completion,
    },
    /// A peer is connected.
    PeerUp {
        /// Which peer.
        peer: PeerId,
    },
    /// A peer is down. All operations that depended on it have ended before.
    PeerDown {
        /// Which peer.
        peer: PeerId,
        /// Why.
        fault: PeerFault,
    },
}

/// What became of an operation at once.
#[derive(Debug)]
pub enum Started {
    /// The operation is in the engine's table. [`crate::Requests::take`] gives its result once it
    /// is over. A receive whose message was waiting is over already.
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

/// What became of a receive at once: it has a name, or it was refused.
pub type Posted = Result<RequestId, Box<Refused>>;

/// Refuses an operation before it has begun.
#[cold]
#[inline(never)]
pub(crate) fn refuse(fault: Fault, buffer: Buffer) -> Posted {
    Err(Box::new(Refused { fault, buffer }))
}

impl From<Posted> for Started {
    fn from(posted: Posted) -> Self {
        match posted {
            Ok(request) => Started::Pending(request),
            Err(refused) => Started::Refused(refused),
        }
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send<P> {
    /// The receiver.
    pub peer: PeerId,
    /// Its tag, all 64 bits.
    pub tag: Tag,
    /// Immediate data, if there is any.
    pub immediate: Option<u32>,
    /// Its bytes: a slice, a [`Buffer`], or the place of one.
    pub payload: P,
}

impl<P> Send<P> {
    /// A message without immediate data.
    pub fn new(peer: PeerId, tag: Tag, payload: P) -> Self {
        Send { peer, tag, immediate: None, payload }
    }

    /// The message with this immediate data.
    #[must_use]
    pub fn immediate(self, immediate: Option<u32>) -> Self {
        Send { immediate, ..self }
    }

    /// This message with another buffer.
    #[inline(always)]
    pub(crate) fn of<Q>(&self, payload: Q) -> Send<Q> {
        let Send { peer, tag, immediate, .. } = *self;
        Send { peer, tag, immediate, payload }
    }
}

impl Send<Buffer> {
    /// The envelope that the send ends with.
    pub(crate) fn status(&self) -> Status {
        let Send { peer: source, tag, immediate, .. } = *self;
        let length = self.payload.total_len() as u64;
        Status { source, tag, length, truncated: false, immediate }
    }
}

/// When a send is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendMode {
    /// When its buffer may be used again.
    #[default]
    Standard,
    /// When it was matched, and the matching receive has begun (MPI-4.1 section 3.4, synchronous
    /// mode).
    Synchronous,
    /// When its bytes are in the receiver's buffer.
    Delivered,
}
