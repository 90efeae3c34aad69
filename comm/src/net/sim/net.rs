//! The simulated network as one process has it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use tagmatch::{Buffer, Tag};

use super::world::{Parcel, Receive, Send, World, cancel};
use crate::net::{Arrived, Envelope, FOREIGN_MAX, Mode, Net, NetError, NetFailed, Pattern};
use crate::net::{ProcessId, ProcessName};

/// One process's end of a [`super::Sim`].
#[derive(Debug)]
pub struct SimNet {
    world: Rc<RefCell<World>>,
    numbers: Numbers,
    /// Who is down and not known, in the world's numbers.
    down: Vec<ProcessId>,
}

/// How a process numbers those that the world numbers through all jobs.
#[derive(Debug)]
struct Numbers {
    /// In the world, as all in here.
    own: ProcessId,
    job: Range<u32>,
    /// Processes of other jobs.
    known: Vec<ProcessId>,
    numbers: HashMap<ProcessId, ProcessId>,
}

/// A send under way.
#[derive(Debug)]
pub struct SimSend(Rc<RefCell<Send>>);

/// A receive under way.
#[derive(Debug)]
pub struct SimReceive(Rc<RefCell<Receive>>);

/// A message that a matched probe took.
#[derive(Debug)]
pub struct SimMessage {
    world: Rc<RefCell<World>>,
    own: ProcessId,
    parcel: Option<Parcel>,
}

impl Numbers {
    fn in_world(&self, process: ProcessId) -> Result<ProcessId, NetError> {
        let size = self.job.end - self.job.start;
        let found = match process.0.checked_sub(size) {
            None => Some(ProcessId(self.job.start + process.0)),
            Some(at) => self.known.get(at as usize).copied(),
        };
        found.ok_or_else(|| NetError::Other(format!("there is no process {}", process.0)))
    }

    fn here(&self, process: ProcessId) -> Option<ProcessId> {
        if self.job.contains(&process.0) {
            return Some(ProcessId(process.0 - self.job.start));
        }
        self.numbers.get(&process).copied()
    }

    fn admit(&mut self, process: ProcessId) -> Option<ProcessId> {
        self.here(process).or_else(|| {
            let number = u32::try_from(self.known.len()).ok().filter(|at| *at < FOREIGN_MAX)?;
            let number = ProcessId(self.job.end - self.job.start + number);
            self.known.push(process);
            self.numbers.insert(process, number);
            Some(number)
        })
    }

    fn pattern(&self, pattern: Pattern) -> Result<Pattern, NetError> {
        let from = pattern.from.map(|from| self.in_world(from)).transpose()?;
        Ok(Pattern { from, ..pattern })
    }

    fn envelope(&mut self, envelope: Envelope) -> Envelope {
        Envelope { from: envelope.from.and_then(|from| self.admit(from)), ..envelope }
    }

    fn failed(&mut self, NetFailed { error, buffer }: NetFailed) -> NetFailed {
        let error = match error {
            NetError::Down(process) => NetError::Down(self.here(process).unwrap_or(process)),
            NetError::Forged(process) => NetError::Forged(self.here(process).unwrap_or(process)),
            other => other,
        };
        NetFailed { error, buffer }
    }
}

impl SimNet {
    pub(super) fn new(world: &Rc<RefCell<World>>, number: u32) -> Self {
        let job = world.borrow().job(number);
        let own = ProcessId(number);
        let numbers = Numbers { own, job, known: Vec::new(), numbers: HashMap::new() };
        SimNet { world: Rc::clone(world), numbers, down: Vec::new() }
    }

    fn receive_with(&mut self, pattern: Pattern, room: Buffer, by_tag: bool) -> SimReceive {
        let own = self.numbers.own;
        SimReceive(match self.numbers.pattern(pattern) {
            Ok(pattern) => self.world.borrow_mut().receive(own, pattern, room, by_tag),
            Err(error) => {
                let failed = NetFailed { error, buffer: room };
                Rc::new(RefCell::new(Receive::Ended(Err(failed))))
            }
        })
    }
}

fn taken() -> NetFailed {
    let error = NetError::Other("the result was taken before".to_owned());
    NetFailed { error, buffer: Buffer::default() }
}

impl Net for SimNet {
    type Send = SimSend;
    type Receive = SimReceive;
    type Message = SimMessage;

    fn processes(&self) -> u32 {
        self.numbers.job.end - self.numbers.job.start
    }

