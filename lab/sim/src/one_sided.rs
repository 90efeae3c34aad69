//! One-sided operations between workers on simulated wires, with deaths, beside messages.
//!
//! Each worker exposes a region of counters and slots. Counters get 1 added; a fetch gives the old
//! value. Slots get stamps, each of which is put once. What is known of an operation is when it
//! began and when it ended, by a clock that all workers share. From that follows what a result may
//! be:
//! - All old values of a counter are different, and its last value is at least the number of
//!   additions that have succeeded, and at most that of all that have begun.
//! - A stamp that is seen in a slot was put there: its put has begun, and no other put to the slot
//!   began after that one's end and ended before the look began. Of the puts of one worker, which
//!   take effect in their order, no later one had ended, or had begun before its own look.
//! - An operation fails only if one of its two workers has ended.
//!
//! In two runs of three, the wires do some puts and gets without messages, as late as a message
//! would come; they refuse others, at once or late, which messages do then.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use tagmatch_device::{AccessKind, Buffer, PeerId, RegionAccess, RegionPlace};
use tagmatch_fallback::{
    Amount, AtomicOp, AtomicType, CreditConfig, ElementUse, Engine, EngineConfig, Fault,
    MatchEngine, RegionKey, RemoteAction, RemoteOperation, RequestId, Rights, RmaEngine, Send,
    SendMode,
};
use tagmatch_soft::{Pattern, Tag, TagMask};
use tagmatch_testkit::random::{Random, mix};

use crate::adapter::{Adapter, Bare, Devices, Several};
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::wire::{Net, Wire, WireConfig};

const COUNTERS: usize = 4;
const SLOTS: usize = 4;
/// Bytes of a counter, and of a slot: a stamp, twice, so that half of one is noticed.
const COUNTER_BYTES: usize = 8;
const SLOT_BYTES: usize = 16;
const REGION_BYTES: usize = COUNTERS * COUNTER_BYTES + SLOTS * SLOT_BYTES;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotAction {
    Add { counter: usize, fetches: bool },
    Put { slot: usize, stamp: u64 },
    Get { slot: usize },
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
struct BegunOperation {
    from: usize,
    to: usize,
    action: SlotAction,
    began: u64,
    /// When its success was seen.
    succeeded: Option<u64>,
}

/// A look at a slot.
#[derive(Clone, Copy, Debug)]
struct SlotLook {
    to: usize,
    slot: usize,
    /// The worker that looks by a get. `None`: its owner looks.
    by: Option<usize>,
    /// The get's place among all operations.
    place: usize,
    began: u64,
}

/// A worker that may have ended.
struct RegionOwner<D: tagmatch_device::Device> {
    engine: Option<Engine<D>>,
    node: u32,
    key: RegionKey,
    place: RegionPlace,
    /// Requests under way, each with its place among all operations.
    requests: Vec<(RequestId, usize)>,
    /// Sends and receives of ordinary messages, whose results don't matter here.
    messages: Vec<RequestId>,
}

/// One run.
struct OneSidedWorld<D: tagmatch_device::Device> {
    net: Rc<RefCell<Net>>,
    members: Vec<RegionOwner<D>>,
    random: Random,
    operations: Vec<BegunOperation>,
    /// Old values that were fetched: owner, counter, value.
    fetched: BTreeSet<(usize, usize, u64)>,
    now: u64,
}

/// What was done in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneSidedCounts {
    /// Operations that have succeeded.
    pub succeeded: u64,
    /// Those that wires have done without messages, of workers that were not killed.
    pub direct: u64,
}

/// Runs random one-sided operations from a seed for so many steps.
///
/// # Errors
/// A rule was broken.
pub fn run_one_sided(devices: Devices, seed: u64, steps: u32) -> Result<OneSidedCounts, Violation> {
    match devices {
        Devices::Bare(bare) => run_on(&bare, seed, steps),
        Devices::Nic(nic) => run_on(&nic, seed, steps),
        Devices::Several => run_on(&Several(Bare::default()), seed, steps),
        Devices::SeveralWithNic(nic) => run_on(&Several(nic), seed, steps),
    }
}

