//! Waiting: poll, then yield, then sleep.

use std::hint::spin_loop;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, yield_now};
use std::time::Duration;

use tagmatch_fallback::RequestId;
use tagmatch_hw::sleep::{Nudge, sleep_until_readable};

use crate::access::{Access, State};
use crate::error::Error;

/// The longest sleep without a look around. A bound against the unforeseen: nothing relies on it.
const SLEEP_MAX: Duration = Duration::from_millis(500);

thread_local! {
    /// What wakes this thread when another one makes its progress.
    static NUDGE: io::Result<Arc<Nudge>> = Nudge::new().map(Arc::new);
}

/// Waits until `look` finds what it looks for. Makes progress all the while.
///
/// `request`, if any, is what another thread's progress may bring about; a sleeper has to be woken
/// then.
pub(crate) fn wait_until<A: Access, R>(
    access: &A,
    request: Option<RequestId>,
    mut look: impl FnMut(&mut State) -> Option<R>,
) -> Result<R, Error> {
    let policy = access.fixed().wait;
    let mut polls: u64 = 0;
    let (spin, yields) = (u64::from(policy.spin), u64::from(policy.yields));
    loop {
        let found = access.try_with(|state| {
            if state.progress() > 0 {
                polls = 0;
            }
            look(state)
        });
        if let Some(Some(found)) = found {
            return Ok(found);
        }
        polls += 1;
        if polls <= spin {
            spin_loop();
        } else if polls <= spin + yields || !policy.sleep {
            yield_now();
        } else if let Some(found) = sleep(access, request, &mut look)? {
            return Ok(found);
        }
    }
}

/// Sleeps until the device or another thread has something for us, and looks again.
fn sleep<A: Access, R>(
    access: &A,
    request: Option<RequestId>,
    look: &mut impl FnMut(&mut State) -> Option<R>,
) -> Result<Option<R>, Error> {
    let fixed = access.fixed();
    let fail = |source| Error::Wait { address: fixed.address, source };
    let nudge = NUDGE.with(|nudge| match nudge {
        Ok(nudge) => Ok(Arc::clone(nudge)),
        Err(error) => Err(fail(io::Error::from(error.kind()))),
    })?;
    nudge.reset();
    let (found, armed, replaced) = access.with(|state| {
        if let Some(found) = look(state) {
            return (Some(found), false, None);
        }
        let replaced = match request {
            Some(request) if A::SHARED => state.watch(request, Waker::from(Arc::clone(&nudge))),
            _ => None,
        };
        let armed = state.engine.arm();
        state.sleepers += usize::from(armed);
        (None, armed, replaced)
    });
    drop(replaced);
    if found.is_some() || !armed {
        return Ok(found);
    }
    let woken = sleep_until_readable(&[fixed.events.as_fd(), nudge.as_fd()], SLEEP_MAX);
    let (found, forgotten) = access.with(|state| {
        state.sleepers -= 1;
        if state.sleepers == 0 {
            state.engine.disarm();
        }
        state.progress();
        (look(state), request.and_then(|request| state.unwatch(request)))
    });
    drop(forgotten);
    woken.map_err(fail)?;
    Ok(found)
}

/// A thread that makes progress for a shared worker until it is dropped.
///
/// Without one, a [`crate::SharedWorker`] moves only while some thread is inside a call of it.
#[derive(Debug)]
pub struct ProgressThread {
    stop: Arc<std::sync::atomic::AtomicBool>,
    nudge: Arc<Nudge>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ProgressThread {
    pub(crate) fn spawn(access: crate::access::Shared) -> io::Result<Self> {
        use std::sync::atomic::{AtomicBool, Ordering};
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
        Ok(ProgressThread { stop, nudge, thread: Some(thread) })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Release);
        self.nudge.ring();
        if let Some(thread) = self.thread.take() {
            // The thread runs no code that panics; if it did, there is nobody to tell here.
            let _ = thread.join();
        }
    }
}
