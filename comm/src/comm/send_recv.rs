//! Sends and receives.

use tagmatch::{Buffer, Tag};

use super::communicator::Comm;
use super::envelope::{Destination, Received, Source, Status, TagChoice};
use super::transfer::{Receiving, RecvRequest, SendRequest, Sending, UnderWay};
use crate::driver::{DriverState, unpackable};
use crate::error::{Error, Failed};
use crate::net::{Mode, Net, Pattern, ProcessId};

impl<N: Net> Comm<N> {
    /// Sends a message. The send is complete when its buffer may be used again.
    pub fn send(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send_in(Mode::Standard, to.into(), tag, data.into())
    }

    /// Sends a message. The send is complete when a receive has taken the message. A matched probe
    /// is not a receive.
    pub fn send_sync(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send_in(Mode::Synchronous, to.into(), tag, data.into())
    }

    /// Sends a message to a receive that the program knows to be posted. MPI leaves open what
    /// happens if no receive is posted. Here the message is then unexpected, like any other.
    pub fn send_ready(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.send(to, tag, data)
    }

    /// Sends a copy, which is kept in the space that [`crate::Runtime::attach_buffer`] has
    /// attached. The send is complete at once. If the transport fails to send the copy later, all
    /// operations of this process end with [`Error::CountedOut`]; a copy for a process that is down
    /// is lost.
    ///
    /// # Errors
    /// [`Error::BufferFull`]: the space is too small. The communicator has no such rank; the tag is
    /// too large.
    pub fn send_buffered(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        self.raise(self.buffer(to.into(), tag, data))
    }

    fn buffer(&self, to: Destination, tag: u32, data: &[u8]) -> Result<(), Error> {
        let Some((process, tag)) = self.address(to, tag)? else { return Ok(()) };
        let mut state = self.driver().lock();
        let DriverState { net, ft, buffered, .. } = &mut *state;
        let reserved = buffered.reserve(data.len())?;
        ft.note_send(net, &self.inner.life, process);
        let send = net.send(process, tag, Buffer::from(data.to_vec()), Mode::Standard);
        buffered.keep(send, process, reserved);
        Ok(())
    }

    fn send_in(&self, mode: Mode, to: Destination, tag: u32, data: Buffer) -> SendRequest<N> {
        let under_way = match self.address(to, tag) {
            Ok(Some((to, tag))) => {
                let DriverState { net, ft, .. } = &mut *self.driver().lock();
                ft.note_send(net, &self.inner.life, to);
                UnderWay::Net(net.send(to, tag, data, mode))
            }
            Ok(None) => UnderWay::Over(Ok(data)),
            Err(error) => UnderWay::Over(Err(Failed { error, buffer: data })),
        };
        Sending::request(self, under_way, mode)
    }

    /// Receives a message into a buffer: the oldest unexpected message that matches, or else the
    /// first that arrives. A message that is longer than the buffer ends the receive with
    /// [`Error::Truncated`].
    ///
    /// A receive from any source reports [`Error::ProcessFailedPending`] as long as no message has
    /// arrived and a member has failed whose failure was not [acknowledged](Self::acknowledge).
    /// [`Request::test`](crate::Request::test) and [`Request::wait_mut`](crate::Request::wait_mut)
    /// report it with an empty buffer, and the receive stays posted: it may be tested again.
    /// [`Request::wait`](crate::Request::wait) and `.await` give the receive up: they cancel it
    /// first. If a message was faster, that message is the result; otherwise the error has the
    /// receive's buffer.
    ///
    /// A message that has matched is lost if the request is dropped untested. A program that gives
    /// a receive up without waiting for it calls [`Request::cancel`](crate::Request::cancel), and
    /// looks at the result.
    pub fn recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
        room: impl Into<Buffer>,
    ) -> RecvRequest<N> {
        let room = room.into();
        let from = from.into();
        let under_way = match self.usable().and_then(|()| self.pattern(from, tag.into())) {
            Ok(Some(pattern)) => UnderWay::Net(self.receive(pattern, room)),
            Ok(None) => UnderWay::Over(Ok(Received { buffer: room, status: Status::NO_PROCESS })),
            Err(error) => UnderWay::Over(Err(Failed { error, buffer: room })),
        };
        Receiving::request(self, under_way, from == Source::Any)
    }

    fn receive(&self, pattern: Pattern, room: Buffer) -> N::Receive {
        let DriverState { net, ft, .. } = &mut *self.driver().lock();
        self.watch(net, &pattern);
        if let Some(from) = pattern.from {
            ft.greet(net, from);
        }
        // The tag has the rank, and processes that send in this context have different ranks.
        net.receive_by_tag(pattern, room)
    }

    /// Refuses calls on a revoked communicator.
    pub(super) fn usable(&self) -> Result<(), Error> {
        if self.inner.life.is_revoked() { Err(Error::Revoked) } else { Ok(()) }
    }

    fn process(&self, rank: u32) -> Result<ProcessId, Error> {
        let peers = self.peers();
        peers.process(rank).ok_or(Error::Rank { rank, size: peers.size() })
    }

    /// The largest tag.
    pub fn tag_max(&self) -> u32 {
        u32::try_from(self.driver().settings.tags.tag_mask().0).unwrap_or(u32::MAX)
    }

    /// The process and the tag for a message. `None`: the message is for no process.
    fn address(&self, to: Destination, tag: u32) -> Result<Option<(ProcessId, Tag)>, Error> {
        self.usable()?;
        let Destination::Rank(rank) = to else { return Ok(None) };
        let process = self.process(rank)?;
        if tag > self.tag_max() {
            return Err(Error::Tag { tag, max: self.tag_max() });
        }
        let context = u64::from(self.sends_in().bits());
        let tags = self.driver().settings.tags;
        let packed = tags.pack(context, u64::from(self.rank()), u64::from(tag));
        Ok(Some((process, packed.map_err(unpackable)?)))
    }

    /// Which messages a receive or a probe accepts. `None`: the message of no process.
    pub(super) fn pattern(&self, from: Source, tag: TagChoice) -> Result<Option<Pattern>, Error> {
        let tags = self.driver().settings.tags;
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
        let which = tags.pattern(self.id().bits().into(), rank.map(u64::from), tag);
        let which = which.map_err(unpackable)?;
        Ok(Some(Pattern { tag: which.tag(), mask: which.mask(), from: process }))
    }
}
