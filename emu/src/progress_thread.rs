//! The thread of a queue: it makes progress, as hardware would, while the program does not poll.
//!
//! While the program polls, the thread only looks at the number of polls once a tick. While the
//! program doesn't poll, the thread sleeps until the device has an event.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::hidden_cq::HiddenCq;

/// Milliseconds between looks at whether the program polls.
const TICK_MS: i32 = 1;

/// A queue, as the thread sees it.
pub(crate) trait Served: Send + Sync + 'static {
    /// The completion queue whose events wake the thread.
    fn cq(&self) -> &HiddenCq;
    /// The number of polls by the program.
    fn polls(&self) -> u64;
    /// Asks the device for an event at the next completion; `false` if it refuses.
    fn arm(&self) -> bool;
    /// Makes progress. `true`: the NIC will do more after some time without any event, and no
    /// completion is ready.
    fn progress(&self) -> bool;
}

/// The running thread; dropping this ends it.
pub(crate) struct ProgressThread {
    stop: i32,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    pub(crate) fn start<Q: Served>(queue: &Arc<Q>) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if stop < 0 {
            return Err(io::Error::last_os_error());
        }
        let weak = Arc::downgrade(queue);
        let run = move || {
            while let Some(queue) = weak.upgrade() {
                if !turn(&*queue, stop) {
                    return;
                }
            }
        };
        let thread =
            without_signals(|| std::thread::Builder::new().name("tagmatch-emu".into()).spawn(run));
        match thread {
            Ok(thread) => Ok(ProgressThread { stop, thread: Some(thread) }),
            Err(error) => {
                // SAFETY: opened above.
                unsafe { libc::close(stop) };
                Err(error)
            }
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        let one = 1u64;
        // SAFETY: the descriptor is open; eight bytes are written to it.
        unsafe { libc::write(self.stop, (&raw const one).cast(), size_of::<u64>()) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // SAFETY: opened by `start`; nobody waits for it any more.
        unsafe { libc::close(self.stop) };
    }
}

/// Starts a thread with all signals blocked, so that the program's signals go to its own threads.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals of our own; the mask is put back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        begun
    }
}

/// Waits until the thread shall stop, the device has an event, or the time is over. `false`: the
/// thread shall stop.
fn wait(stop: i32, device: i32, timeout_ms: i32) -> bool {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [entry(stop), entry(device)];
    // SAFETY: `fds` has two entries.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout_ms) };
    fds[0].revents == 0
}

/// Makes progress while the program doesn't poll. `false`: the thread shall stop.
fn turn<Q: Served>(queue: &Q, stop: i32) -> bool {
    let before = queue.polls();
    // The device has events for this queue only if the program has asked for some of its own, or
    // this thread has.
    if !wait(stop, queue.cq().fd(), TICK_MS) {
        return false;
    }
    if queue.cq().take_events() {
        queue.progress();
    }
    while queue.polls() == before {
        if !queue.arm() {
            return wait(stop, -1, -1);
        }
        let timeout_ms = if queue.progress() { TICK_MS } else { -1 };
        if !wait(stop, queue.cq().fd(), timeout_ms) {
            return false;
        }
        if queue.cq().take_events() {
            queue.progress();
        }
    }
    true
}
