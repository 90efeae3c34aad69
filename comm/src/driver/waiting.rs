//! The wait of a blocking call: it polls, then yields to other threads, then sleeps.
//!
//! Of the threads that sleep, one, the *watcher*, sleeps on the transport. The others sleep on a
//! condition variable. The watcher signals it whenever it wakes, because the event may be for one
//! of them. A thread that is awake may handle the event that a sleeping thread waits for, and then
//! wakes the watcher, too: an operation that was tested while a thread slept or was about to sleep
//! rings the transport's sleeper when it ends, and so does a machine that ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use std::{io, mem};

use tagmatch::safety::LongSleep;
use tagmatch::{ProgressThread, WaitPlan};

use super::machine::{Machine, step};
use super::machine_io::{MachineIo, Operations};
use super::shared::{Driver, DriverState};
use crate::error::Error;
use crate::net::{Net, Sleeper};

/// How often a call polls in a turn that doesn't yield, at most. In later turns it polls once.
const LOOKS: u32 = 64;

/// The shortest and the longest sleep while a machine waits for something that wakes no thread.
/// Each sleep of one wait is twice as long as the one before.
const POLLED_SLEEP: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

/// One blocking call's wait.
pub(crate) struct Waiting<'a, N: Net> {
    driver: &'a Driver<N>,
    /// The polls and yields before the sleep.
    plan: WaitPlan<'a>,
    polls: u32,
    yields: u32,
    nap: Option<Nap<'a, N>>,
    /// The longest next sleep while this call or a machine waits for something that wakes no
    /// thread.
    polled_sleep: Duration,
    /// See [`poll_soon`](Self::poll_soon).
    is_polled: bool,
    /// The last sleep, if nothing ended it but its time.
    long_sleep: Option<LongSleep>,
}

impl<'a, N: Net> Waiting<'a, N> {
    pub(crate) fn new(driver: &'a Driver<N>) -> Self {
        let plan = WaitPlan::new(&driver.wait_policy, &driver.crowding);
        let polled_sleep = POLLED_SLEEP[0];
        let nap = None;
        let is_polled = false;
        let long_sleep = None;
        Waiting { driver, plan, polls: 0, yields: 0, nap, polled_sleep, is_polled, long_sleep }
    }

    /// This call waits for something that wakes no sleeping thread: its next sleep is short.
    pub(crate) fn poll_soon(&mut self) {
        self.is_polled = true;
    }

    /// How often to poll in this turn.
    pub(crate) fn looks(&self) -> u32 {
        self.plan.spin.saturating_sub(self.polls).clamp(1, LOOKS)
    }

    /// Whether the turn after a sleep has found something. If only the end of its time had ended
    /// the sleep, a wake-up was lost.
    fn has_found(&mut self, has_found: bool) {
        if let Some(long_sleep) = self.long_sleep.take() {
            long_sleep.looked(has_found, || "a blocking call of a communicator".to_owned());
        }
    }

    /// Spins, yields or sleeps. To be called after each turn that has made progress and found no
    /// result.
    pub(crate) fn rest(&mut self) {
        self.polls = self.polls.saturating_add(LOOKS);
        if self.polls < self.plan.spin {
            // If another thread wants the processor, this wait hardly polls any more.
            self.plan.gives_way_after(self.polls);
            return;
        }
        if self.yields < self.plan.yields || !self.driver.wait_policy.sleep {
            self.yields = self.yields.saturating_add(1);
            self.plan.yield_by(N::pause);
            return;
        }
        self.nap = match self.nap.take() {
            // One more turn before the sleep. Other threads know from now on that this one is about
            // to sleep.
            None => Some(Nap::begin(self.driver)),
            Some(nap) => {
                let is_polled = mem::take(&mut self.is_polled);
                self.long_sleep = nap.sleep(self.polled_sleep, is_polled);
                self.polled_sleep = (2 * self.polled_sleep).min(POLLED_SLEEP[1]);
                None
            }
        };
    }
}

