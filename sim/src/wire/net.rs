//! What all wires of a run share: who knows whom, what is on its way, what is exposed.

use std::collections::VecDeque;

use tagmatch_hw::{Buffer, DownReason, ReadError, ReadRequest};

use super::Sabotage;
use crate::rng::Rng;

/// Settings of the wires.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Bytes in the largest message; each worker announces between half of it and all of it.
    pub message_max: u32,
    /// Messages that one way holds.
    pub capacity: u32,
    /// Longest delay in ticks.
    pub delay_max: u32,
    /// Messages, of 1000, that are delayed.
    pub delayed_per_mille: u32,
    /// Sends, of 1000, that are refused for no reason.
    pub refused_per_mille: u32,
    /// Buffers that one worker can expose.
    pub exposures_max: u32,
    /// Seed of all that the wires decide.
    pub seed: u64,
}

/// No number of a message: it has no tag.
pub(super) const UNTAGGED: u32 = u32::MAX;
/// `ECONNREFUSED`.
const REFUSED: i32 = 111;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<u32>,
    ready: u64,
    /// The how-manieth message with a tag of this sender to this receiver it is.
    pub(super) ordinal: u32,
    eager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Up,
    Down,
}

/// A peer as one worker sees it.
#[derive(Debug)]
pub(super) struct PeerEnd {
    pub(super) node: u32,
    /// The number that the peer knows this worker by.
    pub(super) back: u32,
    pub(super) link: Link,
    up_at: u64,
    /// The worker above has asked for this peer: it must hear of its end even if it never came up.
    is_asked_for: bool,
    /// Going down, once what is on its way has come.
    pub(super) ends: Option<DownReason>,
    inbox: VecDeque<Frame>,
    tagged_sent: u32,
    /// Keys in rendezvous requests that came from this peer, and the numbers of those.
    keys: Vec<(u32, u32)>,
}

#[derive(Debug, Default)]
struct Exposed {
    buffer: Option<Buffer>,
    generation: u32,
}

#[derive(Debug)]
struct Reading {
    request: ReadRequest,
    ordinal: u32,
    ready: u64,
}

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) peers: Vec<PeerEnd>,
    exposed: Vec<Exposed>,
    free: Vec<u32>,
    reads: Vec<Reading>,
    fail_reads: u32,
    pub(super) message_max: usize,
    is_gone: bool,
    /// Events that may still be taken.
    budget: u32,
}

/// How a READ ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Done,
    Failed(i32),
    PeerDown,
    BadSpan,
}

/// What the wires tell the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A message with a tag was handed to its receiver.
    Arrived { at: u32, from: u32, ordinal: u32, eager: bool, tick: u64 },
    /// The receiver began to read a message: it has been matched.
    ReadBegan { at: u32, from: u32, ordinal: u32, tick: u64 },
    /// A READ was given back.
    ReadEnded { at: u32, from: u32, ordinal: u32, outcome: ReadOutcome },
    /// `at` was told that `from` is gone.
    Down { at: u32, from: u32, tick: u64 },
}

/// What a worker can be told next.
pub(super) enum Ready {
    Up(u32),
    Message(u32, Frame),
    Read(ReadRequest, Result<(), ReadError>),
    Down(u32, DownReason),
}

