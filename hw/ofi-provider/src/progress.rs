//! The thread that makes a domain's progress (`FI_PROGRESS_AUTO`, fi_domain(3)).
//!
//! A domain has this thread only if the program has opened it so. The thread and the program's
//! calls take turns by the domain's lock. The thread never waits for that lock: if a call has it,
//! the thread tries again. So a call waits for at most one turn, and fork(2), which waits for the
//! end of a turn, never waits for a call.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tagmatch_ofi_sys::calls::{Errno, Result, enter};
use tagmatch_os::between_forks::between_forks;
use tagmatch_os::signals::AllSignalsBlocked;
use tagmatch_os::sleep::sleep_until_readable;

use crate::objects::Waiter;

/// The sleep while calls of the program make progress.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest sleep, after which the thread looks again.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// Turns without a sleep, after which the thread pauses: others want the processor.
const TURNS_MAX: u32 = 256;

/// When the progress thread has its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// Now: there is more to do.
    Now,
    /// When the descriptor is readable.
    AtEvent,
    /// After a while: calls of the program make progress, or nothing would wake the thread.
    Later,
}

/// A domain's progress thread.
pub(crate) struct DomainThread {
    shared: Arc<TurnControl>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the thread. A forked child has no such thread.
    process: u32,
}

/// What the thread and those who stop it know.
struct TurnControl {
    waiter: Arc<Waiter>,
    is_stopped: AtomicBool,
    /// The thread is in a turn, or about to begin one.
    is_turning: AtomicBool,
}

impl DomainThread {
    /// Starts the thread. It sleeps on the waiter, and waits in a turn for no other thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        waiter: Arc<Waiter>,
        turn: impl FnMut() -> NextTurn + Send + 'static,
    ) -> Result<Self> {
        let is_stopped = AtomicBool::new(false);
        let shared =
            Arc::new(TurnControl { waiter, is_stopped, is_turning: AtomicBool::new(false) });
        let of_thread = shared.clone();
        // The program's signal handlers run on the program's threads.
        let _blocked = AllSignalsBlocked::new();
        let thread = std::thread::Builder::new()
            .name("tagmatch-auto".into())
            .spawn(move || of_thread.run(turn))
            .map_err(|_| Errno::NO_MEMORY)?;
        let thread = Mutex::new(Some(thread));
        Ok(DomainThread { shared, thread, process: std::process::id() })
    }

    /// The thread has no turn after this call.
    pub(crate) fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.shared.waiter.wake();
        while self.shared.is_turning.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Waits until the thread, which was stopped, has ended.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process != std::process::id() {
            std::mem::forget(thread);
        } else if let Some(thread) = thread {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl TurnControl {
    /// The work of the thread, until it is stopped.
    fn run(&self, mut turn: impl FnMut() -> NextTurn) {
        let mut turns = 0;
        while !self.is_stopped.load(Ordering::SeqCst) {
            self.waiter.clear();
            match between_forks(|| self.turn(&mut turn)) {
                NextTurn::AtEvent => {
                    turns = 0;
                    // An error would repeat at once: the next turn is as good as a sleep.
                    let _ = sleep_until_readable(&[self.waiter.as_fd()], SLEEP_MAX);
                }
                NextTurn::Now if turns < TURNS_MAX => {
                    turns += 1;
                    std::thread::yield_now();
                }
                NextTurn::Now | NextTurn::Later => {
                    turns = 0;
                    let _ = sleep_until_readable(&[self.waiter.wakes()], PAUSE);
                }
            }
        }
    }

    fn turn(&self, turn: &mut impl FnMut() -> NextTurn) -> NextTurn {
        self.is_turning.store(true, Ordering::SeqCst);
        let mut next = NextTurn::Later;
        if !self.is_stopped.load(Ordering::SeqCst) {
            let _: c_int = enter(|| {
                next = turn();
                Ok(())
            });
        }
        self.is_turning.store(false, Ordering::SeqCst);
        next
    }
}
