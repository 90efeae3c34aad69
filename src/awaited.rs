//! What threads and tasks wait for, so that another thread's progress can wake them.

use tagmatch_fallback::RequestId;
use tagmatch_soft::Pattern;

/// What a wait waits for: another thread's progress may bring it about, and then has to wake the
/// thread that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited<'a> {
    /// Something that no waker tells of. A thread of a shared worker yields then, and does not
    /// sleep.
    Nothing,
    /// The end of one of these requests.
    Requests(&'a [RequestId]),
    /// An end in the completion queue.
    Ends,
    /// A message that matches and that no receive has taken, or the news that there will be none.
    Message(Pattern),
}

/// What a waker waits for. In order: those of the completion queue come last, and those of messages
/// before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    Request(RequestId),
    /// A message. Each wait has a number of its own.
    Message(u64),
    /// The next end in the completion queue. Several threads may wait for it, each under a number
    /// of its own from 1, and one task under number 0.
    Ends(u64),
}
