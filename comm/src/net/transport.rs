//! The traits of a transport.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tagmatch::{Buffer, Tag};

use super::name::ProcessName;
use super::values::{Arrived, Envelope, Mode, NetError, NetFailed, Pattern, ProcessId};

/// What a thread sleeps on, without a hold on the transport, which others use meanwhile.
pub trait Sleeper: Send + Sync {
    /// Blocks until the transport has something to do, or until it was rung since the last sleep, or until
    /// `max` is over.
    fn sleep(&self, max: Duration);

    /// Ends the sleep that is under way, or else the next one.
    fn ring(&self);
}

/// The processes that one process knows: their numbers and names.
///
/// A transport has this, and parsers of messages that name processes need no more than this.
pub trait Directory {
    /// Processes of the job: numbers 0 to one less.
    fn processes(&self) -> u32;

    /// This process.
    fn own(&self) -> ProcessId;

    /// The name of a process that this one knows.
    fn name(&self, process: ProcessId) -> Option<ProcessName>;

    /// The number of the process of this name: a new one, from [`processes`](Self::processes) on, for one of
    /// another job that this process didn't know. Whoever sends it a message is admitted without this.
    ///
    /// # Errors
    /// No process that can be reached has this name, or [`FOREIGN_MAX`] are known.
    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError>;
}

/// A transport, as one process has it. Nothing of it blocks but [`pause`](Self::pause).
///
/// Messages between two processes are matched in the order in which they were sent. A send that is dropped
/// goes on; a receive that is dropped is cancelled; a matched message that is dropped is discarded, and
/// its sender completes.
pub trait Net: Directory + 'static {
    /// A send under way.
    type Send;
    /// A receive under way.
    type Receive;
    /// A message that a matched probe took.
    type Message;

    /// Sends a message.
    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send;

    /// Sends a copy of a few bytes; there is nothing to wait for.
    ///
    /// # Errors
    /// The process is known to be down.
    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError>;

    /// Receives a message into a buffer.
    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive;

    /// As [`receive`](Self::receive), of a pattern whose tag says who the sender is: no process but the one that
    /// it names sends messages with a tag that it accepts. A transport whose matching compares tags alone may
    /// match it. If another process's message has been matched, the receive ends with
    /// [`NetError::Forged`].
    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        self.receive(pattern, room)
    }

    /// The end of a send, once: its buffer.
    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>>;

    /// The end of a receive, once.
    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>>;

    /// Asks to cancel a receive. Its end tells the outcome: [`NetError::Cancelled`], or a message that was
    /// faster.
    fn cancel(&mut self, receive: &mut Self::Receive);

    /// The oldest waiting message that matches.
    fn probe(&mut self, pattern: Pattern) -> Option<Envelope>;

    /// Takes the oldest waiting message that matches.
    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)>;

    /// Receives a message that a matched probe took.
    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive;

    /// Whether a process is known to be down.
    fn is_down(&self, process: ProcessId) -> bool;

    /// Sees to it that this process learns of another one's end although it has nothing to do with it.
    fn watch(&mut self, process: ProcessId);

    /// Breaks with a process: from now on it is down, for this process at least, and for good.
    fn give_up(&mut self, process: ProcessId);

    /// Processes that are down, of those that this one knows: each once, some time after it became known.
    fn take_down(&mut self) -> Vec<ProcessId>;

    /// Takes in what has come: how many events that were, 0 if there was nothing to do.
    fn progress(&mut self) -> usize;

    /// Turns of a blocking call before it lets others run.
    fn spins(&self) -> u32 {
        0
    }

    /// Called by blocking calls after each further turn in vain, of which `turn` were before: lets others run.
    /// `true`: it has not, since it is time to sleep.
    fn pause(turn: u32) -> bool;

    /// The machine that a process of the own job runs on: those on one have the same number. To be known of all
    /// processes of the job alike. Nothing is asked about those of other jobs, which would number machines
    /// otherwise.
    fn node(&self, process: ProcessId) -> u32 {
        let _ = process;
        0
    }

    /// What blocking calls sleep on. `None`: they never do.
    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        None
    }

    /// The longest that a blocking call sleeps without progress, if nothing rings.
    fn sleep_max(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Asks that the sleeper be rung at the next event, and at the end of each operation that is tested from
    /// now on, whoever makes progress then. `false`: there is something to do already.
    fn arm(&mut self) -> bool {
        false
    }

    /// Nobody sleeps any more.
    fn disarm(&mut self) {}

    /// Whom operations that are tested from now on wake at their end, instead of the sleeper.
    fn notify(&mut self, waker: Option<&Waker>) {
        let _ = waker;
    }
}
