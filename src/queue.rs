//! The completion queue of a worker.

use std::task::{Context, Poll};
use std::time::Duration;

use tagmatch_device::Buffer;
use tagmatch_fallback::{self as fallback, EndList, EndedBuffer, Send};
use tagmatch_soft::Tag;

use crate::access::{Access, State};
use crate::awaited::Awaited;
use crate::end::{End, QueuedRequest, QueuedSend};
use crate::envelope::{Match, Peer, SendOptions, Status};
use crate::error::Failed;
use crate::raw::place_at_end;
use crate::wait::{Limit, wait_within};
use crate::worker::WorkerOf;

/// What is told the ends of operations one by one, by [`WorkerOf::ends_to`].
#[doc(hidden)]
pub trait EndTaker {
    /// Whether it takes another end.
    fn has_room(&self) -> bool;

    /// A queued operation has ended with success.
    fn done(&mut self, context: u64, status: Status, buffer: Buffer);

    /// Any other end.
    fn other(&mut self, end: End);
}

/// Hands ends to a caller's function.
struct Each<F> {
    take: F,
    /// How many ends the function still takes.
    room: usize,
}

impl<F: FnMut(End)> EndTaker for Each<F> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.room > 0
    }

    #[inline(always)]
    fn done(&mut self, context: u64, status: Status, buffer: Buffer) {
        self.other(End::Operation { context, result: Ok(status), buffer });
    }

    #[inline(always)]
    fn other(&mut self, end: End) {
        (self.take)(end);
        self.room -= 1;
    }
}

/// The ends of a worker's engine, in the terms of this crate.
struct WorkerEnds<'a, T> {
    taker: &'a mut T,
    worker: u32,
}

impl<T: EndTaker> EndList for WorkerEnds<'_, T> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.taker.has_room()
    }

    #[inline(always)]
    fn done(&mut self, context: u64, status: fallback::Status, buffer: impl EndedBuffer) {
        self.taker.done(context, Status::new(status, self.worker), buffer.take_buffer());
    }

    fn rare(&mut self, end: fallback::End) {
        self.taker.other(End::new(end, self.worker));
    }
}

/// Adds ends to a caller's list, each written where it is to be.
struct Added<'a> {
    ends: &'a mut Vec<End>,
    /// How many ends the list still takes.
    room: usize,
    worker: u32,
}

impl EndList for Added<'_> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.room > 0
    }

    #[inline(always)]
    fn done(&mut self, context: u64, status: fallback::Status, buffer: impl EndedBuffer) {
        let place = place_at_end(self.ends);
        let result = Ok(Status::new(status, self.worker));
        place.put(End::Operation { context, result, buffer: buffer.take_buffer() });
        self.room -= 1;
    }

    fn rare(&mut self, end: fallback::End) {
        self.ends.push(End::new(end, self.worker));
        self.room -= 1;
    }
}

impl State {
    /// Makes progress, and takes the oldest ends, at most `max`; gives the number of events and
    /// that of ends.
    #[inline(never)]
    fn ends(&mut self, ends: &mut Vec<End>, max: usize, worker: u32) -> (usize, usize) {
        let mut list = Added { ends, room: max, worker };
        let events = self.take_ends(&mut list);
        (events, max - list.room)
    }

    /// As [`State::ends`], for any function.
    #[inline(always)]
    fn each_end(&mut self, max: usize, worker: u32, take: impl FnMut(End)) -> (usize, usize) {
        let mut each = Each { take, room: max };
        let events = self.take_ends(&mut WorkerEnds { taker: &mut each, worker });
        (events, max - each.room)
    }
}

