//! A transport around another one that is slow where a transport may be slow. A mistake that shows
//! only sometimes between real threads shows each time on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tagmatch::{Buffer, WaitPolicy};
use tagmatch_comm::forward_net;
use tagmatch_comm::net::{Arrived, Directory, Envelope, Net, NetFailed, Pattern, Sleeper};

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
    /// At each call of progress.
    Always,
    /// Only after the transport has refused two sleeps.
    AfterTwoRefusals,
}

/// The parts of a transport that are slow.
#[derive(Clone, Copy)]
pub(crate) struct Slowness {
    /// The end of a posted receive is reported only after the receive was cancelled.
    pub(crate) hides_ends: bool,
    /// A message of at least this many bytes that a matched probe took is complete only at the
    /// third test.
    pub(crate) late_from: u64,
    pub(crate) moves: Moves,
    /// The longest sleep of a thread without a ring.
    pub(crate) sleep_max: Duration,
}

pub(crate) struct Slow<N> {
    net: N,
    slowness: Slowness,
    sleeps: Arc<Sleeps>,
    /// How often the transport has made progress, or had nothing to do. Not counted with
    /// [`Moves::Always`].
    moved: u32,
}

/// The state of the sleeps of the one thread that uses a transport.
#[derive(Default)]
struct Sleeps {
    /// The number of sleeps that were refused since the last progress or sleep.
    refused: AtomicU32,
    /// Whether a sleep was prepared, and no operation was tested since.
    is_unseen: AtomicBool,
}

impl<N> Slow<N> {
    pub(crate) fn new(net: N, slowness: Slowness) -> Self {
        Slow { net, slowness, sleeps: Arc::default(), moved: 0 }
    }
}

/// The sleeper of a transport that one thread uses. A sleep must not begin if it was refused. It
/// must not begin either before the thread has tested its operations once more: another thread may
/// have handled the event that this thread waits for, just before the sleep was prepared.
struct Strict {
    sleeper: Arc<dyn Sleeper>,
    sleeps: Arc<Sleeps>,
}

impl Sleeper for Strict {
    fn sleep(&self, max: Duration) {
        let Sleeps { refused, is_unseen } = &*self.sleeps;
        assert_eq!(refused.load(Ordering::SeqCst), 0, "there was something to do");
        assert!(!is_unseen.load(Ordering::SeqCst), "no look since the sleep was prepared");
        self.sleeper.sleep(max);
    }

    fn ring(&self) {
        self.sleeper.ring();
    }
}

/// A receive.
pub(crate) struct Hidden<N: Net> {
    receive: N::Receive,
    hides_end: bool,
    /// The number of tests that still find the receive incomplete.
    late: u32,
    /// The value of [`Slow::moved`] when it was posted.
    posted_at: u32,
}

impl<N: Net> Directory for Slow<N> {
    forward_net!(net: processes, own, name, admit);
}

impl<N: Net> Net for Slow<N> {
    type Send = N::Send;
    type Receive = Hidden<N>;
    type Message = (N::Message, u64);

    forward_net!(net: send, inject, test_send, probe, is_down, watch, give_up, take_down);
    forward_net!(net: free_tag_bits, has_left, failure, node, disarm, notify);

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        let hides_end = self.slowness.hides_ends;
        let posted_at = self.moved;
        Hidden { receive: self.net.receive(pattern, room), hides_end, late: 0, posted_at }
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        self.sleeps.is_unseen.store(false, Ordering::SeqCst);
        // A test of the transport beneath makes progress.
        let has_moved = self.slowness.moves == Moves::Always || self.moved > receive.posted_at;
        if receive.hides_end || receive.late > 0 || !has_moved {
            receive.late = receive.late.saturating_sub(1);
            return None;
        }
        self.net.test_receive(&mut receive.receive)
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        receive.hides_end = false;
        self.net.cancel(&mut receive.receive);
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        if self.slowness.moves != Moves::Always {
            // A probe of the transport beneath makes progress.
            return None;
        }
        let (message, envelope) = self.net.matched_probe(pattern)?;
        Some(((message, envelope.length), envelope))
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        let (message, length) = message;
        let late = if length < self.slowness.late_from { 0 } else { 2 };
        let receive = self.net.receive_message(message, room);
        Hidden { receive, hides_end: false, late, posted_at: self.moved }
    }

    fn progress(&mut self) -> usize {
        let refused = &self.sleeps.refused;
        if self.slowness.moves == Moves::AfterTwoRefusals && refused.load(Ordering::SeqCst) < 2 {
            return 0;
        }
        refused.store(0, Ordering::SeqCst);
        self.moved += 1;
        self.net.progress()
    }

    /// A few turns, however long a yield takes.
    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::SLEEP.spin(0).yields(4)
    }

    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        let sleeper = self.net.sleeper()?;
        if self.slowness.moves != Moves::AfterTwoRefusals {
            return Some(sleeper);
        }
        Some(Arc::new(Strict { sleeper, sleeps: Arc::clone(&self.sleeps) }))
    }

    fn sleep_max(&self) -> Duration {
        self.slowness.sleep_max
    }

    fn arm(&mut self) -> bool {
        let may_sleep = self.net.arm();
        let Sleeps { refused, is_unseen } = &*self.sleeps;
        if may_sleep {
            refused.store(0, Ordering::SeqCst);
            self.moved += 1;
        } else {
            refused.fetch_add(1, Ordering::SeqCst);
        }
        is_unseen.store(may_sleep, Ordering::SeqCst);
        may_sleep
    }
}
