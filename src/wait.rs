//! Waiting: poll, then yield, then sleep.

use std::hint::spin_loop;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::time::Duration;

use tagmatch_fallback::RequestId;

use crate::access::sealed::Sealed;
use crate::access::{Access, State};
use crate::error::Error;
use crate::sync::thread::{self, yield_now};
use crate::sync::{AtomicBool, Nudge, sleep_until_readable, thread_local};

/// The longest sleep without a look around. A bound against the unforeseen: nothing relies on it.
#[cfg(not(test))]
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Not in tests, which are to see the unforeseen.
#[cfg(test)]
const SLEEP_MAX: Duration = Duration::from_secs(3600);

thread_local! {
    /// What wakes this thread when another one makes its progress.
    static NUDGE: io::Result<Arc<Nudge>> = Nudge::new().map(Arc::new);
}

/// Polls of a wait before the processor is told that it spins. On some processors saying so costs
/// as much as a message takes.
const POLLS_WITHOUT_PAUSE: u32 = 64;

/// Waits until `look` finds what it looks for. It makes progress itself, and says how many events
/// it took in.
///
/// `request`, if any, is what another thread's progress may bring about; a sleeper has to be woken
/// then. Without it, a shared worker's thread yields and does not sleep.
pub(crate) fn wait_until<A: Access, R>(
    access: &A,
    request: Option<RequestId>,
    mut look: impl FnMut(&mut State) -> (usize, Option<R>),
) -> Result<R, Error> {
    if let Some(found) = poll_for_a_while(access, &mut look) {
        return Ok(found);
    }
    // Without a descriptor to sleep on, this thread goes on yielding: slower, and never wrong.
    let may_sleep = access.fixed().wait.sleep && (request.is_some() || !A::SHARED);
    let nudge = NUDGE.with(|nudge| nudge.as_ref().ok().filter(|_| may_sleep).cloned());
    loop {
        if let Some(nudge) = &nudge {
            nudge.reset();
            if let (Some(request), true) = (request, A::SHARED) {
                let waker = Waker::from(Arc::clone(nudge));
                drop(access.with(|state| state.watch(request, waker)));
            }
            let found = sleep(access, nudge, &mut look);
            if let Some(request) = request {
                drop(access.with(|state| state.unwatch(request)));
            }
            match found {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(_) => yield_now(),
            }
        } else {
            yield_now();
        }
        if let Some((_, Some(found))) = access.try_with(&mut look) {
            return Ok(found);
        }
    }
}

/// Waits until `rung`, which something rings together with the nudge.
pub(crate) fn wait_for_alarm<A: Access>(
    access: &A,
    nudge: &Nudge,
    rung: impl Fn() -> bool,
) -> Result<(), Error> {
    let fixed = access.fixed();
    let mut look = |state: &mut State| (state.progress(), rung().then_some(()));
    let mut found = poll_for_a_while(access, &mut look);
    while found.is_none() {
        nudge.reset();
        found = if fixed.wait.sleep {
            let slept = sleep(access, nudge, &mut look);
            slept.map_err(|source| Error::Wait { address: fixed.address, source })?
        } else {
            poll_for_a_while(access, &mut look)
        };
    }
    Ok(())
}

/// The phases before sleep: polls, then polls with a yield before each.
fn poll_for_a_while<A: Access, R>(
    access: &A,
    look: &mut impl FnMut(&mut State) -> (usize, Option<R>),
) -> Option<R> {
    let policy = access.fixed().wait;
    let mut polls = 0u32;
    loop {
        match access.try_with(&mut *look) {
            Some((_, Some(found))) => return Some(found),
            Some((0, None)) | None => polls = polls.saturating_add(1),
            Some(_) => polls = 0,
        }
        if polls <= policy.spin && polls < u32::MAX {
            if polls > POLLS_WITHOUT_PAUSE {
                spin_loop();
            }
        } else if polls.saturating_sub(policy.spin) <= policy.yields && polls < u32::MAX {
            yield_now();
        } else {
            return None;
        }
    }
}

/// Sleeps until the device, or another thread through the nudge, has something; looks before and
/// after.
fn sleep<A: Access, R>(
    access: &A,
    nudge: &Nudge,
    look: &mut impl FnMut(&mut State) -> (usize, Option<R>),
) -> io::Result<Option<R>> {
    let (found, armed) = access.with(|state| {
        let (_, found) = look(state);
        let armed = found.is_none() && state.engine.arm();
        state.sleepers += usize::from(armed);
        (found, armed)
    });
    if !armed {
        if found.is_none() {
            access.with(State::progress);
        }
        return Ok(found);
    }
    let woken = sleep_until_readable(&[access.fixed().events.as_fd(), nudge.as_fd()], SLEEP_MAX);
    let found = access.with(|state| {
        state.sleepers -= 1;
        if state.sleepers == 0 {
            state.engine.disarm();
        }
        look(state).1
    });
    woken.map(|_| found)
}

