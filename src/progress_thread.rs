//! The thread that makes progress for a shared worker.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use tagmatch_os::safety::LongSleep;

use crate::access::{Access, Shared, State};
use crate::long_sleep::{describe, sleep_max, wait_for_events};
use crate::sync::thread;
use crate::sync::{AtomicBool, EventFd};
use crate::wait::Asleep;

/// A thread that makes progress until it is dropped.
///
/// Without one, a [`crate::SharedWorker`] moves only while some thread is inside a call of it.
///
/// The thread calls the wakers of requests that end. A waker that panics is reported as every panic
/// is, and the thread goes on. Dropping the `ProgressThread` waits until the thread has ended,
/// except in a waker that the thread itself calls: then the thread ends after the waker.
#[derive(Debug)]
pub struct ProgressThread {
    stop: Arc<AtomicBool>,
    /// Ends the thread's sleep.
    alarm: Waker,
    thread: Option<thread::JoinHandle<()>>,
    /// The process that has the thread. A forked child has no such thread.
    process: u32,
}

impl ProgressThread {
    pub(crate) fn spawn(access: Shared) -> io::Result<Self> {
        let eventfd = Arc::new(EventFd::new()?);
        let alarm = Waker::from(Arc::clone(&eventfd));
        Self::run("tagmatch", alarm, move |is_stopped| {
            while !is_stopped() {
                turn(&access, &eventfd);
            }
        })
    }

    /// Starts a thread that does this work. The work returns when it is stopped, and sleeps only
    /// where `alarm` wakes it. It has to catch panics. For layers that make progress in a way of
    /// their own.
    #[doc(hidden)]
    pub fn run(
        name: &str,
        alarm: Waker,
        work: impl FnOnce(&dyn Fn() -> bool) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || work(&|| stopped.load(Ordering::Acquire));
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(ProgressThread { stop, alarm, thread: Some(thread), process: std::process::id() })
    }
}

/// Takes in the events that have come, then sleeps until there are more.
fn turn(access: &Shared, eventfd: &EventFd) {
    let mut asleep = Asleep::new(access);
    let mut state = access.lock();
    state.progress();
    asleep.begin(&mut state);
    // Wakers run here. If one panics, the panic hook has reported it, and the others were called
    // all the same.
    let _ = catch_unwind(AssertUnwindSafe(|| Shared::unlock(state)));
    if asleep.is_counted && access.lock().is_armed() {
        let max = sleep_max();
        let mut long_sleep = LongSleep::begin(max);
        // An error would repeat at once; progress goes on, only without the sleep.
        let _ = wait_for_events(access, eventfd, max, &mut long_sleep);
        if long_sleep.is_over() {
            let has_found = access.with(State::progress) > 0;
            long_sleep.looked(has_found, || describe(access, &"events, as a progress thread"));
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return std::mem::forget(self.thread.take());
        }
        self.stop.store(true, Ordering::Release);
        self.alarm.wake_by_ref();
        if let Some(thread) = self.thread.take()
            // A waker may drop this, in the thread itself, which then ends by itself.
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches panics, so there is no error to report.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use super::*;
    use crate::long_sleep::SleepBounds;
    use crate::wait::sleep;
    use crate::{Config, Match, SharedWorker, WaitPolicy};

    /// Long after anything that works has happened.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn sleeper() -> SharedWorker {
        let wait = WaitPolicy::SLEEP;
        SharedWorker::new(Config { wait, ..Config::default() }).unwrap()
    }

    /// Calls a closure when it wakes.
    struct Calls<F: Fn() + Send + Sync>(F);

    impl<F: Fn() + Send + Sync> Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    type Receive = std::pin::Pin<Box<crate::Request<crate::Received, Shared>>>;

    /// A receive. The closure is called when the receive ends.
    fn watched(
        worker: &SharedWorker,
        tag: u64,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Receive {
        let mut receive = Box::pin(worker.recv(Match::tag(tag), vec![0; 8]));
        let waker = Waker::from(Arc::new(Calls(wake)));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(receive.as_mut().poll(&mut context).is_pending());
        receive
    }

    #[test]
    fn a_waker_that_panics_does_not_end_the_progress_thread() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        let thread = b.progress_thread().unwrap();
        let (tell, told) = mpsc::channel();
        for tag in 0..3u64 {
            let tell = tell.clone();
            let _receive = watched(&b, tag, move || {
                tell.send(tag).unwrap();
                panic!("as planned");
            });
            a.inject(to_b, tag, &[7; 8]).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE), Ok(tag), "nothing makes progress");
        }
        drop(thread);
        assert_eq!(b.access.with(|state| state.sleepers), 0, "armed for nobody");
    }

    #[test]
    fn a_waker_may_drop_the_progress_thread() {
        let a = sleeper();
        let b = sleeper();
        let to_b = a.connect(&b.address()).unwrap();
        let _moves_by_itself = a.progress_thread().unwrap();
        let thread = std::sync::Mutex::new(Some(b.progress_thread().unwrap()));
        let (tell, told) = mpsc::channel();
        let _receive = watched(&b, 1, move || {
            drop(thread.lock().unwrap().take());
            tell.send(()).unwrap();
        });
        a.inject(to_b, 1u64, &[7; 8]).unwrap();
        assert_eq!(
            told.recv_timeout(PATIENCE),
            Ok(()),
            "the thread waits for itself, or has panicked"
        );
    }

    #[test]
    fn a_waker_that_panics_before_a_sleep_leaves_no_sleeper() {
        let worker = sleeper();
        let _receive = watched(&worker, 1, || panic!("as planned"));
        worker.access.with(|state| {
            let me = tagmatch_device::PeerId::ONESELF;
            state.engine.inject(me, 1.into(), &[7; 8]).unwrap();
        });
        let eventfd = EventFd::new().unwrap();
        let sleeps = AssertUnwindSafe(|| {
            sleep(&worker.access, &SleepBounds::of(&eventfd), &mut |state| {
                while state.progress() > 0 {}
                (0, None::<()>)
            })
        });
        assert!(catch_unwind(sleeps).is_err());
        assert_eq!(worker.access.with(|state| state.sleepers), 0);
    }
}
