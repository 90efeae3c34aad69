//! A transport around another one, which is slow where a transport may be: tests that depend on luck between real
//! threads fail each time on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::{Buffer, Tag};
use tagmatch_comm::net::{
    Arrived, Envelope, Mode, Net, NetError, NetFailed, Pattern, ProcessId, ProcessName, Sleeper,
};

/// As slow as the transport beneath.
pub(crate) const FAST: Slowness = Slowness {
    hides_ends: false,
    late_from: u64::MAX,
    moves: Moves::Always,
    sleep_max: Duration::from_millis(100),
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
    /// Messages of so many bytes that a matched probe took are here only at the third test.
    pub(crate) late_from: u64,
    pub(crate) moves: Moves,
    /// The longest that a thread sleeps if nothing rings.
    pub(crate) sleep_max: Duration,
}

pub(crate) struct Slow<N> {
    net: N,
    slowness: Slowness,
    /// The last sleep that was prepared was refused.
    has_refused: Arc<AtomicBool>,
}

impl<N> Slow<N> {
    pub(crate) fn new(net: N, slowness: Slowness) -> Self {
        Slow { net, slowness, has_refused: Arc::default() }
    }

    fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::SeqCst)
    }
}

/// Of a transport that is used by one thread.
struct Strict {
    sleeper: Arc<dyn Sleeper>,
    has_refused: Arc<AtomicBool>,
}

impl Sleeper for Strict {
    fn sleep(&self, max: Duration) {
        assert!(!self.has_refused.load(Ordering::SeqCst), "there was something to do");
        self.sleeper.sleep(max);
    }

    fn ring(&self) {
        self.sleeper.ring();
    }
}

/// A receive, whether its end is hidden, and how many tests it is late.
pub(crate) struct Hidden<N: Net>(N::Receive, bool, u32);

impl<N: Net> Net for Slow<N> {
    type Send = N::Send;
    type Receive = Hidden<N>;
    type Message = (N::Message, u64);

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
        Hidden(self.net.receive(pattern, room), self.slowness.hides_ends, 0)
    }

    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>> {
        self.net.test_send(send)
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        if receive.1 || receive.2 > 0 {
            receive.2 = receive.2.saturating_sub(1);
            return None;
        }
        self.net.test_receive(&mut receive.0)
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        receive.1 = false;
        self.net.cancel(&mut receive.0);
    }

    fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        self.net.probe(pattern)
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        let (message, envelope) = self.net.matched_probe(pattern)?;
        Some(((message, envelope.length), envelope))
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        let (message, length) = message;
        let late = if length < self.slowness.late_from { 0 } else { 2 };
        Hidden(self.net.receive_message(message, room), false, late)
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
        let is_moving =
            moves == Moves::Always || moves == Moves::AfterARefusal && self.has_refused();
        if is_moving { self.net.progress() } else { 0 }
    }

    /// A few turns, however long a yield takes.
    fn pause(turn: u32) -> bool {
        thread::yield_now();
        turn >= 4
    }

    fn node(&self, process: ProcessId) -> u32 {
        self.net.node(process)
    }

    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        let sleeper = self.net.sleeper()?;
        if self.slowness.moves != Moves::AfterARefusal {
            return Some(sleeper);
        }
        Some(Arc::new(Strict { sleeper, has_refused: Arc::clone(&self.has_refused) }))
    }

    fn sleep_max(&self) -> Duration {
        self.slowness.sleep_max
    }

    fn arm(&mut self) -> bool {
        let start = Instant::now();
        let mut may_sleep = self.net.arm();
        while self.slowness.moves == Moves::BeforeASleep
            && (!may_sleep || start.elapsed().as_millis() < 5)
        {
            self.net.progress();
            may_sleep = self.net.arm();
        }
        self.has_refused.store(!may_sleep, Ordering::SeqCst);
        may_sleep
    }

    fn disarm(&mut self) {
        self.net.disarm();
    }

    fn notify(&mut self, waker: Option<&Waker>) {
        self.net.notify(waker);
    }
}
