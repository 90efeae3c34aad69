//! The traits of a transport.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tagmatch::{Buffer, Tag, TagMask, WaitPolicy, safety};

use crate::net_values::{Arrived, Envelope, Mode, NetError, NetFailed, Pattern};
use crate::net_values::{ProcessId, ProcessName};

/// See [`Net::watch_after`].
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// Where a thread sleeps. It doesn't borrow the transport, so that other threads can use the
/// transport meanwhile.
pub trait Sleeper: Send + Sync {
    /// Blocks until the transport has something to do, until [`ring`](Self::ring) was called since
    /// the last sleep, or for `max`.
    fn sleep(&self, max: Duration);

    /// Ends the current sleep. If no thread sleeps, the next sleep ends at once.
    fn ring(&self);
}

/// The processes that one process knows: their numbers and names.
///
/// A transport has this, and parsers of messages that name processes need no more than this.
pub trait Directory {
    /// Number of processes of the job. Their numbers start at 0.
    fn processes(&self) -> u32;

    /// This process.
    fn own(&self) -> ProcessId;

    /// The name of a process; `None` if this process doesn't know the number.
    fn name(&self, process: ProcessId) -> Option<ProcessName>;

    /// The number of the process with this name. A process of another job that this process didn't
    /// know gets a new number, from [`processes`](Self::processes) on. A process that sends a
    /// message to this one is admitted anyway.
    ///
    /// # Errors
    /// No process that can be reached has this name, or [`FOREIGN_MAX`](super::FOREIGN_MAX)
    /// processes of other jobs are known already.
    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError>;
}

/// A transport, as one process uses it. Only [`pause`](Self::pause) may block.
///
/// A method has a default only if a transport around another one stays right with it, should it not
/// forward the call.
///
/// Messages between two processes are matched in the order in which they were sent. A send that is
/// dropped goes on. A receive that is dropped is cancelled. A message that a matched probe took is
/// discarded when it is dropped, and its send completes.
pub trait Net: Directory + 'static {
    /// A pending send.
    type Send;
    /// A pending receive.
    type Receive;
    /// A message that a matched probe took.
    type Message;

    /// The bits of a tag that a sender chooses, and the values that the other bits must have. Where
    /// these depend on settings, processes with other settings must not be connected. A transport
    /// whose tags have all bits returns [`TagMask::EXACT`] and `Tag(0)`.
    fn free_tag_bits(&self) -> (TagMask, Tag);

    /// Sends a message.
    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send;

    /// Sends a copy of a few bytes. The caller has nothing to wait for.
    ///
    /// # Errors
    /// The process is known to be down.
    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError>;

    /// Receives a message into a buffer.
    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive;

    /// As [`receive`](Self::receive), for a pattern that only one process matches: no process but
    /// `from` sends messages with a tag that the pattern accepts. So a NIC that compares tags alone
    /// may match the receive. If it was matched with a message of another process, the receive ends
    /// with [`NetError::Forged`].
    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        self.receive(pattern, room)
    }

    /// The result of a send that is complete: its buffer. The result can be taken once.
    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>>;

    /// The result of a receive that is complete. The result can be taken once.
    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>>;

    /// Asks to cancel a receive. The receive's result says what happened: [`NetError::Cancelled`],
    /// or a message that matched it before.
    fn cancel(&mut self, receive: &mut Self::Receive);

    /// The envelope of the oldest unexpected message that matches.
    fn probe(&mut self, pattern: Pattern) -> Option<Envelope>;

    /// Takes the oldest unexpected message that matches.
    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)>;

    /// Receives a message that a matched probe took.
    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive;

    /// Whether a process is known to be down.
    fn is_down(&self, process: ProcessId) -> bool;

    /// Makes this process learn of another one's death even if they exchange no messages.
    fn watch(&mut self, process: ProcessId);

    /// How long an operation waits in shared memory for a process, at least, before it
    /// [watches](Self::watch) that process, which may cost a connection. Most waits are shorter, so
    /// few of the processes of a machine need be connected. Default: 100 ms.
    fn watch_after(&self) -> Duration {
        WATCH_AFTER
    }

    /// Whether a process that is down has left in order: it has closed its transport, and was
    /// neither lost nor given up. `false` where this isn't known.
    fn has_left(&self, process: ProcessId) -> bool;

    /// Gives up a process. From now on it is down, at least for this process, and stays down.
    fn give_up(&mut self, process: ProcessId);

    /// Processes that this one knows and that have gone down. Each is reported once, some time
    /// after it is known to be down.
    fn take_down(&mut self) -> Vec<ProcessId>;

    /// Why this process can take no part in its job any more, if it can't: it lacks what a
    /// connection to another process of the job needs, or there is no way to that one. Once this is
    /// some text, the process gives up all others, and its operations end with
    /// [`Error::CountedOut`](crate::Error::CountedOut).
    fn failure(&self) -> Option<String>;

    /// Handles events that have arrived, and returns their number: 0 if there was nothing to do.
    fn progress(&mut self) -> usize;

    /// How a blocking call waits: how often it polls, then how often it calls
    /// [`pause`](Self::pause) before a poll, and whether it sleeps then. Asked once, when the
    /// process joins the job. Default: no poll without a pause, and 200 pauses before the sleep.
    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::SLEEP.spin(0).yields(200)
    }

    /// Lets other threads run. Default: yields the processor.
    fn pause() {
        thread::yield_now();
    }

    /// The number of the machine that a process of this job runs on. All processes of the job must
    /// give the same numbers. Processes of other jobs are not asked for, since each job numbers
    /// machines in its own way.
    fn node(&self, process: ProcessId) -> u32 {
        let _ = process;
        0
    }

    /// Whether processes on one machine may map memory together, for collective operations. All
    /// processes of the job must give the same answer.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Where blocking calls sleep. `None`: they never sleep.
    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        None
    }

    /// The longest time that a blocking call sleeps before it makes progress again. Default:
    /// 100 ms, as a precaution: [`arm`](Self::arm) promises that all events ring the sleeper.
    fn sleep_max(&self) -> Duration {
        safety::sleep_max(Duration::from_millis(100))
    }

    /// Makes the next event ring the sleeper, and the end of each operation that is tested from now
    /// on, whichever thread makes progress then. `false`: there is something to do already, and the
    /// caller must not sleep. A thread calls this once more just before it sleeps, since what it
    /// has begun meanwhile may need polls.
    fn arm(&mut self) -> bool {
        false
    }

    /// A number that changes with each message that has come and that no receive has taken,
    /// whichever call has taken it in. A thread that sleeps looks for messages first: one that
    /// comes in a later call than that rings no sleeper.
    fn arrived(&self) -> u64 {
        0
    }

    /// Whether a message that no receive takes always ends a sleep that began before it was there.
    /// `false`: another thread's progress or a call of the transport may take it in without a sign,
    /// so a blocking probe looks for it again and again. Default: `false`.
    fn reports_messages(&self) -> bool {
        false
    }

    /// Undoes [`arm`](Self::arm): no thread sleeps any more.
    fn disarm(&mut self) {}

    /// Sets the waker that operations tested from now on wake when they end; `None`: they ring the
    /// sleeper.
    fn notify(&mut self, waker: Option<&Waker>) {
        let _ = waker;
    }
}