/// The completion queue: for programs with many operations under way, which can't ask each whether
/// it has ended.
///
/// A queued operation is given a `u64`, its context, which means nothing to the worker and comes
/// back with the operation's end; two operations may have the same. Each operation that was queued
/// has exactly one end. Ends come in the order in which the operations ended, on any thread; taking
/// one costs the same however many operations are under way, and the queue never overflows: an end
/// that waits is the operation's own entry in the worker's table of requests.
///
/// A worker has one queue. Requests ([`recv`](Self::recv), [`send`](Self::send)) may be used beside
/// it; their results don't come in the queue. An operation that is under way when the worker is
/// dropped has no end, and its buffer is freed.
///
/// ```
/// use tagmatch::{Config, End, Match, QueuedSend, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// for context in 0..100 {
///     worker.recv_queued(Match::tag(context), vec![0; 8], context)?;
/// }
/// for tag in 0..100u64 {
///     match worker.send_queued(worker.oneself(), tag, vec![7; 8], 1000 + tag)? {
///         QueuedSend::Complete(_buffer) => {}
///         QueuedSend::UnderWay(_request) => {}
///     }
/// }
/// let mut ends = Vec::new();
/// let mut received = 0;
/// while received < 100 {
///     worker.ends_blocking(&mut ends, 64);
///     for end in ends.drain(..) {
///         if let End::Operation { context: 0..100, result, .. } = end {
///             assert_eq!(result?.length, 8);
///             received += 1;
///         }
///     }
/// }
/// # Ok::<(), tagmatch::Error>(())
/// ```
impl<A: Access> WorkerOf<A> {
    /// Receives as [`recv`](Self::recv) does; the end comes in the completion queue, with
    /// `context`, also if a message was waiting.
    ///
    /// # Errors
    /// The receive was refused, and there will be no end: the peer that it names is down or another
    /// worker's, or the device can't carry it. [`Failed`] has the reason and the buffer.
    // Always inlined: arguments and result of a call would go through memory.
    #[inline(always)]
    pub fn recv_queued(
        &self,
        which: impl Into<Match>,
        buffer: impl Into<Buffer>,
        context: u64,
    ) -> Result<QueuedRequest, Failed> {
        let which = which.into();
        let buffer = buffer.into().into_parts();
        if let Err(error) = self.check(&which) {
            return Err(Failed { error, buffer: buffer.into_buffer() });
        }
        // No closure: its captures would be stored in memory.
        let mut state = self.access.lock();
        let posted =
            state.engine.receive_parts(which.pattern(), buffer, which.is_sole(), Some(context));
        A::unlock(state);
        QueuedRequest::begun(&self.access, posted)
    }

    /// Sends as [`send`](Self::send) does. A send that is complete at once says so here, and has no
    /// end; the end of any other comes in the completion queue, with `context`.
    ///
    /// # Errors
    /// The send was refused, and there will be no end: the peer is down or another worker's, or the
    /// device can't carry the message. [`Failed`] has the reason and the buffer.
    #[inline]
    pub fn send_queued(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
        context: u64,
    ) -> Result<QueuedSend, Failed> {
        self.send_queued_with(peer, tag, buffer, SendOptions::default().context(context))
    }

    /// As [`send_queued`](Self::send_queued), in any mode, with immediate data if wanted, and with
    /// the context of `options`.
    ///
    /// # Errors
    /// As for [`send_queued`](Self::send_queued).
    #[inline]
    pub fn send_queued_with(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
        options: SendOptions,
    ) -> Result<QueuedSend, Failed> {
        let tag = tag.into();
        let mut buffer = buffer.into();
        let peer = match self.own(peer) {
            Ok(peer) => peer,
            Err(error) => return Err(Failed { error, buffer }),
        };
        let SendOptions { mode, immediate, context } = options;
        let message = Send { peer, tag, immediate, payload: &mut buffer };
        let posted = self.access.with(|state| {
            let posted = state.engine.send_from(message, mode)?;
            Some(state.queue(posted, context))
        });
        match posted {
            None => Ok(QueuedSend::Complete(buffer)),
            Some(posted) => QueuedRequest::begun(&self.access, posted).map(QueuedSend::UnderWay),
        }
    }

    /// Asks to cancel a queued operation. Its end tells the outcome: a receive that no message has
    /// matched ends with [`Error::Cancelled`](crate::Error::Cancelled); any other operation goes
    /// on. `false`: it has ended already, or belongs to another worker, and nothing was done.
    pub fn cancel_queued(&self, request: QueuedRequest) -> bool {
        let Some(request) = request.of(self.access.fixed().worker) else { return false };
        self.access.with(|state| {
            let is_queued = state.engine.requests().is_queued(request);
            if is_queued {
                state.engine.as_dyn_mut().cancel(request);
            }
            is_queued
        })
    }

