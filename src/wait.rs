//! Waiting: poll, then yield, then sleep.
//!
//! **Waiting is layered.** Spin, then yield, then sleep on the device's descriptor. A thread that
//! sleeps while another one makes its progress is woken through the request's waker, the same one
//! that a future has.

use std::hint::spin_loop;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use tagmatch_os::safety::LongSleep;

use crate::access::{Access, State};
use crate::awaited::{Awaited, Watched};
use crate::crowding::WaitPlan;
use crate::interrupt::{Blocked, Interrupter};
use crate::long_sleep::{SleepBounds, describe, sleep_max, wait_for_events};
use crate::sync::thread::yield_now;
use crate::sync::{EventFd, sleep_until_readable, thread_local};

thread_local! {
    /// Wakes this thread when another thread's progress ends its request.
    static EVENTFD: io::Result<Arc<EventFd>> = EventFd::new().map(Arc::new);
}

/// Polls of a wait before the processor is told that it spins. On some processors saying so costs
/// as much as a message takes. (`spin_loop` is PAUSE on x86-64 and ISB on AArch64, which empties
/// the pipeline and lets nobody else run; no ARM processor was measured.)
const POLLS_WITHOUT_PAUSE: u32 = 64;

/// The conditions on which a wait gives up.
pub(crate) struct Limit<'a> {
    deadline: Option<Instant>,
    /// Ends the wait before the deadline.
    interrupter: Option<&'a Interrupter>,
}

impl<'a> Limit<'a> {
    /// The wait never gives up.
    pub(crate) const NONE: Self = Limit { deadline: None, interrupter: None };

    /// The wait gives up after `time`. A time that the clock can't represent is endless.
    pub(crate) fn after(time: Duration) -> Self {
        Limit { deadline: Instant::now().checked_add(time), interrupter: None }
    }

    /// The wait gives up after `time`, or when the worker is interrupted.
    pub(crate) fn of_call(time: Duration, interrupter: &'a Interrupter) -> Self {
        Limit { interrupter: Some(interrupter), ..Limit::after(time) }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// How long to sleep at most.
    fn sleep_max(&self) -> Duration {
        let Some(deadline) = self.deadline else { return sleep_max() };
        let left = deadline.saturating_duration_since(Instant::now());
        sleep_max().min(left)
    }
}

/// Polls in a row before the wait's limit is looked at, which reads the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// Waits until `look` returns a value; see [`wait_within`].
pub(crate) fn wait_until<A: Access, R>(
    access: &A,
    awaited: Awaited<'_>,
    mut look: impl FnMut(&mut State) -> (usize, Option<R>),
) -> R {
    loop {
        if let Some(found) = wait_within(access, awaited, &Limit::NONE, &mut look) {
            return found;
        }
    }
}

/// Waits until `look` returns a value, or the limit is reached. `look` makes progress itself, and
/// also returns the number of events that it took in.
pub(crate) fn wait_within<A: Access, R>(
    access: &A,
    awaited: Awaited<'_>,
    limit: &Limit<'_>,
    mut look: impl FnMut(&mut State) -> (usize, Option<R>),
) -> Option<R> {
    // A thread without an eventfd goes on yielding: slower, but correct. A thread that is ending,
    // and drops a worker of its thread-local storage, may have lost its own.
    let has_waker = !A::SHARED || !matches!(awaited, Awaited::Nothing);
    let may_sleep = access.fixed().wait.sleep && has_waker;
    let own_eventfd = || {
        let eventfd =
            EVENTFD.try_with(|eventfd| eventfd.as_ref().ok().filter(|_| may_sleep).cloned());
        eventfd.ok().flatten()
    };
    let blocked = limit.interrupter.map(|interrupter| interrupter.enter(own_eventfd()));
    let is_over = || limit.is_over() || blocked.as_ref().is_some_and(Blocked::is_interrupted);
    let mut found = poll_for_a_while(access, &is_over, &mut look);
    let eventfd = if found.is_none() { own_eventfd() } else { None };
    while found.is_none() {
        if let Some(eventfd) = &eventfd {
            eventfd.clear();
        }
        // Asked after the clearing: an interrupt that comes later signals the eventfd again.
        if is_over() {
            // Each earlier look may have been skipped because another thread had the lock.
            found = access.with(&mut look).1;
            break;
        }
        let blocked = blocked.as_ref();
        let slept = eventfd.as_ref().and_then(|eventfd| {
            let bounds = SleepBounds { eventfd, max: limit.sleep_max(), awaited, blocked };
            sleep_and_watch(access, eventfd, &bounds, &mut look).ok()
        });
        if slept.is_none() {
            yield_now();
        }
        found = slept.flatten().or_else(|| access.try_with(&mut look)?.1);
    }
    if let (Some(blocked), None) = (blocked, &found) {
        blocked.returns_nothing();
    }
    found
}

/// [`sleep`], with a waker for what is awaited if other threads may make progress meanwhile.
fn sleep_and_watch<A: Access, R>(
    access: &A,
    eventfd: &Arc<EventFd>,
    bounds: &SleepBounds<'_>,
    look: &mut impl FnMut(&mut State) -> (usize, Option<R>),
) -> io::Result<Option<R>> {
    // Without other threads, it is known by its waker alone that a thread waits for a message.
    let is_for_message = matches!(bounds.awaited, Awaited::Message(_));
    let waker = (A::SHARED || is_for_message).then(|| Waker::from(Arc::clone(eventfd)));
    let mut watch = WaitWakers { access, watched: Vec::new() };
    // Both under one lock: an end that is there when this thread watches the queue, and that
    // another thread takes before this one looks, would leave this thread without a waker.
    let mut look_and_watch = |state: &mut State| {
        let progress = look(state);
        if let (Some(waker), None, true) = (&waker, &progress.1, watch.watched.is_empty()) {
            watch.watched = state.watch_all(bounds.awaited, waker);
        }
        progress
    };
    sleep(access, bounds, &mut look_and_watch)
}

/// The wakers of a wait. Dropping it removes them, also if a waker of others has panicked.
struct WaitWakers<'a, A: Access> {
    access: &'a A,
    watched: Vec<Watched>,
}

