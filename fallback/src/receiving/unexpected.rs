//! Unexpected messages: those for which no receive was posted yet.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Bytes, PeerId, RemoteSpan};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask, UnexpectedHandle, UnexpectedList};

use crate::credit::Amount;
use crate::requests::request::Status;
use crate::store::{Store, Stored};
use crate::wire::{AppCtx, TMH_BYTES};

/// Unexpected messages that a worker can hold at once: as many as a matching list holds.
const MESSAGES_MAX: u32 = 1 << 30;

/// An unexpected message. Its envelope is taken apart to make it small.
#[derive(Clone, Debug)]
pub(crate) struct UnexpectedMessage {
    pub(crate) tag: Tag,
    length: u64,
    pub(crate) source: PeerId,
    immediate: u32,
    /// With *ack wanted*: the operation that its sender waits to see ended.
    ack: AppCtx,
    has_immediate: bool,
    pub(crate) body: Body,
}

// Many messages may wait, so each takes as little memory as it can, and no look at one takes a
// second cache line.
const _: () = assert!(Slab::<UnexpectedMessage>::SLOT_BYTES == 64);

impl UnexpectedMessage {
    pub(crate) fn new(status: &Status, ack: AppCtx, body: Body) -> Self {
        let Status { source, tag, length, truncated: _, immediate } = *status;
        let has_immediate = immediate.is_some();
        let immediate = immediate.unwrap_or(0);
        UnexpectedMessage { tag, length, source, immediate, ack, has_immediate, body }
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            length: self.length,
            truncated: false,
            immediate: self.has_immediate.then_some(self.immediate),
        }
    }

    /// The operation that its sender waits to see ended, if it does.
    pub(crate) fn operation(&self) -> Option<AppCtx> {
        self.ack.ack_wanted().then(|| self.ack.operation())
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.body, Body::Lost)
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.body, Body::Remote { .. })
    }
}

/// Where the bytes of an unexpected message are.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Here.
    Stored(Stored),
    /// Still with the sender: address and key of a span that is as long as the message.
    Remote { address: u64, key: u32 },
    /// With a sender that went down.
    Lost,
}

/// Where the bytes of a message are that has just come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Behind an eager message's header.
    Here(&'a Bytes<'a>),
    /// With the sender.
    Remote(RemoteSpan),
}

/// A message that has just come, within its sender's credit.
pub(crate) struct ArrivedMessage<'a> {
    pub(crate) status: Status,
    /// With *ack wanted*: the operation that its sender waits to see ended.
    pub(crate) ack: AppCtx,
    pub(crate) payload: Payload<'a>,
}

/// All unexpected messages of an engine, those included that a matched probe has taken off the
/// list.
#[derive(Clone, Debug)]
pub(crate) struct Unexpected {
    messages: Slab<UnexpectedMessage>,
    list: UnexpectedList<u32>,
    store: Store,
    /// Bytes that messages take in the store.
    bytes: u64,
    /// Messages that matched probes have taken off the list and that are still kept: the audit
    /// compares.
    probed: usize,
}

impl Unexpected {
    pub(crate) fn new(seed: u64) -> Self {
        Unexpected {
            messages: Slab::default(),
            list: UnexpectedList::new(seed),
            store: Store::default(),
            bytes: 0,
            probed: 0,
        }
    }

    /// Messages on the list: without those that a matched probe has taken, and those that wait for
    /// the NIC.
    pub(crate) fn listed(&self) -> usize {
        self.list.len()
    }

    /// Bytes that messages take in the store.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes a message of its envelope and copies its bytes, if they are here.
    #[inline]
    pub(crate) fn store(&mut self, arrival: &ArrivedMessage<'_>) -> UnexpectedMessage {
        let ArrivedMessage { status, ack, payload } = arrival;
        let body = match payload {
            Payload::Here(bytes) => {
                self.bytes += Amount::of_eager(status.length).bytes;
                Body::Stored(self.store.put(bytes, TMH_BYTES))
            }
            Payload::Remote(span) => Body::Remote { address: span.address, key: span.key },
        };
        UnexpectedMessage::new(status, *ack, body)
    }

