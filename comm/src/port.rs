//! How state machines reach the transport.

use std::ops::Range;
use std::sync::Arc;

use tagmatch::{Buffer, Tag, TagLayout, TagMask};

use crate::coll::Turn;
use crate::error::Error;
use crate::ft::{Life, Service};
use crate::group::Group;
use crate::ids::ContextId;
use crate::net::{Mode, Net, NetError, Pattern, ProcessId};

/// Up to this many bytes a message is sent as a copy, with nothing to wait for.
pub(crate) const INJECT_MAX: usize = 4096;

/// The messages of one collective operation: those who take part, the context, and a tag that no other
/// operation under way has.
///
/// The tag's highest bit is a mark that all receives take: the sender knows of a failure. So an operation
/// whose member has died goes on to its end everywhere, and all who depend on that member learn of it,
/// instead of waiting for those who gave up.
#[derive(Clone, Debug)]
pub struct Channel {
    pub(crate) group: Arc<Group>,
    pub(crate) own: u32,
    pub(crate) context: ContextId,
    pub(crate) tag: u32,
    pub(crate) tags: TagLayout,
    /// Of the communicator whose revocation ends the operation.
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) abroad: Option<Abroad>,
    /// The operation's number, if it has one.
    pub(crate) turn: Option<Arc<Turn>>,
}

/// Collective operations of one communicator that a tag tells apart: a power of two.
pub(crate) fn numbers(tags: TagLayout) -> u32 {
    1 << (tags.tag_bits() - 2)
}

/// The members of an operation of an intercommunicator who receive in another context than this process.
#[derive(Clone, Debug)]
pub(crate) struct Abroad {
    pub(crate) ranks: Range<u32>,
    pub(crate) context: ContextId,
}

impl Channel {
    /// Members of the operation.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// This process among them.
    pub fn rank(&self) -> u32 {
        self.own
    }

    /// Whether the operation may begin. `false`: so many collective operations of the communicator are under way
    /// that an earlier one has the same tag: with `n` bits of a tag, 2^(n-2) of them. The operation has its turn
    /// once the earlier one has ended in this process. Until then, sending and receiving are refused.
    ///
    /// A [`Machine`](crate::Machine) asks this in each step before its first message. Operations of this crate do.
    pub fn has_turn(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.has_come(numbers(self.tags)))
    }

    /// What tells the operation apart from all others of the communicator, also from those of equal tags.
    pub(crate) fn call(&self) -> u64 {
        match &self.turn {
            Some(turn) => 1 << 32 | u64::from(turn.number()),
            None => self.tag.into(),
        }
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_revoked())
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_revoked() {
            return Err(Error::Revoked);
        }
        let most = numbers(self.tags);
        if self.has_turn() { Ok(()) } else { Err(Error::NumbersInUse { most }) }
    }

    /// Whether a member's messages of this operation have tags that nobody else's have. They have not where
    /// others may use the context with ranks of their own: parts of a communicator, a leader that several call,
    /// two groups.
    fn tags_name_senders(&self) -> bool {
        let is_whole = |life: &Arc<Life>| Arc::ptr_eq(&life.group, &self.group);
        self.abroad.is_none() && self.life.as_ref().is_some_and(is_whole)
    }

    fn process(&self, rank: u32) -> Result<ProcessId, Error> {
        self.group.process(rank).ok_or(Error::Rank { rank, size: self.size() })
    }

    /// The context in which a member receives.
    fn context_of(&self, rank: u32) -> ContextId {
        let abroad = self.abroad.as_ref().filter(|abroad| abroad.ranks.contains(&rank));
        abroad.map_or(self.context, |abroad| abroad.context)
    }

    /// The tag of a rank's messages. The runtime has checked that ids, ranks and numbers fit their fields.
    fn pack(&self, context: ContextId, source: u32, marked: bool) -> Tag {
        let mark = u64::from(marked) << (self.tags.tag_bits() - 1);
        let source_at = self.tags.tag_bits();
        let context_at = source_at + self.tags.source_bits();
        let context = u64::from(context.bits()).checked_shl(context_at).unwrap_or(0);
        Tag(context | u64::from(source) << source_at | u64::from(self.tag) | mark)
    }

    fn pattern(&self, from: u32) -> Result<Pattern, Error> {
        let mark = 1 << (self.tags.tag_bits() - 1);
        let mask = TagMask(!mark);
        Ok(Pattern {
            tag: self.pack(self.context, from, false),
            mask,
            from: Some(self.process(from)?),
        })
    }

    /// Of an intercommunicator, the rank of who is down is the one in the remote group, if it is of that.
    pub(crate) fn error(&self, error: NetError) -> Error {
        match (in_group(error, &self.group), &self.abroad) {
            (Error::ProcessFailed { rank }, Some(Abroad { ranks, .. })) => {
                let remote = rank.filter(|rank| ranks.contains(rank));
                Error::ProcessFailed { rank: remote.map(|rank| rank - ranks.start) }
            }
            (error, _) => error,
        }
    }
}

/// Ranks and tags are checked against the layout before; this is for what was not foreseen.
pub(crate) fn unpackable(error: impl std::fmt::Display) -> Error {
    Error::Net(NetError::Other(error.to_string()))
}

