//! An operation under way, to be tested, waited for or awaited.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::shared::Driver;
use super::waiting::wait;
use crate::net::Net;

/// An operation that a [`Request`] waits for.
pub trait Pending<N: Net> {
    /// The result of the operation.
    type Output;

    #[doc(hidden)]
    fn driver(&self) -> &Arc<Driver<N>>;

    /// The result, once, if the operation has ended.
    #[doc(hidden)]
    fn test(&mut self) -> Option<Self::Output>;

    /// As [`test`](Self::test), for a caller that drops the request after the result.
    #[doc(hidden)]
    fn test_by_value(&mut self) -> Option<Self::Output> {
        self.test()
    }

    /// As [`test`](Self::test), for a caller that drops the request after the result. An operation
    /// that has not ended wakes the waker when it ends.
    #[doc(hidden)]
    fn watch(&mut self, waker: &Waker) -> Option<Self::Output> {
        self.driver().watch(waker);
        self.test()
    }
}

/// An operation under way: [`test`](Self::test) it, [`wait`](Self::wait) for it, or await it.
///
/// A receive that is dropped is cancelled. Any other operation that is dropped goes on to its end,
/// as long as something makes progress.
#[must_use = "a receive that is dropped is cancelled"]
pub struct Request<N: Net, P: Pending<N>> {
    pub(crate) pending: P,
    net: std::marker::PhantomData<fn() -> N>,
}

impl<N: Net, P: Pending<N>> Request<N, P> {
    pub(crate) fn new(pending: P) -> Self {
        Request { pending, net: std::marker::PhantomData }
    }

    /// The operation's result, once, if it has ended. Makes progress first.
    pub fn test(&mut self) -> Option<P::Output> {
        self.pending.driver().progress();
        self.pending.test()
    }

    /// As [`wait`](Self::wait), for an operation that may report something before its end, such as
    /// a receive from any source that stays posted after a failure.
    pub fn wait_mut(&mut self) -> P::Output {
        self.wait_by(P::test)
    }

    fn wait_by(&mut self, test: impl Fn(&mut P) -> Option<P::Output>) -> P::Output {
        if let Some(output) = test(&mut self.pending) {
            return output;
        }
        let driver = Arc::clone(self.pending.driver());
        wait(&driver, |waiting| (0..waiting.looks()).find_map(|_| test(&mut self.pending)))
    }

    /// Blocks until the operation has ended: spins, yields, then sleeps.
    pub fn wait(mut self) -> P::Output {
        self.wait_by(P::test_by_value)
    }
}

/// Any executor can poll a request, but something has to make progress:
/// [`Runtime::block_on`](crate::Runtime::block_on), a
/// [progress thread](crate::Runtime::progress_thread), or a loop that calls
/// [`Runtime::progress`](crate::Runtime::progress).
impl<N: Net, P: Pending<N> + Unpin> Future for Request<N, P> {
    type Output = P::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<P::Output> {
        self.pending.driver().progress();
        self.pending.watch(context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}
