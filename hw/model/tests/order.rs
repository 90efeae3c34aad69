//! The NIC with random knobs under random use, compared with a plain list and used by a minimal
//! driver.

mod host;

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;
use tagmatch_model::{
    Chance, Completion, Delay, Handle, Knobs, ModelConfig, PostError, QUEUE_PAIR_FAILED, QueuePair,
    Verdict, Wake, WcFlags, WcOpcode, WcStatus,
};

use host::{Host, eager, rendezvous};

/// Queue pairs are numbered from 1. The first one doesn't fail.
const QUEUE_PAIRS: u32 = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Adds an entry: tag, mask, and whether the count is up to date.
    Add(u64, u64, bool),
    /// Deletes the n-th live entry; signalled or not.
    Delete(usize),
    Sync(bool),
    /// A message on this queue pair with this tag; `Some` is a rendezvous of this many bytes.
    Message(u32, u64, Option<u32>),
    /// A queue pair fails: the NIC finds that itself, or the host tells it.
    Fail(u32, bool),
    NoTag,
    Tick(u32),
    /// Polls this many completions.
    Poll(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let mask = prop_oneof![3 => Just(u64::MAX), 1 => Just(0), 1 => Just(2)];
    prop_oneof![
        8 => (0..4u64, mask, any::<bool>()).prop_map(|(tag, mask, fresh)| {
            Step::Add(tag & mask, mask, fresh)
        }),
        2 => (0..8usize).prop_map(Step::Delete),
        2 => any::<bool>().prop_map(Step::Sync),
        8 => (1..=QUEUE_PAIRS, 0..4u64, prop::option::of(0..2000u32)).prop_map(
            |(queue_pair, tag, rendezvous)| Step::Message(queue_pair, tag, rendezvous)
        ),
        2 => Just(Step::NoTag),
        1 => (2..=QUEUE_PAIRS, any::<bool>()).prop_map(|(of, by_itself)| Step::Fail(of, by_itself)),
        6 => (0..30u32).prop_map(Step::Tick),
        6 => (0..6usize).prop_map(Step::Poll),
    ]
}

/// An entry of the plain list.
struct Plain {
    wr_id: u64,
    handle: Handle,
    tag: u64,
    mask: u64,
    is_active: bool,
}

/// A second, plain implementation of the rules, with the completions that each decision must cause.
struct Reference {
    host: Host,
    list: Vec<Plain>,
    wakes: bool,
    counted: u16,
    software_count: u16,
    taken: u16,
    /// The `wr_id` of matches and ordinary buffers, in the order of the decisions.
    receives: VecDeque<u64>,
    /// For each completion of an operation: opcode, status, and how many unexpected messages must
    /// precede it.
    answers: VecDeque<(WcOpcode, WcStatus, usize)>,
    /// Matched entries whose data is due, and the queue pairs of their messages.
    data: Vec<(u64, u32)>,
    /// The queue pairs that have failed.
    failed: HashSet<u32>,
    unexpected: usize,
    unexpected_taken: usize,
    matches_taken: Vec<u64>,
    next: u64,
}

impl Reference {
    fn new(seed: u64) -> Self {
        let knobs = Knobs::random(seed);
        let wake = if seed.is_multiple_of(2) { Wake::Always } else { Wake::Never };
        // Operations are executed at once: with a delay, the test could not know when.
        let knobs = knobs.operation(Delay::NONE).wake(wake);
        let first = knobs.first_count;
        let config = ModelConfig::default().slots(8).operations(12).seed(seed).knobs(knobs);
        Reference {
            host: Host::new(&config),
            list: Vec::new(),
            wakes: wake == Wake::Always,
            counted: first,
            software_count: first,
            taken: first,
            receives: VecDeque::new(),
            answers: VecDeque::new(),
            data: Vec::new(),
            failed: HashSet::new(),
            unexpected: 0,
            unexpected_taken: 0,
            matches_taken: Vec::new(),
            next: 100,
        }
    }

