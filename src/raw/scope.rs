//! Operations on borrowed slices, inside a closure that does not return before they have ended.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tagmatch_device::Buffer;
use tagmatch_fallback::RequestId;
use tagmatch_soft::Tag;

use super::{borrowed, borrowed_shared};
use crate::access::{Access, Local};
use crate::awaited::Awaited;
use crate::envelope::{Match, Peer, Received, SendOptions, Sent, Status};
use crate::error::Error;
use crate::request::Request;
use crate::wait::wait_until;
use crate::worker::WorkerOf;

/// Where operations on borrowed slices begin; see [`WorkerOf::scope`].
pub struct Scope<'scope, 'env: 'scope, A: Access = Local> {
    worker: &'env WorkerOf<A>,
    /// Operations that hold a borrowed slice, or did.
    begun: RefCell<ScopedOperations>,
    // Invariant in both, as `std::thread::Scope` is: neither lifetime may be shortened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The operations of a scope. Most scopes have one, which needs no memory of its own.
#[derive(Default)]
struct ScopedOperations {
    first: Option<RequestId>,
    others: Vec<RequestId>,
}

impl ScopedOperations {
    fn add(&mut self, request: RequestId) {
        if self.first.is_none() {
            self.first = Some(request);
        } else {
            self.others.push(request);
        }
    }
}

/// An operation on a borrowed slice. Dropping it cancels a receive that has not matched.
#[must_use = "a receive that is dropped is cancelled"]
#[derive(Debug)]
pub struct ScopedRequest<'scope, A: Access = Local> {
    request: Scoped<A>,
    slice: PhantomData<&'scope mut [u8]>,
}

#[derive(Debug)]
enum Scoped<A: Access> {
    Receive(Request<Received, A>),
    /// A send, and the envelope that its result has.
    Send(Request<Sent, A>, Status),
}

impl<'scope, A: Access> ScopedRequest<'scope, A> {
    /// The result, if there is one; makes progress if there isn't. For a send, the envelope's
    /// source is the peer that it went to.
    pub fn test(&mut self) -> Option<Result<Status, Error>> {
        match &mut self.request {
            Scoped::Receive(request) => request.test().map(|result| Ok(result?.status)),
            Scoped::Send(request, status) => request.test().map(|result| {
                result?;
                Ok(*status)
            }),
        }
    }

    /// Blocks until the operation ends.
    pub fn wait(self) -> Result<Status, Error> {
        match self.request {
            Scoped::Receive(request) => Ok(request.wait()?.status),
            Scoped::Send(request, status) => {
                request.wait()?;
                Ok(status)
            }
        }
    }

    /// Blocks until the operation ends, or the time is over; see [`Request::wait_timeout`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<Status, Error>> {
        match &mut self.request {
            Scoped::Receive(request) => {
                request.wait_timeout(timeout).map(|result| Ok(result?.status))
            }
            Scoped::Send(request, status) => request.wait_timeout(timeout).map(|result| {
                result?;
                Ok(*status)
            }),
        }
    }

    /// Asks to cancel; see [`Request::cancel`].
    pub fn cancel(&mut self) {
        match &mut self.request {
            Scoped::Receive(request) => request.cancel(),
            Scoped::Send(request, _) => request.cancel(),
        }
    }
}

impl<'scope, 'env, A: Access> Scope<'scope, 'env, A> {
    /// Receives into a slice; see [`WorkerOf::recv`].
    pub fn recv(
        &'scope self,
        which: impl Into<Match>,
        slice: &'scope mut [u8],
    ) -> ScopedRequest<'scope, A> {
        // SAFETY: `WorkerOf::scope` ends the operation before 'scope ends.
        let buffer = unsafe { borrowed(slice) };
        let request = self.worker.recv(which, buffer);
        self.begun(request.id(), Scoped::Receive(request))
    }

    /// Sends a slice; see [`WorkerOf::send`].
    pub fn send(
        &'scope self,
        peer: Peer,
        tag: impl Into<Tag>,
        slice: &'scope [u8],
    ) -> ScopedRequest<'scope, A> {
        self.send_with(peer, tag, slice, SendOptions::default())
    }

    /// Sends a slice in any mode; see [`WorkerOf::send_with`].
    pub fn send_with(
        &'scope self,
        peer: Peer,
        tag: impl Into<Tag>,
        slice: &'scope [u8],
        options: SendOptions,
    ) -> ScopedRequest<'scope, A> {
        // SAFETY: `WorkerOf::scope` ends the operation before 'scope ends.
        let buffer: Buffer = unsafe { borrowed_shared(slice) };
        let tag = tag.into();
        let length = slice.len();
        let SendOptions { immediate, .. } = options;
        let status = Status { source: peer, tag, length, truncated: false, immediate };
        let request = self.worker.send_with(peer, tag, buffer, options);
        self.begun(request.id(), Scoped::Send(request, status))
    }

    fn begun(&self, id: Option<RequestId>, request: Scoped<A>) -> ScopedRequest<'scope, A> {
        if let Some(id) = id {
            self.begun.borrow_mut().add(id);
        }
        ScopedRequest { request, slice: PhantomData }
    }

    /// Ends every operation that may still hold a slice: receives are cancelled, all are waited
    /// for.
    fn end(&self) {
        // Progress calls wakers. If one panicked, operations would go on using slices whose borrow
        // ends with this call: the process has to end.
        let guard = AbortOnUnwind;
        let access = &self.worker.access;
        let ScopedOperations { first, others } = self.begun.take();
        for request in first.into_iter().chain(others) {
            let is_over = access.with(|state| {
                let is_over = !state.engine.requests().exists(request);
                if !is_over {
                    state.engine.as_dyn_mut().cancel(request);
                }
                is_over
            });
            if is_over {
                continue;
            }
            wait_until(access, Awaited::Requests(&[request]), |state| {
                let (events, completion) = state.end_of(request);
                let over = completion.is_some() || !state.engine.requests().exists(request);
                (events, over.then_some(()))
            });
        }
        std::mem::forget(guard);
    }
}

/// Ends the process if it is dropped.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Ends the scope's operations also when the closure panics.
struct EndGuard<'a, 'scope, 'env, A: Access>(&'a Scope<'scope, 'env, A>);

impl<A: Access> Drop for EndGuard<'_, '_, '_, A> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<A: Access> WorkerOf<A> {
    /// Runs a closure that may send and receive borrowed slices. Blocks until every operation that
    /// was begun in it has ended: receives that have not matched are cancelled then, everything
    /// else is waited for.
    ///
    /// ```
    /// use tagmatch::{Config, Match, Worker};
    ///
    /// let worker = Worker::new(Config::default())?;
    /// let me = worker.oneself();
    /// let mut inbox = [0u8; 4];
    /// worker.scope(|scope| {
    ///     let receive = scope.recv(Match::tag(1), &mut inbox);
    ///     scope.send(me, 1, b"ping").wait()?;
    ///     receive.wait()
    /// })?;
    /// assert_eq!(&inbox, b"ping");
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    pub fn scope<'env, R>(
        &'env self,
        f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, A>) -> R,
    ) -> R {
        let scope =
            Scope { worker: self, begun: RefCell::default(), scope: PhantomData, env: PhantomData };
        let _end = EndGuard(&scope);
        f(&scope)
    }
}

impl<A: Access> fmt::Debug for Scope<'_, '_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = self.begun.borrow();
        let count = usize::from(begun.first.is_some()) + begun.others.len();
        write!(f, "Scope({count} operations)")
    }
}
