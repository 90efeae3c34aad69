//! Requests: operations under way, and their results.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tagmatch_device::Buffer;
use tagmatch_fallback::{Completion, Posted, Refused, RequestId};

use crate::access::{Access, Local, State};
use crate::envelope::{Received, Sent, Status};
use crate::error::{Error, Failed};
use crate::sync::{AtomicBool, Nudge};
use crate::wait::{Limit, wait_within};

/// Polls of [`Request::wait`] before the wait policy counts: the answer is mostly on its way already.
const POLLS_AT_ONCE: u32 = 16;

/// An operation under way, or its result.
///
/// [`test`](Self::test) it, [`wait`](Self::wait) for it, or await it as a future.
///
/// **Awaiting.** Any executor will do, but none makes progress for the worker. A poll of the future does, once; after it
/// the task sleeps until something else makes progress, and for ever if nothing does. What can:
/// - [`block_on`](crate::WorkerOf::block_on), in the place of an executor;
/// - a [`ProgressThread`](crate::ProgressThread) of a [`SharedWorker`](crate::SharedWorker): the repository's
///   `examples/await_with_progress_thread.rs` shows it under tokio;
/// - the executor's reactor, which watches [`event_descriptor`](crate::WorkerOf::event_descriptor):
///   `examples/await_with_async_fd.rs`;
/// - any call of [`progress`](crate::WorkerOf::progress) elsewhere.
///
/// Dropping a request lets go of it. A receive that has not matched is cancelled; everything else
/// goes on to its end by itself, and its buffer is freed there and not before: leaking or dropping a
/// request never lets anyone write to freed memory.
#[must_use = "a receive that is dropped is cancelled"]
pub struct Request<T: Output, A: Access = Local> {
    progress: T::Progress<A>,
}

/// What is known of an operation.
pub enum Progress<A: Access> {
    Pending(Pending<A>),
    /// Refused at once, or, if there is nothing, the result was taken.
    Ended(Option<Box<Failed>>),
}

/// The same of a send. Apart, for the sake of the size: receives are never complete without a look at the
/// worker, and programs hold many.
pub enum SendProgress<A: Access> {
    /// Complete at once.
    Sent(Buffer),
    Other(Progress<A>),
}

impl<A: Access> Progress<A> {
    const TAKEN: Self = Progress::Ended(None);

    #[cold]
    fn refused(error: Error, buffer: Buffer) -> Self {
        Progress::Ended(Some(Box::new(Failed { error, buffer })))
    }
}

impl<A: Access> From<Progress<A>> for SendProgress<A> {
    #[inline(always)]
    fn from(progress: Progress<A>) -> Self {
        SendProgress::Other(progress)
    }
}

// They are moved from call to call and kept in arrays.
const _: () = assert!(size_of::<Request<Sent>>() <= 24 && size_of::<Request<Received>>() <= 16);

/// An operation in the engine's table; dropping it lets go of it.
pub struct Pending<A: Access> {
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
            let is_taken = self.request == RequestId::NONE;
            return is_taken.then(|| Err(*failed(None, worker)));
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

    /// In a box, as [`failed`]. `None`: the limit was reached first.
    #[cold]
    #[inline(never)]
    fn wait_long<T: Output>(&mut self, limit: &Limit<'_>) -> Option<Box<Result<T, Failed>>> {
        let request = self.request;
        if request == RequestId::NONE {
            return Some(Box::new(Err(*failed(None, 0))));
        }
        let look = |state: &mut State| state.end_of(request);
        let completion = wait_within(&self.access, Some(request), limit, look)?;
        self.request = RequestId::NONE;
        let worker = self.access.fixed().worker;
        Some(Box::new(match completion {
            Completion { result: Ok(status), buffer } => {
                Ok(T::new(Status::new(status, worker), buffer))
            }
            failure => Err(*failed(Some(failure), worker)),
        }))
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
    let mut waker = None;
    access.with_unless_forked(|state| {
        state.engine.detach(request);
        waker = state.unwatch(request);
    });
    // While nothing is held: its drop is foreign code.
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
    use super::{Access, Buffer, Progress, Status};

    /// Keeps [`Output`](super::Output) to this crate.
    pub trait Output: Sized {
        /// What a request knows of its operation.
        #[doc(hidden)]
        type Progress<A: Access>: From<Progress<A>> + Unpin;
        #[doc(hidden)]
        fn new(status: Status, buffer: Buffer) -> Self;
        /// `None`: it was complete at once.
        #[doc(hidden)]
        fn progress<A: Access>(of: &Self::Progress<A>) -> Option<&Progress<A>>;
        #[doc(hidden)]
        fn progress_mut<A: Access>(of: &mut Self::Progress<A>) -> Option<&mut Progress<A>>;
        /// The result of what was complete at once; `Err` is the progress of anything else.
        #[doc(hidden)]
        fn take<A: Access>(of: Self::Progress<A>) -> Result<Self, Progress<A>>;
    }
}

impl sealed::Output for Sent {
    type Progress<A: Access> = SendProgress<A>;

    #[inline]
    fn new(_: Status, buffer: Buffer) -> Self {
        Sent { buffer }
    }

    #[inline]
    fn progress<A: Access>(of: &SendProgress<A>) -> Option<&Progress<A>> {
        if let SendProgress::Other(progress) = of { Some(progress) } else { None }
    }