    fn count(&self, is_fresh: bool) -> u16 {
        if is_fresh { self.taken } else { self.software_count }
    }

    fn tell(&mut self, count: u16) {
        self.software_count = count;
        if self.software_count == self.counted && self.wakes {
            self.list.iter_mut().for_each(|entry| entry.is_active = true);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(tag, mask, is_fresh) => self.add(tag, mask, self.count(is_fresh)),
            Step::Delete(n) => self.delete(n),
            Step::Sync(is_fresh) => {
                let count = self.count(is_fresh);
                if self.host.sync(true, count).is_ok() {
                    self.tell(count);
                    self.answers.push_back((WcOpcode::TmSync, WcStatus::Success, 0));
                }
            }
            Step::Message(queue_pair, tag, rendezvous) => {
                self.message(queue_pair, tag, rendezvous);
            }
            Step::Fail(queue_pair, by_itself) => {
                self.failed.insert(queue_pair);
                if by_itself {
                    self.host.nic.fail(QueuePair(queue_pair), QUEUE_PAIR_FAILED);
                } else {
                    self.host.nic.queue_pair_down(QueuePair(queue_pair));
                }
            }
            Step::NoTag => {
                if let Verdict::Ordinary { wr_id } = self.host.arrive(1, &[0; 30], None) {
                    self.receives.push_back(wr_id);
                }
            }
            Step::Tick(ticks) => {
                for _ in 0..ticks {
                    self.host.work();
                    self.host.nic.tick();
                }
            }
            Step::Poll(most) => {
                for completion in
                    std::iter::from_fn(|| self.host.nic.poll()).take(most).collect::<Vec<_>>()
                {
                    self.check(&completion);
                }
            }
        }
    }

    fn add(&mut self, tag: u64, mask: u64, count: u16) {
        self.next += 1;
        let wr_id = self.next;
        match self.host.try_add(wr_id, tag, mask, count) {
            Ok(handle) => {
                self.tell(count);
                let is_active = self.software_count == self.counted;
                self.list.push(Plain { wr_id, handle, tag, mask, is_active });
                self.answers.push_back((WcOpcode::TmAdd, WcStatus::Success, self.unexpected));
            }
            Err(PostError::ListFull) => assert_eq!(self.host.nic.slots_taken(), 8),
            Err(error) => assert_eq!(error, PostError::QueueFull),
        }
    }

    fn delete(&mut self, n: usize) {
        if self.list.is_empty() {
            return;
        }
        let n = n % self.list.len();
        let software_count = self.software_count;
        if self.host.delete(self.list[n].handle, true, software_count).is_ok() {
            self.list.remove(n);
            self.tell(software_count);
            self.answers.push_back((WcOpcode::TmDel, WcStatus::Success, 0));
        }
    }

    fn message(&mut self, queue_pair: u32, tag: u64, request: Option<u32>) {
        let bytes = match request {
            Some(length) => rendezvous(tag, tag * 77, length),
            None => eager(tag, &[5; 90]),
        };
        let found =
            self.list.iter().position(|entry| entry.is_active && tag & entry.mask == entry.tag);
        match self.host.arrive(queue_pair, &bytes, None) {
            Verdict::NotReady => {}
            Verdict::Dropped => assert!(self.failed.contains(&queue_pair), "{queue_pair} works"),
            Verdict::Ordinary { wr_id } => {
                assert!(found.is_none(), "an active entry was passed over");
                self.receives.push_back(wr_id);
                self.counted = self.counted.wrapping_add(1);
                self.unexpected += 1;
            }
            Verdict::Payload { recv_wr_id, .. } | Verdict::Headers { recv_wr_id, .. } => {
                let entry = self.list.remove(found.expect("matched, but with what?"));
                assert_eq!(entry.wr_id, recv_wr_id);
                self.matched(recv_wr_id, queue_pair);
            }
            Verdict::Rendezvous => {
                let entry = self.list.remove(found.expect("matched, but with what?"));
                self.matched(entry.wr_id, queue_pair);
            }
        }
    }