/// The network of a run.
#[derive(Debug)]
pub struct Net {
    config: WireConfig,
    rng: Rng,
    clock: u64,
    pub(super) nodes: Vec<NodeState>,
    notes: Vec<Note>,
    /// Nothing is delayed any more.
    pub(crate) hurry: bool,
    sabotage: Option<Sabotage>,
    spare: Vec<Vec<u8>>,
    reads_failed: i32,
    /// Events handed out.
    pub(crate) events: u64,
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Net {
    /// A network without workers.
    #[must_use]
    pub fn new(config: WireConfig, sabotage: Option<Sabotage>) -> Self {
        let rng = Rng::new(config.seed, 3);
        Net {
            config,
            rng,
            clock: 0,
            nodes: Vec::new(),
            notes: Vec::new(),
            hurry: false,
            sabotage,
            spare: Vec::new(),
            reads_failed: 0,
            events: 0,
        }
    }

    /// The next moment. No two things happen at the same.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds a worker, which knows itself as peer 0.
    pub(crate) fn add_node(&mut self) -> u32 {
        let me = number(self.nodes.len());
        let max = self.config.message_max;
        let message_max = self.rng.between(((max / 2).max(64), max.max(64))) as usize;
        self.nodes.push(NodeState {
            peers: vec![],
            exposed: vec![],
            free: vec![],
            reads: vec![],
            fail_reads: 0,
            message_max,
            is_gone: false,
            budget: 0,
        });
        self.add_end(me, me, 0);
        me
    }

    fn add_end(&mut self, at: u32, node: u32, back: u32) {
        let up_at = self.clock + self.delay();
        let end = PeerEnd {
            node,
            back,
            link: Link::Connecting,
            up_at,
            is_asked_for: false,
            ends: None,
            inbox: VecDeque::new(),
            tagged_sent: 0,
            keys: Vec::new(),
        };
        self.nodes[at as usize].peers.push(end);
    }

    fn delay(&mut self) -> u64 {
        if self.config.delay_max == 0 || !self.rng.per_mille(self.config.delayed_per_mille) {
            return 0;
        }
        self.rng.below(self.config.delay_max + 1).into()
    }

    /// The number by which `at` knows `node`, if it does.
    pub(crate) fn peer_of(&self, at: u32, node: u32) -> Option<u32> {
        self.nodes[at as usize].peers.iter().position(|peer| peer.node == node).map(number)
    }

    /// The worker that `at` knows by this number.
    pub(crate) fn node_of(&self, at: u32, peer: u32) -> Option<u32> {
        self.nodes[at as usize].peers.get(peer as usize).map(|peer| peer.node)
    }

    /// How many peers a worker has met.
    pub(crate) fn peers(&self, at: u32) -> u64 {
        self.nodes[at as usize].peers.len() as u64
    }

    pub(super) fn connect(&mut self, at: u32, node: u32) -> u32 {
        if let Some(known) = self.peer_of(at, node) {
            self.nodes[at as usize].peers[known as usize].is_asked_for = true;
            return known;
        }
        let mine = number(self.nodes[at as usize].peers.len());
        let theirs = number(self.nodes[node as usize].peers.len());
        self.add_end(at, node, theirs);
        if self.nodes[node as usize].is_gone {
            let end = &mut self.nodes[at as usize].peers[mine as usize];
            end.ends = Some(DownReason::Unreachable { errno: REFUSED });
        } else {
            self.add_end(node, at, mine);
        }
        self.nodes[at as usize].peers[mine as usize].is_asked_for = true;
        mine
    }

    /// The worker is gone: its peers will be told. `lossy`: what it sent last may be lost.
    pub(crate) fn kill(&mut self, node: u32, lossy: bool) {
        let me = &mut self.nodes[node as usize];
        me.is_gone = true;
        me.reads.clear();
        let ends: Vec<_> = me.peers.iter().map(|end| (end.node, end.back)).collect();
        for (other, back) in ends.into_iter().skip(1) {
            let cut = lossy.then(|| self.rng.next());
            let peers = &mut self.nodes[other as usize].peers;
            let Some(end) = peers.get_mut(back as usize).filter(|end| end.node == node) else {
                continue;
            };
            end.ends.get_or_insert(DownReason::Gone);
            if let Some(cut) = cut {
                let kept = usize::try_from(cut).unwrap_or(0) % (end.inbox.len() + 1);
                end.inbox.truncate(kept);
            }
        }
    }

    pub(super) fn disconnect(&mut self, at: u32, peer: u32) {
        let end = &mut self.nodes[at as usize].peers[peer as usize];
        let (node, back) = (end.node, end.back);
        end.ends = Some(DownReason::Disconnected);
        end.inbox.clear();
        let peers = &mut self.nodes[node as usize].peers;
        if let Some(end) = peers.get_mut(back as usize).filter(|end| end.node == at) {
            end.ends.get_or_insert(DownReason::Gone);
        }
    }

    pub(super) fn close(&mut self, at: u32) {
        self.nodes[at as usize].is_gone = true;
    }

    /// The next READ of the worker fails.
    pub(crate) fn fail_read(&mut self, at: u32) {
        self.nodes[at as usize].fail_reads += 1;
    }

    /// How many events the worker may take before it finds nothing.
    pub(crate) fn allow(&mut self, at: u32, events: u32) {
        self.nodes[at as usize].budget = events;
    }

    /// Moves what was noted since the last call behind `into`.
    pub(crate) fn take_notes(&mut self, into: &mut Vec<Note>) {
        into.append(&mut self.notes);
    }

    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < 64 {
            self.spare.push(bytes);
        }
    }
}

/// Sending.
impl Net {
    /// Whether the way is full, or says so.
    pub(super) fn is_full(&mut self, to: u32, back: u32) -> bool {
        let waiting = self.nodes[to as usize].peers[back as usize].inbox.len();
        waiting >= self.config.capacity as usize
            || (!self.hurry && self.rng.per_mille(self.config.refused_per_mille))
    }