/// Makes progress until `look` returns a result. `look` polls [`Waiting::looks`] times.
pub(super) fn wait<N: Net, R>(
    driver: &Driver<N>,
    mut look: impl FnMut(&mut Waiting<'_, N>) -> Option<R>,
) -> R {
    let mut waiting = Waiting::new(driver);
    loop {
        let found = look(&mut waiting);
        let has_found = found.is_some() || driver.progress();
        waiting.has_found(has_found);
        if let Some(found) = found {
            return found;
        }
        waiting.rest();
    }
}

/// A thread that sleeps or is about to sleep.
struct Nap<'a, N: Net> {
    driver: &'a Driver<N>,
    may_sleep: bool,
    /// How often a watcher had woken when this nap began.
    wakes: u64,
}

impl<'a, N: Net> Nap<'a, N> {
    fn begin(driver: &'a Driver<N>) -> Self {
        let mut state = driver.lock();
        state.sleepers.asleep += 1;
        let may_sleep = state.net.arm();
        Nap { driver, may_sleep, wakes: state.sleepers.wakes }
    }

    /// Blocks until there may be an event for this thread, or for `polled_sleep` if this call
    /// (`is_polled`) or a machine waits for something that wakes no thread.
    /// Returns the sleep if it was a long one, and nothing but its time has ended it.
    fn sleep(&self, polled_sleep: Duration, is_polled: bool) -> Option<LongSleep> {
        let sleeper = self.driver.sleeper.as_ref().filter(|_| self.may_sleep)?;
        let is_early = |state: &mut DriverState<N>| state.sleepers.wakes == self.wakes;
        let mut state = self.driver.lock();
        if !is_early(&mut state) {
            // A watcher has woken since this nap began. The event may be for this thread.
            return None;
        }
        if !state.net.arm() {
            // This thread has begun something since then, such as receives for a NIC's list, which
            // polls bring forward.
            return None;
        }
        if state.net.arrived() != state.sleepers.arrived {
            // A call has taken in a message since the service has looked for its own ones.
            return None;
        }
        let sleep_max = state.net.sleep_max();
        let is_polled = state.ft.take_polled() || is_polled;
        let sleep_max = if is_polled { polled_sleep.min(sleep_max) } else { sleep_max };
        let mut long_sleep = LongSleep::begin(sleep_max);
        if state.sleepers.has_watcher {
            let woken = self.driver.woken.wait_timeout_while(state, sleep_max, is_early);
            let (state, result) = woken.unwrap_or_else(PoisonError::into_inner);
            drop(state);
            long_sleep.woken(!result.timed_out());
            return long_sleep.is_over().then_some(long_sleep);
        }
        state.sleepers.has_watcher = true;
        drop(state);
        sleeper.sleep(sleep_max);
        long_sleep.woken(false);
        let sleepers = &mut self.driver.lock().sleepers;
        sleepers.has_watcher = false;
        sleepers.wakes += 1;
        self.driver.woken.notify_all();
        long_sleep.is_over().then_some(long_sleep)
    }
}

impl<N: Net> Drop for Nap<'_, N> {
    fn drop(&mut self) {
        let mut state = self.driver.lock();
        state.sleepers.asleep -= 1;
        if state.sleepers.asleep == 0 {
            state.net.disarm();
        }
    }
}

impl<N: Net> Driver<N> {
    /// Steps a machine, and makes progress for all others, until it has ended. Blocks.
    pub(crate) fn run<M: Machine<N>>(&self, mut machine: M) -> Result<M::Output, Error> {
        self.run_with(&mut machine, &mut Operations::default())
    }

    /// As [`run`](Self::run), with the memory of an earlier machine's operations, which have all
    /// ended.
    pub(crate) fn run_with<M: Machine<N>>(
        &self,
        machine: &mut M,
        operations: &mut Operations<N>,
    ) -> Result<M::Output, Error> {
        wait(self, |waiting| {
            let DriverState { net, ft, .. } = &mut *self.lock();
            let mut io = MachineIo { net, ft, operations };
            let ended = (0..waiting.looks()).find_map(|_| step(machine, &mut io));
            // This thread alone steps the machine: another one's short sleep is not enough.
            if io.ft.take_polled() {
                waiting.poll_soon();
            }
            ended
        })
    }