    /// A block for a message of this length, which comes in fragments.
    pub(crate) fn reserve(&mut self, length: usize) -> Stored {
        self.bytes += Amount::eager(length).bytes;
        self.store.block(length)
    }

    /// Frees what the bytes of a message took.
    pub(crate) fn free(&mut self, cost: Amount, stored: Stored) {
        self.bytes -= cost.bytes;
        self.store.free(stored);
    }

    /// Keeps a message that no probe and no receive is to find yet; `None` if there are too many.
    #[inline]
    pub(crate) fn hold(&mut self, message: UnexpectedMessage) -> Option<Key> {
        self.messages.insert(message, MESSAGES_MAX).ok()
    }

    /// Puts a message that was held at the end of the list.
    #[inline]
    pub(crate) fn list(&mut self, key: Key) {
        if let Some(message) = self.messages.get(key) {
            self.list.push(message.tag, SourceId(message.source.0), key.index);
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&UnexpectedMessage> {
        self.messages.get(key)
    }

    /// Removes a message that is not on the list.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<UnexpectedMessage> {
        self.messages.remove(key)
    }

    /// Whether a message is on the list.
    #[inline(always)]
    pub(crate) fn has_listed(&self) -> bool {
        !self.list.is_empty()
    }

    /// Removes the oldest message that the pattern matches. The index that the list gave is enough:
    /// the message itself is looked for out of line.
    #[inline(always)]
    pub(crate) fn take_index(&mut self, pattern: &Pattern) -> Option<u32> {
        self.list.take(pattern)
    }

    /// The message that [`Unexpected::take_index`] took off the list.
    #[inline]
    pub(crate) fn remove_index(&mut self, index: u32) -> Option<UnexpectedMessage> {
        self.messages.remove(self.messages.key_at(index)?)
    }

    /// The oldest message that the pattern matches, and its envelope.
    pub(crate) fn probe(&mut self, pattern: &Pattern) -> Option<(u32, Status)> {
        let handle = self.list.find(pattern)?;
        let (_, _, index) = self.list.get(handle)?;
        let key = self.messages.key_at(index)?;
        self.messages.get(key).map(|message| (index, message.status()))
    }

    /// Takes that message off the list: no other probe or receive finds it (MPI-4.1 section 3.8.2).
    pub(crate) fn matched_probe(&mut self, pattern: &Pattern) -> Option<(Key, Status)> {
        let index = self.list.take(pattern)?;
        let key = self.messages.key_at(index)?;
        let status = self.messages.get(key)?.status();
        self.probed += 1;
        Some((key, status))
    }

    /// Removes a message that a matched probe has taken.
    pub(crate) fn remove_probed(&mut self, key: Key) -> Option<UnexpectedMessage> {
        let message = self.messages.remove(key)?;
        self.probed -= 1;
        Some(message)
    }

    /// The messages on the list, oldest first: their senders and what [`Unexpected::drop_listed`]
    /// takes.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (PeerId, Listed)> + '_ {
        let listed = self.list.iter_in_order();
        listed.map(|(handle, _, source, index)| (PeerId(source.0), Listed { handle, index }))
    }

