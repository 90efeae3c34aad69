//! Operations that are under way.

use tagmatch::QueuedRequest;

/// Untagged messages and tagged ones share one order between two endpoints. This bit of a worker's
/// tag tells them apart, so callers have the 63 bits below.
pub(crate) const UNTAGGED: u64 = 1 << 63;

/// Which messages a receive takes, in the terms of the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    /// The worker's tag.
    pub(crate) tag: u64,
    /// The bits of the worker's tag that count.
    pub(crate) mask: u64,
    /// The address of the source in the endpoint's vector.
    pub(crate) source: u64,
}

impl Pattern {
    /// The untagged messages of a source.
    #[inline]
    pub(crate) fn untagged(source: u64) -> Self {
        Pattern { tag: UNTAGGED, mask: u64::MAX, source }
    }

    /// Whether it takes untagged messages.
    pub(crate) fn is_untagged(&self) -> bool {
        self.tag & UNTAGGED != 0
    }
}

/// What the entry of a receive will have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    /// The caller's context.
    pub(crate) context: usize,
    /// `FI_RECV` and `FI_TAGGED` or `FI_MSG`.
    pub(crate) kind: u64,
    /// Where the buffer starts.
    pub(crate) start: usize,
    /// The buffer's length.
    pub(crate) room: usize,
    /// Its success is an entry of the completion queue.
    pub(crate) tells: bool,
    /// The multi-receive buffer of which this is a part.
    pub(crate) multi: Option<u64>,
}

/// An operation that is under way on a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationUnderWay {
    /// The caller's context.
    pub(crate) context: usize,
    /// The flags of its entry in the completion queue.
    pub(crate) flags: u64,
    /// The start of a receive's buffer.
    pub(crate) start: usize,
    /// The length of a receive's buffer.
    pub(crate) room: usize,
    /// Its success is an entry of the completion queue. A failure always is.
    pub(crate) tells: bool,
    /// The multi-receive buffer of which this is a part.
    pub(crate) multi: Option<u64>,
    /// Its name on the worker.
    pub(crate) request: QueuedRequest,
}

impl OperationUnderWay {
    /// A send.
    #[inline]
    pub(crate) fn of_send(context: usize, flags: u64, tells: bool, request: QueuedRequest) -> Self {
        OperationUnderWay { context, flags, start: 0, room: 0, tells, multi: None, request }
    }

    /// A receive.
    #[inline]
    pub(crate) fn of_receive(receive: &Receive, request: QueuedRequest) -> Self {
        let Receive { context, kind: flags, start, room, tells, multi } = *receive;
        OperationUnderWay { context, flags, start, room, tells, multi, request }
    }
}
