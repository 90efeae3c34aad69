//! How a blocking call waits: it looks often, then lets other threads run, then sleeps.
//!
//! Of the threads that sleep, one, the *watcher*, sleeps on the transport. The others sleep on a condition that the
//! watcher signals whenever it wakes, because what has come may be theirs. A thread that is awake and takes in
//! what a sleeping one waits for wakes the watcher, too: an operation rings the transport's sleeper at its end if it
//! was tested while a thread slept or was about to, and so does a machine that ends.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};

use crate::error::Error;
use crate::net::{Net, Sleeper};

use super::machine::Machine;
use super::port::{Operations, Port};
use super::shared::{Driver, DriverState};

/// How often a call looks in a turn that spins. In later turns it looks once.
const LOOKS: usize = 64;

/// One blocking call's wait.
pub(crate) struct Waiting<'a, N: Net> {
    driver: &'a Driver<N>,
    turn: u32,
    nap: Option<Nap<'a, N>>,
}

impl<'a, N: Net> Waiting<'a, N> {
    pub(crate) fn new(driver: &'a Driver<N>) -> Self {
        Waiting { driver, turn: 0, nap: None }
    }

    /// How often to look in this turn.
    fn looks(&self) -> usize {
        if self.turn <= self.driver.spins { LOOKS } else { 1 }
    }

    /// To be called after each turn that has found nothing. The turn has made progress.
    pub(crate) fn rest(&mut self) {
        let yields = self.turn.checked_sub(self.driver.spins);
        if yields.is_none_or(|turn| !N::pause(turn)) {
            self.turn = self.turn.saturating_add(1);
            return;
        }
        self.nap = match self.nap.take() {
            // One more turn, of which other threads know that it is the last one before a sleep.
            None => Some(Nap::begin(self.driver)),
            Some(nap) => {
                nap.sleep();
                None
            }
        };
    }
}

/// Makes progress until `look` finds something. `look` is told how often to look.
pub(super) fn wait<N: Net, R>(driver: &Driver<N>, mut look: impl FnMut(usize) -> Option<R>) -> R {
    let mut waiting = Waiting::new(driver);
    loop {
        if let Some(found) = look(waiting.looks()) {
            return found;
        }
        driver.progress();
        waiting.rest();
    }
}

/// A thread that sleeps, or is about to.
struct Nap<'a, N: Net> {
    driver: &'a Driver<N>,
    may_sleep: bool,
    /// How often a watcher had woken before.
    wakes: u64,
}

impl<'a, N: Net> Nap<'a, N> {
    fn begin(driver: &'a Driver<N>) -> Self {
        let mut state = driver.lock();
        state.sleepers.asleep += 1;
        let may_sleep = state.net.arm();
        Nap { driver, may_sleep, wakes: state.sleepers.wakes }
    }

    /// Blocks until something may have come for this thread.
    fn sleep(&self) {
        let Some(sleeper) = self.driver.sleeper.as_ref().filter(|_| self.may_sleep) else { return };
        let mut state = self.driver.lock();
        let sleep_max = state.net.sleep_max();
        if state.sleepers.has_watcher {
            let is_early = |state: &mut DriverState<N>| state.sleepers.wakes == self.wakes;
            let woken = self.driver.woken.wait_timeout_while(state, sleep_max, is_early);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
            return;
        }
        state.sleepers.has_watcher = true;
        drop(state);
        sleeper.sleep(sleep_max);
        let sleepers = &mut self.driver.lock().sleepers;
        sleepers.has_watcher = false;
        sleepers.wakes += 1;
        self.driver.woken.notify_all();
    }
}

impl<N: Net> Drop for Nap<'_, N> {
    fn drop(&mut self) {
        let mut state = self.driver.lock();
        state.sleepers.asleep -= 1;
        if !state.sleepers.any() {
            state.net.disarm();
        }
    }
}

impl<N: Net> Driver<N> {
    /// Steps a machine, and makes progress for all others, until it has ended. Blocks.
    pub(crate) fn run<M: Machine<N>>(&self, mut machine: M) -> Result<M::Output, Error> {
        self.run_with(&mut machine, &mut Operations::default())
    }

    /// As [`run`](Self::run), in the memory of an earlier machine's operations, which have all ended.
    pub(crate) fn run_with<M: Machine<N>>(
        &self,
        machine: &mut M,
        operations: &mut Operations<N>,
    ) -> Result<M::Output, Error> {
        wait(self, |looks| {
            let DriverState { net, ft, .. } = &mut *self.lock();
            (0..looks).find_map(|_| machine.step(&mut Port { net, ft, operations }))
        })
    }

    /// Blocks until all buffered sends have left, and takes their room back: how many bytes that was.
    pub(crate) fn detach_buffer(&self) -> usize {
        wait(self, |_| self.lock().buffered.detach())
    }

    /// Polls a future until it has ended, and makes progress meanwhile. Blocks.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let sleeper = self.sleeper.clone();
        let alarm = Arc::new(Alarm { rung: AtomicBool::new(true), sleeper });
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut waiting = Waiting::new(self);
        loop {
            if alarm.rung.swap(false, Ordering::Acquire) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
                waiting = Waiting::new(self);
            }
            if !self.progress() && !alarm.rung.load(Ordering::Acquire) {
                waiting.rest();
            }
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

/// A thread that makes progress until it is dropped. It keeps its runtime.
pub struct ProgressThread {
    stop: Arc<AtomicBool>,
    sleeper: Option<Arc<dyn Sleeper>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    pub(crate) fn spawn<N: Net>(driver: &Arc<Driver<N>>) -> std::io::Result<Self>
    where
        Driver<N>: Send + Sync,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let (driver, stopped) = (Arc::clone(driver), Arc::clone(&stop));
        let sleeper = driver.sleeper.clone();
        let work = move || {
            let mut waiting = Waiting::new(&driver);
            while !stopped.load(Ordering::Acquire) {
                if driver.progress() {
                    waiting = Waiting::new(&driver);
                } else {
                    waiting.rest();
                }
            }
        };
        let thread = thread::Builder::new().name("tagmatch-comm".into()).spawn(work)?;
        Ok(ProgressThread { stop, sleeper, thread: Some(thread) })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(sleeper) = &self.sleeper {
            sleeper.ring();
        }
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