    fn matched(&mut self, wr_id: u64, queue_pair: u32) {
        self.receives.push_back(wr_id);
        self.data.push((wr_id, queue_pair));
    }

    fn check(&mut self, completion: &Completion) {
        let Completion { wr_id, opcode, status, flags, .. } = *completion;
        match opcode {
            WcOpcode::TmAdd | WcOpcode::TmDel | WcOpcode::TmSync => {
                let (wanted, wanted_status, after) =
                    self.answers.pop_front().expect("no answer due");
                assert_eq!((opcode, status), (wanted, wanted_status));
                assert!(self.unexpected_taken >= after, "an add before what was counted");
                return;
            }
            WcOpcode::TmNoTag => assert_eq!(self.receives.pop_front(), Some(wr_id)),
            WcOpcode::TmRecv if completion.is_unexpected() => {
                assert_eq!(self.receives.pop_front(), Some(wr_id));
                self.unexpected_taken += 1;
                self.taken = self.taken.wrapping_add(1);
            }
            WcOpcode::TmRecv => {
                if flags.contains(WcFlags::MATCH) {
                    assert_eq!(self.receives.pop_front(), Some(wr_id));
                    self.matches_taken.push(wr_id);
                }
                if completion.ends_match() {
                    assert!(self.matches_taken.contains(&wr_id), "data before its match");
                    let at = self.data.iter().position(|(due, _)| *due == wr_id);
                    let (_, of) = self.data.swap_remove(at.expect("data that isn't due"));
                    let is_lost = status == WcStatus::FlushError;
                    assert!(!is_lost || self.failed.contains(&of), "{of} works, and loses data");
                }
                return;
            }
        }
        self.host.nic.post_receive(wr_id, 4096);
    }

    fn finish(&mut self) {
        for completion in self.host.completions() {
            self.check(&completion);
        }
        assert!(self.receives.is_empty() && self.answers.is_empty() && self.data.is_empty());
        assert_eq!(self.host.nic.slots_taken(), self.list.len());
        self.host.assert_no_faults();
    }
}

proptest! {
    #[test]
    fn matches_are_those_of_a_plain_list_and_complete_in_order(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut reference = Reference::new(seed);
        for step in steps {
            reference.step(step);
        }
        reference.finish();
    }

    /// A driver that keeps the rules gives the n-th receive of a tag the n-th message of the tag,
    /// whatever the NIC chooses, and the NIC reports no fault.
    #[test]
    fn a_driver_that_keeps_the_rules_matches_in_order(
        seed in any::<u64>(),
        slots in 1..9u32,
        steps in prop::collection::vec(driver_step(), 0..200),
    ) {
        let mut driver = Driver::new(seed, slots);
        for step in &steps {
            driver.step(*step);
        }
        driver.finish();
    }
}

#[derive(Clone, Copy, Debug)]
enum DriverStep {
    Receive(u64),
    Message(u64),
    /// Cancels the n-th waiting receive.
    Cancel(usize),
    Progress,
    Tick,
}

