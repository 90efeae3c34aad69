//! Receives that a NIC may match: between the posted list, the NIC's list and the shadow of it.
//!
//! Every posted receive stays on the posted list until it is known who matched it; the shadow decides
//! which of them the NIC holds as well. A message that came up is searched for like any other; the
//! shadow says what a hit means:
//!
//! ```text
//!                     not in the NIC -----------------------------> delivered
//! came up --hit--> in the NIC, through its list: reclaimed -------> delivered, delete without answer
//!                  in the NIC, another way: waits for a delete ---> deleted: delivered
//!                                                              \--> lost: searches on
//! ```
//!
//! A message that waits holds up its sender's later ones (its *lane*), and is found by no probe.
//!
//! # Receives whose tag has one sender
//! The NIC compares tags alone. Of receives that name their sender it gets those of which the caller promises that nobody
//! else sends such messages. Software matches them by tag and sender. When the NIC reports a match:
//!
//! 1. The receive leaves the posted list, as any; messages that waited for it search on.
//! 2. Once the data is there, sender and name are compared. If they differ, the receive fails with
//!    [`Fault::WrongSender`], and its buffer goes back to its owner. The message is dropped and its credit
//!    given back. A sender that waits has its FIN if the NIC has read the message, and else gets an abort.
//! 3. The sender is not broken with: its tag may be a mistake of either program, and means nothing to this protocol.
//!
//! When the named peer goes down, receives in the NIC are asked back as by a cancel. One that the delete
//! finds fails with the peer's fault; one that was matched before ends as its message does.

mod came_up;
mod companion;
mod reports;
mod tending;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{Buffer, Bytes, Limits, PeerId, RemoteSpan, TagCaps};
use tagmatch_shadow::{Shadow, ShadowConfig, Why};
use tagmatch_soft::Pattern;

use crate::EngineConfig;
use crate::core::{Core, Todo};
use crate::error::Fault;
use crate::request::{RequestId, Status};
use crate::slab::{Key, Slab};
use crate::wire::AppCtx;

/// The shortest buffer that a NIC is given: it may write headers into it.
const BUFFER_MIN: usize = 64;

/// What the engine knows of a NIC's list, besides the shadow.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    pub(crate) shadow: Shadow,
    /// By the shadow's slot.
    entries: Vec<Option<Entry>>,
    landings: Slab<Landing>,
    /// Messages that wait for a delete, by the index of the receive that they hit.
    waiting: BTreeMap<u32, VecDeque<Kept>>,
    /// Messages behind one that waits, by the sender of both.
    lanes: BTreeMap<PeerId, VecDeque<Kept>>,
    reclaims: VecDeque<Reclaim>,
    /// Buffers at least as long as any eager payload, for receives whose own are shorter.
    bounce: Vec<Buffer>,
    bounce_length: usize,
    /// A [`Todo::Nic`] is on its way.
    is_due: bool,
}

/// A receive in the NIC.
#[derive(Clone, Copy, Debug)]
struct Entry {
    request: RequestId,
    /// The NIC has a bounce buffer; the request keeps its own.
    is_bounced: bool,
    landing: Option<Key>,
    /// The only sender of messages with the receive's tag, as was promised when it was posted.
    named: Option<PeerId>,
}

/// A receive that the NIC has matched, until everything about it is known.
#[derive(Clone, Debug)]
struct Landing {
    request: RequestId,
    /// As the entry's.
    named: Option<PeerId>,
    status: Status,
    app_ctx: AppCtx,
    /// Its companion isn't in yet.
    lacks_companion: bool,
    data: Data,
}

impl Landing {
    /// The fault of a receive whose message is of another sender than the one that it names.
    fn wrong_sender(&self) -> Option<Fault> {
        let sender = self.status.source;
        let named = self.named.filter(|named| *named != sender)?;
        Some(Fault::WrongSender { named, sender })
    }
}

/// What the NIC said of a matched message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Nothing yet.
    Due,
    /// It is in the buffer.
    Here,
    /// It doesn't fit: software must read what does.
    Remote { va: u64, rkey: u32 },
}

/// A message that waits.
#[derive(Clone, Copy, Debug)]
struct Kept {
    message: Key,
    /// The NIC has counted it: software's count is to follow once it has its place.
    through_list: bool,
}

impl Kept {
    fn hash_state<H: Hasher>(self, state: &mut H, message: &impl Fn(Key, &mut H)) {
        self.through_list.hash(state);
        message(self.message, state);
    }
}

