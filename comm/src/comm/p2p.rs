//! Sends, receives and probes in the terms of a communicator.

use std::sync::Arc;
use std::task::Waker;

use tagmatch::{Buffer, Tag, TagMask};

use crate::error::{Error, Failed};
use crate::net::{Arrived, Envelope, Mode, Net, NetError, NetFailed, Pattern};
use crate::port::{in_group, unpackable};
use crate::request::{Pending, Request};
use crate::runtime::{Shared, State};
use crate::wait::Waiting;

use super::envelope::{Destination, Received, Source, Status, TagChoice};
use super::message::{Held, Message};
use super::{Comm, Inner};

/// A send under way: it ends with its buffer.
pub type SendRequest<N> = Request<N, Sending<N>>;

/// A receive under way.
pub type RecvRequest<N> = Request<N, Receiving<N>>;

impl<N: Net> Comm<N> {
    /// Sends; complete when the buffer may be used again.
    pub fn send(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send_in(Mode::Standard, to.into(), tag, data.into())
    }

    /// Sends; complete when a receive has taken the message. A matched probe is not a receive.
    pub fn send_sync(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send_in(Mode::Synchronous, to.into(), tag, data.into())
    }

    /// Sends to a receive that is certainly posted; else the program is erroneous. MPI leaves open what
    /// happens then; here the message waits as any other.
    pub fn send_ready(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send_in(Mode::Standard, to.into(), tag, data.into())
    }

    /// Sends a copy out of the room that [`crate::Runtime::attach_buffer`] gave, and is complete at once.
    ///
    /// # Errors
    /// [`Error::BufferFull`]; no such rank or tag.
    pub fn send_buffered(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        self.raise(self.buffer(to.into(), tag, data))
    }

    fn buffer(&self, to: Destination, tag: u32, data: &[u8]) -> Result<(), Error> {
        self.usable()?;
        let Destination::Rank(rank) = to else { return Ok(()) };
        let (process, tag) = (self.process(rank)?, self.pack(tag)?);
        let mut state = self.shared.lock();
        let State { net, buffered, .. } = &mut *state;
        let taken = buffered.reserve(data.len())?;
        let send = net.send(process, tag, Buffer::from(data.to_vec()), Mode::Standard);
        buffered.keep(send, taken);
        Ok(())
    }

    fn send_in(&self, mode: Mode, to: Destination, tag: u32, data: Buffer) -> SendRequest<N> {
        let checked = self.usable().and_then(|()| match to {
            Destination::NoProcess => Ok(None),
            Destination::Rank(rank) => Ok(Some((self.process(rank)?, self.pack(tag)?))),
        });
        let under_way = match checked {
            Ok(Some((to, tag))) => UnderWay::Net(self.shared.lock().net.send(to, tag, data, mode)),
            Ok(None) => UnderWay::Over(Ok(data)),
            Err(error) => UnderWay::Over(Err(Failed { error, buffer: data })),
        };
        let is_synchronous = mode == Mode::Synchronous;
        let sending = Sending { under_way, is_synchronous, inner: Arc::clone(&self.inner) };
        Request::new(&self.shared, sending)
    }