/// What a thread sleeps on until its worker has something to do, without holding the worker, which others may
/// use meanwhile: for a runtime that keeps a worker under a lock of its own. One thread at a time sleeps on it.
///
/// 1. [`arm`](crate::WorkerOf::arm) the worker; if that is refused, make progress and begin again.
/// 2. Look once more at what is waited for. What other threads' progress may bring about wakes this, if it is
///    polled as a future: a `Sleeper` is a [`Wake`].
/// 3. [`sleep`](Self::sleep), then [`disarm`](crate::WorkerOf::disarm).
#[derive(Debug)]
pub struct Sleeper {
    events: OwnedFd,
    nudge: Nudge,
}

impl Sleeper {
    pub(crate) fn new(events: OwnedFd) -> io::Result<Self> {
        Ok(Sleeper { events, nudge: Nudge::new()? })
    }

    /// Blocks until the worker has something to do, or this was rung since the last sleep, or `max` (in whole
    /// milliseconds) is over, or a signal has come.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn sleep(&self, max: Duration) -> io::Result<()> {
        let slept = sleep_until_readable(&[self.events.as_fd(), self.nudge.as_fd()], max);
        // Whoever rings from here on ends the next sleep.
        self.nudge.reset();
        slept.map(drop)
    }

    /// Ends the sleep that is under way, or else the next one.
    pub fn ring(&self) {
        self.nudge.ring();
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// A thread that makes progress for a shared worker until it is dropped.
///
/// Without one, a [`crate::SharedWorker`] moves only while some thread is inside a call of it.
#[derive(Debug)]
pub struct ProgressThread {
    stop: Arc<AtomicBool>,
    nudge: Arc<Nudge>,
    thread: Option<thread::JoinHandle<()>>,
    /// The one that has the thread; a forked child has not.
    process: u32,
}

impl ProgressThread {
    pub(crate) fn spawn(access: crate::access::Shared) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let nudge = Arc::new(Nudge::new()?);
        let (stopped, nudged) = (Arc::clone(&stop), Arc::clone(&nudge));
        let work = move || {
            while !stopped.load(Ordering::Acquire) {
                let armed = access.with(|state| {
                    state.progress();
                    let armed = state.engine.arm();
                    state.sleepers += usize::from(armed);
                    armed
                });
                if armed {
                    let descriptors = [access.fixed().events.as_fd(), nudged.as_fd()];
                    // An error would repeat at once; progress goes on, only without the sleep.
                    let _ = sleep_until_readable(&descriptors, SLEEP_MAX);
                    access.with(|state| {
                        state.sleepers -= 1;
                        if state.sleepers == 0 {
                            state.engine.disarm();
                        }
                    });
                }
            }
        };
        let thread = thread::Builder::new().name("tagmatch".into()).spawn(work)?;
        let process = std::process::id();
        Ok(ProgressThread { stop, nudge, thread: Some(thread), process })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return std::mem::forget(self.thread.take());
        }
        self.stop.store(true, Ordering::Release);
        self.nudge.ring();
        if let Some(thread) = self.thread.take() {
            // The thread runs no code that panics; if it did, there is nobody to tell here.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Config, Match, SharedWorker, WaitPolicy};

    /// Long after anything that works has happened.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn sleeper() -> SharedWorker {
        let wait = WaitPolicy { spin: 0, yields: 0, sleep: true };
        SharedWorker::new(Config { wait, ..Config::default() }).unwrap()
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
                let me = tagmatch_hw::PeerId::ONESELF;
                state.engine.inject_queued(me, round.into(), None, &[7; 8]).unwrap();
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
        let (a, b) = (sleeper(), sleeper());
        let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
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
        let (a, b) = (sleeper(), sleeper());
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        let apart = Arc::new(b.sleeper().unwrap());
        let (tell, told) = mpsc::channel();
        let (worker, asleep) = (b.clone(), Arc::clone(&apart));
        thread::spawn(move || {
            for round in 0..20u64 {
                let mut receive = worker.recv(Match::tag(round), vec![0; 8]);
                while receive.test().is_none() {
                    if worker.arm() {
                        asleep.sleep(SLEEP_MAX).unwrap();
                    }
                    worker.disarm();
                }
                tell.send(round).unwrap();
            }
            asleep.sleep(SLEEP_MAX).unwrap();
            tell.send(20).unwrap();
        });
        for round in 0..20u64 {
            thread::sleep(Duration::from_millis(round % 3));
            a.inject(to_b, round, &[7; 8]).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE), Ok(round), "never woken");
        }
        apart.ring();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(20), "never woken");
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
        struct Counts(AtomicUsize);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let worker = sleeper();
        let me = worker.oneself();
        let counts = Arc::new(Counts(Default::default()));
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
                state.engine.inject_queued(me.id, tag.into(), None, &[7; 8]).unwrap();
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
        let (a, b) = (sleeper(), sleeper());
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
}