/// A transport's error in the terms of a group.
pub(crate) fn in_group(error: NetError, group: &Group) -> Error {
    match error {
        NetError::Down(process) => Error::ProcessFailed { rank: group.rank(process) },
        NetError::Cancelled => Error::Cancelled,
        NetError::Forged(process) => match group.rank(process) {
            Some(rank) => Error::Forged { rank: rank.into() },
            None => Error::Net(NetError::Forged(process)),
        },
        other => Error::Net(other),
    }
}

enum Operation<N: Net> {
    Send(N::Send),
    Receive(N::Receive),
}

/// The operations that one state machine has under way.
pub(crate) struct Operations<N: Net>(Vec<Option<Operation<N>>>);

impl<N: Net> Default for Operations<N> {
    fn default() -> Self {
        Operations(Vec::new())
    }
}

/// Names an operation of a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(usize);

/// The end of a machine's operation.
#[derive(Debug)]
pub struct Ended {
    /// What was received; of a send, the memory that it was given.
    pub data: Vec<u8>,
    /// The message's length in bytes, also if the room was smaller.
    pub length: u64,
    /// Whether the sender knew of a failure.
    pub marked: bool,
}

/// The transport, as a state machine sees it while it is driven.
pub struct Port<'a, N: Net> {
    pub(crate) net: &'a mut N,
    pub(crate) ft: &'a mut Service<N>,
    pub(crate) operations: &'a mut Operations<N>,
}

impl<N: Net> Port<'_, N> {
    /// Sends to a member. `None`: there is nothing to wait for. `marked`: tells of a failure.
    ///
    /// # Errors
    /// There is no such rank, or it is down, or the communicator is revoked, or it is not the operation's
    /// [turn](Channel::has_turn).
    pub fn send(
        &mut self,
        channel: &Channel,
        to: u32,
        data: &[u8],
        marked: bool,
    ) -> Result<Option<Handle>, Error> {
        if data.len() > INJECT_MAX {
            return self.send_vec(channel, to, data.to_vec(), marked).map(Some);
        }
        channel.check()?;
        let (process, tag) =
            (channel.process(to)?, channel.pack(channel.context_of(to), channel.own, marked));
        let sent = self.net.inject(process, tag, data);
        sent.map(|()| None).map_err(|error| channel.error(error))
    }

    /// Sends to a member out of this memory, without a copy; its [end](Self::test) gives it back.
    ///
    /// # Errors
    /// There is no such rank, or the communicator is revoked, or it is not the operation's
    /// [turn](Channel::has_turn).
    pub fn send_vec(
        &mut self,
        channel: &Channel,
        to: u32,
        data: Vec<u8>,
        marked: bool,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let (process, tag) =
            (channel.process(to)?, channel.pack(channel.context_of(to), channel.own, marked));
        let send = self.net.send(process, tag, Buffer::from(data), Mode::Standard);
        Ok(self.keep(Operation::Send(send)))
    }

    /// Receives up to `room` bytes from a member.
    ///
    /// # Errors
    /// There is no such rank, or the communicator is revoked, or it is not the operation's
    /// [turn](Channel::has_turn).
    pub fn receive(&mut self, channel: &Channel, from: u32, room: usize) -> Result<Handle, Error> {
        self.receive_vec(channel, from, vec![0; room])
    }

    /// Receives from a member into this memory, up to its length; its [end](Self::test) gives it back.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_vec(
        &mut self,
        channel: &Channel,
        from: u32,
        room: Vec<u8>,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let (pattern, room) = (channel.pattern(from)?, Buffer::from(room));
        let receive = if channel.tags_name_senders() {
            self.net.receive_by_tag(pattern, room)
        } else {
            self.net.receive(pattern, room)
        };
        Ok(self.keep(Operation::Receive(receive)))
    }

    /// Asks to cancel a receive, which ends all the same.
    pub(crate) fn cancel(&mut self, handle: Handle) {
        if let Some(Some(Operation::Receive(receive))) = self.operations.0.get_mut(handle.0) {
            self.net.cancel(receive);
        }
    }

    /// The end of an operation, once.
    ///
    /// # Errors
    /// The process that it depends on is down, or the transport failed.
    pub fn test(&mut self, channel: &Channel, handle: Handle) -> Option<Result<Ended, Error>> {
        let slot = self.operations.0.get_mut(handle.0);
        let Some(slot) = slot.filter(|slot| slot.is_some()) else {
            return Some(Err(Error::AlreadyTaken));
        };
        let ended = match slot.as_mut()? {
            Operation::Send(send) => self.net.test_send(send).map(|ended| {
                ended.map(|buffer| Ended { data: buffer.into_vec(), length: 0, marked: false })
            }),
            Operation::Receive(receive) => self.net.test_receive(receive).map(|ended| {
                ended.map(|arrived| {
                    let (_, _, tag) = channel.tags.unpack(arrived.envelope.tag);
                    let marked = tag >> (channel.tags.tag_bits() - 1) & 1 == 1;
                    let length = arrived.envelope.length;
                    Ended { data: arrived.buffer.into_vec(), length, marked }
                })
            }),
        };
        if ended.is_none() && channel.is_revoked() {
            // A receive that is dropped is cancelled.
            *slot = None;
            return Some(Err(Error::Revoked));
        }
        let ended = ended?;
        *slot = None;
        Some(ended.map_err(|failed| channel.error(failed.error)))
    }

    fn keep(&mut self, operation: Operation<N>) -> Handle {
        let slots = &mut self.operations.0;
        let free = slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(operation);
        Handle(at)
    }
}
