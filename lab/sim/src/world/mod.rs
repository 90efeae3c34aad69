//! Runs a program: makes its calls, takes their results, and shows all of them to the oracle.

mod books;
mod calls;
mod ends;
mod queue;
mod settle;
mod snapshots;

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch_device::PeerId;
use tagmatch_fallback::{Engine, MatchEngine, PeerFault, RequestId};
use tagmatch_model::{QUEUE_PAIR_FAILED, READ_FAILED};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};
use tagmatch_testkit::random::{Random, mix};

use crate::adapter::Adapter;
use crate::history::History;
use crate::limited_ends::{LimitedEnds, ROOMS};
use crate::oracle::{ANY, Oracle, Wanted};
use crate::payload::Buffers;
use crate::profile::Setup;
use crate::program::{Ask, Op};
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::wire::{Net, Note, ReadOutcome, Wire, WireFault};
use crate::worker::Worker;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of the API. Polls without an event are not counted.
    pub calls: u64,
    /// Messages, ends of READs, and peer events that workers got.
    pub events: u64,
    /// Requests whose end their owners have seen.
    pub completions: u64,
    /// The receives among these requests that got a message.
    pub received: u64,
    /// Receives that a NIC has matched, as its worker counts them, including killed workers.
    pub hardware: u64,
    /// Messages that came past the list of a NIC, and whose receive was in the list.
    pub past_list: u64,
    /// Messages that workers have sent over networks, beside the shared memory of their machines.
    pub sent_beyond: u64,
    /// Messages of workers that were down which were dropped to make room for others.
    pub lost: u64,
}

impl Counts {
    /// The sum of all calls and events.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.calls + self.events + self.completions
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        self.calls += other.calls;
        self.events += other.events;
        self.completions += other.completions;
        self.received += other.received;
        self.hardware += other.hardware;
        self.past_list += other.past_list;
        self.sent_beyond += other.sent_beyond;
        self.lost += other.lost;
    }
}

/// The state of one run.
pub(crate) struct World<'a, A: Adapter> {
    setup: &'a Setup,
    adapter: &'a A,
    seed: u64,
    net: Rc<RefCell<Net>>,
    workers: Vec<Worker<A::Device>>,
    oracle: Oracle,
    pub(crate) history: History,
    pub(crate) counts: Counts,
    buffers: Buffers,
    /// Decides when owners look at their requests: at once, or later.
    random: Random,
    /// Pairs of workers that may be down for each other: one has ended, or has disconnected the
    /// other.
    ended: Vec<u32>,
    broken: Vec<(u32, u32)>,
    notes: Vec<Note>,
    /// The context of the last queued operation.
    contexts: u64,
    step: u32,
}

impl<'a, A: Adapter> World<'a, A> {
    pub(crate) fn new(
        setup: &'a Setup,
        adapter: &'a A,
        seed: u64,
        wire_fault: Option<WireFault>,
        keeps_lines: bool,
    ) -> Result<Self, Violation> {
        let mut world = World {
            setup,
            adapter,
            seed,
            net: Rc::new(RefCell::new(Net::new(setup.wire.clone(), wire_fault))),
            workers: vec![],
            oracle: Oracle::new(adapter.software_decides()),
            history: History::new(keeps_lines),
            counts: Counts::default(),
            buffers: Buffers::new(seed),
            random: Random::stream(seed, 4),
            ended: vec![],
            broken: vec![],
            notes: vec![],
            contexts: 0,
            step: 0,
        };
        for _ in 0..setup.workers {
            let worker = world.new_worker()?;
            world.workers.push(worker);
        }
        Ok(world)
    }

    pub(crate) fn be_thorough(&mut self) {
        self.buffers.thorough = true;
    }

    fn new_worker(&mut self) -> Result<Worker<A::Device>, Violation> {
        let (wire, node) = Wire::new(&self.net);
        let seed = mix(self.seed ^ u64::from(node));
        let device = self
            .adapter
            .device(wire, seed)
            .map_err(|error| Violation::new(Rule::Fault, format!("n{node}: no device: {error}")))?;
        let config = tagmatch_fallback::EngineConfig { seed, ..self.setup.engine };
        let mut engine = Engine::new(device, &config)
            .map_err(|error| Violation::new(Rule::Fault, format!("n{node}: no engine: {error}")))?;
        if Worker::<A::Device>::tells_peers(node) {
            engine.requests_mut().tell_peers();
        }
        Ok(Worker::new(engine, node))
    }

