//! Messages that a matched probe took.

use std::fmt;

use tagmatch_device::Buffer;
use tagmatch_fallback::MessageId;

use crate::access::{Access, Local};
use crate::end::QueuedRequest;
use crate::envelope::{Received, Status};
use crate::error::Error;
use crate::error::Failed;
use crate::request::Request;

/// A message that [`crate::WorkerOf::mprobe`] took, so that no other probe or receive finds it. It
/// is to be received; dropping it discards it, and its sender completes as if it had been received.
///
/// A synchronous sender completes only once the receive has begun.
#[must_use = "a matched message that is dropped is discarded"]
pub struct Message<A: Access = Local> {
    access: A,
    id: MessageId,
    status: Status,
    /// A receive has it: there is nothing to discard.
    is_received: bool,
}

impl<A: Access> Message<A> {
    pub(crate) fn new(access: &A, id: MessageId, status: Status) -> Self {
        Message { access: access.clone(), id, status, is_received: false }
    }

    /// The message's envelope.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it. Truncation is reported by the receive. If its sender died before its bytes
    /// could be read, the receive fails.
    pub fn recv(mut self, buffer: impl Into<Buffer>) -> Request<Received, A> {
        let id = self.id;
        let buffer = buffer.into();
        let posted =
            self.access.with(|state| state.engine.as_dyn_mut().receive_message(id, buffer));
        // A message that the receive refused is discarded by the drop.
        self.is_received = posted.is_ok();
        Request::begun(&self.access, posted)
    }

    /// Receives it as [`recv`](Self::recv) does; its end comes in the completion queue, with
    /// `context`.
    ///
    /// # Errors
    /// The receive was refused; there will be no end. [`Failed`] has the reason and the buffer.
    pub fn recv_queued(
        mut self,
        buffer: impl Into<Buffer>,
        context: u64,
    ) -> Result<QueuedRequest, Failed> {
        let id = self.id;
        let buffer = buffer.into();
        let posted = self.access.with(|state| {
            let posted = state.engine.as_dyn_mut().receive_message(id, buffer);
            state.queue(posted, context)
        });
        // A message that the receive refused is discarded by the drop.
        self.is_received = posted.is_ok();
        QueuedRequest::begun(&self.access, posted)
    }

    /// Receives all of it into memory that is allocated for it, on whose length the sender decides:
    /// ask [`status`](Self::status) first where that matters. If there is no memory for it, the
    /// message is discarded, and the receive fails ([`Error::NoMemory`]).
    ///
    /// ```
    /// use tagmatch::{Config, Match, Worker};
    ///
    /// let worker = Worker::new(Config::default())?;
    /// worker.inject(worker.oneself(), 7, b"of any length")?;
    /// let received = worker.mprobe_blocking(Match::tag(7))?.recv_whole().wait()?;
    /// assert_eq!(received.buffer.into_vec(), b"of any length");
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    pub fn recv_whole(self) -> Request<Received, A> {
        let length = self.status.length;
        match Buffer::try_zeroed(length) {
            Some(buffer) => self.recv(buffer),
            None => Request::refused(Error::NoMemory { length }, Buffer::default()),
        }
    }

    /// Drops it.
    pub fn discard(self) {}
}

impl<A: Access> Drop for Message<A> {
    fn drop(&mut self) {
        if !self.is_received {
            self.access.with_unless_forked(|state| {
                state.engine.as_dyn_mut().discard_message(self.id);
            });
        }
    }
}

impl<A: Access> fmt::Debug for Message<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.status).finish()
    }
}
