//! Closing descriptors without waiting for the peer that sent them.
//!
//! close(2) can block for as long as a peer likes: closing a TCP socket with `SO_LINGER` waits for
//! its other end, closing a file of FUSE waits for its server. When the kernel closes a unix
//! socket, it also closes the descriptors that lie in the socket's queue. So a thread that nothing
//! waits for closes descriptors that were received from a peer, and sockets in which one may lie.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Most threads that close at a time. A thread ends when nothing waits to be closed.
const THREADS_MAX: usize = 16;

static QUEUE: Mutex<CloseQueue> = Mutex::new(CloseQueue { waiting: Vec::new(), threads: 0 });

struct CloseQueue {
    /// Descriptors that no thread closes yet. Descriptors that one peer sent together are one
    /// entry: while one of them blocks a thread, the others block no other thread.
    waiting: Vec<Vec<OwnedFd>>,
    threads: usize,
}

fn queue() -> MutexGuard<'static, CloseQueue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CloseQueue {
    fn start_thread(&mut self) {
        let spawn = || thread::Builder::new().name("tagmatch-close".into()).spawn(close_all);
        if self.threads < THREADS_MAX && spawn().is_ok() {
            self.threads += 1;
        }
    }

    /// Whether descriptors wait that no thread will close.
    fn lacks_thread(&self) -> bool {
        self.threads == 0 && !self.waiting.is_empty()
    }
}

/// Whether another descriptor would have to wait, since all threads that may close are busy, or
/// none can be started. No connection may be accepted then: that bounds how many descriptors wait.
pub fn is_busy() -> bool {
    let mut queue = queue();
    if queue.lacks_thread() {
        queue.start_thread();
    }
    queue.threads >= THREADS_MAX || queue.lacks_thread()
}

/// Closes descriptors on another thread. If no thread can be started, they wait for a thread that
/// is closing others, or for the next call of [`is_busy`] or of this function.
pub(super) fn close_in_background(descriptors: Vec<OwnedFd>) {
    let mut queue = queue();
    queue.waiting.push(descriptors);
    queue.start_thread();
}

fn close_all() {
    loop {
        let mut queue = queue();
        let Some(descriptors) = queue.waiting.pop() else {
            queue.threads -= 1;
            return;
        };
        // The lock is released first, since closing the descriptors can block.
        drop(queue);
        drop(descriptors);
    }
}

/// Descriptors received from a peer, of any kind. Dropping them closes them in the background.
pub struct UncheckedDescriptors(pub Vec<OwnedFd>);

impl UncheckedDescriptors {
    /// The descriptors, for a caller that has checked that closing them can't block.
    pub fn into_checked(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for UncheckedDescriptors {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            close_in_background(std::mem::take(&mut self.0));
        }
    }
}