fn run_on<A: Adapter>(adapter: &A, seed: u64, steps: u32) -> Result<OneSidedCounts, Violation> {
    let mut random = Random::stream(seed, 11);
    let workers = random.between((2, 4)) as usize;
    let eager_max = random.between((64, 300));
    let wire = WireConfig {
        message_max: eager_max + 16,
        fragments: false,
        capacity: random.between((1, 8)),
        delay_max: random.between((0, 40)),
        delayed_per_mille: 300,
        refused_per_mille: 100,
        exposures_max: 16,
        accesses_per_mille: Random::stream(seed, 12).pick(&[0, 500, 950]),
        machines: 0,
        seed: mix(seed ^ 0x77),
    };
    let net = Rc::new(RefCell::new(Net::new(wire, None)));
    let amount = |messages, bytes| Amount { messages, bytes };
    let pool = amount(200, 50_000);
    let credit = CreditConfig { pool, first: amount(8, 2000), peer_max: amount(20, 8000) };
    let mut members = Vec::new();
    for _ in 0..workers {
        let (wire, node) = Wire::new(&net);
        let seed = mix(seed ^ u64::from(node));
        let broken = |what: String| Violation::new(Rule::Fault, what);
        let device = adapter.device(wire, seed).map_err(|error| broken(error.to_string()))?;
        let config = EngineConfig {
            eager_max: eager_max as usize,
            fragmented_max: 0,
            operations_max: 16,
            credit,
            nic_threshold: 0,
            source_bits: TagMask(0),
            departed_max: 1024,
            seed,
        };
        let mut engine = Engine::new(device, &config).map_err(|error| broken(error.to_string()))?;
        let memory = Buffer::from(vec![0; REGION_BYTES]);
        let key = engine.expose_region(memory, Rights::ALL);
        let key = key.map_err(|(_, fault)| broken(fault.to_string()))?;
        let place = engine.region_place(key);
        let requests = Vec::new();
        let messages = Vec::new();
        members.push(RegionOwner { engine: Some(engine), node, key, place, requests, messages });
    }
    let operations = Vec::new();
    let fetched = BTreeSet::new();
    let mut world = OneSidedWorld { net, members, random, operations, fetched, now: 0 };
    for _ in 0..steps {
        world.step()?;
    }
    world.finish()
}

/// Reads or writes a region as an access says. `None`: it is closed.
fn access_memory<D: tagmatch_device::Device>(
    owner: &mut RegionOwner<D>,
    access: &mut RegionAccess,
) -> Option<()> {
    let memory = owner.engine.as_mut()?.region_memory(owner.key)?;
    let start = usize::try_from(access.of.offset).ok()?;
    let bytes = memory.as_mut_slice()?.get_mut(start..start + access.buffer.len())?;
    match access.kind {
        AccessKind::Read => access.buffer.as_mut_slice()?.copy_from_slice(bytes),
        AccessKind::Write => bytes.copy_from_slice(&access.buffer),
    }
    Some(())
}

impl<D: tagmatch_device::Device> OneSidedWorld<D> {
    fn step(&mut self) -> Verdict {
        self.now += 1;
        let at = self.random.index(self.members.len());
        match self.random.below(20) {
            0..=8 => self.begin(at),
            9 => self.send(at),
            10 => self.fence(at),
            11 if self.random.per_mille(20) => self.kill(at),
            _ => {
                let events = self.random.pick(&[1, 1, 2, 8, 64]);
                self.work(at, events)
            }
        }
    }

    fn peer(&mut self, at: usize, to: usize) -> Option<PeerId> {
        let address = self.net.borrow().address(self.members[to].node);
        self.members[at].engine.as_mut()?.connect(&address).ok()
    }

    fn begin(&mut self, from: usize) -> Verdict {
        let to = self.random.index(self.members.len());
        let Some(peer) = self.peer(from, to) else { return Ok(()) };
        let slot = self.random.index(SLOTS);
        let action = match self.random.below(4) {
            0 => SlotAction::Put { slot, stamp: self.operations.len() as u64 + 1 },
            1 => SlotAction::Get { slot },
            _ => {
                let counter = self.random.index(COUNTERS);
                SlotAction::Add { counter, fetches: self.random.below(2) == 0 }
            }
        };
        let place = COUNTERS * COUNTER_BYTES + slot * SLOT_BYTES;
        let (offset, remote) = match action {
            SlotAction::Add { counter, fetches } => {
                let element = ElementUse::new(AtomicOp::Sum, AtomicType::U64);
                let Some(element) = element else { return Ok(()) };
                let operands = 1u64.to_ne_bytes().to_vec().into();
                let old = fetches.then(|| Buffer::zeroed(8));
                let remote = RemoteAction::Atomic { element, operands, count: 1, old };
                (counter * COUNTER_BYTES, remote)
            }
            SlotAction::Put { stamp, .. } => {
                let from = [stamp.to_ne_bytes(), stamp.to_ne_bytes()].concat().into();
                (place, RemoteAction::Put { from, notice: None })
            }
            SlotAction::Get { .. } => {
                (place, RemoteAction::Get { into: Buffer::zeroed(SLOT_BYTES) })
            }
        };
        let key = self.members[to].key;
        let offset = offset as u64;
        let place = self.members[to].place;
        let operation = RemoteOperation { peer, key, place, offset, action: remote };
        let member = &mut self.members[from];
        let Some(engine) = &mut member.engine else { return Ok(()) };
        match engine.begin_remote(operation) {
            Ok(request) => {
                member.requests.push((request, self.operations.len()));
                let began = self.now;
                self.operations.push(BegunOperation { from, to, action, began, succeeded: None });
                Ok(())
            }
            Err(refused) => self.may_fail(from, to, refused.fault),
        }
    }

