//! Messages that a matched probe took.

use std::fmt;
use std::sync::Arc;

use tagmatch::Buffer;

use crate::error::{Error, Failed};
use crate::net::Net;
use crate::request::Request;
use crate::runtime::Shared;

use super::envelope::{Received, Status};
use super::p2p::{Receiving, RecvRequest, UnderWay};
use super::{Comm, Inner};

/// What is held.
pub(crate) enum Held<N: Net> {
    Message(N::Message),
    /// MPI's MPI_MESSAGE_NO_PROC.
    NoProcess,
}

/// A message that [`Comm::mprobe`] took: nobody else finds it. It is to be received or discarded; dropping
/// it discards it. It keeps its communicator alive. Receiving takes it by value: there is no handle to a
/// message that is gone.
#[must_use = "a matched message that is dropped is discarded"]
pub struct Message<N: Net> {
    comm: Comm<N>,
    held: Held<N>,
    status: Status,
}

impl<N: Net> Message<N> {
    pub(super) fn new(comm: Comm<N>, held: Held<N>, status: Status) -> Self {
        Message { comm, held, status }
    }

    /// The message's envelope.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it. That it is too long for the buffer is said here, not by the probe, and it is consumed all
    /// the same. If the communicator is revoked, the message is discarded: [`Error::Revoked`].
    pub fn recv(self, room: impl Into<Buffer>) -> RecvRequest<N> {
        let Message { comm: Comm { shared, inner }, held, .. } = self;
        let buffer = room.into();
        let under_way = match held {
            _ if inner.life.is_revoked() => {
                UnderWay::Over(Err(Failed { error: Error::Revoked, buffer }))
            }
            Held::Message(message) => {
                UnderWay::Net(shared.lock().net.receive_message(message, buffer))
            }
            Held::NoProcess => UnderWay::Over(Ok(Received { buffer, status: Status::NO_PROCESS })),
        };
        begun(&shared, inner, under_way)
    }

    /// Receives all of it, into memory made for it. [`Error::NoMemory`]: there isn't as much as its sender says,
    /// and it is discarded.
    pub fn recv_whole(self) -> RecvRequest<N> {
        let length = self.status.length;
        let mut room: Vec<u8> = Vec::new();
        match usize::try_from(length).ok().filter(|length| room.try_reserve_exact(*length).is_ok())
        {
            Some(length) => {
                room.extend(std::iter::repeat_n(0, length));
                self.recv(room)
            }
            None => {
                let error = Error::NoMemory { length };
                let refused = UnderWay::Over(Err(Failed { error, buffer: Buffer::default() }));
                let Message { comm: Comm { shared, inner }, .. } = self;
                begun(&shared, inner, refused)
            }
        }
    }

    /// Drops it: its sender completes as if it had been received. (MPI-3 has no such call; the proposal for
    /// matched probes had one.)
    pub fn discard(self) {}
}

/// The receive of one message.
fn begun<N: Net>(
    shared: &Arc<Shared<N>>,
    inner: Arc<Inner<N>>,
    under_way: UnderWay<N::Receive, Received>,
) -> RecvRequest<N> {
    Request::new(shared, Receiving { under_way, is_any: false, is_given_up: false, inner })
}

impl<N: Net> fmt::Debug for Message<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("comm", &self.comm).field("status", &self.status).finish()
    }
}