    /// Receives a message into a buffer: the oldest waiting one that matches, else the first that comes.
    /// A longer message than the buffer ends it with [`Error::Truncated`].
    ///
    /// A receive from any source reports [`Error::ProcessFailedPending`] as long as no message has come and a
    /// member has failed whose failure was not [acknowledged](Self::acknowledge).
    /// [`Request::test`] and [`Request::wait_mut`] report it with an empty buffer, and the receive stays posted:
    /// it may be tested again. [`Request::wait`] and `.await` give the receive up: they cancel it first. If a
    /// message was faster, that message is the result; otherwise the error has the receive's buffer.
    ///
    /// A message that has matched is lost if the request is dropped untested. A program that gives a receive
    /// up without waiting for it calls [`Request::cancel`], and looks at the outcome.
    pub fn recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
        room: impl Into<Buffer>,
    ) -> RecvRequest<N> {
        let room = room.into();
        let pattern = self.usable().and_then(|()| self.pattern(from.into(), tag.into()));
        let is_any = matches!(pattern, Ok(Some(Pattern { from: None, .. })));
        let under_way = match pattern {
            Ok(Some(pattern)) => UnderWay::Net(self.receive(pattern, room)),
            Ok(None) => UnderWay::Over(Ok(Received { buffer: room, status: Status::NO_PROCESS })),
            Err(error) => UnderWay::Over(Err(Failed { error, buffer: room })),
        };
        let inner = Arc::clone(&self.inner);
        Request::new(&self.shared, Receiving { under_way, is_any, is_given_up: false, inner })
    }

    fn receive(&self, pattern: Pattern, room: Buffer) -> N::Receive {
        let mut state = self.shared.lock();
        self.watch(&mut state, &pattern);
        // The tag holds the rank, and those who send in this context have all different ones.
        state.net.receive_by_tag(pattern, room)
    }

    /// What waits for any member is to learn of the death of each.
    fn watch(&self, state: &mut State<N>, pattern: &Pattern) {
        if pattern.from.is_none() {
            self.inner.life.watch(&mut state.net);
        }
    }

    fn usable(&self) -> Result<(), Error> {
        if self.inner.life.is_revoked() { Err(Error::Revoked) } else { Ok(()) }
    }

    /// The envelope of the oldest waiting message that matches, which stays where it is.
    ///
    /// # Errors
    /// No such rank or tag; the rank is down and has left no such message; or, of any source, a member has
    /// failed whose failure was not acknowledged.
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Status>, Error> {
        let found = self.look(from.into(), tag.into(), |net, pattern| {
            let envelope = net.probe(pattern)?;
            // Who lies about its rank would be found by every probe from now on.
            if self.inner.status(&self.shared, &envelope).is_err() {
                drop(net.matched_probe(pattern));
            }
            Some(((), envelope))
        });
        self.raise(found).map(|found| found.map(|(_, status)| status))
    }

    /// Takes the oldest waiting message that matches: nobody else finds it any more. From no process there
    /// is always one, and empty.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn mprobe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Message<N>>, Error> {
        let found = self.raise(self.look(from.into(), tag.into(), N::matched_probe))?;
        Ok(found.map(|(message, status)| {
            let held = message.map_or(Held::NoProcess, Held::Message);
            Message::new(self.clone(), held, status)
        }))
    }

    /// Blocks until there is a message that matches, and gives its envelope.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn probe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Status, Error> {
        let (from, tag) = (from.into(), tag.into());
        self.until(|| self.probe(from, tag))
    }

    /// Blocks until there is a message that matches, and takes it.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn mprobe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Message<N>, Error> {
        let (from, tag) = (from.into(), tag.into());
        self.until(|| self.mprobe(from, tag))
    }

    fn until<R>(&self, look: impl Fn() -> Result<Option<R>, Error>) -> Result<R, Error> {
        let mut waiting = Waiting::new(&self.shared);
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            waiting.rest();
        }
    }

    /// Looks among the waiting messages. Of no process there is always one.
    fn look<M>(
        &self,
        from: Source,
        tag: TagChoice,
        take: impl FnOnce(&mut N, Pattern) -> Option<(M, Envelope)>,
    ) -> Result<Option<(Option<M>, Status)>, Error> {
        self.usable()?;
        let Some(pattern) = self.pattern(from, tag)? else {
            return Ok(Some((None, Status::NO_PROCESS)));
        };
        self.shared.progress();
        self.usable()?;
        let mut state = self.shared.lock();
        self.watch(&mut state, &pattern);
        if let Some((found, envelope)) = take(&mut state.net, pattern) {
            let status = self.inner.status(&self.shared, &envelope)?;
            return Ok(Some((Some(found), status)));
        }
        if pattern.from.is_none() && self.inner.life.has_news() {
            return Err(Error::ProcessFailedPending);
        }
        let down = pattern.from.filter(|process| state.net.is_down(*process));
        down.map_or(Ok(None), |process| {
            Err(Error::ProcessFailed { rank: self.inner.peers().rank(process) })
        })
    }

    fn process(&self, rank: u32) -> Result<crate::net::ProcessId, Error> {
        let peers = self.inner.peers();
        peers.process(rank).ok_or(Error::Rank { rank, size: peers.size() })
    }

    /// The largest tag.
    pub fn tag_max(&self) -> u32 {
        u32::try_from(self.shared.tags.tag_mask().0).unwrap_or(u32::MAX)
    }

    fn pack(&self, tag: u32) -> Result<Tag, Error> {
        if tag > self.tag_max() {
            return Err(Error::Tag { tag, max: self.tag_max() });
        }
        let context = u64::from(self.inner.sends_in().bits());
        let packed = self.shared.tags.pack(context, u64::from(self.rank()), u64::from(tag));
        packed.map_err(unpackable)
    }

    /// `None`: of no process.
    fn pattern(&self, from: Source, tag: TagChoice) -> Result<Option<Pattern>, Error> {
        let tags = self.shared.tags;
        let (rank, process) = match from {
            Source::Rank(rank) => (Some(rank), Some(self.process(rank)?)),
            Source::Any => (None, None),
            Source::NoProcess => return Ok(None),
        };
        let tag = match tag {
            TagChoice::Tag(tag) if tag > self.tag_max() => {
                return Err(Error::Tag { tag, max: self.tag_max() });
            }
            TagChoice::Tag(tag) => Some(u64::from(tag)),
            TagChoice::Any => None,
        };
        let mut mask = TagMask::EXACT;
        if rank.is_none() {
            mask.0 &= !tags.source_mask().0;
        }
        if tag.is_none() {
            mask.0 &= !tags.tag_mask().0;
        }
        let context = u64::from(self.id().bits());
        let packed = tags.pack(context, rank.unwrap_or(0).into(), tag.unwrap_or(0));
        Ok(Some(Pattern { tag: packed.map_err(unpackable)?, mask, from: process }))
    }
}

