//! A transport around another one that may be slow, refuse messages, or lie. It is one type
//! for all of this, and the one that all tests on the simulated network use: for each type of
//! transport the whole crate is compiled once more.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tagmatch::{Buffer, Tag, WaitPolicy};
use tagmatch_comm::forward_net;
use tagmatch_comm::net::{Arrived, Directory, Envelope, Mode, Net, NetError, NetFailed, Pattern};
use tagmatch_comm::net::{ProcessId, ProcessName, Sleeper};

/// When the transport makes progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// At each call of progress.
    Always,
    /// Only after the transport has refused two sleeps.
    AfterTwoRefusals,
}

/// The messages that the transport refuses, for a reason of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refused {
    /// The control messages of the service for failures.
    Control,
    /// All others.
    Data,
    All,
    /// Long ones of the program.
    Long,
    /// The control messages of the service for failures, when they are received.
    Received,
}

/// The text of the error of a refused message.
pub(crate) const WHY: &str = "no room on the card";

/// How the process 2 lies.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lie {
    /// It says that it is the process 3.
    Name,
    /// It says that its group comes first, or doesn't, as the other group says of itself.
    Side,
}

/// How the transport differs from the one beneath.
#[derive(Clone, Copy)]
pub(crate) struct Changes {
    /// The end of a posted receive is reported only after the receive was cancelled.
    pub(crate) hides_ends: bool,
    /// A message of at least this many bytes that a matched probe took is complete only at the
    /// third test.
    pub(crate) late_from: u64,
    pub(crate) moves: Moves,
    /// The longest sleep of a thread without a ring.
    pub(crate) sleep_max: Option<Duration>,
    /// Collective operations never go through shared memory.
    pub(crate) shares_nothing: bool,
    /// Which messages are refused, after so many others of this kind.
    pub(crate) refuses: Option<(Refused, u32)>,
    pub(crate) lie: Option<Lie>,
}

impl Changes {
    /// As the transport beneath.
    pub(crate) const NONE: Changes = Changes {
        hides_ends: false,
        late_from: u64::MAX,
        moves: Moves::Always,
        sleep_max: None,
        shares_nothing: false,
        refuses: None,
        lie: None,
    };
}

pub(crate) struct Altered<N> {
    net: N,
    changes: Changes,
    /// The number of messages before the first one that is refused.
    left: Cell<u32>,
    sleeps: Arc<Sleeps>,
    /// How often the transport has made progress, or had nothing to do. Not counted with
    /// [`Moves::Always`].
    moved: u32,
    /// Whether a sleep was prepared, and the thread has not woken from it.
    is_armed: bool,
}

/// The state of the sleeps of the one thread that uses a transport.
#[derive(Default)]
struct Sleeps {
    /// The number of sleeps that were refused since the last progress or sleep.
    refused: AtomicU32,
    /// Whether a sleep was prepared, and no operation was tested since.
    is_unseen: AtomicBool,
    /// Whether a sleep was prepared once more.
    is_prepared_again: AtomicBool,
}

/// The sleeper of a transport that one thread uses. A sleep must not begin if it was refused. It
/// must not begin either before the thread has tested its operations once more: another thread may
/// have handled the event that this thread waits for, just before the sleep was prepared. And the
/// sleep is prepared once more after that test, which may have begun something that needs polls.
struct Strict {
    sleeper: Arc<dyn Sleeper>,
    sleeps: Arc<Sleeps>,
}

impl Sleeper for Strict {
    fn sleep(&self, max: Duration) {
        let Sleeps { refused, is_unseen, is_prepared_again } = &*self.sleeps;
        assert_eq!(refused.load(Ordering::SeqCst), 0, "there was something to do");
        assert!(!is_unseen.load(Ordering::SeqCst), "no look since the sleep was prepared");
        assert!(is_prepared_again.load(Ordering::SeqCst), "the sleep was prepared before the look");
        self.sleeper.sleep(max);
    }

    fn ring(&self) {
        self.sleeper.ring();
    }
}

/// A receive.
pub(crate) struct AlteredReceive<N: Net> {
    receive: N::Receive,
    hides_end: bool,
    /// The number of tests that still find the receive incomplete.
    late: u32,
    /// The value of [`Altered::moved`] when it was posted.
    posted_at: u32,
    /// Whether it fails when it ends.
    fails: bool,
}

/// A message that a matched probe took.
pub(crate) struct AlteredMessage<N: Net> {
    message: N::Message,
    envelope: Envelope,
}

/// Whether a message is of the service for failures. In these networks all bits of its tag are set.
fn is_control(tag: Tag) -> bool {
    tag.0 == u64::MAX
}

impl<N: Net> Altered<N> {
    pub(crate) fn new(net: N, changes: Changes) -> Self {
        let left = Cell::new(changes.refuses.map_or(0, |(_, left)| left));
        Altered { net, changes, left, sleeps: Arc::default(), moved: 0, is_armed: false }
    }

    fn posted(&self, receive: N::Receive, hides_end: bool) -> AlteredReceive<N> {
        AlteredReceive { receive, hides_end, late: 0, posted_at: self.moved, fails: false }
    }

    /// An error if the message is of the kind that is refused.
    fn refuse(&self, is_of: impl Fn(Refused) -> bool) -> Result<(), NetError> {
        let is_concerned = self.changes.refuses.is_some_and(|(kind, _)| is_of(kind));
        if is_concerned && self.left.replace(self.left.get().saturating_sub(1)) == 0 {
            return Err(NetError::Other(WHY.to_owned()));
        }
        Ok(())
    }