    /// Puts a message on its way. `tagged`: eager or not, if it has a tag.
    pub(super) fn put(
        &mut self,
        from: u32,
        peer: u32,
        parts: [&[u8]; 2],
        immediate: Option<u32>,
        tagged: Option<bool>,
    ) {
        let delay = self.delay();
        let ready = self.clock + delay;
        let end = &mut self.nodes[from as usize].peers[peer as usize];
        let (to, back) = (end.node, end.back);
        let mut ordinal = UNTAGGED;
        if tagged.is_some() {
            ordinal = end.tagged_sent;
            end.tagged_sent += 1;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let eager = tagged == Some(true);
        let frame = Frame { bytes, immediate, ready, ordinal, eager };
        match self.sabotage {
            Some(sabotage) if tagged.is_some() && self.rng.per_mille(30) => {
                self.put_broken(to, back, frame, sabotage);
            }
            _ => self.nodes[to as usize].peers[back as usize].inbox.push_back(frame),
        }
    }

    fn put_broken(&mut self, to: u32, back: u32, mut frame: Frame, sabotage: Sabotage) {
        let at = self.rng.below(number(frame.bytes.len()).saturating_sub(16)) as usize + 16;
        let inbox = &mut self.nodes[to as usize].peers[back as usize].inbox;
        match sabotage {
            Sabotage::Drop => return,
            Sabotage::Duplicate => inbox.push_back(Frame { bytes: frame.bytes.clone(), ..frame }),
            Sabotage::Reorder => {
                let before = inbox.back().is_some_and(|last| last.ordinal != UNTAGGED);
                inbox.insert(inbox.len() - usize::from(before), frame);
                return;
            }
            Sabotage::Corrupt if frame.eager && frame.bytes.len() > 16 => frame.bytes[at] ^= 0x10,
            Sabotage::Immediate if frame.eager => {
                frame.immediate = frame.immediate.map(|immediate| immediate ^ 1);
            }
            Sabotage::Tag => frame.bytes[15] ^= 1,
            _ => {}
        }
        inbox.push_back(frame);
    }
}

/// The key in a rendezvous request.
fn key_of(frame: &Frame) -> Option<u32> {
    let is_request = frame.ordinal != UNTAGGED && !frame.eager && frame.bytes.len() >= 32;
    is_request
        .then(|| frame.bytes[24..28].iter().fold(0, |key, &byte| (key << 8) | u32::from(byte)))
}

fn slot_of(key: u32) -> usize {
    (key & 0xffff) as usize
}

/// Exposed buffers and READs.
impl Net {
    /// The key of the exposed buffer, or the buffer, if there are too many.
    pub(super) fn expose(&mut self, at: u32, buffer: Buffer) -> Result<u32, Buffer> {
        let limit = (self.config.exposures_max as usize).min(0xffff);
        let me = &mut self.nodes[at as usize];
        let slot = match me.free.pop() {
            Some(slot) => slot as usize,
            None if me.exposed.len() >= limit => return Err(buffer),
            None => {
                me.exposed.push(Exposed::default());
                me.exposed.len() - 1
            }
        };
        let exposed = &mut me.exposed[slot];
        exposed.buffer = Some(buffer);
        Ok(number(slot) | (exposed.generation << 16))
    }

    fn exposure(&mut self, of: u32, key: u32) -> Option<&mut Exposed> {
        let exposed = self.nodes[of as usize].exposed.get_mut(slot_of(key))?;
        let is_it = exposed.generation & 0xffff == key >> 16 && exposed.buffer.is_some();
        is_it.then_some(exposed)
    }

    pub(super) fn withdraw(&mut self, at: u32, key: u32) -> Option<Buffer> {
        let exposed = self.exposure(at, key)?;
        exposed.generation += 1;
        let buffer = exposed.buffer.take();
        self.nodes[at as usize].free.push(number(slot_of(key)));
        buffer
    }

    pub(super) fn read(&mut self, at: u32, request: ReadRequest) {
        let tick = self.tick();
        let ready = self.clock + self.delay();
        let me = &mut self.nodes[at as usize];
        let end = &mut me.peers[request.peer.index()];
        let known = end.keys.iter().position(|&(key, _)| key == request.remote.key);
        let ordinal = known.map_or(UNTAGGED, |index| end.keys.swap_remove(index).1);
        self.notes.push(Note::ReadBegan { at, from: end.node, ordinal, tick });
        me.reads.push(Reading { request, ordinal, ready });
    }

    /// Ends a READ.
    fn end_read(&mut self, at: u32, index: usize) -> Ready {
        let me = &mut self.nodes[at as usize];
        let Reading { mut request, ordinal, .. } = me.reads.swap_remove(index);
        let end = &me.peers[request.peer.index()];
        let (from, is_down) = (end.node, end.ends.is_some() || end.link == Link::Down);
        let fails = std::mem::take(&mut me.fail_reads) > 0;
        let outcome = if is_down {
            ReadOutcome::PeerDown
        } else if fails {
            // Each failure has a number of its own, by which both sides' reports are told apart.
            self.reads_failed += 1;
            ReadOutcome::Failed(self.reads_failed)
        } else if self.copy(from, &mut request) {
            ReadOutcome::Done
        } else {
            ReadOutcome::BadSpan
        };
        self.notes.push(Note::ReadEnded { at, from, ordinal, outcome });
        let result = match outcome {
            ReadOutcome::Done => Ok(()),
            ReadOutcome::Failed(_) if self.sabotage == Some(Sabotage::SilentRead) => Ok(()),
            ReadOutcome::Failed(errno) => Err(ReadError::Failed { errno }),
            ReadOutcome::PeerDown => Err(ReadError::PeerDown),
            ReadOutcome::BadSpan => Err(ReadError::BadSpan),
        };
        Ready::Read(request, result)
    }

