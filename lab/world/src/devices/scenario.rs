//! Random use of a few workers, all of which one thread drives.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tagmatch_device::{
    AccessKind, Buffer, Device, EventDescriptor, Outgoing, PeerId, PublishedRegion, ReadRequest,
    Refused, RegionAccess, RegionSpan,
};
use tagmatch_testkit::random::Random;

use super::oracle::{Life, Link, Read, RegionUse, Rules, Sent, SharedRegion, Workers};
use crate::World;

/// The parts of a scenario that are drawn at random.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All that is random follows from it.
    pub seed: u64,
    /// How many things the workers do.
    pub steps: usize,
    /// Bytes of the longest message.
    pub length_max: usize,
    /// Bytes of the longest read.
    pub read_max: usize,
    /// The workers that end before the scenario does.
    pub ends: Ends,
    /// A call fails in a way that doesn't pass: a connection may end for it.
    pub may_break: bool,
    /// The workers announce addresses at which nobody is, beside their own.
    pub has_dead_hosts: bool,
}

/// Which workers end in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Nothing.
    None,
    /// Workers leave, are killed, and end connections. Those that leave wait for what they have
    /// sent.
    Processes,
    /// Machines are switched off, too, and workers that leave don't wait.
    Machines,
}

/// So many polls find all that has come.
const POLLS_MAX: usize = 2000;
/// A scenario that runs.
pub struct Scenario<'a, D> {
    pub(super) world: &'a World,
    pub(super) plan: Plan,
    pub(super) random: Random,
    pub(super) workers: Rc<RefCell<Workers<D>>>,
}