    /// The messages on the list, oldest first, with their envelopes.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u32, Status)> + '_ {
        let listed = self.in_order().map(|(_, listed)| listed);
        listed.filter_map(|listed| Some((listed.index, self.listed_message(listed)?.status())))
    }

    /// The messages on the list, oldest first: their envelopes, and whether their senders wait
    /// until they are received.
    pub(crate) fn envelopes(&self) -> impl Iterator<Item = (Status, bool)> + '_ {
        self.in_order().filter_map(|(_, listed)| {
            let message = self.listed_message(listed)?;
            Some((message.status(), message.is_remote() || message.operation().is_some()))
        })
    }

    pub(crate) fn listed_message(&self, listed: Listed) -> Option<&UnexpectedMessage> {
        self.messages.get(self.messages.key_at(listed.index)?)
    }

    /// Removes a message that is on the list.
    pub(crate) fn drop_listed(&mut self, listed: Listed) -> Option<UnexpectedMessage> {
        self.list.remove(listed.handle).ok()?;
        self.remove_index(listed.index)
    }

    /// The senders of all messages.
    pub(crate) fn senders(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.messages.iter().map(|message| message.source)
    }

    /// Rendezvous requests of a peer that are left, once those on the list are removed, can't be
    /// answered any more: whoever receives one gets an error. Gives how many.
    pub(crate) fn lose(&mut self, peer: PeerId) -> usize {
        let lost = self.messages.keys_where(|m| m.source == peer && m.is_remote());
        for &key in &lost {
            if let Some(message) = self.messages.get_mut(key) {
                message.body = Body::Lost;
            }
        }
        lost.len()
    }

    /// The credit that the messages of each sender hold. A lost message holds none.
    pub(crate) fn costs(&self) -> BTreeMap<PeerId, Amount> {
        let mut costs: BTreeMap<PeerId, Amount> = BTreeMap::new();
        for message in self.messages.iter() {
            let cost = match message.body {
                Body::Stored(_) => Amount::of_eager(message.length),
                Body::Remote { .. } => Amount::RENDEZVOUS,
                Body::Lost => continue,
            };
            let sum = costs.entry(message.source).or_default();
            *sum = sum.plus(cost);
        }
        costs
    }

    /// The errors in the books. `partial_bytes`: the bytes in the store that belong to messages of
    /// which fragments are still to come. `waiting`: how many messages wait for a NIC.
    pub(crate) fn audit(&self, partial_bytes: u64, waiting: usize) -> Vec<String> {
        let is_stored = |message: &&UnexpectedMessage| matches!(message.body, Body::Stored(_));
        let stored = self.messages.iter().filter(is_stored);
        let stored: u64 = stored.map(|message| Amount::of_eager(message.length).bytes).sum();
        let mut wrong = Vec::new();
        if stored + partial_bytes != self.bytes {
            wrong.push(format!(
                "unexpected messages take {stored} bytes and partial ones {partial_bytes}; {} are \
                 counted",
                self.bytes
            ));
        }
        let kept = self.messages.len();
        let listed = self.listed();
        let probed = self.probed;
        if kept != listed + probed + waiting {
            wrong.push(format!(
                "{kept} unexpected messages are kept: {listed} on the list, {probed} that probes \
                 took, {waiting} that wait for the NIC"
            ));
        }
        for (source, listed) in self.in_order() {
            match self.listed_message(listed) {
                None => wrong.push(format!("a message of {source:?} is listed, and not kept")),
                Some(message) if message.is_lost() => {
                    wrong.push(format!("a lost message of {source:?} is listed"));
                }
                Some(_) => {}
            }
        }
        wrong
    }

    /// Feeds the messages on the list to a hasher, oldest first.
    pub(crate) fn hash_state(&self, hasher: &mut impl Hasher) {
        let mut list = self.list.clone();
        while let Some(index) = list.take(&Pattern::new(Tag(0), TagMask::ANY)) {
            self.hash_message(self.messages.key_at(index), hasher);
        }
    }

    pub(crate) fn hash_message(&self, key: Option<Key>, hasher: &mut impl Hasher) {
        let status = key.and_then(|key| self.messages.get(key)).map(UnexpectedMessage::status);
        status.map(|s| (s.source, s.tag, s.length, s.immediate)).hash(hasher);
    }
}

/// A message on the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    handle: UnexpectedHandle,
    pub(crate) index: u32,
}