impl<A: Access> Drop for WaitWakers<'_, A> {
    fn drop(&mut self) {
        let mut state = self.access.lock();
        state.unwatch_all(&self.watched);
        // Another panic would end the process.
        if !std::thread::panicking() {
            A::unlock(state);
        }
    }
}

/// Makes progress until closing the worker would lose no message to another one, for at most
/// [`Config::drain_timeout`](crate::Config::drain_timeout).
pub(crate) fn drain<A: Access>(access: &A) {
    // Asked after the progress: nothing wakes a thread that sleeps after it has taken in the last
    // acknowledgement.
    let look = |state: &mut State| {
        let events = state.progress();
        (events, (!state.engine.as_dyn_mut().has_unsent()).then_some(()))
    };
    if access.with(|state| state.engine.as_dyn_mut().has_unsent()) {
        wait_within(access, Awaited::Nothing, &Limit::after(access.fixed().drain_timeout), look);
    }
}

/// Waits until `rung` is true; the waker that makes it true also signals `eventfd`.
pub(crate) fn wait_for_alarm<A: Access>(access: &A, eventfd: &EventFd, rung: impl Fn() -> bool) {
    let mut look = |state: &mut State| (state.progress(), rung().then_some(()));
    let mut found = poll_for_a_while(access, &|| false, &mut look);
    while found.is_none() {
        eventfd.clear();
        found = if access.fixed().wait.sleep {
            sleep(access, &SleepBounds::of(eventfd), &mut look).unwrap_or_else(|_| {
                yield_now();
                None
            })
        } else {
            poll_for_a_while(access, &|| false, &mut look)
        };
    }
}

/// The phases before sleep: polls, then polls with a yield before each.
fn poll_for_a_while<A: Access, R>(
    access: &A,
    is_over: &impl Fn() -> bool,
    look: &mut impl FnMut(&mut State) -> (usize, Option<R>),
) -> Option<R> {
    let fixed = access.fixed();
    let mut plan = WaitPlan::new(&fixed.wait, &fixed.crowding);
    let mut polls = 0u32;
    loop {
        match access.try_with(&mut *look) {
            Some((_, Some(found))) => return Some(found),
            Some((0, None)) | None => polls = polls.saturating_add(1),
            Some(_) => polls = 0,
        }
        if (polls > plan.spin || polls.is_multiple_of(POLLS_PER_CLOCK)) && is_over() {
            return None;
        }
        if polls <= plan.spin && polls < u32::MAX {
            if plan.gives_way_after(polls) {
                polls = 0;
            } else if polls > POLLS_WITHOUT_PAUSE {
                spin_loop();
            }
        } else if polls.saturating_sub(plan.spin) <= plan.yields && polls < u32::MAX {
            plan.yield_now();
        } else {
            return None;
        }
    }
}

