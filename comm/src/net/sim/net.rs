//! The simulated network as one process has it.

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch::{Buffer, Tag};

use super::world::{Parcel, Receive, Send, World, cancel};
use crate::net::{Arrived, Envelope, Mode, Net, NetError, NetFailed, Pattern, ProcessId};

/// One process's end of a [`super::Sim`].
#[derive(Debug)]
pub struct SimNet {
    world: Rc<RefCell<World>>,
    own: ProcessId,
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

impl SimNet {
    pub(super) fn new(world: &Rc<RefCell<World>>, rank: u32) -> Self {
        SimNet { world: Rc::clone(world), own: ProcessId(rank) }
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
        self.world.borrow().config.processes
    }

    fn own(&self) -> ProcessId {
        self.own
    }

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> SimSend {
        SimSend(self.world.borrow_mut().send((self.own, to), tag, data, mode))
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        let mut send = self.send(to, tag, Buffer::from(data.to_vec()), Mode::Standard);
        match self.test_send(&mut send) {
            Some(Err(failed)) => Err(failed.error),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> SimReceive {
        SimReceive(self.world.borrow_mut().receive(self.own, pattern, room))
    }

    fn test_send(&mut self, send: &mut SimSend) -> Option<Result<Buffer, NetFailed>> {
        let mut send = send.0.borrow_mut();
        match std::mem::replace(&mut *send, Send::Taken) {
            Send::Ended(result) => Some(result),
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
            Receive::Ended(result) => Some(result),
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
        self.world.borrow().probe(self.own, &pattern)
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(SimMessage, Envelope)> {
        let parcel = self.world.borrow_mut().take(self.own, &pattern)?;
        let envelope = parcel.envelope();
        let world = Rc::clone(&self.world);
        Some((SimMessage { world, own: self.own, parcel: Some(parcel) }, envelope))
    }

    fn receive_message(&mut self, mut message: SimMessage, room: Buffer) -> SimReceive {
        let mut world = self.world.borrow_mut();
        SimReceive(match message.parcel.take() {
            Some(parcel) => world.receive_parcel(self.own, parcel, room),
            None => Rc::new(RefCell::new(Receive::Taken)),
        })
    }

    fn is_down(&self, process: ProcessId) -> bool {
        self.world.borrow().is_down(self.own, process)
    }

    fn watch(&mut self, _: ProcessId) {}

    fn give_up(&mut self, process: ProcessId) {
        self.world.borrow_mut().down(self.own, process);
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        self.world.borrow_mut().take_down(self.own)
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
