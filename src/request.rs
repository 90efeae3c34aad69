//! Requests: operations under way, and their results.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tagmatch_device::Buffer;
use tagmatch_fallback::{Completion, Posted, Refused, RequestId, WaitedEnd};

use crate::access::{Access, Local, State};
use crate::awaited::Awaited;
use crate::envelope::{Received, Sent, Status};
use crate::error::{Error, Failed};
use crate::sync::{AtomicBool, EventFd};
use crate::wait::{Limit, wait_within};

/// Polls of [`Request::wait`] before the wait policy applies: mostly the answer is already on its
/// way.
const POLLS_AT_ONCE: u32 = 16;

/// An operation under way, or its result.
///
/// [`test`](Self::test) it, [`wait`](Self::wait) for it, or await it as a future.
///
/// **Awaiting.** Any executor will do, but no executor makes progress for the worker. A poll of the
/// future makes progress once. After that the task sleeps until something else makes progress, for
/// ever if nothing does. One of these has to do it:
/// - [`block_on`](crate::WorkerOf::block_on), in the place of an executor;
/// - a [`ProgressThread`](crate::ProgressThread) of a [`SharedWorker`](crate::SharedWorker): the
///   repository's `examples/await_with_progress_thread.rs` shows it under tokio;
/// - the executor's reactor, which watches [`event_descriptor`](crate::WorkerOf::event_descriptor):
///   `examples/await_with_async_fd.rs`;
/// - any call of [`progress`](crate::WorkerOf::progress) elsewhere.
///
/// A task that doesn't know the length of its next message awaits
/// [`mprobe_async`](crate::WorkerOf::mprobe_async) instead of a receive.
///
/// Dropping a request cancels a receive that has not matched. Any other operation goes on to its
/// end by itself, and its buffer is freed then and not before: after a request is dropped or
/// leaked, nothing is written to freed memory.
#[must_use = "a receive that is dropped is cancelled"]
pub struct Request<T: Output, A: Access = Local> {
    progress: T::Progress<A>,
}

/// The state of a request.
pub enum Progress<A: Access> {
    Pending(Pending<A>),
    /// `Some`: the operation was refused at once. `None`: the result was taken.
    Ended(Option<Box<Failed>>),
}

/// The state of a send, which may be complete at once. A type of its own, because it is larger:
/// programs hold many receives, and a receive is never complete before the worker was asked.
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

// Requests are moved from call to call and kept in arrays, so they have to be small.
const _: () = assert!(size_of::<Request<Sent>>() <= 24 && size_of::<Request<Received>>() <= 16);

/// An operation in the engine's table. Dropping it detaches the operation.
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
        let end = state.progress_to_end(self.request);
        if end == WaitedEnd::Done
            && let Some(ended) = state.engine.requests_mut().ended(self.request)
        {
            let (status, buffer) = ended.take();
            self.request = RequestId::NONE;
            A::unlock(state);
            return Some(Ok(T::new(Status::new(status, worker), buffer)));
        }
        if end == WaitedEnd::UnderWay {
            A::unlock(state);
            let is_taken = self.request == RequestId::NONE;
            return is_taken.then(|| Err(*failed(None, worker)));
        }
        let request = std::mem::replace(&mut self.request, RequestId::NONE);
        let completion = state.engine.requests_mut().take(request);
        A::unlock(state);
        Some(Err(*failed(completion, worker)))
    }

    /// `None`: the limit was reached first. The result is in a box for the reason that [`failed`]
    /// gives.
    #[cold]
    #[inline(never)]
    fn wait_long<T: Output>(&mut self, limit: &Limit<'_>) -> Option<Box<Result<T, Failed>>> {
        let request = self.request;
        if request == RequestId::NONE {
            return Some(Box::new(Err(*failed(None, 0))));
        }
        let look = |state: &mut State| state.end_of(request);
        let completion = wait_within(&self.access, Awaited::Requests(&[request]), limit, look)?;
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
            detach(self.access.clone(), self.request);
        }
    }
}

/// Takes its arguments by value: a request whose address is never taken stays in registers.
#[cold]
#[inline(never)]
#[expect(clippy::needless_pass_by_value, reason = "keeps the request in registers")]
fn detach<A: Access>(access: A, request: RequestId) {
    let mut waker = None;
    access.with_unless_forked(|state| {
        state.engine.as_dyn_mut().detach(request);
        waker = state.unwatch(request);
    });
    // Dropped outside of the lock, since its drop is code that this crate does not know.
    drop(waker);
}

/// The failure that a request ended with. It is in a box, so that results fit into registers.
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

/// The result of a request: [`Sent`] or [`Received`].
pub trait Output: sealed::Output {}

impl Output for Sent {}
impl Output for Received {}

mod sealed {
    use super::{Access, Buffer, Progress, Status};

    /// Keeps [`Output`](super::Output) to this crate.
    pub trait Output: Sized {
        /// The state of a request with this result.
        #[doc(hidden)]
        type Progress<A: Access>: From<Progress<A>> + Unpin;
        #[doc(hidden)]
        fn new(status: Status, buffer: Buffer) -> Self;
        /// `None`: the operation was complete at once.
        #[doc(hidden)]
        fn progress<A: Access>(of: &Self::Progress<A>) -> Option<&Progress<A>>;
        #[doc(hidden)]
        fn progress_mut<A: Access>(of: &mut Self::Progress<A>) -> Option<&mut Progress<A>>;
        /// `Ok`: the result of an operation that was complete at once. `Err`: the state of any
        /// other.
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
    /// ([`crate::Interrupter`]). `None`: it has not ended. The request and its buffer stay as they
    /// are, and it can be waited for again, tested, or cancelled. After the result was taken:
    /// [`Error::AlreadyTaken`].
    ///
    /// The wait lasts at least `timeout`, plus the time until the system runs this thread again.
    /// With `Duration::ZERO` this is like [`test`](Self::test).
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
            pending.access.with(|state| state.engine.as_dyn_mut().cancel(pending.request));
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

    /// The request's name, if it is one of this worker, until its result was taken.
    pub(crate) fn id_on(&self, worker: u32) -> Option<RequestId> {
        match T::progress(&self.progress) {
            Some(Progress::Pending(pending)) if pending.access.fixed().worker == worker => {
                self.id()
            }
            _ => None,
        }
    }

    /// Whether the result needs no look at the worker, and was not taken.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(T::progress(&self.progress), None | Some(Progress::Ended(Some(_))))
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

    /// The result of a request that needs no look at the worker.
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
            // The waker is called outside of the lock, since it is code that this crate does not
            // know. A request that ended in between is noticed: `watch` hands the waker back in
            // that case.
            if let Some(waker) = replaced
                && access.with(|state| state.engine.requests().is_over(request))
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

/// The waker of a future that runs in [`block_on`].
struct Alarm {
    rung: AtomicBool,
    eventfd: EventFd,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.eventfd.signal();
    }
}

pub(crate) fn block_on<A: Access, F: Future>(access: &A, future: F) -> Result<F::Output, Error> {
    let address = access.fixed().address;
    let eventfd = EventFd::new().map_err(Error::wait(address))?;
    let alarm = Arc::new(Alarm { rung: AtomicBool::new(true), eventfd });
    let waker = Waker::from(Arc::clone(&alarm));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if alarm.rung.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return Ok(output);
        }
        crate::wait::wait_for_alarm(access, &alarm.eventfd, || alarm.rung.load(Ordering::Acquire));
    }
}
