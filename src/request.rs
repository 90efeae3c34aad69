//! Requests: operations under way, and their results.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use tagmatch_fallback::{Completion, Posted, Refused, RequestId, Started};
use tagmatch_hw::Buffer;

use crate::access::{Access, Local};
use crate::envelope::{Received, Sent, Status};
use crate::error::{Error, Failed};
use crate::sync::{AtomicBool, Nudge};
use crate::wait::wait_until;

/// Polls of [`Request::wait`] before the wait policy counts: the answer is mostly on its way already.
const POLLS_AT_ONCE: u32 = 16;

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
    progress: Progress<A>,
    output: PhantomData<fn() -> T>,
}

enum Progress<A: Access> {
    /// A send that was complete at once.
    Sent(Buffer),
    Other(Other<A>),
}

/// Apart, for the sake of the size: a buffer has room to tell itself from one other thing only.
enum Other<A: Access> {
    Pending(Pending<A>),
    /// Refused at once, or, if there is nothing, the result was taken.
    Ended(Option<Box<Failed>>),
}

impl<A: Access> Progress<A> {
    const TAKEN: Self = Progress::Other(Other::Ended(None));

    #[inline(always)]
    fn pending(&mut self) -> Option<&mut Pending<A>> {
        match self {
            Progress::Other(Other::Pending(pending)) => Some(pending),
            _ => None,
        }
    }

    #[cold]
    fn refused(error: Error, buffer: Buffer) -> Self {
        Progress::Other(Other::Ended(Some(Box::new(Failed { error, buffer }))))
    }
}

// It is moved from call to call and kept in arrays.
const _: () = assert!(size_of::<Request<Sent>>() <= 24);

/// An operation in the engine's table; dropping it lets go of it.
struct Pending<A: Access> {
    access: A,
    /// [`RequestId::NONE`] once the result was taken.
    request: RequestId,
}

impl<A: Access> Pending<A> {
    /// The result, if there is one; makes progress if there isn't.
    #[inline(always)]
    fn test<T: Output>(&mut self) -> Option<Result<T, Failed>> {
        let worker = self.access.fixed().worker;
        let mut state = self.access.lock();
        if !state.progress_until(self.request).1 {
            A::unlock(state);
            // Taken, and lost: whoever was to be woken then has panicked.
            let is_lost = self.request == RequestId::NONE;
            return is_lost.then(|| Err(*failed(None, worker)));
        }
        let request = std::mem::replace(&mut self.request, RequestId::NONE);
        let Some(ended) = state.engine.ended(request) else {
            let completion = state.engine.take(request);
            A::unlock(state);
            return Some(Err(*failed(completion, worker)));
        };
        let (status, buffer) = ended.take();
        A::unlock(state);
        Some(Ok(T::new(Status::new(status, worker), buffer)))
    }

    /// In a box, as [`failed`].
    #[cold]
    #[inline(never)]
    fn wait_long<T: Output>(&mut self) -> Box<Result<T, Failed>> {
        let request = self.request;
        if request == RequestId::NONE {
            return Box::new(Err(*failed(None, 0)));
        }
        Box::new(match wait_until(&self.access, Some(request), |state| state.end_of(request)) {
            Ok(completion) => {
                self.request = RequestId::NONE;
                let worker = self.access.fixed().worker;
                match completion {
                    Completion { result: Ok(status), buffer } => {
                        Ok(T::new(Status::new(status, worker), buffer))
                    }
                    failure => Err(*failed(Some(failure), worker)),
                }
            }
            Err(error) => Err(Failed { error, buffer: Buffer::default() }),
        })
    }
}

impl<A: Access> Drop for Pending<A> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.request != RequestId::NONE {
            let_go(self.access.clone(), self.request);
        }
    }
}

/// By value: a request whose address is never asked for stays in registers.
#[cold]
#[inline(never)]
#[expect(clippy::needless_pass_by_value, reason = "see above")]
fn let_go<A: Access>(access: A, request: RequestId) {
    let waker = access.with(|state| {
        state.engine.detach(request);
        state.unwatch(request)
    });
    drop(waker);
}

/// The failure that a request ended with. In a box: a place for it among the results would have to be in memory.
#[cold]
#[inline(never)]
fn failed(completion: Option<Completion>, worker: u32) -> Box<Failed> {
    Box::new(match completion {
        Some(Completion { result: Err(fault), buffer }) => {
            Failed { error: Error::from_fault(fault, worker), buffer }
        }
        _ => Failed { error: Error::AlreadyTaken, buffer: Buffer::default() },
    })
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
    /// Keeps [`Output`](super::Output) to this crate.
    pub trait Output: Sized {
        #[doc(hidden)]
        fn new(status: super::Status, buffer: super::Buffer) -> Self;
        #[doc(hidden)]
        fn sent(buffer: super::Buffer) -> Option<Self>;
    }
}

