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
/// interrupted call returns what it returns when its time is over: `None`, or 0 ends. A caller that
/// wants no time limit passes [`Duration::MAX`].
///
/// **A call that has a result returns the result, also if it was interrupted.** The interrupt is
/// then not used up: the next call that would block returns nothing, at once. So no call blocks
/// after an interrupt before one has returned nothing. But calls that always have a result never
/// return nothing. A runtime whose threads are interrupted for new work therefore looks for work
/// after each return, not only after one of nothing:
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tagmatch::{Config, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let (orders, work) = channel();
/// let interrupter = worker.interrupter();
/// let other = std::thread::spawn(move || {
///     for order in 0..100 {
///         orders.send(order).unwrap();
///         interrupter.interrupt(); // after the order is there
///     }
/// });
/// let mut ends = Vec::new();
/// let mut done = 0;
/// while done < 100 {
///     worker.ends_timeout(&mut ends, 64, Duration::MAX);
///     for end in ends.drain(..) { /* ... */ }
///     done += work.try_iter().count(); // whatever the call has returned
/// }
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
    /// is blocked, or one of them returns a result all the same, the next call that would block
    /// returns nothing, at once; several interrupts before that call count as one. To stop several
    /// threads, of which some may not be blocked, each thread that stops interrupts once more. Does
    /// not block.
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
        let call = Arc::new(InterruptedCall { is_interrupted, eventfd });
        calls.blocked.push(Arc::clone(&call));
        Blocked { interrupter: self, call, returns_nothing: false }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Calls {
    /// An interrupt that has met no call yet.
    is_pending: bool,
    /// Bounded by the number of threads.
    blocked: Vec<Arc<InterruptedCall>>,
}

struct InterruptedCall {
    is_interrupted: AtomicBool,
    eventfd: Option<Arc<EventFd>>,
}

/// A call that is blocked, until this is dropped.
pub(crate) struct Blocked<'a> {
    interrupter: &'a Interrupter,
    call: Arc<InterruptedCall>,
    returns_nothing: bool,
}

impl Blocked<'_> {
    /// The call returns nothing, which uses up an interrupt.
    pub(crate) fn returns_nothing(mut self) {
        self.returns_nothing = true;
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.call.is_interrupted.load(Ordering::Acquire)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let mut calls = self.interrupter.lock();
        calls.blocked.retain(|call| !Arc::ptr_eq(call, &self.call));
        // With the lock held, so no interrupt can come between this look and the removal.
        calls.is_pending |= self.is_interrupted() && !self.returns_nothing;
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

    use super::{Blocked, Interrupter};
    use crate::access::Access;
    use crate::awaited::Awaited;
    use crate::wait::{Limit, wait_within};
    use crate::{Config, Match, SharedWorker, WaitPolicy};

    #[test]
    fn an_interrupt_that_meets_a_result_ends_the_next_call() {
        let worker = SharedWorker::new(Config::default()).unwrap();
        let interrupter = worker.interrupter();
        let limit = Limit::of_call(Duration::from_secs(20), &interrupter);
        let mut looks = 0;
        let mut call = |found: Option<u8>, interrupts: bool| {
            wait_within(&worker.access, Awaited::Nothing, &limit, |_| {
                looks += 1;
                if interrupts {
                    interrupter.interrupt();
                }
                (0, found)
            })
        };
        assert_eq!(call(Some(1), true), Some(1), "a result comes first");
        assert_eq!(call(Some(2), false), Some(2), "also in the next call");
        assert!(interrupter.lock().is_pending, "the interrupt is not lost");
        assert_eq!(call(None, false), None);
        assert!(!interrupter.lock().is_pending, "it was seen");
        assert_eq!(call(None, true), None);
        assert!(!interrupter.lock().is_pending, "it was seen");
    }

    #[test]
    fn an_interrupt_meets_all_calls_that_are_blocked_and_no_later_one() {
        let interrupter = Interrupter::new();
        let calls = [(); 3].map(|()| interrupter.enter(None));
        interrupter.interrupt();
        assert!(calls.iter().all(Blocked::is_interrupted));
        for call in calls {
            Blocked::returns_nothing(call);
        }
        assert!(!interrupter.enter(None).is_interrupted(), "the interrupt was seen");
    }

    /// The rule of [`Interrupter`], in each order of a few calls and interrupts: no call blocks
    /// after an interrupt before one has returned nothing.
    #[test]
    fn an_interrupt_is_kept_until_a_call_has_returned_nothing() {
        const STEPS: u32 = 7;
        for order in 0..6_u32.pow(STEPS) {
            let interrupter = Interrupter::new();
            // Whether an interrupt that no call has used up is for the next call.
            let mut is_owed = false;
            let mut calls = Vec::new();
            for step in 0..STEPS {
                match order / 6_u32.pow(step) % 6 {
                    0 => calls.push((interrupter.enter(None), std::mem::take(&mut is_owed))),
                    1 => {
                        interrupter.interrupt();
                        is_owed |= calls.is_empty();
                        calls.iter_mut().for_each(|(_, is_interrupted)| *is_interrupted = true);
                    }
                    leaving if !calls.is_empty() => {
                        let at = if leaving < 4 { 0 } else { calls.len() - 1 };
                        let (call, is_interrupted) = calls.remove(at);
                        if leaving % 2 == 0 {
                            is_owed |= is_interrupted;
                        } else {
                            call.returns_nothing();
                        }
                    }
                    _ => {}
                }
                for (call, is_interrupted) in &calls {
                    assert_eq!(call.is_interrupted(), *is_interrupted, "order {order}");
                }
                assert_eq!(interrupter.lock().is_pending, is_owed, "order {order}");
            }
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_woken() {
        let wait = WaitPolicy::SLEEP;
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
        let wait = WaitPolicy::SLEEP;
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