/// A message for a receive whose buffer the NIC still has, though it can't use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reclaim {
    pub(crate) handle: u32,
    slot: u32,
    why: Why,
    message: Key,
}

/// Bytes of a message that came up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Behind an eager message's header.
    Here(&'a Bytes<'a>),
    /// With the sender.
    Remote(RemoteSpan),
}

/// A receive as the device is to hold it.
#[derive(Debug)]
pub(crate) struct Posting {
    pub(crate) pattern: Pattern,
    pub(crate) buffer: Buffer,
}

impl Nic {
    pub(crate) fn new(caps: TagCaps, limits: Limits, config: &EngineConfig) -> Self {
        let TagCaps { slots, operations, read_max, sync_every, first_count } = caps;
        let shadow = Shadow::new(&ShadowConfig {
            slots,
            operations,
            sync_every,
            first_count,
            threshold: config.nic_threshold,
            read_max,
            source_bits: config.source_bits,
        });
        Nic {
            shadow,
            entries: Vec::new(),
            landings: Slab::default(),
            waiting: BTreeMap::new(),
            lanes: BTreeMap::new(),
            reclaims: VecDeque::new(),
            bounce: Vec::new(),
            bounce_length: limits.message_max.saturating_sub(TMH_BYTES).max(BUFFER_MIN),
            is_due: false,
        }
    }

    /// See [`Engine::hash_state`](crate::Engine::hash_state).
    pub(crate) fn hash_state<H: Hasher>(&self, state: &mut H, message: impl Fn(Key, &mut H)) {
        for entry in &self.entries {
            entry.map(|entry| (entry.request.index(), entry.is_bounced, entry.named)).hash(state);
            let landing = entry.and_then(|entry| self.landings.get(entry.landing?));
            let facts = |landing: &Landing| {
                let Landing { status, app_ctx, lacks_companion, .. } = *landing;
                (status.source, status.tag, app_ctx.0, lacks_companion)
            };
            landing.map(facts).hash(state);
        }
        for (index, queue) in &self.waiting {
            (index, queue.len()).hash(state);
            queue.iter().for_each(|kept| kept.hash_state(state, &message));
        }
        for (peer, lane) in &self.lanes {
            (peer, lane.len()).hash(state);
            lane.iter().for_each(|kept| kept.hash_state(state, &message));
        }
    }
}

impl Core {
    /// Asks for the NIC's list to be tended before anything else happens.
    pub(crate) fn nic_due(&mut self) {
        if let Some(nic) = &mut self.nic
            && !std::mem::replace(&mut nic.is_due, true)
        {
            self.todo.push(Todo::Nic);
        }
    }

    pub(crate) fn nic_tended(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.is_due = false;
        }
    }

    /// Takes a receive's buffer, or a longer one in its place, for the NIC.
    pub(crate) fn nic_posting(&mut self, index: u32, slot: u32) -> Option<Posting> {
        let nic = self.nic.as_mut()?;
        let (key, request) = self.requests.matched(index)?;
        let (pattern, _) = self.posted.get(request.posted()?)?;
        let is_bounced = request.buffer.len() < nic.bounce_length;
        let buffer = if is_bounced {
            nic.bounce.pop().unwrap_or_else(|| Buffer::zeroed(nic.bounce_length))
        } else {
            std::mem::take(&mut request.buffer)
        };
        let slot = slot as usize;
        if nic.entries.len() <= slot {
            nic.entries.resize(slot + 1, None);
        }
        let named = pattern.source().map(|source| PeerId(source.0));
        nic.entries[slot] = Some(Entry { request: key, is_bounced, landing: None, named });
        Some(Posting { pattern, buffer })
    }

    /// Gives a buffer that the NIC had back to its receive, or to the spare ones, with the first
    /// `length` bytes of a message in it. The entry is forgotten.
    pub(crate) fn nic_gives_back(
        &mut self,
        slot: u32,
        buffer: Buffer,
        length: u64,
    ) -> Option<RequestId> {
        let nic = self.nic.as_mut()?;
        let entry = nic.entries.get_mut(slot as usize)?.take()?;
        let request = self.requests.get_mut(entry.request)?;
        if entry.is_bounced {
            let users = request.buffer.as_mut_slice().unwrap_or_default();
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let fits = length.min(users.len()).min(buffer.len());
            users[..fits].copy_from_slice(&buffer[..fits]);
            nic.bounce.push(buffer);
        } else {
            request.buffer = buffer;
        }
        Some(entry.request)
    }
}