    /// Makes one step of a program.
    pub(crate) fn step(&mut self, op: &Op) -> Verdict {
        self.step += 1;
        let place = op.actor().map(usize::from);
        match place {
            Some(at) if at >= self.workers.len() => return Ok(()),
            Some(at) if self.workers[at].engine.is_none() => {
                if let Op::Revive { .. } = op {
                    return self.revive(at);
                }
                return Ok(());
            }
            _ => {}
        }
        let step = self.step;
        let count = self.history.lines.is_some();
        if count {
            self.history.line(|| format!("{step}: {op:?}"));
        }
        let at = place.unwrap_or(0);
        match *op {
            Op::Send(call) => self.send(at, call)?,
            Op::Receive { ask, room, .. } => self.receive(at, &ask, room)?,
            Op::Probe { ask, .. } => self.probe(at, &ask)?,
            Op::MatchedProbe { ask, .. } => self.matched_probe(at, &ask)?,
            Op::ReceiveMessage { which, room, .. } => self.receive_message(at, which, room)?,
            Op::Discard { which, .. } => self.discard(at, which)?,
            Op::Cancel { which, .. } => self.cancel(at, which),
            Op::Detach { which, .. } => self.detach(at, which),
            Op::Work { events, until, .. } => self.work(at, events, until)?,
            Op::FailRead { .. } => self.net.borrow_mut().fail_read(self.workers[at].node),
            Op::Stall { steps, .. } => self.workers[at].stalled = self.step + u32::from(steps),
            Op::Kill { orderly, .. } => return self.kill(at, orderly),
            Op::Revive { .. } => {}
            Op::Disconnect { with, .. } => self.disconnect(at, with.into())?,
            Op::Settle => return self.settle_and_check(),
        }
        self.observe(at, false)
    }

    fn work(&mut self, at: usize, events: u8, until: Option<u8>) -> Verdict {
        let worker = &mut self.workers[at];
        if worker.stalled > self.step {
            return Ok(());
        }
        self.net.borrow_mut().allow(worker.node, events.into());
        let request = until.and_then(|which| worker.requests.pick(which));
        let Some(engine) = &mut worker.engine else { return Ok(()) };
        let events = match request {
            Some(request) => engine.progress_until(request).0,
            // The operation decides, so that a plan that is made smaller stays alike.
            None if events.is_multiple_of(2) => {
                let room = ROOMS[usize::from(events / 2) % ROOMS.len()];
                engine.take_ends(&mut LimitedEnds { ends: &mut worker.ends, room })
            }
            None => engine.progress(),
        };
        self.counts.calls += u64::from(events > 0);
        self.counts.events += events as u64;
        self.in_bounds(at)
    }

    /// Checks that unexpected memory is within its bound, and that the NIC's rules are kept.
    fn in_bounds(&self, at: usize) -> Verdict {
        let worker = &self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let counters = engine.counters();
        let fault = self.adapter.fault(engine.device());
        ensure!(
            fault.is_none() && counters.list_faults == 0,
            List,
            "n{}: {} impossible events of its list; {}",
            worker.node,
            counters.list_faults,
            fault.unwrap_or_default()
        );
        ensure!(counters.bugs == 0, Fault, "{} states that can't be", counters.bugs);
        let pool = self.setup.engine.credit.pool;
        let bytes = counters.unexpected_bytes_now;
        ensure!(bytes <= pool.bytes, Memory, "n{}: {bytes} unexpected bytes", worker.node);
        let messages = counters.unexpected_now + worker.held.len() as u64;
        let peers = self.net.borrow().peers(worker.node);
        let bound = pool.messages + tagmatch_fallback::FLOOR_MESSAGES * peers;
        ensure!(messages <= bound, Memory, "n{}: {messages} unexpected messages", worker.node);
        Ok(())
    }

    /// Takes the records of the wires.
    fn hear(&mut self) -> Verdict {
        let mut notes = std::mem::take(&mut self.notes);
        self.net.borrow_mut().take_notes(&mut notes);
        for note in &notes {
            self.oracle.note(note);
            match *note {
                Note::Arrived { at, from, ordinal, .. } => {
                    self.history.fact(u64::from(at) << 32 | u64::from(from), ordinal.into());
                }
                Note::Down { at, from, .. } => {
                    self.history.fact(u64::from(at) << 32 | u64::from(from), 1 << 40);
                    let is_known = [at, from].iter().any(|node| self.ended.contains(node))
                        || self.broken.contains(&(at, from))
                        || self.broken.contains(&(from, at));
                    ensure!(
                        is_known,
                        Fault,
                        "n{at} was told that n{from} is down, which it is not"
                    );
                }
                // A READ that fails ends the queue pair of a NIC.
                Note::ReadEnded { at, from, outcome: ReadOutcome::Failed(_), .. } => {
                    if !self.adapter.software_decides() {
                        self.broken.push((at, from));
                        self.oracle.broke(at, from);
                    }
                }
                Note::Broke { at, with } if self.adapter.may_break() => {
                    self.broken.push((at, with));
                    self.oracle.broke(at, with);
                }
                Note::Began { .. }
                | Note::Broke { .. }
                | Note::ReadBegan { .. }
                | Note::ReadEnded { .. } => {}
            }
            self.history.line(|| format!("    {note:?}"));
        }
        notes.clear();
        self.notes = notes;
        Ok(())
    }

