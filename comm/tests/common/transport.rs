//! A transport around another one, which is slow where a transport may be: tests that depend on luck between real
//! threads fail each time on it.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tagmatch::{Buffer, Tag};
use tagmatch_comm::net::{
    Arrived, Envelope, Mode, Net, NetError, NetFailed, Pattern, ProcessId, ProcessName, Sleeper,
};

/// When the transport makes progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// Whenever it is asked to.
    Always,
    /// Before a sleep is prepared, as if another thread had done so just then.
    BeforeASleep,
    /// After it has refused a sleep.
    AfterARefusal,
}

/// What is slow.
#[derive(Clone, Copy)]
pub(crate) struct Slowness {
    /// A posted receive's end is reported only once the receive was cancelled.
    pub(crate) hides_ends: bool,
    pub(crate) moves: Moves,
    /// The longest that a thread sleeps if nothing rings.
    pub(crate) sleep_max: Duration,
}

pub(crate) struct Slow<N> {
    net: N,
    slowness: Slowness,
    has_refused: bool,
}

impl<N> Slow<N> {
    pub(crate) fn new(net: N, slowness: Slowness) -> Self {
        Slow { net, slowness, has_refused: false }
    }
}

/// A receive, and whether its end is hidden.
pub(crate) struct Hidden<N: Net>(N::Receive, bool);

impl<N: Net> Net for Slow<N> {
    type Send = N::Send;
    type Receive = Hidden<N>;
    type Message = N::Message;

    fn processes(&self) -> u32 {
        self.net.processes()
    }

    fn own(&self) -> ProcessId {
        self.net.own()
    }

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        self.net.name(process)
    }

    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError> {
        self.net.admit(name)
    }

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send {
        self.net.send(to, tag, data, mode)
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        self.net.inject(to, tag, data)
    }

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        Hidden(self.net.receive(pattern, room), self.slowness.hides_ends)
    }

    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>> {
        self.net.test_send(send)
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        if receive.1 { None } else { self.net.test_receive(&mut receive.0) }
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        receive.1 = false;
        self.net.cancel(&mut receive.0);
    }

    fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        self.net.probe(pattern)
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        self.net.matched_probe(pattern)
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        Hidden(self.net.receive_message(message, room), false)
    }

    fn is_down(&self, process: ProcessId) -> bool {
        self.net.is_down(process)
    }

    fn watch(&mut self, process: ProcessId) {
        self.net.watch(process);
    }

    fn give_up(&mut self, process: ProcessId) {
        self.net.give_up(process);
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        self.net.take_down()
    }

    fn progress(&mut self) -> usize {
        let moves = self.slowness.moves;
        let is_moving = moves == Moves::Always || moves == Moves::AfterARefusal && self.has_refused;
        if is_moving { self.net.progress() } else { 0 }
    }

    fn pause(turn: u32) -> bool {
        N::pause(turn)
    }

    fn node(&self, process: ProcessId) -> u32 {
        self.net.node(process)
    }

    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        self.net.sleeper()
    }

    fn sleep_max(&self) -> Duration {
        self.slowness.sleep_max
    }

    fn arm(&mut self) -> bool {
        let start = Instant::now();
        while self.slowness.moves == Moves::BeforeASleep && start.elapsed().as_millis() < 5 {
            self.net.progress();
        }
        let may_sleep = self.net.arm();
        self.has_refused = !may_sleep;
        may_sleep
    }

    fn disarm(&mut self) {
        self.net.disarm();
    }

    fn notify(&mut self, waker: Option<&Waker>) {
        self.net.notify(waker);
    }
}