    fn refuse_send(&self, tag: Tag, is_long: bool) -> Result<(), NetError> {
        self.refuse(|kind| match kind {
            Refused::Control => is_control(tag),
            Refused::Data => !is_control(tag),
            Refused::All => true,
            Refused::Long => is_long && !is_control(tag),
            Refused::Received => false,
        })
    }

    /// Whether this process tells a lie of this kind.
    fn lies(&self, lie: Lie) -> bool {
        self.changes.lie == Some(lie) && self.net.own() == ProcessId(2)
    }
}

impl<N: Net> Directory for Altered<N> {
    forward_net!(net: processes, own, admit);

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        let is_lie = process == ProcessId(2) && self.lies(Lie::Name);
        self.net.name(if is_lie { ProcessId(3) } else { process })
    }
}

impl<N: Net> Net for Altered<N> {
    /// A send, or the error with which it ends.
    type Send = Result<N::Send, Option<NetFailed>>;
    type Receive = AlteredReceive<N>;
    type Message = AlteredMessage<N>;

    forward_net!(net: probe, is_down, watch, watch_after, give_up, take_down, pause, node);
    forward_net!(net: free_tag_bits, has_left, failure, notify);

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send {
        match self.refuse_send(tag, true) {
            Ok(()) => Ok(self.net.send(to, tag, data, mode)),
            Err(error) => Err(Some(NetFailed { error, buffer: data })),
        }
    }

    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>> {
        match send {
            Ok(send) => self.net.test_send(send),
            Err(refused) => refused.take().map(Err),
        }
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        self.refuse_send(tag, false)?;
        // The head of a description has seven words, and the sixth one is the side.
        let is_head = to == ProcessId(0) && data.len() == 7 * 4;
        if is_head && self.lies(Lie::Side) {
            let mut bytes = data.to_vec();
            bytes[5 * 4] ^= 1;
            return self.net.inject(to, tag, &bytes);
        }
        self.net.inject(to, tag, data)
    }

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        let receive = self.net.receive(pattern, room);
        self.posted(receive, self.changes.hides_ends)
    }

    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        let receive = self.net.receive_by_tag(pattern, room);
        self.posted(receive, self.changes.hides_ends)
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        self.sleeps.is_unseen.store(false, Ordering::SeqCst);
        // A test of the transport beneath makes progress.
        let has_moved = self.changes.moves == Moves::Always || self.moved > receive.posted_at;
        if receive.hides_end || receive.late > 0 || !has_moved {
            receive.late = receive.late.saturating_sub(1);
            return None;
        }
        let ended = self.net.test_receive(&mut receive.receive)?;
        Some(match ended {
            Ok(Arrived { buffer, .. }) if receive.fails => {
                Err(NetFailed { error: NetError::Other(WHY.to_owned()), buffer })
            }
            ended => ended,
        })
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        receive.hides_end = false;
        self.net.cancel(&mut receive.receive);
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        if self.changes.moves != Moves::Always {
            // A probe of the transport beneath makes progress.
            return None;
        }
        let (message, envelope) = self.net.matched_probe(pattern)?;
        Some((AlteredMessage { message, envelope }, envelope))
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        let AlteredMessage { message, envelope } = message;
        let is_control = is_control(envelope.tag);
        let fails = self.refuse(|kind| kind == Refused::Received && is_control).is_err();
        let late = if envelope.length < self.changes.late_from { 0 } else { 2 };
        let receive = self.net.receive_message(message, room);
        AlteredReceive { late, fails, ..self.posted(receive, false) }
    }

    fn progress(&mut self) -> usize {
        let refused = &self.sleeps.refused;
        if self.changes.moves == Moves::AfterTwoRefusals && refused.load(Ordering::SeqCst) < 2 {
            return 0;
        }
        refused.store(0, Ordering::SeqCst);
        self.moved = self.moved.wrapping_add(1);
        self.net.progress()
    }

    /// A few turns, however long a yield takes, where threads sleep.
    fn wait_policy(&self) -> WaitPolicy {
        let policy = self.net.wait_policy();
        if self.net.sleeper().is_some() { WaitPolicy::SLEEP.spin(0).yields(4) } else { policy }
    }

    fn shares_memory(&self) -> bool {
        !self.changes.shares_nothing && self.net.shares_memory()
    }

    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        let sleeper = self.net.sleeper()?;
        if self.changes.moves != Moves::AfterTwoRefusals {
            return Some(sleeper);
        }
        Some(Arc::new(Strict { sleeper, sleeps: Arc::clone(&self.sleeps) }))
    }

    fn sleep_max(&self) -> Duration {
        self.changes.sleep_max.unwrap_or_else(|| self.net.sleep_max())
    }

    fn arm(&mut self) -> bool {
        let may_sleep = self.net.arm();
        let Sleeps { refused, is_unseen, is_prepared_again } = &*self.sleeps;
        if may_sleep {
            refused.store(0, Ordering::SeqCst);
            self.moved = self.moved.wrapping_add(1);
        } else {
            refused.fetch_add(1, Ordering::SeqCst);
        }
        // The thread may prepare the sleep again after it has looked.
        let was_armed = std::mem::replace(&mut self.is_armed, may_sleep);
        is_prepared_again.store(was_armed, Ordering::SeqCst);
        if !was_armed {
            is_unseen.store(may_sleep, Ordering::SeqCst);
        }
        may_sleep
    }

    fn disarm(&mut self) {
        self.is_armed = false;
        self.net.disarm();
    }
}
