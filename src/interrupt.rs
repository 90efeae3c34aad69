//! Waking threads that are blocked in a call with a time limit.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicBool, EventFd, Mutex, MutexGuard};

/// Ends blocking calls of a worker from another thread. Made by
/// [`WorkerOf::interrupter`](crate::WorkerOf::interrupter); clones belong to the same worker.
///
/// The calls that can be interrupted are those with a time limit: [`Request::wait_timeout`],
/// [`WorkerOf::ends_timeout`], [`WorkerOf::probe_timeout`] and [`WorkerOf::mprobe_timeout`]. An
/// interrupted call returns what it returns when its time is over. A caller that wants no time
/// limit passes [`Duration::MAX`].
///
/// ```
/// use std::time::Duration;
/// use tagmatch::{Config, Match, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let interrupter = worker.interrupter();
/// let other = std::thread::spawn(move || interrupter.interrupt());
/// let mut receive = worker.recv(Match::tag(7), vec![0; 8]);
/// assert!(receive.wait_timeout(Duration::MAX).is_none());
/// other.join().unwrap();
/// # Ok::<(), tagmatch::Error>(())
/// ```
///
/// [`Duration::MAX`]: std::time::Duration::MAX
/// [`Request::wait_timeout`]: crate::Request::wait_timeout
/// [`WorkerOf::ends_timeout`]: crate::WorkerOf::ends_timeout
/// [`WorkerOf::probe_timeout`]: crate::WorkerOf::probe_timeout
/// [`WorkerOf::mprobe_timeout`]: crate::WorkerOf::mprobe_timeout
#[derive(Clone)]
pub struct Interrupter(Arc<Mutex<Calls>>);

impl Interrupter {
    pub(crate) fn new() -> Self {
        Interrupter(Arc::new(Mutex::new(Calls { is_pending: false, blocked: Vec::new() })))
    }

    /// Ends all calls with a time limit that are blocked on the worker, in any thread. If no call
    /// is blocked, the next call that would block returns at once; several interrupts before that
    /// call count as one. To stop several threads, of which some may not be blocked, each thread
    /// that stops interrupts once more. Does not block.
    pub fn interrupt(&self) {
        let mut calls = self.lock();
        calls.is_pending |= calls.blocked.is_empty();
        for call in &calls.blocked {
            call.is_interrupted.store(true, Ordering::Release);
            if let Some(eventfd) = &call.eventfd {
                eventfd.signal();
            }
        }
    }

    /// Enters a call that is about to block; it sleeps on `eventfd`, if it sleeps.
    pub(crate) fn enter(&self, eventfd: Option<Arc<EventFd>>) -> Blocked<'_> {
        let mut calls = self.lock();
        let is_interrupted = AtomicBool::new(std::mem::take(&mut calls.is_pending));
        let call = Arc::new(Call { is_interrupted, eventfd });
        calls.blocked.push(Arc::clone(&call));
        Blocked { interrupter: self, call }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Calls {
    /// An interrupt that has met no call yet.
    is_pending: bool,
    /// Bounded by the number of threads.
    blocked: Vec<Arc<Call>>,
}

struct Call {
    is_interrupted: AtomicBool,
    eventfd: Option<Arc<EventFd>>,
}

/// A call that is blocked, until this is dropped.
pub(crate) struct Blocked<'a> {
    interrupter: &'a Interrupter,
    call: Arc<Call>,
}

impl Blocked<'_> {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.call.is_interrupted.load(Ordering::Acquire)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.interrupter.lock().blocked.retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupter")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use crate::access::Access;
    use crate::{Config, Match, SharedWorker, WaitPolicy};

    #[test]
    fn a_thread_that_sleeps_is_woken() {
        let wait = WaitPolicy { spin: 0, yields: 0, sleep: true };
        let worker = SharedWorker::new(Config { wait, ..Config::default() }).unwrap();
        let (tell, told) = mpsc::channel();
        let mut receive = worker.recv(Match::tag(1), vec![0; 8]);
        thread::spawn(move || tell.send(receive.wait_timeout(Duration::MAX).is_none()));
        while worker.access.with(|state| state.sleepers) == 0 {
            thread::yield_now();
        }
        worker.interrupter().interrupt();
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true), "never woken");
    }

    #[test]
    fn a_message_is_found_though_another_thread_is_at_the_worker() {
        let wait = WaitPolicy { spin: 0, yields: 0, sleep: true };
        let worker = SharedWorker::new(Config { wait, ..Config::default() }).unwrap();
        worker.inject(worker.oneself(), 1, &[7; 8]).unwrap();
        let (tell, told) = mpsc::channel();
        let other = worker.clone();
        let holder = thread::spawn(move || {
            other.access.with(|_| {
                tell.send(()).unwrap();
                thread::sleep(Duration::from_millis(100));
            });
        });
        told.recv().unwrap();
        let found = worker.probe_timeout(Match::tag(1), Duration::ZERO).unwrap();
        assert!(found.is_some(), "no look at the worker");
        holder.join().unwrap();
    }
}