    #[inline(always)]
    fn progress_mut<A: Access>(of: &mut SendProgress<A>) -> Option<&mut Progress<A>> {
        if let SendProgress::Other(progress) = of { Some(progress) } else { None }
    }

    #[inline]
    fn take<A: Access>(of: SendProgress<A>) -> Result<Self, Progress<A>> {
        match of {
            SendProgress::Sent(buffer) => Ok(Sent { buffer }),
            SendProgress::Other(progress) => Err(progress),
        }
    }
}

impl sealed::Output for Received {
    type Progress<A: Access> = Progress<A>;

    #[inline]
    fn new(status: Status, buffer: Buffer) -> Self {
        Received { buffer, status }
    }

    #[inline]
    fn progress<A: Access>(of: &Progress<A>) -> Option<&Progress<A>> {
        Some(of)
    }

    #[inline(always)]
    fn progress_mut<A: Access>(of: &mut Progress<A>) -> Option<&mut Progress<A>> {
        Some(of)
    }

    #[inline]
    fn take<A: Access>(of: Progress<A>) -> Result<Self, Progress<A>> {
        Err(of)
    }
}

impl<A: Access> Request<Sent, A> {
    /// A send that was complete at once.
    #[inline]
    pub(crate) fn sent(buffer: Buffer) -> Self {
        Request { progress: SendProgress::Sent(buffer) }
    }
}

impl<T: Output, A: Access> Request<T, A> {
    #[inline]
    pub(crate) fn begun(access: &A, posted: Posted) -> Self {
        let progress = match posted {
            Ok(request) => {
                let access = access.clone();
                Progress::Pending(Pending { access, request }).into()
            }
            Err(refused) => {
                let Refused { fault, buffer } = *refused;
                let error = Error::from_fault(fault, access.fixed().worker);
                Progress::refused(error, buffer).into()
            }
        };
        Request { progress }
    }

    #[cold]
    pub(crate) fn refused(error: Error, buffer: Buffer) -> Self {
        Request { progress: Progress::refused(error, buffer).into() }
    }

    /// The result, if there is one; makes progress if there isn't. After the result was taken:
    /// [`Error::AlreadyTaken`].
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline(always)]
    pub fn test(&mut self) -> Option<Result<T, Failed>> {
        let Some(pending) = self.pending() else {
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
        let Some(pending) = self.pending() else {
            return self.take();
        };
        for _ in 0..POLLS_AT_ONCE {
            if let Some(result) = pending.test() {
                return result;
            }
        }
        loop {
            if let Some(result) = pending.wait_long(&Limit::NONE) {
                return *result;
            }
        }
    }

    /// Blocks until the operation ends, or the time is over, or the worker is interrupted
    /// ([`crate::Interrupter`]). `None`: it has not ended. The request and its buffer stay as they are, and it can
    /// be waited for again, tested, or cancelled. After the result was taken: [`Error::AlreadyTaken`].
    ///
    /// The time is no less than `timeout`, and more by what the system takes to run this thread again. With
    /// `Duration::ZERO` this is like [`test`](Self::test).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tagmatch::{Cancel, Config, Match, Worker};
    ///
    /// let worker = Worker::new(Config::default())?;
    /// let mut receive = worker.recv(Match::tag(7), vec![0; 8]);
    /// assert!(receive.wait_timeout(Duration::from_millis(1)).is_none());
    /// assert!(matches!(receive.cancel_wait()?, Cancel::Cancelled(_)));
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, Failed>> {
        let Some(pending) = self.pending() else {
            return Some(self.take());
        };
        if let Some(result) = pending.test() {
            return Some(result);
        }
        let access = pending.access.clone();
        let limit = Limit::of_call(timeout, &access.fixed().interrupter);
        pending.wait_long(&limit).map(|result| *result)
    }

    /// Asks to cancel. The operation's end tells the outcome: a receive that no message has matched
    /// ends with [`Error::Cancelled`]; any other operation goes on.
    pub fn cancel(&mut self) {
        if let Some(pending) = self.pending() {
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
        match T::progress(&self.progress) {
            Some(Progress::Pending(pending)) if pending.request != RequestId::NONE => {
                Some(pending.request)
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn pending(&mut self) -> Option<&mut Pending<A>> {
        match T::progress_mut(&mut self.progress) {
            Some(Progress::Pending(pending)) => Some(pending),
            _ => None,
        }
    }

    /// What needs no look at the worker.
    #[inline(always)]
    fn take(&mut self) -> Result<T, Failed> {
        match T::take(std::mem::replace(&mut self.progress, Progress::TAKEN.into())) {
            Ok(output) => Ok(output),
            Err(Progress::Ended(Some(failed))) => Err(*failed),
            Err(_) => Err(*failed(None, 0)),
        }
    }
}

impl<T: Output, A: Access + Unpin> Future for Request<T, A> {
    type Output = Result<T, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.test() {
            return Poll::Ready(result);
        }
        if let Some(Progress::Pending(Pending { access, request })) = T::progress(&self.progress) {
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
        f.write_str(match T::progress(&self.progress) {
            Some(Progress::Pending(_)) if self.id().is_some() => "Request(under way)",
            None | Some(Progress::Ended(Some(_))) => "Request(done)",
            Some(_) => "Request(result taken)",
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
        if alarm.rung.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return Ok(output);
        }
        crate::wait::wait_for_alarm(access, &alarm.nudge, || alarm.rung.load(Ordering::Acquire))?;
    }
}