    /// Blocks until all buffered sends have ended, and detaches their space. Returns its size in
    /// bytes.
    pub(crate) fn detach_buffer(&self) -> usize {
        wait(self, |_| self.lock().buffered.detach())
    }

    fn alarm(&self) -> Arc<Alarm> {
        Arc::new(Alarm { rung: AtomicBool::new(true), sleeper: self.sleeper.clone() })
    }

    /// Polls a future until it is ready, and makes progress meanwhile. Blocks.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let alarm = self.alarm();
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut waiting = Waiting::new(self);
        loop {
            if alarm.rung.swap(false, Ordering::Acquire) {
                waiting.has_found(true);
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
                waiting = Waiting::new(self);
            }
            let has_found = self.progress() || alarm.rung.load(Ordering::Acquire);
            waiting.has_found(has_found);
            if !has_found {
                waiting.rest();
            }
        }
    }

    /// Starts a thread that makes progress. It keeps the driver alive.
    pub(crate) fn progress_thread(self: &Arc<Self>) -> io::Result<ProgressThread>
    where
        Self: Send + Sync,
    {
        let driver = Arc::clone(self);
        ProgressThread::run("tagmatch-comm", Waker::from(self.alarm()), move |is_stopped| {
            let mut waiting = Waiting::new(&driver);
            while !is_stopped() {
                // Wakers run here. If one panics, the panic hook has reported it.
                let has_found =
                    catch_unwind(AssertUnwindSafe(|| driver.progress())).unwrap_or(true);
                waiting.has_found(has_found);
                if has_found {
                    waiting = Waiting::new(&driver);
                } else {
                    waiting.rest();
                }
            }
        })
    }
}

/// The waker of a future that a thread blocks on, or of a progress thread.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::worker::WorkerNet;
    use crate::runtime::{Config, Runtime};

    /// A job of one process.
    fn alone() -> Runtime<WorkerNet> {
        let worker = tagmatch::Worker::new(tagmatch::Config::default()).unwrap();
        let addresses = vec![worker.address()];
        let net = WorkerNet::new(worker, addresses, 0).unwrap();
        Runtime::new(net, Config::default()).unwrap()
    }

    /// Each step but the last one of so many asks for the next.
    struct Stepping(u32);

    impl<N: Net> Machine<N> for Stepping {
        type Output = ();

        fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<(), Error>> {
            self.0 -= 1;
            if self.0 > 0 {
                io.ft.step_again();
                return None;
            }
            Some(Ok(()))
        }
    }

    #[test]
    fn a_thread_does_not_sleep_before_a_step_that_a_machine_has_asked_for() {
        let runtime = alone();
        // More steps than there are polls and yields before a sleep. Nothing else wakes the thread.
        let steps = 2 * (8192 + 200);
        runtime.world().driver().run(Stepping(steps)).unwrap();
    }

    #[test]
    fn a_thread_does_not_sleep_while_a_message_waits_that_the_service_has_not_looked_for() {
        let runtime = alone();
        let world = runtime.world();
        let driver = world.driver();
        while !driver.lock().net.arm() {
            driver.progress();
        }
        let nap = Nap::begin(driver);
        assert!(nap.may_sleep);
        driver.progress();
        {
            let mut state = driver.lock();
            let worker = state.net.worker();
            worker.inject(worker.oneself(), 0, &[1]).unwrap();
            let any = tagmatch::Match::tag(0);
            assert!(worker.probe_timeout(any, Duration::from_secs(20)).unwrap().is_some());
            while !state.net.arm() {
                state.net.progress();
            }
        }
        assert!(nap.sleep(POLLED_SLEEP[0], false).is_none());
        assert_eq!(driver.lock().sleepers.wakes, 0, "it has slept");
    }

    #[test]
    fn waits_hardly_poll_while_other_threads_want_the_processor() {
        // More processors than processes, so that blocking calls poll at first.
        let runtime = alone();
        let world = runtime.world();
        let driver = world.driver();
        assert_eq!(Waiting::new(driver).looks(), LOOKS);
        let calm = Waiting::new(driver).plan.spin;
        driver.crowding.note_switch();
        let crowded = Waiting::new(driver).plan.spin;
        assert!(8 * crowded < calm, "{crowded} polls, and {calm} without others");
    }
}
