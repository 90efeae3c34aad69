//! The two lists of an endpoint: posted receives and unexpected messages.

use std::collections::HashMap;

use tagmatch_device::slab::{Key, Slab};
use tagmatch_ofi_provider::Memory;
use tagmatch_soft::{Pattern, PostedHandle, PostedList, SourceId, Tag, TagMask, UnexpectedList};

use crate::wire::{Name, Put};

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) context: usize,
    pub(crate) memory: Memory,
    /// Its success has a completion, too.
    pub(crate) tells: bool,
}

/// Which messages a receive or a search takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    /// `None`: any.
    pub(crate) source: Option<Name>,
}

struct Posted {
    receive: Receive,
    handle: Option<PostedHandle>,
    /// The round in which it is cancelled.
    cancelled_at: Option<u64>,
}

struct Unexpected {
    put: Put,
    is_in_nic: bool,
}

/// The lists. Receives with and without a source are on one list, as in cxi's NIC.
pub(crate) struct Lists {
    sources: HashMap<Name, SourceId>,
    posted: PostedList<Key>,
    receives: Slab<Posted>,
    unexpected: UnexpectedList<Key>,
    messages: Slab<Unexpected>,
    /// Unexpected messages that take an entry in the NIC.
    in_nic: usize,
}

impl Lists {
    pub(crate) fn new() -> Self {
        // Nobody chooses tags against the hashes of a test's provider.
        let posted = PostedList::new(1);
        let unexpected = UnexpectedList::new(2);
        let receives = Slab::default();
        let messages = Slab::default();
        Lists { sources: HashMap::new(), posted, receives, unexpected, messages, in_nic: 0 }
    }

    fn source(&mut self, name: Name) -> SourceId {
        let next = SourceId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        *self.sources.entry(name).or_insert(next)
    }

    fn pattern(&mut self, wanted: Wanted) -> Pattern {
        let pattern = Pattern::new(Tag(wanted.tag), TagMask(!wanted.ignore));
        match wanted.source {
            Some(name) => pattern.from_source(self.source(name)),
            None => pattern,
        }
    }

    /// List entries that are taken in the NIC.
    pub(crate) fn entries(&self) -> usize {
        self.posted.len() + self.in_nic
    }

    /// Posted receives.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Posts a receive. False: there is no room for another one.
    pub(crate) fn post(&mut self, receive: Receive, wanted: Wanted) -> bool {
        let posted = Posted { receive, handle: None, cancelled_at: None };
        let Ok(key) = self.receives.insert(posted, u32::MAX) else { return false };
        let pattern = self.pattern(wanted);
        let handle = self.posted.post(pattern, key);
        if let Some(posted) = self.receives.get_mut(key) {
            posted.handle = Some(handle);
        }
        true
    }

    /// Takes the oldest receive that accepts a message.
    pub(crate) fn take_receive(&mut self, put: &Put) -> Option<Receive> {
        let source = self.source(put.source);
        let key = self.posted.take_match(Tag(put.tag), source)?;
        self.receives.remove(key).map(|posted| posted.receive)
    }

    /// Adds an unexpected message.
    pub(crate) fn push(&mut self, put: Put, is_in_nic: bool) {
        let tag = Tag(put.tag);
        let source = self.source(put.source);
        if let Ok(key) = self.messages.insert(Unexpected { put, is_in_nic }, u32::MAX) {
            self.unexpected.push(tag, source, key);
            self.in_nic += usize::from(is_in_nic);
        }
    }

    /// The oldest unexpected message that is wanted.
    pub(crate) fn find(&mut self, wanted: Wanted) -> Option<&Put> {
        let pattern = self.pattern(wanted);
        let handle = self.unexpected.find(&pattern)?;
        let (_, _, key) = self.unexpected.get(handle)?;
        self.messages.get(key).map(|message| &message.put)
    }

    /// Takes the oldest unexpected message that is wanted.
    pub(crate) fn take(&mut self, wanted: Wanted) -> Option<Put> {
        let pattern = self.pattern(wanted);
        let key = self.unexpected.take(&pattern)?;
        let message = self.messages.remove(key)?;
        self.in_nic -= usize::from(message.is_in_nic);
        Some(message.put)
    }

    /// Moves the unexpected messages from the NIC to software.
    pub(crate) fn onload(&mut self) {
        for key in self.messages.keys_where(|message| message.is_in_nic) {
            if let Some(message) = self.messages.get_mut(key) {
                message.is_in_nic = false;
            }
        }
        self.in_nic = 0;
    }

    /// Begins to cancel the receive with this context, which ends in the round `at` if no message
    /// matches it before. False: there is none.
    pub(crate) fn cancel(&mut self, context: usize, at: u64) -> bool {
        let found =
            |posted: &Posted| posted.receive.context == context && posted.cancelled_at.is_none();
        let Some(key) = self.receives.keys_where(found).first().copied() else { return false };
        if let Some(posted) = self.receives.get_mut(key) {
            posted.cancelled_at = Some(at);
        }
        true
    }

    /// Takes the receives whose cancellation is due.
    pub(crate) fn take_cancelled(&mut self, now: u64) -> Vec<Receive> {
        let due =
            self.receives.keys_where(|posted| posted.cancelled_at.is_some_and(|at| at <= now));
        let mut cancelled = Vec::new();
        for posted in due.into_iter().filter_map(|key| self.receives.remove(key)) {
            // A receive on the slab is on the list.
            let _ = posted.handle.map(|handle| self.posted.cancel(handle));
            cancelled.push(posted.receive);
        }
        cancelled
    }

    /// Whether a receive is being cancelled.
    pub(crate) fn is_cancelling(&self) -> bool {
        self.receives.iter().any(|posted| posted.cancelled_at.is_some())
    }
}