impl sealed::Output for Sent {
    #[inline]
    fn new(_: Status, buffer: Buffer) -> Self {
        Sent { buffer }
    }

    #[inline]
    fn sent(buffer: Buffer) -> Option<Self> {
        Some(Sent { buffer })
    }
}

impl sealed::Output for Received {
    #[inline]
    fn new(status: Status, buffer: Buffer) -> Self {
        Received { buffer, status }
    }

    fn sent(_: Buffer) -> Option<Self> {
        None
    }
}

impl<T: Output, A: Access> Request<T, A> {
    #[inline]
    pub(crate) fn new(access: &A, started: Started) -> Self {
        match started {
            Started::Pending(request) => Self::posted(access, Ok(request)),
            Started::Sent(buffer) => Self::sent(buffer),
            Started::Refused(refused) => Self::posted(access, Err(refused)),
        }
    }

    #[inline]
    pub(crate) fn posted(access: &A, posted: Posted) -> Self {
        let progress = match posted {
            Ok(request) => {
                let access = access.clone();
                Progress::Other(Other::Pending(Pending { access, request }))
            }
            Err(refused) => {
                let Refused { fault, buffer } = *refused;
                let error = Error::from_fault(fault, access.fixed().worker);
                Progress::refused(error, buffer)
            }
        };
        Request { progress, output: PhantomData }
    }

    /// A send that was complete at once.
    #[inline]
    pub(crate) fn sent(buffer: Buffer) -> Self {
        Request { progress: Progress::Sent(buffer), output: PhantomData }
    }

    #[cold]
    pub(crate) fn refused(error: Error, buffer: Buffer) -> Self {
        Request { progress: Progress::refused(error, buffer), output: PhantomData }
    }

    /// The result, if there is one; makes progress if there isn't. After the result was taken:
    /// [`Error::AlreadyTaken`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline(always)]
    pub fn test(&mut self) -> Option<Result<T, Failed>> {
        let Some(pending) = self.progress.pending() else {
            return Some(self.take());
        };
        pending.test()
    }

    /// Blocks until the operation ends: spins, yields, then sleeps, as [`crate::WaitPolicy`] says.
    ///
    /// # Errors
    /// The peer that the operation depends on is down, the receive was cancelled, the message could
    /// not be read, or the operation was refused; [`Failed`] has the reason and the buffer.
    #[inline]
    pub fn wait(mut self) -> Result<T, Failed> {
        let Some(pending) = self.progress.pending() else {
            return self.take();
        };
        for _ in 0..POLLS_AT_ONCE {
            if let Some(result) = pending.test() {
                return result;
            }
        }
        *pending.wait_long()
    }

    /// Asks to cancel. The operation's end tells the outcome: a receive that no message has matched
    /// ends with [`Error::Cancelled`]; any other operation goes on.
    pub fn cancel(&mut self) {
        if let Some(pending) = self.progress.pending() {
            pending.access.with(|state| state.engine.cancel(pending.request));
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

    /// The request's name, until its result was taken.
    pub(crate) fn id(&self) -> Option<RequestId> {
        match &self.progress {
            Progress::Other(Other::Pending(pending)) if pending.request != RequestId::NONE => {
                Some(pending.request)
            }
            _ => None,
        }
    }

    /// What needs no look at the worker.
    #[inline(always)]
    fn take(&mut self) -> Result<T, Failed> {
        match std::mem::replace(&mut self.progress, Progress::TAKEN) {
            Progress::Sent(buffer) => T::sent(buffer).ok_or_else(|| *failed(None, 0)),
            Progress::Other(Other::Ended(Some(failed))) => Err(*failed),
            Progress::Other(_) => Err(*failed(None, 0)),
        }
    }
}

impl<T: Output, A: Access + Unpin> Future for Request<T, A> {
    type Output = Result<T, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.test() {
            return Poll::Ready(result);
        }
        if let Progress::Other(Other::Pending(Pending { access, request })) = &self.progress {
            let request = *request;
            let waker = context.waker().clone();
            let replaced = access.with(|state| state.watch(request, waker));
            // Foreign code: dropped outside of the lock. The request cannot have ended in between
            // unnoticed: `watch` hands the waker back then.
            if let Some(waker) = replaced
                && access.with(|state| state.engine.is_done(request))
            {
                waker.wake();
            }
        }
        Poll::Pending
    }
}

impl<T: Output, A: Access> fmt::Debug for Request<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.progress {
            Progress::Other(Other::Pending(_)) if self.id().is_some() => "Request(under way)",
            Progress::Sent(_) | Progress::Other(Other::Ended(Some(_))) => "Request(done)",
            Progress::Other(_) => "Request(result taken)",
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
