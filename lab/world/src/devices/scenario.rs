//! Random use of a few workers, all of which one thread drives.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tagmatch_device::{Buffer, Device, EventDescriptor, Outgoing, PeerId, ReadRequest, Refused};
use tagmatch_testkit::random::Random;

use super::oracle::{Life, Link, Missing, Read, Rules, SOON, Sent, Workers};
use crate::World;

/// What is random in a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All that is random follows from it.
    pub seed: u64,
    /// How many things the workers do.
    pub steps: usize,
    /// Bytes of the longest message and read.
    pub length_max: usize,
    /// What ends before the scenario does.
    pub ends: Ends,
    /// A call fails in a way that doesn't pass: a connection may end for it.
    pub may_break: bool,
}

/// What ends in a scenario.
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

/// In the world, a sleep that is longer than this is one that nothing has ended.
const HOUR: Duration = Duration::from_secs(3600);
/// Most events that a worker reports in a row.
const EVENTS_MAX: usize = 100_000;
/// A scenario that runs.
pub struct Scenario<'a, D> {
    world: &'a World,
    plan: Plan,
    random: Random,
    workers: Rc<RefCell<Workers<D>>>,
}

impl<'a, D: Device + EventDescriptor + 'static> Scenario<'a, D> {
    /// A scenario of these devices, each of which was made as the process of its place.
    pub fn new(world: &'a World, plan: Plan, devices: Vec<D>) -> Self {
        let is_impatient = plan.ends == Ends::Machines;
        let rules = Rules { is_impatient, may_break: plan.may_break };
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
        self.settle("all that is under way", |workers| workers.missing());
        self.flush_all();
        self.settle("all that was sent", |workers| workers.missing());
        for at in 0..self.count() {
            self.leave(at);
            // What a machine that is off had open ends with the scenario.
            if self.workers.borrow().all[at].life == Life::Off {
                self.world.kill(at);
            }
        }
    }

    fn count(&self) -> usize {
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
        let link = link.get_or_insert(Link { peer, is_up: false, down: None, message_max: 0 });
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
            65..72 => self.flush(at, other),
            72..79 => self.read(at, other),
            79..82 => self.withdraw(at),
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
    fn woken(&self) -> Vec<usize> {
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
    fn wake(&self, at: usize) {
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
            let bytes: Vec<u8> = (0..length).map(|_| self.random.bits().to_le_bytes()[0]).collect();
            let immediate = match self.random.below(3) {
                0 => None,
                1 => Some(0),
                _ => Some(self.random.below_u32(u32::MAX)),
            };
            let mut workers = self.workers.borrow_mut();
            let workers = &mut *workers;
            let is_other_here = workers.all[other].life == Life::Here;
            let worker = &mut workers.all[at];
            let (Some(device), Some(link)) = (&mut worker.device, &worker.links[other]) else {
                return;
            };
            let (header, payload) = bytes.split_at(self.random.index(length.min(64) + 1));
            let result = self
                .world
                .run_as(at, || device.send(link.peer, Outgoing { header, payload, immediate }));
            let is_ending = !is_other_here || link.down.is_some() || worker.disconnected[other];
            let way = &mut worker.ways[other];
            way.is_full = false;
            match result {
                Ok(()) => {
                    assert!(link.is_usable(), "{at}: a message to {other}, which isn't up");
                    way.accepted += 1;
                    if is_other_here {
                        way.under_way.push_back(Sent { bytes, immediate });
                    }
                }
                Err(Refused::Full) => way.is_full = true,
                Err(Refused::NotUp) => {
                    assert!(!link.is_up, "{at}: {other} is up, and refuses a message");
                }
                Err(Refused::Down) => {
                    if !is_ending && !workers.have_disconnected(at, other) && !self.plan.may_break {
                        // Its end says why.
                        while self.world.run_as(at, || workers.poll(at)) {}
                        panic!("{at}: {other} is there, and refuses a message as down");
                    }
                }
                Err(Refused::TooLong) => panic!("{at}: {length} bytes are no long message"),
            }
        }
        self.tend_sleeper(at);
    }

    /// A worker that sleeps, and that was used meanwhile, may have something to do.
    fn tend_sleeper(&mut self, at: usize) {
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

    fn flush(&mut self, at: usize, other: usize) {
        self.wake(at);
        let mut workers = self.workers.borrow_mut();
        self.world.run_as(at, || workers.flush(at, other));
    }

    /// Another worker exposes memory, and this one reads it.
    fn read(&mut self, at: usize, owner: usize) {
        let mut workers = self.workers.borrow_mut();
        let has_ended = workers.have_disconnected(at, owner);
        if has_ended || !workers.is_usable(at, owner) || !workers.is_usable(owner, at) {
            return;
        }
        let length = 1 + self.random.index(self.plan.length_max * 2);
        let expected: Vec<u8> = (0..length).map(|_| self.random.bits().to_le_bytes()[0]).collect();
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
    fn fall_asleep(&mut self, at: usize) {
        let mut workers = self.workers.borrow_mut();
        let worker = &mut workers.all[at];
        let full = worker.ways.iter().zip(&worker.links).filter(|(way, _)| way.is_full);
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

    /// Time passes. Workers that are awake compute meanwhile, and the others are woken.
    fn pass(&mut self, time: Duration) {
        let until = self.world.now() + time;
        loop {
            let left = until.saturating_sub(self.world.now());
            let is_woken = {
                let workers = self.workers.borrow();
                self.world.sleep(&workers.sleepers(), left)
            };
            if !is_woken {
                return;
            }
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

    /// Lets all workers go on until nothing is missing. Each runs only when something has woken it.
    fn settle(&mut self, what: &str, missing: impl Fn(&Workers<D>) -> Option<Missing>) {
        let start = self.world.now();
        loop {
            for at in 0..self.count() {
                self.run_awake(at);
            }
            let Some(missing) = missing(&self.workers.borrow()) else { return };
            let Missing { what: missing, within } = missing;
            let is_awake = {
                let workers = self.workers.borrow();
                self.world.sleep(&workers.sleepers(), HOUR)
            };
            let took = self.world.now().saturating_sub(start);
            assert!(is_awake, "all sleep, and nothing wakes them. Waits for {what}: {missing}");
            assert!(took < within, "it takes {took:?}. Waits for {what}: {missing}");
            for at in self.woken() {
                self.wake(at);
            }
        }
    }

    /// A worker that is awake does what it has to do, and falls asleep.
    fn run_awake(&mut self, at: usize) {
        let mut is_refused = false;
        for _ in 0..EVENTS_MAX {
            {
                let mut workers = self.workers.borrow_mut();
                if !workers.is_here(at) || workers.all[at].is_armed {
                    return;
                }
                while self.world.run_as(at, || workers.poll(at)) {}
                if is_refused {
                    // There may be room: a worker would send again now.
                    workers.all[at].ways.iter_mut().for_each(|way| way.is_full = false);
                }
            }
            is_refused = true;
            self.fall_asleep(at);
        }
        panic!("{at}: it always has something to do");
    }

    /// Flushes all that was sent to workers that live.
    fn flush_all(&mut self) {
        let count = self.count();
        let start = self.world.now();
        for at in 0..count {
            for other in 0..count {
                while self.workers.borrow().is_usable(at, other) {
                    self.wake(at);
                    let is_done = {
                        let mut workers = self.workers.borrow_mut();
                        self.world.run_as(at, || workers.flush(at, other))
                    };
                    if is_done {
                        break;
                    }
                    let took = self.world.now().saturating_sub(start);
                    assert!(took < SOON, "{at}: a flush to {other} doesn't end");
                    for each in 0..count {
                        self.run_awake(each);
                    }
                    let workers = self.workers.borrow();
                    let Some(device) = &workers.all[at].device else { break };
                    let is_awake = self.world.sleep(&[device.event_descriptor()], HOUR);
                    assert!(is_awake, "{at}: nothing wakes a worker that flushes to {other}");
                    drop(workers);
                    for each in self.woken() {
                        self.wake(each);
                    }
                }
            }
        }
    }
}

/// What was sent to a worker that has ended need not arrive.
fn forget_sent_to<D>(workers: &mut Workers<D>, at: usize) {
    for worker in &mut workers.all {
        worker.ways[at].under_way.clear();
    }
}
