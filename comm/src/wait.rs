//! How blocking calls wait: they look often, then let others run, then sleep.
//!
//! Of the threads that sleep, one, the *watcher*, sleeps on what the transport rings; the others on a
//! condition that it signals whenever it wakes, for what has come may be theirs. Whoever is awake meanwhile
//! and takes in what a sleeper waits for rings too: operations do so at their end, if they were tested while
//! somebody slept or was about to, and so does a machine that ends.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};

use crate::net::{Net, Sleeper};
use crate::runtime::{Runtime, Shared};

/// Looks in a row while a wait is young, before others have their turn.
const LOOKS: usize = 64;
/// Turns of that many looks. Then there is one in each.
const YOUNG: u32 = 8;

/// One blocking call's wait.
pub(crate) struct Waiting<'a, N: Net> {
    shared: &'a Shared<N>,
    turn: u32,
    nap: Option<Nap<'a, N>>,
}

impl<'a, N: Net> Waiting<'a, N> {
    pub(crate) fn new(shared: &'a Shared<N>) -> Self {
        Waiting { shared, turn: 0, nap: None }
    }

    /// How often to look in this turn.
    pub(crate) fn looks(&self) -> usize {
        if self.turn < YOUNG { LOOKS } else { 1 }
    }

    /// Called after each turn in vain, which has made progress.
    pub(crate) fn rest(&mut self) {
        if !N::pause(self.turn) {
            self.turn = self.turn.saturating_add(1);
            return;
        }
        self.nap = match self.nap.take() {
            // One turn more, of which others know that it is the last before a sleep.
            None => Some(self.shared.lie_down()),
            Some(nap) => {
                nap.sleep();
                None
            }
        };
    }
}

/// A thread that sleeps, or is about to.
struct Nap<'a, N: Net> {
    shared: &'a Shared<N>,
    may_sleep: bool,
    /// How often a watcher had woken before.
    wakes: u64,
}

/// Threads that sleep, as their runtime knows them.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    asleep: usize,
    has_watcher: bool,
    wakes: u64,
}

impl Sleepers {
    pub(crate) fn any(&self) -> bool {
        self.asleep > 0
    }
}

impl<N: Net> Shared<N> {
    fn lie_down(&self) -> Nap<'_, N> {
        let mut state = self.lock();
        state.sleepers.asleep += 1;
        let may_sleep = state.net.arm();
        Nap { shared: self, may_sleep, wakes: state.sleepers.wakes }
    }
}

impl<N: Net> Nap<'_, N> {
    /// Blocks until something may have come for this thread.
    fn sleep(&self) {
        let Some(sleeper) = self.shared.sleeper.as_ref().filter(|_| self.may_sleep) else { return };
        let mut state = self.shared.lock();
        let sleep_max = state.net.sleep_max();
        if state.sleepers.has_watcher {
            let is_early =
                |state: &mut crate::runtime::State<N>| state.sleepers.wakes == self.wakes;
            let woken = self.shared.woken.wait_timeout_while(state, sleep_max, is_early);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
            return;
        }
        state.sleepers.has_watcher = true;
        drop(state);
        sleeper.sleep(sleep_max);
        let sleepers = &mut self.shared.lock().sleepers;
        sleepers.has_watcher = false;
        sleepers.wakes += 1;
        self.shared.woken.notify_all();
    }
}

impl<N: Net> Drop for Nap<'_, N> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sleepers.asleep -= 1;
        if !state.sleepers.any() {
            state.net.disarm();
        }
    }
}

/// Woken by what a future waits for.
struct Alarm {
    rung: AtomicBool,
    sleeper: Option<Arc<dyn Sleeper>>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        if let Some(sleeper) = &self.sleeper {
            sleeper.ring();
        }
    }
}

impl<N: Net> Runtime<N> {
    /// Runs a future to its end on this thread, and makes progress meanwhile; it sleeps while there is nothing
    /// to do. The future may use many requests at once. Blocks.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let sleeper = self.0.sleeper.clone();
        let alarm = Arc::new(Alarm { rung: AtomicBool::new(true), sleeper });
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut waiting = Waiting::new(&self.0);
        loop {
            if alarm.rung.swap(false, Ordering::Acquire) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
                waiting = Waiting::new(&self.0);
            }
            if !self.0.progress() && !alarm.rung.load(Ordering::Acquire) {
                waiting.rest();
            }
        }
    }
}

impl<N: Net + Send> Runtime<N>
where
    Shared<N>: Send + Sync,
{
    /// A thread that makes progress until it is dropped, asleep while there is nothing to do: futures on any
    /// executor need it, and whoever computes for long while others wait for what is under way.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn progress_thread(&self) -> std::io::Result<ProgressThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (runtime, stopped) = (self.clone(), Arc::clone(&stop));
        let work = move || {
            let mut waiting = Waiting::new(&runtime.0);
            while !stopped.load(Ordering::Acquire) {
                if runtime.0.progress() {
                    waiting = Waiting::new(&runtime.0);
                } else {
                    waiting.rest();
                }
            }
        };
        let thread = thread::Builder::new().name("tagmatch-comm".into()).spawn(work)?;
        let sleeper = self.0.sleeper.clone();
        Ok(ProgressThread { stop, sleeper, thread: Some(thread) })
    }
}

/// A thread that makes progress until it is dropped. It keeps its runtime.
pub struct ProgressThread {
    stop: Arc<AtomicBool>,
    sleeper: Option<Arc<dyn Sleeper>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(sleeper) = &self.sleeper {
            sleeper.ring();
        }
        if let Some(thread) = self.thread.take() {
            // Whatever panicked in it has been said.
            let _ = thread.join();
        }
    }
}
