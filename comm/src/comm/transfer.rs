//! The requests of sends and receives.

use std::sync::Arc;
use std::task::Waker;

use tagmatch::Buffer;

use super::communicator::Comm;
use super::envelope::{Received, Status};
use crate::driver::{Driver, DriverState, Pending, Request, in_group};
use crate::error::{Error, Failed};
use crate::net::{Arrived, Envelope, Mode, Net, NetError, NetFailed, Pattern};

/// A send under way. Its result is its buffer.
pub type SendRequest<N> = Request<N, Sending<N>>;

/// A receive under way.
pub type RecvRequest<N> = Request<N, Receiving<N>>;

/// An operation of the transport, or its result.
pub(super) enum UnderWay<O, T> {
    Net(O),
    Over(Result<T, Failed>),
    Taken,
}

impl<O, T> UnderWay<O, T> {
    /// The result, once.
    fn take(
        &mut self,
        test: impl FnOnce(&mut O) -> Option<Result<T, Failed>>,
    ) -> Option<Result<T, Failed>> {
        if let UnderWay::Net(operation) = self {
            let result = test(operation)?;
            *self = UnderWay::Taken;
            return Some(result);
        }
        let taken = || Failed { error: Error::AlreadyTaken, buffer: Buffer::default() };
        Some(match std::mem::replace(self, UnderWay::Taken) {
            UnderWay::Over(result) => result,
            UnderWay::Net(_) | UnderWay::Taken => Err(taken()),
        })
    }
}

/// The send that a [`SendRequest`] waits for.
pub struct Sending<N: Net> {
    under_way: UnderWay<N::Send, Buffer>,
    is_synchronous: bool,
    comm: Comm<N>,
}

impl<N: Net> Sending<N> {
    pub(super) fn request(
        comm: &Comm<N>,
        under_way: UnderWay<N::Send, Buffer>,
        mode: Mode,
    ) -> SendRequest<N> {
        let is_synchronous = mode == Mode::Synchronous;
        Request::new(Sending { under_way, is_synchronous, comm: comm.clone() })
    }

    fn look(&mut self, waker: Option<&Waker>) -> Option<Result<Buffer, Failed>> {
        let Sending { under_way, is_synchronous, comm } = self;
        let life = &comm.inner.life;
        let ended = under_way.take(|send| {
            let ended = comm.driver().lock().waking(waker, |net| net.test_send(send));
            if ended.is_none() && life.is_revoked() {
                // A send can't be cancelled, so its buffer can't be given back.
                return Some(Err(Failed { error: Error::Revoked, buffer: Buffer::default() }));
            }
            if *is_synchronous && life.is_revoked() {
                // The message was matched, or discarded by a receiver that knows of the revocation.
                let buffer = ended?.unwrap_or_else(|failed| failed.buffer);
                return Some(Err(Failed { error: Error::Revoked, buffer }));
            }
            Some(ended?.map_err(|NetFailed { error, buffer }| Failed {
                error: in_group(error, comm.peers()),
                buffer,
            }))
        });
        Some(comm.raise(ended?))
    }
}

impl<N: Net> Pending<N> for Sending<N> {
    type Output = Result<Buffer, Failed>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.comm.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        self.look(None)
    }

    fn watch(&mut self, waker: &Waker) -> Option<Self::Output> {
        self.comm.driver().watch(waker);
        self.look(Some(waker))
    }
}

/// The receive that a [`RecvRequest`] waits for.
pub struct Receiving<N: Net> {
    under_way: UnderWay<N::Receive, Received>,
    /// Whether the receive accepts messages from any source.
    is_any: bool,
    /// Whether the receive was cancelled because a member has failed.
    is_given_up: bool,
    comm: Comm<N>,
}

impl<N: Net> Receiving<N> {
    /// `is_any`: the receive accepts messages from any source.
    pub(super) fn request(
        comm: &Comm<N>,
        under_way: UnderWay<N::Receive, Received>,
        is_any: bool,
    ) -> RecvRequest<N> {
        Request::new(Receiving { under_way, is_any, is_given_up: false, comm: comm.clone() })
    }

