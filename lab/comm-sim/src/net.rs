//! One process's transport in a simulation.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tagmatch::{Buffer, Tag, TagMask};
use tagmatch_comm::net::{Arrived, Directory, Envelope, Mode, Net, NetError, NetFailed, Pattern};
use tagmatch_comm::net::{ProcessId, ProcessName};

use crate::numbers::JobNumbers;
use crate::world::{Parcel, ReceiveState, SendState, World, cancel};

/// One process's transport in a [`Sim`](crate::Sim).
#[derive(Debug)]
pub struct SimNet {
    world: Rc<RefCell<World>>,
    numbers: JobNumbers,
    /// Dead processes that this one doesn't know yet, numbered through all jobs. They are reported
    /// once it knows them.
    down: Vec<ProcessId>,
}

/// A pending send.
#[derive(Debug)]
pub struct SimSend(Rc<RefCell<SendState>>);

/// A pending receive.
#[derive(Debug)]
pub struct SimReceive(Rc<RefCell<ReceiveState>>);

/// A message that a matched probe took.
#[derive(Debug)]
pub struct SimMessage {
    world: Rc<RefCell<World>>,
    own: ProcessId,
    parcel: Option<Parcel>,
}

impl SimNet {
    pub(crate) fn new(world: &Rc<RefCell<World>>, number: u32) -> Self {
        let job = world.borrow().job(number);
        let numbers = JobNumbers::new(number, job);
        SimNet { world: Rc::clone(world), numbers, down: Vec::new() }
    }

    fn receive_with(&mut self, pattern: Pattern, room: Buffer, by_tag: bool) -> SimReceive {
        let own = self.numbers.own;
        SimReceive(match self.numbers.pattern(pattern) {
            Ok(pattern) => self.world.borrow_mut().receive(own, pattern, room, by_tag),
            Err(error) => {
                let failed = NetFailed { error, buffer: room };
                Rc::new(RefCell::new(ReceiveState::Ended(Err(failed))))
            }
        })
    }
}

fn taken() -> NetFailed {
    let error = NetError::Other("the result was taken before".to_owned());
    NetFailed { error, buffer: Buffer::default() }
}

impl Directory for SimNet {
    fn processes(&self) -> u32 {
        self.numbers.size()
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
        let unknown = || NetError::Other(format!("no process has the name {name}"));
        found.and_then(|process| self.numbers.admit(process)).ok_or_else(unknown)
    }
}

impl Net for SimNet {
    type Send = SimSend;
    type Receive = SimReceive;
    type Message = SimMessage;

    fn free_tag_bits(&self) -> (TagMask, Tag) {
        (TagMask::EXACT, Tag(0))
    }

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> SimSend {
        SimSend(match self.numbers.in_world(to) {
            Ok(to) => self.world.borrow_mut().send((self.numbers.own, to), tag, data, mode),
            Err(error) => Rc::new(RefCell::new(SendState::refused(error, data))),
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

    /// With an odd seed this network matches by tag alone, as a NIC does.
    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> SimReceive {
        let by_tag = self.world.borrow().config.seed % 2 == 1;
        self.receive_with(pattern, room, by_tag)
    }

    fn test_send(&mut self, send: &mut SimSend) -> Option<Result<Buffer, NetFailed>> {
        let mut send = send.0.borrow_mut();
        match std::mem::replace(&mut *send, SendState::Taken) {
            SendState::Ended(result) => Some(result.map_err(|failed| self.numbers.failed(failed))),
            SendState::Taken => Some(Err(taken())),
            waiting @ SendState::Waiting(_) => {
                *send = waiting;
                None
            }
        }
    }

    fn test_receive(&mut self, receive: &mut SimReceive) -> Option<Result<Arrived, NetFailed>> {
        let mut receive = receive.0.borrow_mut();
        match std::mem::replace(&mut *receive, ReceiveState::Taken) {
            ReceiveState::Ended(Ok(Arrived { envelope, buffer })) => {
                Some(Ok(Arrived { envelope: self.numbers.envelope(envelope), buffer }))
            }
            ReceiveState::Ended(Err(failed)) => Some(Err(self.numbers.failed(failed))),
            ReceiveState::Taken => Some(Err(taken())),
            posted @ ReceiveState::Posted(_) => {
                *receive = posted;
                None
            }
        }
    }

    fn cancel(&mut self, receive: &mut SimReceive) {
        // The list of posted receives has a weak reference, so its entry is void once the state is
        // replaced.
        cancel(&receive.0, NetError::Cancelled);
        let ended = std::mem::replace(&mut *receive.0.borrow_mut(), ReceiveState::Taken);
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
            None => Rc::new(RefCell::new(ReceiveState::Taken)),
        })
    }

    fn is_down(&self, process: ProcessId) -> bool {
        let process = self.numbers.in_world(process);
        process.is_ok_and(|process| self.world.borrow().is_down(self.numbers.own, process))
    }

    fn node(&self, process: ProcessId) -> u32 {
        process.0 / self.world.borrow().config.per_node.max(1)
    }

    fn shares_memory(&self) -> bool {
        self.world.borrow().config.shares_memory
    }

    fn watch(&mut self, process: ProcessId) {
        if let Ok(process) = self.numbers.in_world(process) {
            self.world.borrow_mut().connect(self.numbers.own, process);
        }
    }

    fn watch_after(&self) -> Duration {
        self.world.borrow().config.watch_after
    }

    fn has_left(&self, process: ProcessId) -> bool {
        let own = self.numbers.own;
        let process = self.numbers.in_world(process);
        process.is_ok_and(|process| self.world.borrow().has_left(own, process))
    }

    fn give_up(&mut self, process: ProcessId) {
        if let Ok(process) = self.numbers.in_world(process) {
            self.world.borrow_mut().give_up(self.numbers.own, process);
        }
    }

    fn failure(&self) -> Option<String> {
        let world = self.world.borrow();
        let (rank, step) = world.config.lacks?;
        let lacks = self.numbers.own.0 == rank && world.steps >= step;
        lacks.then(|| "the simulation says so".to_owned())
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        if self.failure().is_some() {
            // The connection to the next process is the one that can't be made.
            let mut world = self.world.borrow_mut();
            let own = self.numbers.own;
            let next = ProcessId((own.0 + 1) % world.config.processes);
            world.down(own, next);
        }
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
    /// Always: all processes of a simulation share one thread, so a blocking call would never
    /// return.
    fn pause() {
        panic!("blocking calls don't work in a simulation: use the call that returns a request");
    }
}

impl Drop for SimMessage {
    fn drop(&mut self) {
        if let Some(parcel) = self.parcel.take() {
            self.world.borrow_mut().acknowledge(self.own, &parcel);
        }
    }
}
