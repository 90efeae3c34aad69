//! Workers with regions on simulated wires: what their callers do, and what they find.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tagmatch_device::{AccessKind, Buffer, Device, PeerId, RegionAccess};
use tagmatch_fallback::{
    Completion, Engine, EngineConfig, Fault, MatchEngine, RegionKey, RemoteFault, RemoteOperation,
    RequestId, Rights, RmaEngine, Send, SendMode, Started,
};
use tagmatch_soft::{Pattern, Tag, TagMask};

use super::bytes::{GetValues, WriteStamp};
use super::plan::{Expected, LiveOperation, OwnUse, PlannedAction, bytes_of, own_put};
use super::region::{COUNTERS, OWN_WORDS, REGION_BYTES, SimRegion, WORD};
use crate::adapter::Adapter;
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::wire::{Net, Wire, WireConfig};

/// What was done in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneSidedCounts {
    /// Operations that have begun.
    pub begun: u64,
    /// Operations that have succeeded.
    pub succeeded: u64,
    /// Operations that have failed because a region was closed, or was closed before.
    pub closed: u64,
    /// Operations that wires have done without messages, of workers that were not killed.
    pub direct: u64,
    /// Events of the wires.
    pub events: u64,
}

impl OneSidedCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &OneSidedCounts) {
        self.begun += other.begun;
        self.succeeded += other.succeeded;
        self.closed += other.closed;
        self.direct += other.direct;
        self.events += other.events;
    }
}

/// A worker that may have been killed.
pub(super) struct RegionMember<D: Device> {
    pub(super) engine: Option<Engine<D>>,
    pub(super) node: u32,
    /// Requests under way, oldest first for each region's owner.
    pub(super) requests: Vec<(RequestId, LiveOperation)>,
    /// Sends and receives of ordinary messages, whose results don't matter here.
    messages: Vec<RequestId>,
    /// Fences so far to each worker.
    fences: Vec<u64>,
    /// The number of the last put of each worker whose notice was taken.
    noticed: Vec<u64>,
}

/// A put whose notice was not taken.
#[derive(Clone, Copy, Debug)]
struct NoticePut {
    from: usize,
    region: usize,
    span: (usize, usize),
    has_ended: bool,
}

/// One run.
pub(super) struct OneSidedWorld<D: Device> {
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) members: Vec<RegionMember<D>>,
    pub(super) regions: Vec<SimRegion>,
    notices: BTreeMap<u64, NoticePut>,
    pub(super) counts: OneSidedCounts,
    pub(super) now: u64,
    /// The number of the last operation.
    last: u64,
    /// What has happened, if it is wanted.
    pub(super) lines: Option<Vec<String>>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at * WORD..(at + 1) * WORD).and_then(|word| word.try_into().ok());
    word.map_or(u64::MAX, u64::from_ne_bytes)
}

