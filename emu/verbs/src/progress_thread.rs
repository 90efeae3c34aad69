//! The thread of a queue: it makes progress, as hardware would, while the program does not poll.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use tagmatch_os::sleep::EventFd;

/// The running thread; dropping this ends it.
pub(crate) struct ProgressThread {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Starts a thread that calls `turn` until it returns `false`. A turn waits with the
    /// [`StopWait`], and returns `false` once that says that the thread shall stop.
    pub(crate) fn start(
        mut turn: impl FnMut(&StopWait) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(EventFd::new()?);
        let wait = StopWait(stop.clone());
        let run = move || while turn(&wait) {};
        let thread = std::thread::Builder::new().name("tagmatch-emu".into());
        let thread = Some(without_signals(|| thread.spawn(run))?);
        Ok(ProgressThread { stop, thread })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a thread with all signals blocked, so that the program's signals go to its own threads.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals of our own; the mask is put back.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        begun
    }
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread shall stop.
    ToStop,
    /// The device has an event.
    ByDevice,
    /// The time is over, or a signal came.
    ByTime,
}

/// How the thread waits, so that it can be told to stop.
pub(crate) struct StopWait(Arc<EventFd>);

impl StopWait {
    /// Waits until the thread shall stop, the device has an event, or the time is over; without
    /// end if the time is negative.
    pub(crate) fn wait(&self, device: i32, timeout_ms: i32) -> Woken {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(self.0.as_fd().as_raw_fd()), entry(device)];
        // SAFETY: `fds` has two entries.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout_ms) };
        match fds.map(|fd| fd.revents != 0) {
            [true, _] => Woken::ToStop,
            [false, true] => Woken::ByDevice,
            [false, false] => Woken::ByTime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_ends_a_thread_that_waits() {
        let (sender, turns) = std::sync::mpsc::channel();
        let turn =
            move |stop: &StopWait| sender.send(()).is_ok() && stop.wait(-1, -1) != Woken::ToStop;
        let thread = ProgressThread::start(turn).unwrap();
        turns.recv().unwrap();
        drop(thread);
        assert!(turns.recv().is_err(), "the thread has dropped its end");
    }
}