    /// Takes the results of requests that have ended at a worker. `all`: also of those that the
    /// owner would look at later.
    fn observe(&mut self, at: usize, all: bool) -> Verdict {
        self.hear()?;
        self.see_losses(at)?;
        let worker = &mut self.workers[at];
        let Some(engine) = &mut worker.engine else { return Ok(()) };
        let mut over: Vec<RequestId> = vec![];
        if all || !worker.late.is_empty() && self.random.per_mille(200) {
            over.append(&mut worker.late);
        }
        if !worker.unwatched.is_empty() {
            worker.unwatched.retain(|&request| {
                let is_over = engine.requests().is_over(request);
                if is_over {
                    over.push(request);
                }
                !is_over
            });
        }
        if engine.requests().has_woken() {
            for request in engine.requests_mut().take_woken() {
                if !all && self.random.per_mille(40) {
                    worker.late.push(request);
                } else {
                    over.push(request);
                }
            }
        }
        let mut ended = self.queued_ends(at, all)?;
        for request in over {
            ended.push(self.result(at, request)?);
        }
        if ended.is_empty() { Ok(()) } else { self.check_ends(at, ended) }
    }

    /// Records whether an engine has dropped messages of peers that are down.
    fn see_losses(&mut self, at: usize) -> Verdict {
        let worker = &mut self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let lost = engine.counters().lost_messages;
        let new = lost - std::mem::replace(&mut worker.lost, lost);
        if new == 0 {
            return Ok(());
        }
        self.counts.lost += new;
        let node = worker.node;
        let net = self.net.borrow();
        let numbers = 0..u32::try_from(net.peers(node)).unwrap_or(u32::MAX);
        for number in numbers.filter(|number| engine.has_lost_messages(PeerId(*number))) {
            let Some(from) = net.node_of(node, number) else { continue };
            self.history.line(|| format!("    n{node} drops what waits of n{from}"));
            self.oracle.forgotten(node, from)?;
        }
        Ok(())
    }

    /// The source as a worker of the network and as a peer. Connects to the peer if it is not
    /// connected.
    fn resolve(&mut self, at: usize, ask: &Ask) -> Result<Option<(Wanted, Pattern)>, Violation> {
        let mut pattern = Pattern::new(Tag(ask.tag), TagMask(ask.mask));
        let mut wanted = Wanted { tag: ask.tag & ask.mask, mask: ask.mask, source: ANY };
        if let Some(source) = ask.source {
            let Some(worker) = self.workers.get(usize::from(source)) else { return Ok(None) };
            let node = worker.node;
            let Some(peer) = self.connect(at, node)? else { return Ok(None) };
            pattern = pattern.from_source(SourceId(peer.0));
            wanted.source = node;
        }
        Ok(Some((wanted, pattern)))
    }

    fn connect(&mut self, at: usize, node: u32) -> Result<Option<PeerId>, Violation> {
        let worker = &mut self.workers[at];
        if let Some(&(_, peer)) = worker.met.iter().find(|&&(met, _)| met == node) {
            return Ok(Some(peer));
        }
        self.counts.calls += 1;
        let address = self.net.borrow().address(node);
        let Some(engine) = &mut worker.engine else { return Ok(None) };
        let peer = engine.connect(&address).map_err(|error| {
            let what = format!("n{} can't connect to n{node}: {error}", worker.node);
            Violation::new(Rule::Fault, what)
        })?;
        worker.met.push((node, peer));
        Ok(Some(peer))
    }

    fn node_of(&self, at: usize, peer: PeerId) -> Result<u32, Violation> {
        let node = self.workers[at].node;
        let found = self.net.borrow().node_of(node, peer.0);
        found.ok_or_else(|| Violation::new(Rule::Fault, format!("n{node}: there is no {peer}")))
    }

    /// Checks that the run explains the fault of a peer.
    fn is_explained(&self, fault: PeerFault) -> Verdict {
        let is_explained = match fault {
            PeerFault::Gone
            | PeerFault::Left
            | PeerFault::Unreachable { .. }
            | PeerFault::Disconnected => true,
            PeerFault::Device { what: READ_FAILED } => !self.adapter.software_decides(),
            PeerFault::Failed { what: QUEUE_PAIR_FAILED, .. } => self.adapter.may_break(),
            _ => false,
        };
        ensure!(is_explained, Fault, "the run doesn't explain the fault of a peer: {fault}");
        Ok(())
    }
}
