//! Operations under way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::net::Net;
use crate::runtime::{Shared, TESTS_IN_A_ROW};

/// What a request waits for.
pub trait Pending<N: Net> {
    /// What it ends with.
    type Output;

    /// The end, once.
    #[doc(hidden)]
    fn test(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output>;
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
        let mut turn = 0;
        loop {
            for _ in 0..TESTS_IN_A_ROW {
                if let Some(output) = self.pending.test(&self.shared) {
                    return output;
                }
            }
            self.shared.progress();
            N::pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Blocks until it ends: spins, yields, then looks every so often.
    pub fn wait(mut self) -> P::Output {
        self.wait_mut()
    }
}

/// Polled again at once: a transport has nothing that would wake a task. Use it on an executor that does
/// something else in between.
impl<N: Net, P: Pending<N> + Unpin> Future for Request<N, P> {
    type Output = P::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<P::Output> {
        let ended = self.test();
        if ended.is_none() {
            context.waker().wake_by_ref();
        }
        ended.map_or(Poll::Pending, Poll::Ready)
    }
}