impl<D: Device> OneSidedWorld<D> {
    /// Workers without regions.
    pub(super) fn new<A: Adapter<Device = D>>(
        adapter: &A,
        wire: WireConfig,
        config: &EngineConfig,
        workers: usize,
    ) -> Result<Self, Violation> {
        let net = Rc::new(RefCell::new(Net::new(wire, None)));
        let broken = |what: String| Violation::new(Rule::Fault, what);
        let mut members = Vec::new();
        for _ in 0..workers {
            let (wire, node) = Wire::new(&net);
            let seed = config.seed ^ u64::from(node);
            let device = adapter.device(wire, seed).map_err(|error| broken(error.to_string()))?;
            let config = EngineConfig { seed, ..*config };
            let engine = Engine::new(device, &config).map_err(|error| broken(error.to_string()))?;
            members.push(RegionMember {
                engine: Some(engine),
                node,
                requests: Vec::new(),
                messages: Vec::new(),
                fences: vec![0; workers],
                noticed: vec![0; workers],
            });
        }
        let regions = Vec::new();
        let notices = BTreeMap::new();
        let counts = OneSidedCounts::default();
        Ok(OneSidedWorld { net, members, regions, notices, counts, now: 0, last: 0, lines: None })
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:6} {}", self.now, line()));
        }
    }

    fn peer(&mut self, at: usize, to: usize) -> Option<PeerId> {
        let address = self.net.borrow().address(self.members[to].node);
        self.members[at].engine.as_mut()?.connect(&address).ok()
    }

    /// Connects all workers with each other.
    pub(super) fn meet(&mut self) {
        for at in 0..self.members.len() {
            for to in 0..self.members.len() {
                self.peer(at, to);
            }
        }
    }

    /// Exposes a region. Returns its number.
    pub(super) fn expose(&mut self, at: usize, rights: Rights) -> Result<usize, Violation> {
        let number = self.regions.len();
        if let Some(engine) = &mut self.members[at].engine {
            let key = engine.expose_region(Buffer::zeroed(REGION_BYTES), rights);
            let key = key.map_err(|(_, fault)| Violation::new(Rule::Fault, fault.to_string()))?;
            let place = engine.region_place(key);
            self.regions.push(SimRegion::new(at, key, place, rights));
            self.tell(|| format!("w{at} exposes region {number}, {rights:?}"));
        }
        Ok(number)
    }

    /// Closes a region of a worker that lives, and looks at all its bytes.
    pub(super) fn close(&mut self, number: usize) -> Verdict {
        self.now += 1;
        let region = &mut self.regions[number];
        let Some(engine) = &mut self.members[region.owner].engine else { return Ok(()) };
        if region.closed.is_some() {
            return Ok(());
        }
        let Some(memory) = engine.close_region(region.key) else {
            return Err(Violation::new(Rule::Lost, format!("region {number} was lost")));
        };
        region.closed = Some((self.now, memory.to_vec()));
        self.tell(|| format!("region {number} is closed"));
        self.regions[number].check_all(&memory)
    }

    /// The memory of a region, also of one that was closed. `None`: its owner is dead.
    fn memory(&mut self, number: usize) -> Option<&[u8]> {
        let region = &self.regions[number];
        if let Some((_, memory)) = &region.closed {
            return Some(memory);
        }
        self.members[region.owner].engine.as_mut()?.region_memory(region.key).map(|all| &all[..])
    }

    /// The owner looks at bytes of a region.
    fn look_at(&mut self, number: usize, (at, length): (usize, usize)) -> Verdict {
        let found = self.memory(number).map(|memory| memory[at..at + length].to_vec());
        found.map_or(Ok(()), |found| self.regions[number].check_bytes(at, &found))
    }

    /// The owner looks at all of a region.
    pub(super) fn look_at_all(&mut self, number: usize) -> Verdict {
        self.now += 1;
        let found = self.memory(number).map(<[u8]>::to_vec);
        found.map_or(Ok(()), |found| self.regions[number].check_all(&found))
    }

    /// The owner writes bytes of an open region.
    pub(super) fn write(&mut self, number: usize, at: usize, length: usize) {
        self.now += 1;
        self.last += 1;
        let id = self.last;
        let region = &mut self.regions[number];
        let Some(engine) = &mut self.members[region.owner].engine else { return };
        let memory = engine.region_memory(region.key).and_then(Buffer::as_mut_slice);
        let Some(memory) = memory else { return };
        let values = bytes_of(id, length);
        memory[at..at + length].copy_from_slice(&values);
        let now = self.now;
        let stamp = WriteStamp { id, by: None, began: now, ended: Some(now) };
        self.began_to_write(number, (at, &values), stamp, 0);
        self.tell(|| format!("region {number} is written by its owner at {at}, {length} bytes"));
    }

    /// A write begins: gets under way may see it, unless a fence lies between.
    fn began_to_write(
        &mut self,
        number: usize,
        (at, values): (usize, &[u8]),
        stamp: WriteStamp,
        fences: u64,
    ) {
        self.regions[number].bytes.begin(at, values, stamp);
        for (by, member) in self.members.iter_mut().enumerate() {
            for (_, operation) in &mut member.requests {
                let is_fenced = stamp.by == Some(by) && operation.fences < fences;
                if let Expected::Get(get) = &mut operation.expected
                    && operation.region == number
                    && !is_fenced
                {
                    get.may_see(at, values);
                }
            }
        }
    }

    /// A worker begins an operation.
    pub(super) fn begin(&mut self, from: usize, number: usize, planned: PlannedAction) -> Verdict {
        self.now += 1;
        let to = self.regions[number].owner;
        let Some(peer) = self.peer(from, to) else { return Ok(()) };
        let id = self.last + 1;
        let region = &self.regions[number];
        let Some((offset, action)) = planned.action(region, from, id) else { return Ok(()) };
        let key = region.key;
        let place = region.place;
        let operation = RemoteOperation { peer, key, place, offset, action };
        let Some(begun) = self.begin_in_view(from, number, operation) else { return Ok(()) };
        let request = match begun {
            Ok(request) => request,
            Err(refused) => return self.may_fail(from, to, refused.fault),
        };
        self.last = id;
        self.counts.begun += 1;
        self.tell(|| format!("w{from} begins {id} on region {number}: {planned:?}"));
        let fences = self.members[from].fences[to];
        let expected = self.expected(from, number, planned);
        let began = self.now;
        let operation = LiveOperation { id, region: number, began, fences, expected };
        self.members[from].requests.push((request, operation));
        Ok(())
    }

    /// What is known of an operation that has just begun.
    fn expected(&mut self, from: usize, number: usize, planned: PlannedAction) -> Expected {
        let id = self.last;
        let region = &mut self.regions[number];
        if region.closed.is_some() {
            return Expected::Fault(RemoteFault::NoRegion);
        }
        if !region.rights.contains(planned.right()) {
            return Expected::Fault(RemoteFault::NoRight);
        }
        let fences = self.members[from].fences[region.owner];
        let stamp = WriteStamp { id, by: Some(from), began: self.now, ended: None };
        match planned {
            PlannedAction::Beyond { .. } => Expected::Fault(RemoteFault::OutOfBounds),
            PlannedAction::Put { at, length, has_notice } => {
                if has_notice {
                    let put =
                        NoticePut { from, region: number, span: (at, length), has_ended: false };
                    self.notices.insert(id, put);
                }
                self.began_to_write(number, (at, &bytes_of(id, length)), stamp, fences);
                Expected::Put { at, length, has_notice }
            }
            PlannedAction::Get { at, length } => {
                Expected::Get(GetValues::new(&region.bytes, (at, length), from))
            }
            PlannedAction::Add { first, count, fetches } => {
                let counters = &mut region.counters[first..first + count];
                let least = counters.iter().map(|counter| counter.least(from)).collect();
                counters.iter_mut().for_each(|counter| counter.begin(from, true));
                Expected::Add { first, count, least: fetches.then_some(least) }
            }
            PlannedAction::Swap { counter } => {
                let of = &mut region.counters[counter];
                let least = of.least(from);
                of.begin(from, false);
                Expected::Swap { counter, guess: of.seen[from], least }
            }
            PlannedAction::Read { first, count } => {
                let counters = &region.counters[first..first + count];
                let least = counters.iter().map(|counter| counter.least(from)).collect();
                Expected::Read { first, least }
            }
            PlannedAction::Own(kind) => {
                let old = region.own[from];
                let new = if kind == OwnUse::Put { own_put(id) } else { old.wrapping_add(id) };
                region.own[from] = new;
                let at = OWN_WORDS + from * WORD;
                self.began_to_write(number, (at, &new.to_ne_bytes()), stamp, fences);
                Expected::Own { at, old: (kind == OwnUse::Fetch).then_some(old) }
            }
        }
    }

    /// A message with a tag, between the one-sided operations.
    pub(super) fn send(&mut self, from: usize, to: usize, length: usize) {
        let Some(peer) = self.peer(from, to) else { return };
        let member = &mut self.members[from];
        let Some(engine) = &mut member.engine else { return };
        let message = Send::new(peer, Tag(1), Buffer::zeroed(length));
        if let Started::Pending(request) = engine.send(message, SendMode::Standard) {
            member.messages.push(request);
        }
        let member = &mut self.members[to];
        let Some(engine) = &mut member.engine else { return };
        let any = Pattern::new(Tag(0), TagMask::ANY);
        member.messages.extend(engine.receive(&any, Buffer::zeroed(length)).ok());
    }

    pub(super) fn fence(&mut self, at: usize, to: usize) {
        let Some(peer) = self.peer(at, to) else { return };
        let Some(engine) = &mut self.members[at].engine else { return };
        engine.fence(peer);
        self.members[at].fences[to] += 1;
        self.tell(|| format!("w{at} puts a fence before what goes to w{to}"));
    }

    /// The process of a worker is killed.
    pub(super) fn kill(&mut self, at: usize, lossy: bool) {
        let member = &mut self.members[at];
        member.engine = None;
        member.requests.clear();
        member.messages.clear();
        self.net.borrow_mut().kill(self.members[at].node, lossy);
        self.tell(|| format!("w{at} is killed"));
    }

    /// Carries out the accesses of a worker that are due. `does_half`: a write stops halfway, and
    /// the messages of the operation have to do it.
    fn carry_out(&mut self, at: usize, mut does_half: impl FnMut() -> bool) {
        let node = self.members[at].node;
        loop {
            let Some((owner, mut access)) = self.net.borrow_mut().take_due(node) else { return };
            let owner = self.members.iter_mut().find(|member| member.node == owner);
            let may_fail = !self.net.borrow().has_several_accesses();
            let is_half = access.kind == AccessKind::Write && may_fail && does_half();
            let done = owner.and_then(|owner| access_memory(owner, &mut access, is_half));
            let is_done = done.is_some() && !is_half;
            self.net.borrow_mut().end_access(node, access, is_done);
        }
    }

    /// A worker makes progress.
    pub(super) fn work(
        &mut self,
        at: usize,
        events: u32,
        does_half: impl FnMut() -> bool,
    ) -> Verdict {
        self.now += 1;
        self.carry_out(at, does_half);
        self.net.borrow_mut().allow(self.members[at].node, events);
        let Some(engine) = &mut self.members[at].engine else { return Ok(()) };
        engine.progress();
        let wrong = engine.audit(false);
        ensure!(wrong.is_empty(), Leak, "{}", wrong.join("; "));
        self.take_ends(at)
    }

    /// Takes the results of operations that have ended.
    fn take_ends(&mut self, at: usize) -> Verdict {
        let member = &mut self.members[at];
        let Some(engine) = &mut member.engine else { return Ok(()) };
        member.messages.retain(|request| engine.requests_mut().take(*request).is_none());
        let mut ended: Vec<(LiveOperation, Completion)> = Vec::new();
        let mut left = Vec::with_capacity(member.requests.len());
        for (request, operation) in member.requests.drain(..) {
            match engine.requests_mut().take(request) {
                Some(completion) => ended.push((operation, completion)),
                None => left.push((request, operation)),
            }
        }
        member.requests = left;
        for (operation, completion) in ended {
            self.now += 1;
            let LiveOperation { id, region, .. } = operation;
            self.tell(|| format!("w{at} sees the end of {id}: {:?}", completion.result.err()));
            match completion.result {
                Ok(_) => self.succeeded(at, operation, &completion.buffer)?,
                Err(Fault::Remote { fault, .. }) => self.refused(at, &operation, fault)?,
                Err(fault) => self.may_fail(at, self.regions[region].owner, fault)?,
            }
        }
        Ok(())
    }

    /// An operation failed for another reason than its region: one of the workers is dead.
    fn may_fail(&self, from: usize, to: usize, fault: Fault) -> Verdict {
        let is_dead = [from, to].iter().any(|at| self.members[*at].engine.is_none());
        let is_down = matches!(fault, Fault::PeerDown { .. });
        ensure!(is_dead && is_down, Fault, "w{from} to w{to}: {fault}");
        Ok(())
    }

    /// The region's owner has refused an operation.
    fn refused(&mut self, from: usize, operation: &LiveOperation, fault: RemoteFault) -> Verdict {
        let is_expected = matches!(operation.expected, Expected::Fault(of) if of == fault);
        let is_closed = self.regions[operation.region].closed.is_some()
            && matches!(fault, RemoteFault::NoRegion | RemoteFault::Closed);
        ensure!(is_expected || is_closed, Fault, "w{from}: {operation:?} has failed: {fault}");
        self.counts.closed += u64::from(is_closed);
        self.notices.remove(&operation.id);
        Ok(())
    }

    fn succeeded(&mut self, from: usize, operation: LiveOperation, buffer: &Buffer) -> Verdict {
        let LiveOperation { id, region: number, began, expected, .. } = operation;
        let region = &mut self.regions[number];
        let closed = region.closed.as_ref().map(|(at, _)| *at);
        let is_possible = closed.is_none_or(|closed| began < closed);
        ensure!(is_possible, Fault, "w{from}: {id} is done on region {number} that was closed");
        self.counts.succeeded += 1;
        match expected {
            Expected::Fault(fault) => {
                ensure!(false, Fault, "w{from}: {id} has ended with success, not with {fault}");
            }
            Expected::Put { at, length, has_notice } => {
                if has_notice && let Some(put) = self.notices.get_mut(&id) {
                    put.has_ended = true;
                }
                self.has_written(number, (at, length), id)?;
            }
            Expected::Get(get) => {
                if let Some(byte) = get.wrong(buffer) {
                    let value = buffer[byte - get.at];
                    ensure!(false, Payload, "w{from}: {id} gets {value} at {byte} of {number}");
                }
            }
            Expected::Add { first, count, least } => {
                for at in 0..count {
                    let counter = &mut region.counters[first + at];
                    counter.added(from);
                    if let Some(least) = &least {
                        let old = word(buffer, at);
                        counter.found(from, least[at], old)?;
                        counter.replaced(old)?;
                    }
                }
                self.check_closed_counters(number)?;
            }
            Expected::Swap { counter, guess, least } => {
                let counter = &mut region.counters[counter];
                let old = word(buffer, 0);
                counter.found(from, least, old)?;
                if old == guess {
                    counter.swapped();
                    counter.replaced(old)?;
                } else {
                    counter.added_nothing();
                }
                self.check_closed_counters(number)?;
            }
            Expected::Read { first, least } => {
                for (at, least) in least.into_iter().enumerate() {
                    region.counters[first + at].found(from, least, word(buffer, at))?;
                }
            }
            Expected::Own { at, old } => {
                let found = old.map(|_| word(buffer, 0));
                ensure!(found == old, Overtaken, "w{from}: {id} fetches {found:?}, not {old:?}");
                self.has_written(number, (at, WORD), id)?;
            }
        }
        Ok(())
    }

    /// The bytes of a write are visible to the region's owner.
    fn has_written(&mut self, number: usize, span: (usize, usize), id: u64) -> Verdict {
        let region = &mut self.regions[number];
        let closed = region.closed.as_ref().map_or(u64::MAX, |(at, _)| *at);
        region.bytes.end(span, id, self.now.min(closed));
        self.look_at(number, span)
    }

    /// The counters of a region had their last values when it was closed.
    fn check_closed_counters(&self, number: usize) -> Verdict {
        let region = &self.regions[number];
        let Some((_, memory)) = &region.closed else { return Ok(()) };
        let counters = region.counters.iter().enumerate().take(COUNTERS);
        counters.into_iter().try_for_each(|(at, counter)| counter.check(word(memory, at)))
    }

    /// A worker takes the notices that are there.
    pub(super) fn take_notices(&mut self, at: usize) -> Verdict {
        while let Some(engine) = &mut self.members[at].engine
            && let Some(notice) = engine.take_notice()
        {
            self.now += 1;
            let id = notice.value;
            let node = self.net.borrow().node_of(self.members[at].node, notice.peer.0);
            let put = self.notices.remove(&id);
            let put = put.filter(|put| {
                self.regions[put.region].owner == at && node == Some(self.members[put.from].node)
            });
            let Some(NoticePut { from, region, span, .. }) = put else {
                return Err(Violation::new(Rule::Twice, format!("w{at}: a notice of no put {id}")));
            };
            let last = &mut self.members[at].noticed[from];
            ensure!(*last < id, Overtaken, "w{at}: the notice of {id} after that of {last}");
            *last = id;
            self.tell(|| format!("w{at} takes the notice of {id}"));
            self.has_written(region, span, id)?;
        }
        Ok(())
    }

    /// Runs until all operations have ended, and looks at the memory of all who live.
    pub(super) fn finish(&mut self) -> Verdict {
        self.net.borrow_mut().hurry = true;
        let mut rounds = 0;
        while self.members.iter().any(|member| !member.requests.is_empty()) {
            for at in 0..self.members.len() {
                self.work(at, 16, || false)?;
            }
            rounds += 1;
            ensure!(rounds < 100_000, Lost, "operations never end");
        }
        for at in 0..self.members.len() {
            self.take_notices(at)?;
        }
        let is_lost = |put: &NoticePut| {
            put.has_ended && self.members[self.regions[put.region].owner].engine.is_some()
        };
        let lost = self.notices.iter().find(|(_, put)| is_lost(put));
        ensure!(lost.is_none(), Lost, "a notice was not told: {lost:?}");
        for number in 0..self.regions.len() {
            self.close(number)?;
        }
        let engines = self.members.iter().filter_map(|member| member.engine.as_ref());
        self.counts.direct = engines.map(|engine| engine.counters().direct_remote).sum();
        self.counts.events = self.net.borrow().events;
        Ok(())
    }
}

/// Reads or writes a region as an access says. `None`: it is closed.
fn access_memory<D: Device>(
    owner: &mut RegionMember<D>,
    access: &mut RegionAccess,
    is_half: bool,
) -> Option<()> {
    let memory = owner.engine.as_mut()?.region_memory(RegionKey(access.of.key))?;
    let start = usize::try_from(access.of.offset).ok()?;
    let length = if is_half { access.buffer.len() / 2 } else { access.buffer.len() };
    let bytes = memory.as_mut_slice()?.get_mut(start..start + length)?;
    match access.kind {
        AccessKind::Read => access.buffer.as_mut_slice()?.copy_from_slice(bytes),
        AccessKind::Write => bytes.copy_from_slice(&access.buffer[..length]),
    }
    Some(())
}