fn driver_step() -> impl Strategy<Value = DriverStep> {
    prop_oneof![
        3 => (0..3u64).prop_map(DriverStep::Receive),
        3 => (0..3u64).prop_map(DriverStep::Message),
        1 => (0..8usize).prop_map(DriverStep::Cancel),
        4 => Just(DriverStep::Progress),
        4 => Just(DriverStep::Tick),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Software,
    /// In the NIC, added with this count. `true`: the entry is known to be active; `false`: it is
    /// known to be inactive.
    Nic(Handle, u16, Option<bool>),
    Cancelling(Handle),
}

/// A waiting receive.
struct Receive {
    id: u64,
    tag: u64,
    place: Place,
}

/// A minimal driver: receives of exact tags, in the order in which they were posted.
struct Driver {
    host: Host,
    finished: u16,
    receives: Vec<Receive>,
    /// Tags and numbers of the messages without a receive.
    unexpected: VecDeque<(u64, u64)>,
    sent: HashMap<u64, u64>,
    /// For each tag: the receives that got a message, and the number of the message.
    pairs: HashMap<u64, Vec<(u64, u64)>>,
    next: u64,
    withdrawn: Vec<u64>,
}

impl Driver {
    fn new(seed: u64, slots: u32) -> Self {
        let knobs = Knobs::random(seed);
        let finished = knobs.first_count;
        let config = ModelConfig::default().slots(slots).operations(64).seed(seed).knobs(knobs);
        Driver {
            host: Host::new(&config),
            finished,
            receives: Vec::new(),
            unexpected: VecDeque::new(),
            sent: HashMap::new(),
            pairs: HashMap::new(),
            next: 100,
            withdrawn: Vec::new(),
        }
    }

    fn step(&mut self, step: DriverStep) {
        match step {
            DriverStep::Receive(tag) => self.receive(tag),
            DriverStep::Message(tag) => {
                let number = self.sent.entry(tag).or_default();
                if self.host.eager(1, tag, &number.to_le_bytes()) != Verdict::NotReady {
                    *number += 1;
                }
            }
            DriverStep::Cancel(n) => self.cancel(n),
            DriverStep::Progress => {
                self.host.work();
                if let Some(completion) = self.host.nic.poll() {
                    self.take(&completion);
                }
            }
            DriverStep::Tick => self.host.nic.tick(),
        }
    }

    fn receive(&mut self, tag: u64) {
        self.next += 1;
        let id = self.next;
        if let Some(at) = self.unexpected.iter().position(|(of, _)| *of == tag) {
            let (_, number) = self.unexpected.remove(at).unwrap();
            self.pairs.entry(tag).or_default().push((id, number));
            return;
        }
        // An earlier receive of the tag must not be inactive, or in software.
        let count = self.finished;
        let mut earlier = self.receives.iter().filter(|receive| receive.tag == tag);
        let may_go_in = earlier.all(|receive| match receive.place {
            Place::Nic(_, _, Some(true)) => true,
            Place::Nic(_, carried, None) => carried == count,
            _ => false,
        });
        let added = may_go_in.then(|| self.host.try_add(id, tag, u64::MAX, count));
        let place = match added {
            Some(Ok(handle)) => Place::Nic(handle, count, None),
            _ => Place::Software,
        };
        self.receives.push(Receive { id, tag, place });
    }

    fn cancel(&mut self, n: usize) {
        let Some(receive) = self.receives.get_mut(n) else { return };
        match receive.place {
            Place::Software => {
                self.receives.remove(n);
            }
            Place::Nic(handle, ..) => {
                if self.host.delete(handle, true, self.finished).is_ok() {
                    receive.place = Place::Cancelling(handle);
                }
            }
            Place::Cancelling(_) => {}
        }
    }

    fn take(&mut self, completion: &Completion) {
        let id = completion.wr_id;
        match completion.opcode {
            WcOpcode::TmAdd => {
                let finished = self.finished;
                let receive = self.receives.iter_mut().find(|receive| receive.id + 1000 == id);
                if let Some(Receive { place: Place::Nic(_, count, is_active), .. }) = receive {
                    *is_active = Some(*count == finished);
                }
            }
            WcOpcode::TmDel => {
                let handle = completion.handle.unwrap();
                let of = |receive: &Receive| receive.place == Place::Cancelling(handle);
                let at = self.receives.iter().position(of);
                if completion.status == WcStatus::Success {
                    // The receive is gone if a message matched it meanwhile.
                    at.map(|at| self.receives.remove(at));
                }
            }
            WcOpcode::TmRecv if completion.is_unexpected() => self.search(completion),
            WcOpcode::TmRecv => {
                assert!(!self.withdrawn.contains(&id), "matched after it was withdrawn");
                if completion.flags.contains(WcFlags::MATCH) {
                    let at = self.receives.iter().position(|receive| receive.id == id);
                    let receive =
                        self.receives.remove(at.expect("a match of a receive that waits"));
                    let bytes = &self.host.entries[&id][..8];
                    let number = u64::from_le_bytes(bytes.try_into().unwrap());
                    assert_eq!(completion.tm_info.tag, receive.tag);
                    // An earlier receive that would have matched as well is no longer in the list:
                    // its delete has succeeded, though its completion may be late. If the driver
                    // kept it, a later message would take it, and the messages would be out of
                    // order.
                    self.receives.retain(|other| {
                        other.tag != receive.tag
                            || other.id > id
                            || !matches!(other.place, Place::Cancelling(_))
                    });
                    self.pairs.entry(receive.tag).or_default().push((id, number));
                }
            }
            WcOpcode::TmSync | WcOpcode::TmNoTag => panic!("{completion:?}"),
        }
    }

    /// Handles an unexpected message: the first receive of its tag takes it, after a delete if it
    /// is in the NIC.
    fn search(&mut self, completion: &Completion) {
        let bytes = &self.host.ordinary[&completion.wr_id];
        let tag = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let number = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
        self.host.nic.post_receive(completion.wr_id, 4096);
        match self.receives.iter().position(|receive| receive.tag == tag) {
            Some(at) => {
                let Receive { id, place, .. } = self.receives.remove(at);
                if let Place::Nic(handle, ..) = place {
                    // The delete is posted before the count is raised, and its completion is not
                    // waited for.
                    assert!(!self.host.nic.is_matched(handle), "the phases forbid it");
                    self.delete_now(handle);
                    self.withdrawn.push(id);
                }
                self.pairs.entry(tag).or_default().push((id, number));
            }
            None => self.unexpected.push_back((tag, number)),
        }
        self.finished = self.finished.wrapping_add(1);
    }

    /// Deletes at once. The queue is never full: places become free with time alone, as completions
    /// are due.
    fn delete_now(&mut self, handle: Handle) {
        self.host.delete(handle, false, self.finished).expect("64 operations for 8 slots");
    }

    fn finish(&mut self) {
        for completion in self.host.completions() {
            self.take(&completion);
        }
        // The completions that were polled may have led to new operations.
        for completion in self.host.completions() {
            self.take(&completion);
        }
        for (tag, pairs) in &self.pairs {
            let mut by_receive = pairs.clone();
            by_receive.sort_unstable();
            let numbers: Vec<u64> = by_receive.iter().map(|(_, number)| *number).collect();
            assert!(numbers.is_sorted(), "tag {tag}: {by_receive:?}");
            let stored = self.unexpected.iter().filter(|(of, _)| of == tag).count() as u64;
            assert_eq!(numbers.len() as u64 + stored, self.sent[tag], "each message ends once");
        }
        let unanswered = |(tag, _): &(u64, u64)| self.receives.iter().any(|r| r.tag == *tag);
        assert!(!self.unexpected.iter().any(unanswered), "a pair is left on both lists");
        self.host.assert_no_faults();
    }
}

#[test]
fn an_add_completes_after_the_messages_counted_before_it() {
    // Operations complete at once, messages late: without the rule, the add would complete first.
    let receive = Delay { chance: Chance::ALWAYS, ticks_max: 9 };
    let mut host = host::with(Knobs::default().receive(receive));
    host.eager(1, 5, b"");
    host.add(1, 1, 0);
    let opcodes: Vec<_> = host.completions().iter().map(|c| c.opcode).collect();
    assert_eq!(opcodes, [WcOpcode::TmRecv, WcOpcode::TmAdd]);
}