    /// A message with a tag, of any length, between the one-sided operations.
    fn send(&mut self, from: usize) -> Verdict {
        let to = self.random.index(self.members.len());
        let length = self.random.index(900);
        let Some(peer) = self.peer(from, to) else { return Ok(()) };
        let member = &mut self.members[from];
        let Some(engine) = &mut member.engine else { return Ok(()) };
        let message = Send::new(peer, Tag(1), Buffer::zeroed(length));
        if let tagmatch_fallback::Started::Pending(request) =
            engine.send(message, SendMode::Standard)
        {
            member.messages.push(request);
        }
        let member = &mut self.members[to];
        let Some(engine) = &mut member.engine else { return Ok(()) };
        let any = Pattern::new(Tag(0), TagMask::ANY);
        member.messages.extend(engine.receive(&any, Buffer::zeroed(900)).ok());
        Ok(())
    }

    fn fence(&mut self, at: usize) -> Verdict {
        let to = self.random.index(self.members.len());
        if let Some(peer) = self.peer(at, to)
            && let Some(engine) = &mut self.members[at].engine
        {
            engine.fence(peer);
        }
        Ok(())
    }

    /// The process of a worker is killed.
    fn kill(&mut self, at: usize) -> Verdict {
        self.members[at].engine = None;
        self.members[at].requests.clear();
        self.members[at].messages.clear();
        let lossy = self.random.below(2) == 0;
        self.net.borrow_mut().kill(self.members[at].node, lossy);
        Ok(())
    }

    /// Carries out the accesses of a worker that are due.
    fn carry_out(&mut self, at: usize) {
        let node = self.members[at].node;
        loop {
            let Some((owner, mut access)) = self.net.borrow_mut().take_due(node) else { return };
            let owner = self.members.iter_mut().find(|member| member.node == owner);
            let is_done = owner.and_then(|owner| access_memory(owner, &mut access)).is_some();
            self.net.borrow_mut().end_access(node, access, is_done);
        }
    }

    fn work(&mut self, at: usize, events: u32) -> Verdict {
        self.carry_out(at);
        self.net.borrow_mut().allow(self.members[at].node, events);
        let Some(engine) = &mut self.members[at].engine else { return Ok(()) };
        engine.progress();
        let wrong = engine.audit(false);
        ensure!(wrong.is_empty(), Leak, "{}", wrong.join("; "));
        self.look(at)
    }

    /// Takes the results of operations that have ended.
    fn look(&mut self, at: usize) -> Verdict {
        let member = &mut self.members[at];
        let Some(engine) = &mut member.engine else { return Ok(()) };
        member.messages.retain(|request| engine.requests_mut().take(*request).is_none());
        let mut ended = Vec::new();
        member.requests.retain(|(request, place)| {
            let completion = engine.requests_mut().take(*request);
            completion.map(|completion| ended.push((*place, completion))).is_none()
        });
        for (place, completion) in ended {
            let BegunOperation { from, to, .. } = self.operations[place];
            match completion.result {
                Ok(_) => self.succeeded(place, &completion.buffer)?,
                Err(fault) => self.may_fail(from, to, fault)?,
            }
        }
        Ok(())
    }

    fn may_fail(&self, from: usize, to: usize, fault: Fault) -> Verdict {
        let has_ended = [from, to].iter().any(|at| self.members[*at].engine.is_none());
        let is_down = matches!(fault, Fault::PeerDown { .. });
        ensure!(has_ended && is_down, Fault, "w{from} to w{to}: {fault}");
        Ok(())
    }

