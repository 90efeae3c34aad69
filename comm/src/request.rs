//! Operations under way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::net::Net;
use crate::runtime::Shared;
use crate::wait::Waiting;

/// What a request waits for.
pub trait Pending<N: Net> {
    /// What it ends with.
    type Output;

    /// The end, once.
    #[doc(hidden)]
    fn test(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output>;

    /// The end, for a caller that drops the request after it.
    #[doc(hidden)]
    fn test_by_value(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output> {
        self.test(shared)
    }

    /// The end, for a caller that drops the request after it. If there is none yet, it wakes the waker.
    #[doc(hidden)]
    fn watch(&mut self, shared: &Arc<Shared<N>>, waker: &Waker) -> Option<Self::Output> {
        shared.watch(waker);
        self.test(shared)
    }
}

/// An operation under way: [`test`](Self::test) it, [`wait`](Self::wait) for it, or await it.
///
/// A receive that is dropped is cancelled. Anything else that is dropped goes on to its end, for which
/// something has to make progress.
#[must_use = "a receive that is dropped is cancelled"]
pub struct Request<N: Net, P: Pending<N>> {
    pub(crate) shared: Arc<Shared<N>>,
    pub(crate) pending: P,
}

impl<N: Net, P: Pending<N>> Request<N, P> {
    pub(crate) fn new(shared: &Arc<Shared<N>>, pending: P) -> Self {
        Request { shared: Arc::clone(shared), pending }
    }

    /// What it ended with, once, if it has. Makes progress first.
    pub fn test(&mut self) -> Option<P::Output> {
        self.shared.progress();
        self.pending.test(&self.shared)
    }

    /// The same as [`wait`](Self::wait), for what may report something before its end, such as a receive from
    /// any source that a failure has left posted.
    pub fn wait_mut(&mut self) -> P::Output {
        self.wait_by(P::test)
    }

    fn wait_by(
        &mut self,
        test: impl Fn(&mut P, &Arc<Shared<N>>) -> Option<P::Output>,
    ) -> P::Output {
        let Request { shared, pending } = self;
        let mut waiting = Waiting::new(shared);
        loop {
            for _ in 0..waiting.looks() {
                if let Some(output) = test(pending, shared) {
                    return output;
                }
            }
            shared.progress();
            waiting.rest();
        }
    }

    /// Blocks until it ends: spins, yields, then sleeps.
    pub fn wait(mut self) -> P::Output {
        self.wait_by(P::test_by_value)
    }
}

/// Any executor will do, but something has to make progress: [`Runtime::block_on`](crate::Runtime::block_on),
/// a [progress thread](crate::Runtime::progress_thread), or whatever calls
/// [`Runtime::progress`](crate::Runtime::progress).
impl<N: Net, P: Pending<N> + Unpin> Future for Request<N, P> {
    type Output = P::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<P::Output> {
        let Request { shared, pending } = &mut *self;
        shared.progress();
        pending.watch(shared, context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}