    fn copy(&mut self, from: u32, request: &mut ReadRequest) -> bool {
        let sabotage = self.sabotage;
        let Some(exposed) = self.exposure(from, request.remote.key) else { return false };
        let bytes: &[u8] = exposed.buffer.as_deref().unwrap_or_default();
        let length = usize::try_from(request.remote.length).unwrap_or(usize::MAX);
        let into = request.into.as_mut_slice().unwrap_or_default();
        if length > bytes.len() || length > into.len() {
            return false;
        }
        let copied = match sabotage {
            Some(Sabotage::ShortRead) => length.saturating_sub(1),
            Some(Sabotage::LongRead) => {
                into.iter_mut().skip(length).take(1).for_each(|byte| *byte = 0);
                length
            }
            _ => length,
        };
        into[..copied].copy_from_slice(&bytes[..copied]);
        true
    }
}

/// Events.
impl Net {
    /// What the worker is told next: any peer's next event, chosen at random.
    pub(super) fn next(&mut self, at: u32) -> Option<Ready> {
        let now = self.tick();
        let count = number(self.nodes[at as usize].peers.len());
        if self.nodes[at as usize].budget == 0 {
            return None;
        }
        let start = self.rng.below(count + 1);
        for turn in 0..=count {
            let which = (start + turn) % (count + 1);
            let ready =
                if which == count { self.next_read(at) } else { self.next_of(at, which, now) };
            if let Some(ready) = ready {
                self.nodes[at as usize].budget -= 1;
                self.events += 1;
                return Some(ready);
            }
        }
        None
    }

    fn next_read(&mut self, at: u32) -> Option<Ready> {
        let me = &self.nodes[at as usize];
        if me.reads.is_empty() {
            return None;
        }
        let start = self.rng.below(number(me.reads.len())) as usize;
        let me = &self.nodes[at as usize];
        let (clock, hurry) = (self.clock, self.hurry);
        let is_ready = |reading: &Reading| {
            let end = &me.peers[reading.request.peer.index()];
            hurry || reading.ready <= clock || end.ends.is_some()
        };
        let turns = (start..me.reads.len()).chain(0..start);
        let index = turns.into_iter().find(|&index| is_ready(&me.reads[index]))?;
        Some(self.end_read(at, index))
    }

    fn next_of(&mut self, at: u32, peer: u32, now: u64) -> Option<Ready> {
        let hurry = self.hurry;
        let me = &mut self.nodes[at as usize];
        let end = &mut me.peers[peer as usize];
        match end.link {
            Link::Down => None,
            Link::Connecting => {
                if let Some(reason) = end.ends.filter(|_| end.inbox.is_empty()) {
                    let is_asked_for = end.is_asked_for;
                    return is_asked_for.then(|| self.end_link(at, peer, reason));
                }
                if !hurry && end.up_at > now {
                    return None;
                }
                end.link = Link::Up;
                Some(Ready::Up(peer))
            }
            Link::Up => {
                if end.inbox.front().is_some_and(|frame| hurry || frame.ready <= now) {
                    let frame = end.inbox.pop_front()?;
                    let Frame { ordinal, eager, .. } = frame;
                    let from = end.node;
                    if let Some(key) = key_of(&frame) {
                        end.keys.retain(|&(other, _)| other != key);
                        end.keys.push((key, ordinal));
                    }
                    if ordinal != UNTAGGED {
                        self.notes.push(Note::Arrived { at, from, ordinal, eager, tick: now });
                    }
                    return Some(Ready::Message(peer, frame));
                }
                let reason = end.ends.filter(|_| end.inbox.is_empty())?;
                // Reads come back first.
                if me.reads.iter().any(|reading| reading.request.peer.0 == peer) {
                    return None;
                }
                Some(self.end_link(at, peer, reason))
            }
        }
    }

    fn end_link(&mut self, at: u32, peer: u32, reason: DownReason) -> Ready {
        let end = &mut self.nodes[at as usize].peers[peer as usize];
        end.link = Link::Down;
        let (from, tick) = (end.node, self.clock);
        self.notes.push(Note::Down { at, from, tick });
        Ready::Down(peer, reason)
    }
}