impl<N: Net> Inner<N> {
    /// A message's envelope, if its sender has the rank that the tag names.
    pub(crate) fn status(&self, shared: &Shared<N>, envelope: &Envelope) -> Result<Status, Error> {
        let (_, rank, tag) = shared.tags.unpack(envelope.tag);
        let forged = || Error::Forged { rank };
        let source = u32::try_from(rank).map_err(|_| forged())?;
        let process = self.peers().process(source).ok_or_else(forged)?;
        if envelope.from != Some(process) {
            return Err(forged());
        }
        let tag = u32::try_from(tag).ok();
        Ok(Status { source: Some(source), tag, length: envelope.length })
    }
}

/// An operation of the transport, or its end.
pub(crate) enum UnderWay<O, T> {
    Net(O),
    Over(Result<T, Failed>),
    Taken,
}

impl<O, T> UnderWay<O, T> {
    /// The end, once.
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

/// What a [`SendRequest`] waits for.
pub struct Sending<N: Net> {
    under_way: UnderWay<N::Send, Buffer>,
    is_synchronous: bool,
    inner: Arc<Inner<N>>,
}

impl<N: Net> Pending<N> for Sending<N> {
    type Output = Result<Buffer, Failed>;

    fn test(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output> {
        self.look(shared, None)
    }

    fn watch(&mut self, shared: &Arc<Shared<N>>, waker: &Waker) -> Option<Self::Output> {
        shared.watch(waker);
        self.look(shared, Some(waker))
    }
}

impl<N: Net> Sending<N> {
    fn look(
        &mut self,
        shared: &Arc<Shared<N>>,
        waker: Option<&Waker>,
    ) -> Option<Result<Buffer, Failed>> {
        let group = self.inner.peers();
        let life = &self.inner.life;
        let ended = self.under_way.take(|send| {
            let ended = shared.lock().waking(waker, |net| net.test_send(send));
            if ended.is_none() && life.is_revoked() {
                // It can't be called back: its buffer is gone with it.
                return Some(Err(Failed { error: Error::Revoked, buffer: Buffer::default() }));
            }
            if self.is_synchronous && life.is_revoked() {
                // Matched, or discarded by a receiver that knows of the revocation.
                let buffer = ended?.unwrap_or_else(|failed| failed.buffer);
                return Some(Err(Failed { error: Error::Revoked, buffer }));
            }
            Some(ended?.map_err(|NetFailed { error, buffer }| Failed {
                error: in_group(error, group),
                buffer,
            }))
        });
        Some(self.inner.raise(shared, ended?))
    }
}

/// What a [`RecvRequest`] waits for.
pub struct Receiving<N: Net> {
    pub(crate) under_way: UnderWay<N::Receive, Received>,
    /// Of any source.
    pub(crate) is_any: bool,
    /// It was cancelled, since a member has failed.
    pub(crate) is_given_up: bool,
    pub(crate) inner: Arc<Inner<N>>,
}

impl<N: Net> Pending<N> for Receiving<N> {
    type Output = Result<Received, Failed>;