    /// `is_by_value`: the request is dropped after its first output.
    fn look(
        &mut self,
        waker: Option<&Waker>,
        is_by_value: bool,
    ) -> Option<Result<Received, Failed>> {
        let Receiving { under_way, is_any, is_given_up, comm } = self;
        let is_revoked = comm.inner.life.is_revoked();
        let may_be_given_up = is_by_value && *is_any;
        let ended = under_way.take(|receive| {
            let ended = {
                let mut state = comm.driver().lock();
                let ended = state.waking(waker, |net| net.test_receive(receive));
                match ended {
                    Some(ended) => ended,
                    None => {
                        *is_given_up |= may_be_given_up && comm.inner.life.has_news();
                        if !(is_revoked || *is_given_up) {
                            return None;
                        }
                        // A message may have matched since the test: the result of the cancel
                        // tells.
                        state.net.cancel(receive);
                        state.net.test_receive(receive)?
                    }
                }
            };
            let Arrived { envelope, buffer } = match ended {
                Ok(arrived) => arrived,
                Err(NetFailed { error, buffer }) => {
                    let error = match error {
                        NetError::Cancelled if is_revoked => Error::Revoked,
                        NetError::Cancelled if *is_given_up => Error::ProcessFailedPending,
                        error => in_group(error, comm.peers()),
                    };
                    return Some(Err(Failed { error, buffer }));
                }
            };
            let DriverState { net, ft, .. } = &mut *comm.driver().lock();
            if let Err(error) = ft.compare(net, envelope.from) {
                return Some(Err(Failed { error, buffer }));
            }
            let room = buffer.total_len();
            Some(match comm.status(&envelope) {
                Err(error) => Err(Failed { error, buffer }),
                Ok(Status { length, .. }) if length > room => {
                    Err(Failed { error: Error::Truncated { length, room }, buffer })
                }
                Ok(status) => Ok(Received { buffer, status }),
            })
        });
        let pending = || {
            let error = Error::ProcessFailedPending;
            // A revocation ends the receive, as soon as the transport has answered the cancel.
            let is_open = *is_any && !is_by_value && !is_revoked;
            let is_news = is_open && comm.inner.life.has_news();
            is_news.then(|| Err(Failed { error, buffer: Buffer::default() }))
        };
        Some(comm.raise(ended.or_else(pending)?))
    }
}

impl<N: Net> Pending<N> for Receiving<N> {
    type Output = Result<Received, Failed>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.comm.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        self.look(None, false)
    }

    fn test_by_value(&mut self) -> Option<Self::Output> {
        self.look(None, true)
    }

    fn watch(&mut self, waker: &Waker) -> Option<Self::Output> {
        self.comm.driver().watch(waker);
        self.look(Some(waker), true)
    }
}

impl<N: Net> Request<N, Receiving<N>> {
    /// Asks to cancel the receive. Its result is then [`Error::Cancelled`], or a message that has
    /// matched before.
    pub fn cancel(&mut self) {
        let Receiving { under_way, comm, .. } = &mut self.pending;
        if let UnderWay::Net(receive) = under_way {
            comm.driver().lock().net.cancel(receive);
        }
    }
}

impl<N: Net> Comm<N> {
    /// The status of a message: its envelope in ranks and tags of the communicator.
    ///
    /// # Errors
    /// The sender does not have the rank that the tag names.
    pub(super) fn status(&self, envelope: &Envelope) -> Result<Status, Error> {
        let (_, rank, tag) = self.driver().settings.tags.unpack(envelope.tag);
        let forged = || Error::Forged { rank };
        let source = u32::try_from(rank).map_err(|_| forged())?;
        let process = self.peers().process(source).ok_or_else(forged)?;
        if envelope.from != Some(process) {
            return Err(forged());
        }
        let tag = u32::try_from(tag).ok();
        let length = usize::try_from(envelope.length).unwrap_or(usize::MAX);
        Ok(Status { source: Some(source), tag, length })
    }

    /// If a receive or probe accepts messages from any source, asks the transport to report the
    /// death of each member.
    pub(super) fn watch(&self, net: &mut N, pattern: &Pattern) {
        if pattern.from.is_none() {
            self.inner.life.watch(net);
        }
    }
}