impl<'a, D: Device + EventDescriptor + 'static> Scenario<'a, D> {
    /// A scenario of these devices, each of which was made as the process of its place.
    pub fn new(world: &'a World, plan: Plan, devices: Vec<D>) -> Self {
        let is_impatient = plan.ends == Ends::Machines;
        let Plan { may_break, has_dead_hosts, .. } = plan;
        let rules = Rules { is_impatient, may_break, has_dead_hosts };
        let workers = Rc::new(RefCell::new(Workers::new(devices, rules)));
        Scenario { world, plan, random: Random::stream(plan.seed, 2), workers }
    }

    /// Runs it, and ends all workers.
    ///
    /// # Panics
    /// If a device doesn't keep its promises.
    pub fn run(mut self) {
        self.connect();
        for _ in 0..self.plan.steps {
            self.step();
        }
        // Messages behind the bytes of reads are flushed, too.
        for _ in 0..4 {
            let at = self.random.index(self.count());
            let owner = self.random.index(self.count());
            self.read(at, owner);
            self.poll(at);
            self.poll(owner);
            self.send(owner, at);
        }
        if self.plan.ends == Ends::Machines {
            self.end_of_a_machine_that_is_sent_to();
        }
        self.settle("a flush", Self::flush_all);
        self.settle("all that was sent", |this| this.workers.borrow().missing());
        if self.plan.ends == Ends::Machines {
            let forget = |this: &mut Self| this.workers.borrow_mut().forget();
            self.settle("the end of all that was left", forget);
        }
        for at in 0..self.count() {
            self.leave(at);
            // The descriptors of a machine that is off are closed with the scenario.
            if self.workers.borrow().all[at].life == Life::Off {
                self.world.kill(at);
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.workers.borrow().all.len()
    }

    /// Each pair connects, from one side or from both.
    fn connect(&mut self) {
        let count = self.count();
        for at in 0..count {
            self.poll(at);
            for other in at + 1..count {
                match self.random.below(3) {
                    0 => self.connect_to(at, other),
                    1 => self.connect_to(other, at),
                    _ => {
                        self.connect_to(at, other);
                        self.connect_to(other, at);
                    }
                }
            }
        }
    }

    fn connect_to(&mut self, at: usize, other: usize) {
        let mut workers = self.workers.borrow_mut();
        let address = workers.all[other].address;
        let Some(device) = &mut workers.all[at].device else { return };
        let peer = self.world.run_as(at, || device.connect(&address)).expect("a peer to be");
        let link = &mut workers.all[at].links[other];
        let link = link.get_or_insert(Link { peer, is_up: false, down: None });
        assert_eq!(link.peer, peer, "{at}: another number of {other}");
    }

    /// One of the workers does something.
    fn step(&mut self) {
        let at = self.random.index(self.count());
        let other = self.random.index(self.count());
        if !self.workers.borrow().is_here(at) {
            return;
        }
        match self.random.below(100) {
            0..40 => self.poll(at),
            40..65 => self.send(at, other),
            65..72 => {
                if self.random.chance(1, 2) {
                    self.send(at, other);
                }
                self.flush(at, other);
            }
            72..76 => self.read(at, other),
            76..79 => {
                (0..=self.random.below(3)).for_each(|_| self.access(at, other));
                if self.plan.ends != Ends::None && self.random.chance(1, 10) {
                    // Behind bytes that are being put.
                    self.send(at, other);
                    self.disconnect(at, other);
                }
            }
            79..81 => self.withdraw(at),
            81..82 => self.close_region(at),
            82..90 => self.sleep(at),
            90..94 => {
                let time = Duration::from_millis(self.random.below(20_000));
                self.pass(time);
            }
            94..97 => self.all_sleep(),
            97..100 if self.plan.ends != Ends::None && self.random.chance(1, 3) => {
                self.end(at, other)
            }
            _ => {}
        }
    }

    /// The workers that sleep and that something has woken.
    pub(super) fn woken(&self) -> Vec<usize> {
        self.workers.borrow().woken(self.world)
    }

    /// Polls a worker a few times.
    fn poll(&mut self, at: usize) {
        self.wake(at);
        for _ in 0..=self.random.below(6) {
            let mut workers = self.workers.borrow_mut();
            self.world.run_as(at, || workers.poll(at));
        }
    }

    /// Has a worker awake.
    pub(super) fn wake(&self, at: usize) {
        let mut workers = self.workers.borrow_mut();
        let worker = &mut workers.all[at];
        if std::mem::take(&mut worker.is_armed)
            && let Some(device) = &mut worker.device
        {
            self.world.run_as(at, || device.disarm());
        }
    }

    /// Sends a few messages, also while the worker sleeps, as another thread would.
    fn send(&mut self, at: usize, other: usize) {
        for _ in 0..=self.random.below(4) {
            let length = match self.random.below(4) {
                0 => self.random.index(4),
                1 => self.random.index(self.plan.length_max),
                _ => self.random.index(100),
            };
            let bytes = self.bytes(length);
            let immediate = match self.random.below(3) {
                0 => None,
                1 => Some(0),
                _ => Some(self.random.below_u32(u32::MAX)),
            };
            // A message that waits for room goes first.
            let waiting = self.workers.borrow_mut().all[at].ways[other].waiting.take();
            let is_sent = waiting.is_none_or(|waiting| self.try_to_send(at, other, waiting));
            if !is_sent || !self.try_to_send(at, other, Sent { bytes, immediate }) {
                break;
            }
        }
        self.tend_sleeper(at);
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.random.bits().to_le_bytes()[0]).collect()
    }

    /// Sends a message. `false` if it waits for room, or if the peer is none.
    pub(super) fn try_to_send(&mut self, at: usize, other: usize, sent: Sent) -> bool {
        let mut workers = self.workers.borrow_mut();
        let is_ending = !workers.is_here(other) || workers.have_disconnected(at, other);
        let worker = &mut workers.all[at];
        let (Some(device), Some(link)) = (&mut worker.device, &worker.links[other]) else {
            return false;
        };
        let (header, payload) =
            sent.bytes.split_at(self.random.index(sent.bytes.len().min(64) + 1));
        let outgoing = Outgoing { header, payload, immediate: sent.immediate };
        let result = self.world.run_as(at, || device.send(link.peer, outgoing));
        let way = &mut worker.ways[other];
        match result {
            Ok(()) => {
                assert!(link.is_usable(), "{at}: a message to {other}, which isn't up");
                way.accepted += 1;
                if !is_ending {
                    way.under_way.push_back(sent);
                }
                return true;
            }
            Err(Refused::Full) => way.waiting = Some(sent),
            Err(Refused::NotUp) => {
                assert!(!link.is_up, "{at}: {other} is up, and refuses a message");
            }
            Err(Refused::Down) => {
                if !is_ending && link.down.is_none() && !self.plan.may_break {
                    // Its end says why.
                    while self.world.run_as(at, || workers.poll(at)) {}
                    panic!("{at}: {other} is there, and refuses a message as down");
                }
            }
            Err(Refused::TooLong) => panic!("{at}: {} bytes are no long message", sent.bytes.len()),
        }
        false
    }

    /// A worker that sleeps, and that was used meanwhile, may have something to do.
    pub(super) fn tend_sleeper(&mut self, at: usize) {
        let has_work = {
            let workers = self.workers.borrow();
            let worker = &workers.all[at];
            worker.is_armed && worker.device.as_ref().is_some_and(Device::has_work)
        };
        if has_work {
            self.poll(at);
            self.fall_asleep(at);
        }
    }

    /// Asks how a flush stands. `true` if it has ended. What was flushed is at the other machine:
    /// it arrives though nothing moves any more.
    pub(super) fn flush(&mut self, at: usize, other: usize) -> bool {
        self.wake(at);
        let is_done = {
            let mut workers = self.workers.borrow_mut();
            self.world.run_as(at, || workers.flush(at, other))
        };
        let is_checked = {
            let workers = self.workers.borrow();
            let is_connected = workers.is_here(other) && !workers.have_disconnected(at, other);
            is_done && is_connected && at != other && self.random.chance(1, 2)
        };
        if is_checked {
            self.wake(other);
            let mut workers = self.workers.borrow_mut();
            let has_arrived = |workers: &Workers<D>| {
                let way = &workers.all[at].ways[other];
                way.arrived >= way.flushed
            };
            self.world.frozen(|| {
                for _ in 0..POLLS_MAX {
                    if !has_arrived(&workers) {
                        self.world.run_as(other, || workers.poll(other));
                    }
                }
            });
            let is_right = has_arrived(&workers) || workers.have_disconnected(at, other);
            assert!(is_right, "{at}: messages to {other} were flushed, and are not there");
        }
        is_done
    }

    fn are_connected(&self, at: usize, other: usize) -> bool {
        let workers = self.workers.borrow();
        let is_connected = workers.is_usable(at, other) && workers.is_usable(other, at);
        is_connected && !workers.have_disconnected(at, other)
    }

    /// The bytes of a read or an access.
    fn long_bytes(&mut self) -> Vec<u8> {
        let is_long = self.random.chance(1, 8);
        let most = if is_long { self.plan.read_max } else { self.plan.length_max };
        let length = 1 + self.random.index(most);
        self.bytes(length)
    }

    /// Another worker has a region, and this one puts bytes into it, or gets them from it.
    fn access(&mut self, at: usize, owner: usize) {
        if at == owner || !self.are_connected(at, owner) {
            return;
        }
        let bytes = self.long_bytes();
        let is_put = self.random.chance(1, 2);
        let kind = if is_put { AccessKind::Write } else { AccessKind::Read };
        let mut memory = vec![0; bytes.len() + 2];
        let mut buffer = bytes.clone();
        if is_put {
            memory[1..=bytes.len()].fill(9);
        } else {
            memory[1..=bytes.len()].copy_from_slice(&bytes);
            buffer.fill(8);
        }
        let memory = Buffer::from(memory);
        let mut workers = self.workers.borrow_mut();
        let key = workers.next_token;
        workers.next_token += 1;
        let Some(device) = &mut workers.all[owner].device else { return };
        let region = PublishedRegion {
            key,
            base: None,
            memory: &memory,
            reads: !is_put,
            writes: is_put,
            changes: false,
        };
        let place = self.world.run_as(owner, || device.publish(&region));
        let worker = &mut workers.all[at];
        let (Some(device), Some(link)) = (&mut worker.device, &worker.links[owner]) else { return };
        let of = RegionSpan { key, place, offset: 1 };
        let access = RegionAccess { peer: link.peer, of, kind, buffer: buffer.into() };
        if !place.is_none() && self.world.run_as(at, || device.access(access)).is_ok() {
            worker.accesses.push_back(RegionUse { owner, key, kind, bytes });
            workers.regions.insert(key, SharedRegion { memory, closed: None });
        } else {
            let is_right = place.is_none() || self.plan.may_break;
            assert!(is_right, "{at}: no access to {owner}, which is up");
            if let Some(device) = &mut workers.all[owner].device {
                assert!(device.unpublish(key));
            }
        }
        drop(workers);
        self.tend_sleeper(at);
    }

    /// The owner closes a region that a worker puts to or gets from.
    fn close_region(&mut self, at: usize) {
        let mut workers = self.workers.borrow_mut();
        let Workers { all, regions, .. } = &mut *workers;
        let is_open = |access: &&RegionUse| regions[&access.key].closed.is_none();
        let open = all[at].accesses.iter().find(is_open);
        let Some(&RegionUse { owner, key, .. }) = open else { return };
        if let (Some(device), Some(region)) = (&mut all[owner].device, regions.get_mut(&key)) {
            assert!(device.unpublish(key));
            region.closed = Some(region.memory.to_vec());
        }
    }

    /// Another worker exposes memory, and this one reads it.
    fn read(&mut self, at: usize, owner: usize) {
        if !self.are_connected(at, owner) {
            return;
        }
        let expected = self.long_bytes();
        let length = expected.len();
        let mut workers = self.workers.borrow_mut();
        let reader =
            workers.all[owner].links[at].as_ref().map_or(PeerId::ONESELF, |link| link.peer);
        let Some(device) = &mut workers.all[owner].device else { return };
        let exposed =
            self.world.run_as(owner, || device.expose(reader, Buffer::from(expected.clone())));
        let exposure = exposed.map_err(|(_, error)| error).expect("an exposed buffer");
        let token = workers.next_token;
        workers.next_token += 1;
        let worker = &mut workers.all[at];
        let (Some(device), Some(link)) = (&mut worker.device, &worker.links[owner]) else { return };
        let into = Buffer::zeroed(length);
        let request = ReadRequest { peer: link.peer, remote: exposure.span, into, token };
        let begun = self.world.run_as(at, || device.read(request));
        let exposure = exposure.id;
        let is_begun = begun.is_ok();
        assert!(is_begun || self.plan.may_break, "{at}: no read of {owner}, which is up");
        if is_begun {
            worker.reads.insert(token, Read { owner, expected, exposure, is_withdrawn: false });
        } else if let Some(device) = &mut workers.all[owner].device {
            assert!(device.withdraw(reader, exposure).is_some(), "an exposed buffer");
        }
        drop(workers);
        self.tend_sleeper(at);
    }

    /// The owner takes back what a worker reads.
    fn withdraw(&mut self, at: usize) {
        let mut workers = self.workers.borrow_mut();
        let Some((token, read)) = workers.all[at].reads.iter().next() else { return };
        let token = *token;
        let owner = read.owner;
        let exposure = read.exposure;
        if read.is_withdrawn {
            return;
        }
        let reader = workers.all[owner].links[at].as_ref().map(|link| link.peer);
        if let (Some(device), Some(reader)) = (&mut workers.all[owner].device, reader) {
            assert!(device.withdraw(reader, exposure).is_some(), "an exposed buffer");
            if let Some(read) = workers.all[at].reads.get_mut(&token) {
                read.is_withdrawn = true;
            }
        }
    }

    /// A worker falls asleep, if it has nothing to do.
    pub(super) fn fall_asleep(&mut self, at: usize) {
        let mut workers = self.workers.borrow_mut();
        let worker = &mut workers.all[at];
        let full = worker.ways.iter().zip(&worker.links).filter(|(way, _)| way.waiting.is_some());
        let waiting: Vec<_> = full.filter_map(|(_, link)| Some(link.as_ref()?.peer)).collect();
        if let Some(device) = &mut worker.device {
            worker.is_armed = self.world.run_as(at, || device.arm(&waiting));
        }
    }

    /// A worker sleeps for a while.
    fn sleep(&mut self, at: usize) {
        self.wake(at);
        self.fall_asleep(at);
        let time = Duration::from_millis(self.random.below(3000));
        self.pass(time);
    }

    /// Time passes. Workers that are awake compute meanwhile, and the others are woken. Sometimes
    /// one goes on sending.
    fn pass(&mut self, time: Duration) {
        let until = self.world.now() + time;
        let sender = self.random.index(self.count());
        let receiver = self.random.index(self.count());
        let is_steady = self.random.chance(1, 3);
        let mut is_woken = false;
        loop {
            let left = until.saturating_sub(self.world.now());
            if left.is_zero() {
                return;
            }
            let pause = if is_steady {
                if !is_woken {
                    self.send(sender, receiver);
                }
                left.min(Duration::from_millis(1 + self.random.below(500)))
            } else {
                left
            };
            is_woken = {
                let workers = self.workers.borrow();
                self.world.sleep(&workers.sleepers(), pause)
            };
            for at in self.woken() {
                self.wake(at);
                self.run_awake(at);
            }
        }
    }

    /// All workers fall asleep, and stay so until something wakes them.
    fn all_sleep(&mut self) {
        for at in 0..self.count() {
            self.wake(at);
            self.fall_asleep(at);
        }
    }

    /// A machine is switched off while a worker sleeps that was sent from: nobody looks at it
    /// before its timer.
    fn end_of_a_machine_that_is_sent_to(&mut self) {
        for at in 0..self.count() {
            self.run_awake(at);
        }
        // Nothing is under way after this, in most cases.
        self.pass(Duration::from_secs(5));
        let at = self.random.index(self.count());
        let other = self.random.index(self.count());
        if at != other && self.workers.borrow().is_usable(at, other) {
            self.send(at, other);
            self.kill(other, Life::Off);
        }
    }

    /// Something ends.
    fn end(&mut self, at: usize, other: usize) {
        match self.random.below(4) {
            0 => self.disconnect(at, other),
            1 => self.leave(at),
            3 if self.plan.ends == Ends::Machines => self.kill(at, Life::Off),
            _ => self.kill(at, Life::Killed),
        }
    }

    fn disconnect(&mut self, at: usize, other: usize) {
        self.wake(at);
        let mut workers = self.workers.borrow_mut();
        let worker = &mut workers.all[at];
        let (Some(device), Some(link)) = (&mut worker.device, &worker.links[other]) else { return };
        if link.is_usable() && !worker.disconnected[other] {
            worker.disconnected[other] = true;
            self.world.run_as(at, || device.disconnect(link.peer));
        }
    }

    /// A worker is dropped. The others go on meanwhile.
    fn leave(&mut self, at: usize) {
        if !self.workers.borrow().is_here(at) {
            return;
        }
        self.wake(at);
        let device = {
            let mut workers = self.workers.borrow_mut();
            workers.all[at].life = Life::Left;
            forget_sent_to(&mut workers, at);
            workers.all[at].device.take()
        };
        let workers = self.workers.clone();
        let mut random = Random::new(self.random.bits());
        self.world.while_asleep(Some(Box::new(move || {
            let mut workers = workers.borrow_mut();
            let other = random.index(workers.all.len());
            if std::mem::take(&mut workers.all[other].is_armed)
                && let Some(device) = &mut workers.all[other].device
            {
                crate::run_as(other, || device.disarm());
            }
            for _ in 0..random.below(20) {
                crate::run_as(other, || workers.poll(other));
            }
        })));
        self.world.run_as(at, || drop(device));
        self.world.while_asleep(None);
    }

    /// A process is killed, or its machine is switched off.
    fn kill(&mut self, at: usize, life: Life) {
        if !self.workers.borrow().is_here(at) {
            return;
        }
        let mut workers = self.workers.borrow_mut();
        workers.all[at].life = life;
        forget_sent_to(&mut workers, at);
        // Nothing runs any more that the process would do at its end.
        std::mem::forget(workers.all[at].device.take());
        match life {
            Life::Off => self.world.silence(at),
            _ => self.world.kill(at),
        }
    }
}

/// Messages to a worker that has ended need not arrive.
fn forget_sent_to<D>(workers: &mut Workers<D>, at: usize) {
    for worker in &mut workers.all {
        worker.ways[at].under_way.clear();
    }
}