/// Sleeps until the device has an event, or another thread signals the eventfd. Looks before the
/// sleep and after it.
pub(crate) fn sleep<A: Access, R>(
    access: &A,
    bounds: &SleepBounds<'_>,
    look: &mut impl FnMut(&mut State) -> (usize, Option<R>),
) -> io::Result<Option<R>> {
    let mut asleep = Asleep::new(access);
    let found = access.with(|state| {
        let found = look(state).1;
        if found.is_none() {
            asleep.begin(state);
        }
        found
    });
    if !asleep.is_counted {
        if found.is_none() {
            access.with(State::progress);
        }
        return Ok(found);
    }
    // Unlocking the worker may have made progress. Another thread's eventfd would be signalled, but
    // nothing wakes this thread for what it has ended by itself.
    let mut state = access.lock();
    if !A::SHARED {
        let found = look(&mut state).1;
        if found.is_some() || !state.arm() {
            drop(state);
            return Ok(found);
        }
    }
    let is_armed = state.is_armed();
    drop(state);
    if !is_armed {
        return Ok(None);
    }
    let SleepBounds { eventfd, max, awaited, blocked } = bounds;
    let mut long_sleep = LongSleep::begin(*max);
    let woken = wait_for_events(access, eventfd, *max, &mut long_sleep);
    drop(asleep);
    let mut has_found = blocked.is_some_and(Blocked::is_interrupted);
    let found = access.with(|state| {
        let (events, found) = look(state);
        has_found |= events > 0 || found.is_some();
        found
    });
    long_sleep.looked(has_found, || describe(access, &format_args!("{awaited:?}")));
    woken.map(|()| found)
}

/// Marks a thread that is about to sleep on the device's descriptor, sleeps, or has just woken.
/// Dropping the mark ends that state. A waker may panic in any call that makes progress; the drop
/// handles that case, too.
pub(crate) struct Asleep<'a, A: Access> {
    access: &'a A,
    /// Whether it is one of [`State::sleepers`].
    pub(crate) is_counted: bool,
}

impl<'a, A: Access> Asleep<'a, A> {
    pub(crate) fn new(access: &'a A) -> Self {
        Asleep { access, is_counted: false }
    }

    /// Arms the device, and counts this thread if that was possible.
    pub(crate) fn begin(&mut self, state: &mut State) {
        self.is_counted = state.arm();
        state.sleepers += usize::from(self.is_counted);
    }
}

impl<A: Access> Drop for Asleep<'_, A> {
    fn drop(&mut self) {
        if self.is_counted {
            // No waker is called: one of them may have panicked just now, and no request has ended
            // here.
            let mut state = self.access.lock();
            state.sleepers -= 1;
            if state.sleepers == 0 {
                state.engine.as_dyn_mut().disarm();
            }
        }
    }
}

/// Lets a thread sleep until its worker has something to do, without holding the worker, so that
/// other threads may use it meanwhile. For a runtime that keeps a worker under a lock of its own.
/// One thread at a time sleeps on it.
///
/// 1. [`arm`](crate::WorkerOf::arm) the worker; if that is refused, make progress and begin again.
/// 2. Test the requests once more. A request that another thread's progress may end has to be
///    polled as a future with this sleeper as its waker: a `Sleeper` is a [`Wake`].
/// 3. [`sleep`](Self::sleep), then [`disarm`](crate::WorkerOf::disarm).
#[derive(Debug)]
pub struct Sleeper {
    events: OwnedFd,
    eventfd: EventFd,
}

impl Sleeper {
    pub(crate) fn new(events: OwnedFd) -> io::Result<Self> {
        Ok(Sleeper { events, eventfd: EventFd::new()? })
    }