    fn test(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output> {
        self.look(shared, None, false)
    }

    fn test_by_value(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output> {
        self.look(shared, None, true)
    }

    fn watch(&mut self, shared: &Arc<Shared<N>>, waker: &Waker) -> Option<Self::Output> {
        shared.watch(waker);
        self.look(shared, Some(waker), true)
    }
}

impl<N: Net> Receiving<N> {
    /// `is_by_value`: the request is dropped after its first output.
    fn look(
        &mut self,
        shared: &Arc<Shared<N>>,
        waker: Option<&Waker>,
        is_by_value: bool,
    ) -> Option<Result<Received, Failed>> {
        let inner = &self.inner;
        let is_revoked = inner.life.is_revoked();
        let may_be_given_up = is_by_value && self.is_any;
        let is_given_up = &mut self.is_given_up;
        let ended = self.under_way.take(|receive| {
            let ended = {
                let mut state = shared.lock();
                let ended = state.waking(waker, |net| net.test_receive(receive));
                match ended {
                    Some(ended) => ended,
                    None => {
                        *is_given_up |= may_be_given_up && inner.life.has_news();
                        if !(is_revoked || *is_given_up) {
                            return None;
                        }
                        // The outcome of the cancel decides: a message may have matched since the test.
                        state.net.cancel(receive);
                        state.net.test_receive(receive)?
                    }
                }
            };
            let Arrived { envelope, buffer } = match ended {
                Ok(arrived) => arrived,
                Err(NetFailed { error: NetError::Cancelled, buffer }) if is_revoked => {
                    return Some(Err(Failed { error: Error::Revoked, buffer }));
                }
                Err(NetFailed { error: NetError::Cancelled, buffer }) if *is_given_up => {
                    return Some(Err(Failed { error: Error::ProcessFailedPending, buffer }));
                }
                Err(NetFailed { error, buffer }) => {
                    let error = in_group(error, inner.peers());
                    return Some(Err(Failed { error, buffer }));
                }
            };
            let room = buffer.len();
            Some(match inner.status(shared, &envelope) {
                Err(error) => Err(Failed { error, buffer }),
                Ok(Status { length, .. }) if length > room as u64 => {
                    Err(Failed { error: Error::Truncated { length, room }, buffer })
                }
                Ok(status) => Ok(Received { buffer, status }),
            })
        });
        let pending = || {
            let error = Error::ProcessFailedPending;
            let is_news = self.is_any && !is_by_value && inner.life.has_news();
            is_news.then(|| Err(Failed { error, buffer: Buffer::default() }))
        };
        Some(inner.raise(shared, ended.or_else(pending)?))
    }
}

impl<N: Net> Request<N, Receiving<N>> {
    /// Asks to cancel. The receive's end tells the outcome: [`Error::Cancelled`], or a message that was
    /// faster.
    pub fn cancel(&mut self) {
        if let UnderWay::Net(receive) = &mut self.pending.under_way {
            self.shared.lock().net.cancel(receive);
        }
    }
}
