//! Requests: operations under way, and their results.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use tagmatch_fallback::{Completion, RequestId, Started};
use tagmatch_hw::Buffer;

use crate::access::{Access, Local};
use crate::envelope::{Received, Sent, Status};
use crate::error::{Error, Failed};
use crate::sync::{AtomicBool, Nudge};
use crate::wait::wait_until;

/// An operation under way, or its result.
///
/// [`test`](Self::test) it, [`wait`](Self::wait) for it, or await it as a future; any executor will
/// do, but something has to make progress for the worker: the polls of its requests do, and
/// [`crate::WorkerOf::progress`], and a [`crate::ProgressThread`].
///
/// Dropping a request lets go of it. A receive that has not matched is cancelled; everything else
/// goes on to its end by itself, and its buffer is freed there and not before: leaking or dropping a
/// request never lets anyone write to freed memory.
#[must_use = "a receive that is dropped is cancelled"]
pub struct Request<T: Output, A: Access = Local> {
    access: A,
    progress: Progress,
    output: PhantomData<fn() -> T>,
}

enum Progress {
    Pending(RequestId),
    Done(Completion),
    Refused(Failed),
    Taken,
}

/// How a cancelled receive ended.
#[derive(Debug)]
pub enum Cancel<T> {
    /// It was cancelled; nothing was written to its buffer.
    Cancelled(Buffer),
    /// A message was faster: the receive completed.
    TooLate(T),
}

/// What a request ends with: [`Sent`] or [`Received`].
pub trait Output: sealed::Output {}

impl Output for Sent {}
impl Output for Received {}

mod sealed {
    pub trait Output: Sized {
        #[doc(hidden)]
        fn new(status: super::Status, buffer: super::Buffer) -> Self;
    }
}

impl sealed::Output for Sent {
    #[inline]
    fn new(_: Status, buffer: Buffer) -> Self {
        Sent { buffer }
    }
}

impl sealed::Output for Received {
    #[inline]
    fn new(status: Status, buffer: Buffer) -> Self {
        Received { buffer, status }
    }
}

impl<T: Output, A: Access> Request<T, A> {
    #[inline]
    pub(crate) fn new(access: &A, started: Started) -> Self {
        let progress = match started {
            Started::Done(completion) => Progress::Done(completion),
            Started::Pending(request) => Progress::Pending(request),
        };
        Request { access: access.clone(), progress, output: PhantomData }
    }

    pub(crate) fn refused(access: &A, error: Error, buffer: Buffer) -> Self {
        let progress = Progress::Refused(Failed { error, buffer });
        Request { access: access.clone(), progress, output: PhantomData }
    }

    /// The result, if there is one; makes progress if there isn't. After the result was taken:
    /// [`Error::AlreadyTaken`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline]
    pub fn test(&mut self) -> Option<Result<T, Failed>> {
        if let Progress::Pending(request) = self.progress {
            let completion = self.access.with(|state| {
                if let Some(completion) = state.engine.take(request) {
                    return Some(completion);
                }
                state.progress();
                state.engine.take(request)
            })?;
            self.progress = Progress::Done(completion);
        }
        Some(self.take())
    }

    /// Blocks until the operation ends: spins, yields, then sleeps, as [`crate::WaitPolicy`] says.
    ///
    /// # Errors
    /// The peer that the operation depends on is down, the receive was cancelled, the message could
    /// not be read, or the operation was refused; [`Failed`] has the reason and the buffer.
    pub fn wait(mut self) -> Result<T, Failed> {
        if let Some(result) = self.test() {
            return result;
        }
        if let Progress::Pending(request) = self.progress {
            let done = wait_until(&self.access, Some(request), |s| s.engine.take(request));
            match done {
                Ok(completion) => self.progress = Progress::Done(completion),
                Err(error) => return Err(Failed { error, buffer: Buffer::default() }),
            }
        }
        self.take()
    }