    /// Blocks until the worker has something to do, or [`ring`](Self::ring) was called since the
    /// last sleep, or `max` is over, or a signal has come.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn sleep(&self, max: Duration) -> io::Result<()> {
        let slept = sleep_until_readable(&[self.events.as_fd(), self.eventfd.as_fd()], max);
        // A ring from here on ends the next sleep.
        self.eventfd.clear();
        slept.map(drop)
    }

    /// Ends the sleep that is under way, or else the next one.
    pub fn ring(&self) {
        self.eventfd.signal();
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;
    use crate::access::sealed::Sealed;
    use crate::sync::{AtomicBool, thread};
    use crate::{Config, Match, SharedWorker, WaitPolicy};

    /// Long after anything that works has happened.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn sleeper() -> SharedWorker {
        let wait = WaitPolicy::SLEEP;
        SharedWorker::new(Config { wait, ..Config::default() }).unwrap()
    }

    /// Exchanges messages between two workers whose threads share a processor; gives whether the
    /// first worker's waits have noticed that.
    fn notices_a_shared_processor(wait: WaitPolicy) -> bool {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let mut set = CpuSet::new();
        set.set(rustix::thread::sched_getcpu());
        let pin = move || sched_setaffinity(None, &set).unwrap();
        let [a, b] = [(); 2].map(|()| SharedWorker::new(Config::default().wait(wait)).unwrap());
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = b.connect(&a.address()).unwrap();
        let exchange = |worker: &SharedWorker, peer| {
            pin();
            for _ in 0..100 {
                worker.inject(peer, 1u64, &[]).unwrap();
                worker.recv_blocking(Match::tag(1u64), &mut []).unwrap();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| exchange(&b, to_a));
            scope.spawn(|| exchange(&a, to_b)).join().unwrap();
        });
        a.access.fixed().crowding.is_crowded()
    }

    #[test]
    fn waits_notice_that_others_want_their_processor_unless_their_policy_is_fixed() {
        let wait = WaitPolicy::SLEEP.spin(4096).yields(4096);
        assert!(notices_a_shared_processor(wait));
        assert!(!notices_a_shared_processor(wait.adapts(false)));
    }

    #[test]
    fn a_sleeper_is_woken_by_another_threads_progress() {
        for round in 0..20u64 {
            let worker = sleeper();
            let (tell, told) = mpsc::channel();
            let receive = worker.recv(Match::tag(round), vec![0; 8]);
            thread::spawn(move || tell.send(receive.wait().map(|r| r.status.length).ok()));
            thread::sleep(Duration::from_millis(2 * (round % 3)));
            // Sent and taken in by this thread: the device has nothing to tell the sleeper.
            worker.access.with(|state| {
                let me = tagmatch_device::PeerId::ONESELF;
                state.engine.inject(me, round.into(), &[7; 8]).unwrap();
                while state.engine.progress() > 0 {}
            });
            assert_eq!(told.recv_timeout(PATIENCE), Ok(Some(8)), "round {round}: never woken");
        }
    }

    #[test]
    fn a_sleeper_is_woken_by_what_another_thread_sends_and_leaves() {
        for round in 0..20u64 {
            let worker = sleeper();
            let (tell, told) = mpsc::channel();
            let receive = worker.recv(Match::tag(round), vec![0; 8]);
            thread::spawn(move || tell.send(receive.wait().map(|r| r.status.length).ok()));
            thread::sleep(Duration::from_millis(2 * (round % 3)));
            worker.inject(worker.oneself(), round, &[7; 8]).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE), Ok(Some(8)), "round {round}: never woken");
        }
    }

    #[test]
    fn a_sleeper_is_woken_by_what_another_thread_breaks_off() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = b.connect(&a.address()).unwrap();
        let connects = a.progress_thread().unwrap();
        a.inject(to_b, 1u64, &[]).unwrap();
        b.recv_blocking(Match::tag(1u64), &mut []).unwrap();
        drop(connects);
        let (tell, told) = mpsc::channel();
        let receive = b.recv(Match::tag(2u64).from(to_a), vec![0; 8]);
        thread::spawn(move || tell.send(receive.wait().is_err()));
        thread::sleep(Duration::from_millis(50));
        b.disconnect(to_a).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "never woken");
    }

    #[test]
    fn who_sleeps_apart_is_woken_by_messages_and_by_rings() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        let apart = Arc::new(b.sleeper().unwrap());
        let (tell, told) = mpsc::channel();
        let tell_early = tell.clone();
        let worker = b.clone();
        let asleep = Arc::clone(&apart);
        thread::spawn(move || {
            for round in 0..20u64 {
                let mut receive = worker.recv(Match::tag(round), vec![0; 8]);
                while receive.test().is_none() {
                    if worker.arm() {
                        asleep.sleep(Duration::from_secs(3600)).unwrap();
                    }
                    worker.disarm();
                }
                tell.send(round).unwrap();
            }
            asleep.sleep(Duration::from_secs(3600)).unwrap();
            tell.send(20).unwrap();
        });
        for round in 0..20u64 {
            thread::sleep(Duration::from_millis(round % 3));
            a.inject(to_b, round, &[7; 8]).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE), Ok(round), "never woken");
        }
        apart.ring();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(20), "never woken");
        apart.ring();
        thread::spawn(move || apart.sleep(Duration::from_secs(3600)).map(|()| tell_early.send(21)));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(21), "a ring before the sleep was lost");
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_asleep() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("as planned");
            }
        }
        struct CountedWakes(AtomicUsize);
        impl Wake for CountedWakes {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let worker = sleeper();
        let me = worker.oneself();
        let counts = Arc::new(CountedWakes(Default::default()));
        let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&counts))];
        let mut receives = Vec::new();
        for (tag, waker) in wakers.iter().enumerate() {
            let mut receive = Box::pin(worker.recv(Match::tag(tag as u64), vec![0; 8]));
            let mut context = std::task::Context::from_waker(waker);
            assert!(receive.as_mut().poll(&mut context).is_pending());
            receives.push(receive);
        }
        // Both end in one call of progress.
        worker.access.with(|state| {
            for tag in 0..2u64 {
                state.engine.inject(me.id, tag.into(), &[7; 8]).unwrap();
            }
        });
        let progress = std::panic::AssertUnwindSafe(|| worker.progress());
        assert!(std::panic::catch_unwind(progress).is_err());
        assert_eq!(counts.0.load(Ordering::SeqCst), 1);
        for receive in &mut receives {
            assert!(receive.test().is_some_and(|result| result.is_ok()));
        }
    }

    #[test]
    fn whoever_leaves_awake_leaves_the_device_armed_for_the_sleeper() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        let (tell, told) = mpsc::channel();
        let last = b.recv(Match::tag(1u64), vec![0; 8]);
        thread::spawn(move || tell.send(last.wait().is_ok()));
        // This thread takes in messages for itself while the other sleeps, and goes away.
        for i in 0..50 {
            let mine = b.recv(Match::tag(2u64), vec![0; 8]);
            let send = a.send(to_b, 2u64, vec![i; 8]);
            mine.wait().unwrap();
            send.wait().unwrap();
        }
        a.send(to_b, 1u64, vec![0; 8]).wait().unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "never woken");
    }

    #[test]
    fn whoever_disarms_leaves_the_device_armed_for_the_sleeper() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        a.inject(to_b, 1u64, &[]).unwrap();
        b.recv_blocking(Match::tag(1u64), &mut []).unwrap();
        let (tell, told) = mpsc::channel();
        let receive = b.recv(Match::tag(2u64), vec![0; 8]);
        thread::spawn(move || tell.send(receive.wait().is_ok()));
        while b.access.with(|state| state.sleepers) == 0 {
            yield_now();
        }
        b.disarm();
        a.inject(to_b, 2u64, &[7; 8]).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "never woken");
    }

    #[test]
    fn an_eventfd_that_was_signalled_before_keeps_nobody_awake() {
        let worker = sleeper();
        let eventfd = Arc::new(EventFd::new().unwrap());
        eventfd.signal();
        let rung = Arc::new(AtomicBool::new(false));
        let signalled = Arc::clone(&eventfd);
        let rings = Arc::clone(&rung);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            rings.store(true, Ordering::Release);
            signalled.signal();
        });
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            rung.load(Ordering::Acquire)
        };
        wait_for_alarm(&worker.access, &eventfd, look);
        assert!(looks.get() < 50, "{} looks: it did not sleep", looks.get());
    }
}