    fn succeeded(&mut self, place: usize, buffer: &Buffer) -> Verdict {
        let now = self.now;
        let operation = &mut self.operations[place];
        operation.succeeded = Some(now);
        let BegunOperation { to, action, began, from, .. } = *operation;
        let word = |at: usize| buffer.get(at..at + 8).and_then(|word| word.try_into().ok());
        let word = |at| word(at).map(u64::from_ne_bytes);
        match action {
            SlotAction::Put { .. } | SlotAction::Add { fetches: false, .. } => Ok(()),
            SlotAction::Add { counter, .. } => {
                let Some(old) = word(0) else { return Ok(()) };
                let is_new = self.fetched.insert((to, counter, old));
                ensure!(is_new, Twice, "counter {counter} of w{to} was {old} twice");
                Ok(())
            }
            SlotAction::Get { slot } => {
                let first = word(0);
                let second = word(8);
                ensure!(first == second, Payload, "half of a stamp: {first:?} {second:?}");
                let look = SlotLook { to, slot, by: Some(from), place, began };
                self.may_be_seen(look, first.unwrap_or(0))
            }
        }
    }

    /// Checks that a stamp may be in the slot that a look has found it in.
    fn may_be_seen(&self, look: SlotLook, stamp: u64) -> Verdict {
        let SlotLook { to, slot, by, place, began } = look;
        let puts = || {
            self.operations.iter().enumerate().filter_map(move |(place, put)| match put.action {
                SlotAction::Put { slot: of, stamp } if of == slot && put.to == to => {
                    Some((place, put, stamp))
                }
                _ => None,
            })
        };
        let seen = puts().find(|(.., of)| *of == stamp);
        ensure!(seen.is_some() || stamp == 0, Payload, "slot {slot} of w{to} has {stamp}");
        for (later_place, later, later_stamp) in puts().filter(|(.., of)| *of != stamp) {
            let follows = seen.is_none_or(|(at, put, _)| {
                let in_order = put.from == later.from && at < later_place;
                in_order || put.succeeded.is_some_and(|ended| ended < later.began)
            });
            let is_before_the_look = later.succeeded.is_some_and(|ended| ended < began)
                || by == Some(later.from) && later_place < place;
            ensure!(
                !follows || !is_before_the_look,
                Overtaken,
                "slot {slot} of w{to} has {stamp}, though {later_stamp} was put later"
            );
        }
        Ok(())
    }

    /// Runs until nothing happens any more, and looks at the memory of all who live.
    fn finish(mut self) -> Result<OneSidedCounts, Violation> {
        self.net.borrow_mut().hurry = true;
        let mut rounds = 0;
        while self.members.iter().any(|member| !member.requests.is_empty()) {
            self.now += 1;
            for at in 0..self.members.len() {
                self.work(at, 16)?;
            }
            rounds += 1;
            ensure!(rounds < 100_000, Lost, "operations never end");
        }
        self.now += 1;
        for at in 0..self.members.len() {
            let key = self.members[at].key;
            let Some(engine) = &mut self.members[at].engine else { continue };
            let Some(memory) = engine.close_region(key) else { continue };
            let word =
                |at: usize| u64::from_ne_bytes(memory[at..at + 8].try_into().unwrap_or_default());
            for counter in 0..COUNTERS {
                let is_of =
                    |action| matches!(action, SlotAction::Add { counter: of, .. } if of == counter);
                let adds = self.operations.iter().filter(|op| op.to == at && is_of(op.action));
                let all = adds.clone().count() as u64;
                let done = adds.filter(|op| op.succeeded.is_some()).count() as u64;
                let value = word(counter * COUNTER_BYTES);
                ensure!(
                    (done..=all).contains(&value),
                    Twice,
                    "counter {counter} of w{at} is {value}; {done} additions of {all} succeeded"
                );
            }
            for slot in 0..SLOTS {
                let stamp = word(COUNTERS * COUNTER_BYTES + slot * SLOT_BYTES);
                let place = self.operations.len();
                let look = SlotLook { to: at, slot, by: None, place, began: self.now };
                self.may_be_seen(look, stamp)?;
            }
        }
        let engines = self.members.iter().filter_map(|member| member.engine.as_ref());
        let direct = engines.map(|engine| engine.counters().direct_remote).sum();
        let succeeded = self.operations.iter().filter(|op| op.succeeded.is_some()).count() as u64;
        Ok(OneSidedCounts { succeeded, direct })
    }
}