    /// Asks to cancel. The operation's end tells the outcome: a receive that no message has matched
    /// ends with [`Error::Cancelled`]; any other operation goes on.
    pub fn cancel(&mut self) {
        if let Progress::Pending(request) = self.progress {
            self.access.with(|state| state.engine.cancel(request));
        }
    }

    /// Cancels, and blocks until the outcome is known.
    ///
    /// # Errors
    /// The operation had failed, or failed because its message's sender went down.
    pub fn cancel_wait(mut self) -> Result<Cancel<T>, Failed> {
        self.cancel();
        match self.wait() {
            Ok(output) => Ok(Cancel::TooLate(output)),
            Err(Failed { error: Error::Cancelled, buffer }) => Ok(Cancel::Cancelled(buffer)),
            Err(failed) => Err(failed),
        }
    }

    /// The request's name, while it is under way.
    pub(crate) fn id(&self) -> Option<RequestId> {
        match self.progress {
            Progress::Pending(request) => Some(request),
            _ => None,
        }
    }

    /// The same request with its result as an envelope: for scopes, which keep the buffer.
    pub(crate) fn into_received(mut self) -> Request<Received, A> {
        let progress = std::mem::replace(&mut self.progress, Progress::Taken);
        Request { access: self.access.clone(), progress, output: PhantomData }
    }

    #[inline]
    fn take(&mut self) -> Result<T, Failed> {
        let worker = self.access.fixed().worker;
        match std::mem::replace(&mut self.progress, Progress::Taken) {
            Progress::Done(Completion { result: Ok(status), buffer }) => {
                Ok(T::new(Status::new(status, worker), buffer))
            }
            Progress::Done(Completion { result: Err(fault), buffer }) => {
                Err(Failed { error: Error::from_fault(fault, worker), buffer })
            }
            Progress::Refused(failed) => Err(failed),
            Progress::Taken | Progress::Pending(_) => {
                Err(Failed { error: Error::AlreadyTaken, buffer: Buffer::default() })
            }
        }
    }
}

impl<T: Output, A: Access + Unpin> Future for Request<T, A> {
    type Output = Result<T, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.test() {
            return Poll::Ready(result);
        }
        if let Progress::Pending(request) = self.progress {
            let waker = context.waker().clone();
            let replaced = self.access.with(|state| state.watch(request, waker));
            // Foreign code: dropped outside of the lock. The request cannot have ended in between
            // unnoticed: `watch` hands the waker back then.
            if let Some(waker) = replaced
                && self.access.with(|state| state.engine.is_done(request))
            {
                waker.wake();
            }
        }
        Poll::Pending
    }
}

impl<T: Output, A: Access> Drop for Request<T, A> {
    #[inline]
    fn drop(&mut self) {
        if let Progress::Pending(request) = self.progress {
            let waker = self.access.with(|state| {
                state.engine.detach(request);
                state.unwatch(request)
            });
            drop(waker);
        }
    }
}

impl<T: Output, A: Access> fmt::Debug for Request<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.progress {
            Progress::Pending(_) => "Request(under way)",
            Progress::Done(_) | Progress::Refused(_) => "Request(done)",
            Progress::Taken => "Request(result taken)",
        })
    }
}

/// What a future that runs in [`block_on`] wakes.
struct Alarm {
    rung: AtomicBool,
    nudge: Nudge,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.nudge.ring();
    }
}

pub(crate) fn block_on<A: Access, F: Future>(access: &A, future: F) -> Result<F::Output, Error> {
    let address = access.fixed().address;
    let nudge = Nudge::new().map_err(|source| Error::Wait { address, source })?;
    let alarm = Arc::new(Alarm { rung: AtomicBool::new(true), nudge });
    let waker = Waker::from(Arc::clone(&alarm));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        alarm.nudge.reset();
        if alarm.rung.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return Ok(output);
        }
        crate::wait::wait_for_alarm(access, &alarm.nudge, || alarm.rung.load(Ordering::Acquire))?;
    }
}