    /// As [`cancel_queued`](Self::cancel_queued), for one of the operations whose context is
    /// wanted. Looks at all operations.
    #[doc(hidden)]
    pub fn cancel_context(&self, is_wanted: impl Fn(u64) -> bool) -> bool {
        self.access.with(|state| {
            let found = state.engine.requests().find_queued(is_wanted);
            if let Some(request) = found {
                state.engine.as_dyn_mut().cancel(request);
            }
            found.is_some()
        })
    }

    /// Makes progress, and adds the oldest ends to `ends`, at most `max`; gives their number. Does
    /// not block. From several threads: each end is given to one of them.
    #[inline]
    pub fn ends(&self, ends: &mut Vec<End>, max: usize) -> usize {
        let worker = self.access.fixed().worker;
        self.access.with(|state| state.ends(ends, max, worker).1)
    }

    /// As [`ends`](Self::ends), but calls `take` with each end in place of keeping a list, which
    /// saves copying the ends. `take` is called with the worker locked: it must not use the worker,
    /// or the call panics or waits for itself.
    #[inline]
    pub fn each_end(&self, max: usize, take: impl FnMut(End)) -> usize {
        let worker = self.access.fixed().worker;
        self.access.with(|state| state.each_end(max, worker, take).1)
    }

    /// As [`each_end`](Self::each_end), for a caller whose short way is that of success, and that
    /// knows itself how many ends it takes.
    #[doc(hidden)]
    #[inline]
    pub fn ends_to(&self, taker: &mut impl EndTaker) {
        let worker = self.access.fixed().worker;
        self.access.with(|state| state.take_ends(&mut WorkerEnds { taker, worker }));
    }

    /// From now on, the queue tells of peers as with
    /// [`Config::peer_events`](crate::Config::peer_events), but not of what has happened before.
    #[doc(hidden)]
    pub fn tell_peers(&self) {
        self.access.with(|state| state.engine.requests_mut().tell_peers());
    }

    /// As [`ends`](Self::ends), but blocks until there is an end: spins, yields, then sleeps, as
    /// [`crate::WaitPolicy`] says. Returns 0 at once if `max` is 0.
    pub fn ends_blocking(&self, ends: &mut Vec<End>, max: usize) -> usize {
        loop {
            let count = self.ends_within(ends, max, &Limit::NONE);
            if count > 0 || max == 0 {
                return count;
            }
        }
    }

    /// As [`ends_blocking`](Self::ends_blocking), for a limited time. 0: there was no end when the
    /// time was over, or when the worker was interrupted ([`crate::Interrupter`]). If there are
    /// ends, an interrupted call returns them, and the next call that would block returns 0.
    pub fn ends_timeout(&self, ends: &mut Vec<End>, max: usize, timeout: Duration) -> usize {
        match self.ends(ends, max) {
            0 => self.ends_within(ends, max, &self.limit(timeout)),
            taken => taken,
        }
    }

    /// As [`ends`](Self::ends), for a task: if there is no end, the task is woken when there is
    /// one. As for a [`Request`](crate::Request), something else has to make progress meanwhile.
    /// Only the task that polled last is woken.
    pub fn poll_ends(
        &self,
        task: &mut Context<'_>,
        ends: &mut Vec<End>,
        max: usize,
    ) -> Poll<usize> {
        let count = self.ends(ends, max);
        if count > 0 || max == 0 {
            return Poll::Ready(count);
        }
        let waker = task.waker().clone();
        let replaced = self.access.with(|state| state.watch_ends(waker));
        // Called outside of the lock, since a waker is code that this crate does not know.
        if let Some(waker) = replaced
            && self.access.with(|state| state.engine.requests().has_ends())
        {
            waker.wake();
        }
        Poll::Pending
    }

    fn ends_within(&self, ends: &mut Vec<End>, max: usize, limit: &Limit<'_>) -> usize {
        if max == 0 {
            return 0;
        }
        let worker = self.access.fixed().worker;
        let look = |state: &mut State| {
            let (events, taken) = state.ends(ends, max, worker);
            (events, (taken > 0).then_some(taken))
        };
        wait_within(&self.access, Awaited::Ends, limit, look).unwrap_or(0)
    }
}