    fn own(&self) -> ProcessId {
        ProcessId(self.numbers.own.0 - self.numbers.job.start)
    }

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        let number = self.numbers.in_world(process).ok()?.0;
        self.world.borrow().name(number)
    }

    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError> {
        let found = self.world.borrow().named(name);
        let nobody = || NetError::Other(format!("no process is called {name}"));
        found.and_then(|process| self.numbers.admit(process)).ok_or_else(nobody)
    }

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> SimSend {
        SimSend(match self.numbers.in_world(to) {
            Ok(to) => self.world.borrow_mut().send((self.numbers.own, to), tag, data, mode),
            Err(error) => Rc::new(RefCell::new(Send::refused(error, data))),
        })
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        let mut send = self.send(to, tag, Buffer::from(data.to_vec()), Mode::Standard);
        match self.test_send(&mut send) {
            Some(Err(failed)) => Err(failed.error),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> SimReceive {
        self.receive_with(pattern, room, false)
    }

    /// In every other run this network compares tags alone, as a NIC does.
    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> SimReceive {
        let by_tag = self.world.borrow().config.seed % 2 == 1;
        self.receive_with(pattern, room, by_tag)
    }

    fn test_send(&mut self, send: &mut SimSend) -> Option<Result<Buffer, NetFailed>> {
        let mut send = send.0.borrow_mut();
        match std::mem::replace(&mut *send, Send::Taken) {
            Send::Ended(result) => Some(result.map_err(|failed| self.numbers.failed(failed))),
            Send::Taken => Some(Err(taken())),
            waiting @ Send::Waiting(_) => {
                *send = waiting;
                None
            }
        }
    }

    fn test_receive(&mut self, receive: &mut SimReceive) -> Option<Result<Arrived, NetFailed>> {
        let mut receive = receive.0.borrow_mut();
        match std::mem::replace(&mut *receive, Receive::Taken) {
            Receive::Ended(Ok(Arrived { envelope, buffer })) => {
                Some(Ok(Arrived { envelope: self.numbers.envelope(envelope), buffer }))
            }
            Receive::Ended(Err(failed)) => Some(Err(self.numbers.failed(failed))),
            Receive::Taken => Some(Err(taken())),
            posted @ Receive::Posted(_) => {
                *receive = posted;
                None
            }
        }
    }

    fn cancel(&mut self, receive: &mut SimReceive) {
        // Off the list: an entry that nobody else holds is as if it weren't there.
        cancel(&receive.0, NetError::Cancelled);
        let ended = std::mem::replace(&mut *receive.0.borrow_mut(), Receive::Taken);
        receive.0 = Rc::new(RefCell::new(ended));
    }

    fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        let pattern = self.numbers.pattern(pattern).ok()?;
        let found = self.world.borrow().probe(self.numbers.own, &pattern)?;
        Some(self.numbers.envelope(found))
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(SimMessage, Envelope)> {
        let pattern = self.numbers.pattern(pattern).ok()?;
        let own = self.numbers.own;
        let parcel = self.world.borrow_mut().take(own, &pattern)?;
        let envelope = self.numbers.envelope(parcel.envelope());
        let world = Rc::clone(&self.world);
        Some((SimMessage { world, own, parcel: Some(parcel) }, envelope))
    }

    fn receive_message(&mut self, mut message: SimMessage, room: Buffer) -> SimReceive {
        let mut world = self.world.borrow_mut();
        SimReceive(match message.parcel.take() {
            Some(parcel) => world.receive_parcel(self.numbers.own, parcel, room),
            None => Rc::new(RefCell::new(Receive::Taken)),
        })
    }

    fn is_down(&self, process: ProcessId) -> bool {
        let process = self.numbers.in_world(process);
        process.is_ok_and(|process| self.world.borrow().is_down(self.numbers.own, process))
    }

    fn node(&self, process: ProcessId) -> u32 {
        process.0 / self.world.borrow().config.per_node.max(1)
    }

    fn watch(&mut self, _: ProcessId) {}

    fn give_up(&mut self, process: ProcessId) {
        if let Ok(process) = self.numbers.in_world(process) {
            self.world.borrow_mut().down(self.numbers.own, process);
        }
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        self.down.extend(self.world.borrow_mut().take_down(self.numbers.own));
        let mut known = Vec::new();
        self.down.retain(|process| {
            let here = self.numbers.here(*process);
            known.extend(here);
            here.is_none()
        });
        known
    }

    fn progress(&mut self) -> usize {
        0
    }

    /// # Panics
    /// Always: the other processes of a simulation run only while this one does not.
    fn pause(_: u32) -> bool {
        panic!("a call that has to wait can't block in a simulation: use the non-blocking one");
    }
}

impl Drop for SimMessage {
    fn drop(&mut self) {
        if let Some(parcel) = self.parcel.take() {
            self.world.borrow_mut().acknowledge(self.own, &parcel);
        }
    }
}
