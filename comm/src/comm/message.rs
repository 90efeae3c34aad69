//! Messages that a matched probe has taken.

use std::fmt;

use tagmatch::Buffer;

use super::communicator::Comm;
use super::envelope::{Received, Status};
use super::transfer::{Receiving, RecvRequest, UnderWay};
use crate::error::{Error, Failed};
use crate::net::Net;

/// The transport's side of a message that a matched probe has taken.
pub(super) enum MessageBody<N: Net> {
    Net(N::Message),
    /// The empty message of no process (`MPI_MESSAGE_NO_PROC`).
    NoProcess,
}

/// A message that [`Comm::mprobe`] took: no other call finds it. A program receives it or discards
/// it; dropping it discards it. It keeps its communicator alive. Receiving takes it by value, so no
/// handle is left of a message that is gone.
#[must_use = "a matched message that is dropped is discarded"]
pub struct Message<N: Net> {
    comm: Comm<N>,
    body: MessageBody<N>,
    status: Status,
}

impl<N: Net> Message<N> {
    pub(super) fn new(comm: Comm<N>, body: MessageBody<N>, status: Status) -> Self {
        Message { comm, body, status }
    }

    /// The message's envelope.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives the message. A message that is too long for the buffer ends this receive with
    /// [`Error::Truncated`], not the probe, and is consumed all the same. If the communicator is
    /// revoked, the message is discarded: [`Error::Revoked`].
    pub fn recv(self, room: impl Into<Buffer>) -> RecvRequest<N> {
        let Message { comm, body, .. } = self;
        let buffer = room.into();
        let under_way = match body {
            _ if comm.inner.life.is_revoked() => {
                UnderWay::Over(Err(Failed { error: Error::Revoked, buffer }))
            }
            MessageBody::Net(message) => {
                UnderWay::Net(comm.driver().lock().net.receive_message(message, buffer))
            }
            MessageBody::NoProcess => {
                UnderWay::Over(Ok(Received { buffer, status: Status::NO_PROCESS }))
            }
        };
        Receiving::request(&comm, under_way, false)
    }

    /// Receives the whole message into memory that is allocated for it. If there is not enough
    /// memory for the length that the sender has announced, the message is discarded, and the
    /// result is [`Error::NoMemory`].
    pub fn recv_whole(self) -> RecvRequest<N> {
        let length = self.status.length;
        match Buffer::try_zeroed(length) {
            Some(room) => self.recv(room),
            None => {
                let error = Error::NoMemory { length };
                let failed = Failed { error, buffer: Buffer::default() };
                Receiving::request(&self.comm, UnderWay::Over(Err(failed)), false)
            }
        }
    }

    /// Discards the message. Its send completes as if the message had been received. (MPI has no
    /// call for this; the proposal for matched probes had one.)
    pub fn discard(self) {}
}

impl<N: Net> fmt::Debug for Message<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("comm", &self.comm).field("status", &self.status).finish()
    }
}
