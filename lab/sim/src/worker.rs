//! One worker, its requests in progress, and the messages that it holds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tagmatch_device::{Device, PeerId};
use tagmatch_fallback::{End, Engine, MessageId, RequestId};

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A receive, by number.
    Receive(u32),
    /// The receive of a message that a matched probe took.
    Message(u32),
    /// A send of a message.
    Send(u32),
}

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker<D: Device> {
    /// `None` after the worker has ended.
    pub(crate) engine: Option<Engine<D>>,
    pub(crate) node: u32,
    /// Workers that it has connected to.
    pub(crate) met: Vec<(u32, PeerId)>,
    pub(crate) requests: Requests,
    /// Queued requests, by their contexts.
    pub(crate) queued: HashMap<u64, RequestId>,
    /// Ends that it took while it made progress.
    pub(crate) ends: Vec<End>,
    /// What the completion queue has told last of each peer: up or down.
    pub(crate) told: HashMap<PeerId, bool>,
    /// Messages that matched probes took.
    pub(crate) held: Vec<(MessageId, u32)>,
    /// Requests whose end is not announced; the owner polls them.
    pub(crate) unwatched: Vec<RequestId>,
    /// Requests that are over, whose results the owner takes later.
    pub(crate) late: Vec<RequestId>,
    /// Takes no events before this step.
    pub(crate) stalled: u32,
    /// The engine's count of dropped messages of peers that are down, as last seen.
    pub(crate) lost: u64,
}

impl<D: Device> Worker<D> {
    pub(crate) fn new(engine: Engine<D>, node: u32) -> Self {
        Worker {
            engine: Some(engine),
            node,
            met: vec![],
            requests: Requests::default(),
            queued: HashMap::new(),
            ends: vec![],
            told: HashMap::new(),
            held: vec![],
            unwatched: vec![],
            late: vec![],
            stalled: 0,
            lost: 0,
        }
    }

    /// Whether the completion queue of this worker tells of peers.
    pub(crate) fn tells_peers(node: u32) -> bool {
        node % 2 == 1
    }

    /// Forgets all requests and messages.
    pub(crate) fn forget(&mut self) {
        self.requests = Requests::default();
        self.queued.clear();
        self.ends.clear();
        self.told.clear();
        self.held.clear();
        self.unwatched.clear();
        self.late.clear();
    }
}

/// Requests in progress, found by id or by index.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_name: HashMap<RequestId, (Purpose, usize), BuildHasherDefault<Mixer>>,
    order: Vec<RequestId>,
    receives: usize,
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn receives(&self) -> usize {
        self.receives
    }

    pub(crate) fn insert(&mut self, request: RequestId, what: Purpose) -> bool {
        self.receives += usize::from(matches!(what, Purpose::Receive(_)));
        self.order.push(request);
        self.by_name.insert(request, (what, self.order.len() - 1)).is_none()
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Purpose> {
        let (what, place) = self.by_name.remove(&request)?;
        self.order.swap_remove(place);
        if let Some(moved) = self.order.get(place).and_then(|moved| self.by_name.get_mut(moved)) {
            moved.1 = place;
        }
        self.receives -= usize::from(matches!(what, Purpose::Receive(_)));
        Some(what)
    }

    pub(crate) fn what(&self, request: RequestId) -> Option<Purpose> {
        self.by_name.get(&request).map(|&(what, _)| what)
    }

    /// One of the requests.
    pub(crate) fn pick(&self, which: u8) -> Option<RequestId> {
        let count = self.order.len();
        (count > 0).then(|| self.order[usize::from(which) % count])
    }

    pub(crate) fn all(&self) -> Vec<RequestId> {
        self.order.clone()
    }
}

/// Hashes the two numbers of a request's id. No input is hostile, and no order depends on the hash.
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0.rotate_left(20) ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
