//! Receives in the NIC, and the buffers that it has.

use std::hash::{Hash, Hasher};

use tagmatch_device::slab::Key;
use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{Buffer, Limits, PeerId, TagList};
use tagmatch_soft::Pattern;

use crate::requests::request::RequestId;
use crate::state::ProtocolState;

/// The shortest buffer that a NIC is given: it may write headers into it.
const BUFFER_MIN: usize = 64;

/// A receive in the NIC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: RequestId,
    /// The NIC has a bounce buffer; the request keeps its own.
    is_bounced: bool,
    /// Set once the NIC has matched it.
    pub(super) landing: Option<Key>,
    /// The only sender of messages with the receive's tag, as was promised when it was posted.
    pub(super) named: Option<PeerId>,
}

/// All receives in the NIC.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    /// By the shadow's slot.
    slots: Vec<Option<Entry>>,
    /// Spare buffers at least as long as any eager payload, for receives whose own are shorter.
    bounce: Vec<Buffer>,
    bounce_length: usize,
}

impl Entries {
    pub(super) fn new(limits: Limits) -> Self {
        let bounce_length = limits.message_max.saturating_sub(TMH_BYTES).max(BUFFER_MIN);
        Entries { slots: Vec::new(), bounce: Vec::new(), bounce_length }
    }

    pub(super) fn get(&self, slot: u32) -> Option<Entry> {
        *self.slots.get(slot as usize)?
    }

    /// The senders that receives name.
    pub(super) fn named(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slots.iter().flatten().filter_map(|entry| entry.named)
    }

    /// Notes what becomes of an entry's match.
    pub(super) fn set_landing(&mut self, slot: u32, landing: Option<Key>) {
        if let Some(Some(entry)) = self.slots.get_mut(slot as usize) {
            entry.landing = landing;
        }
    }

    /// Takes a receive's buffer for the NIC, or a longer one in its place; gives what the NIC is to
    /// match.
    pub(super) fn lend(
        &mut self,
        list: &mut dyn TagList,
        state: &mut ProtocolState,
        index: u32,
        slot: u32,
    ) -> Option<(Pattern, Buffer)> {
        let matched = state.requests.matched(index)?;
        let request = matched.request();
        let line = matched.line;
        let (pattern, _) = state.posted.get(line.posted()?)?;
        let is_bounced = line.buffer.len() < self.bounce_length;
        let buffer = if is_bounced {
            let spare = self.bounce.pop().or_else(|| list.entry_buffer(self.bounce_length));
            spare.unwrap_or_else(|| Buffer::zeroed(self.bounce_length))
        } else {
            std::mem::take(&mut line.buffer)
        };
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let named = pattern.source().map(|source| PeerId(source.0));
        self.slots[slot] = Some(Entry { request, is_bounced, landing: None, named });
        Some((pattern, buffer))
    }

    /// Gives a buffer that the NIC had back to its receive, or to the spare ones, with the first
    /// `length` bytes of a message in it. The entry is forgotten.
    pub(super) fn give_back(
        &mut self,
        state: &mut ProtocolState,
        slot: u32,
        buffer: Buffer,
        length: u64,
    ) -> Option<RequestId> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        let line = state.requests.get_mut(entry.request)?;
        if entry.is_bounced {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            line.buffer.room().unwrap_or_default().fill(buffer.first_bytes(length));
            self.bounce.push(buffer);
        } else {
            line.buffer = buffer;
        }
        Some(entry.request)
    }

    /// Forgets an entry whose buffer doesn't come back; gives its receive.
    pub(super) fn forget(&mut self, slot: u32) -> Option<RequestId> {
        Some(self.slots.get_mut(slot as usize)?.take()?.request)
    }

    /// Feeds the entries to a hasher; `landing` adds what is known of a match.
    pub(super) fn hash_state<H: Hasher>(
        &self,
        state: &mut H,
        landing: impl Fn(Option<Key>, &mut H),
    ) {
        for entry in &self.slots {
            entry.map(|entry| (entry.request.index(), entry.is_bounced, entry.named)).hash(state);
            landing(entry.and_then(|entry| entry.landing), state);
        }
    }
}
