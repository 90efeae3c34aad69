//! The members, context and tag of one collective operation's messages.

use std::sync::Arc;

use tagmatch::{Tag, TagLayout, TagMask};

use super::numbers::Turn;
use crate::context_id::ContextId;
use crate::error::Error;
use crate::group::Group;
use crate::life::Life;
use crate::net::{NetError, Pattern, ProcessId};
use crate::remote::RemoteRanks;

/// The members, context and tag of one collective operation's messages. No other operation under
/// way has the same tag.
///
/// The highest bit of the tag is a mark: the sender of a marked message knows of a failure.
/// Receives accept messages with and without it. So after a death the operation goes on to its end
/// at all members, and each member that depends on the dead one learns of the failure, instead of
/// waiting for a member that gave up.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) group: Arc<Group>,
    pub(crate) own: u32,
    pub(crate) context: ContextId,
    pub(crate) tag: u32,
    pub(crate) tags: TagLayout,
    /// The communicator whose revocation ends the operation.
    pub(crate) life: Option<Arc<Life>>,
    /// The remote members, of an operation of an intercommunicator.
    pub(crate) remote: Option<RemoteRanks>,
    /// The operation's number, if it has one.
    pub(crate) turn: Option<Arc<Turn>>,
}

impl Channel {
    /// How many members the operation has.
    pub(crate) fn size(&self) -> u32 {
        self.group.size()
    }

    /// Whether the operation may begin. If not, an earlier operation of the communicator that has
    /// the same tag has not ended in this process: a tag of `n` bits tells 2^(n-2) operations
    /// apart.
    ///
    /// A machine asks this before its first message.
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.has_come(self.tags))
    }

    /// A number that tells the operation apart from all others of the communicator, even from those
    /// with an equal tag.
    pub(crate) fn call(&self) -> u64 {
        match &self.turn {
            Some(turn) => 1 << 32 | u64::from(turn.number()),
            None => self.tag.into(),
        }
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_revoked())
    }

    /// Refuses messages of a revoked communicator.
    pub(super) fn check(&self) -> Result<(), Error> {
        debug_assert!(self.has_turn(), "a message before the operation's turn");
        if self.is_revoked() { Err(Error::Revoked) } else { Ok(()) }
    }

    /// Whether the tag of a message of this operation says which process has sent it. It doesn't
    /// where several processes may use one rank in the context: parts of a communicator, a leader
    /// that several processes call, the two groups of an intercommunicator.
    pub(super) fn tags_name_senders(&self) -> bool {
        let is_whole = |life: &Arc<Life>| Arc::ptr_eq(&life.group, &self.group);
        self.remote.is_none() && self.life.as_ref().is_some_and(is_whole)
    }

    fn process(&self, rank: u32) -> Result<ProcessId, Error> {
        self.group.process(rank).ok_or(Error::Rank { rank, size: self.size() })
    }

    /// The tag of messages of rank `source` in a context. Ids, ranks and numbers fit their fields:
    /// the runtime has checked the layouts.
    fn pack(&self, context: ContextId, source: u32, marked: bool) -> Tag {
        let mark = u64::from(marked) << (self.tags.tag_bits() - 1);
        let source_at = self.tags.tag_bits();
        let context_at = source_at + self.tags.source_bits();
        let context = u64::from(context.bits()).checked_shl(context_at).unwrap_or(0);
        Tag(context | u64::from(source) << source_at | u64::from(self.tag) | mark)
    }

    /// The process and the tag for a message to a member.
    pub(super) fn destination(&self, to: u32, marked: bool) -> Result<(ProcessId, Tag), Error> {
        let remote = self.remote.as_ref().and_then(|remote| remote.context_of(to));
        let context = remote.unwrap_or(self.context);
        Ok((self.process(to)?, self.pack(context, self.own, marked)))
    }

    /// Which messages a receive from a member accepts.
    pub(super) fn pattern(&self, from: u32) -> Result<Pattern, Error> {
        let mask = TagMask(!self.mark());
        let tag = self.pack(self.context, from, false);
        Ok(Pattern { tag, mask, from: Some(self.process(from)?) })
    }

    fn mark(&self) -> u64 {
        1 << (self.tags.tag_bits() - 1)
    }

    /// Whether a message's sender knew of a failure.
    pub(super) fn is_marked(&self, tag: Tag) -> bool {
        tag.0 & self.mark() != 0
    }

    /// The error in the terms of the communicator. For an intercommunicator the rank of a remote
    /// process is its rank in the remote group, and a failed process of the local group has none.
    pub(super) fn error(&self, error: NetError) -> Error {
        match (in_group(error, &self.group), &self.remote) {
            (Error::ProcessFailed { rank }, Some(RemoteRanks { ranks, .. })) => {
                let remote = rank.filter(|rank| ranks.contains(rank));
                Error::ProcessFailed { rank: remote.map(|rank| rank - ranks.start) }
            }
            (error, _) => error,
        }
    }
}

/// A tag that can't be packed, although ranks and tags were checked against the layout.
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
