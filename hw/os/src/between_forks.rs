//! Work of a thread that no fork(2) of another thread interrupts.
//!
//! A forked child has a copy of the memory and none of the other threads. What such a thread was
//! changing stays half changed in the child, and a lock that the thread held is held for ever. So
//! fork(2) waits until no thread is inside [`between_forks`], and none enters until the child is
//! made. A thread waits for nothing inside: whoever forks may hold what it would wait for.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Once, PoisonError, RwLock, RwLockWriteGuard};

/// Threads read while they work; a thread that forks writes.
static WORK: RwLock<()> = RwLock::new(());

thread_local! {
    /// What the thread holds while it forks. It has no destructor, whose registration would
    /// allocate.
    static PAUSE: Cell<Option<ManuallyDrop<RwLockWriteGuard<'static, ()>>>> =
        const { Cell::new(None) };
}

/// Does work that no fork(2) interrupts. The work must wait for no other thread.
pub fn between_forks<R>(work: impl FnOnce() -> R) -> R {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // Without memory for the handlers, a fork may interrupt the work.
        // SAFETY: the handlers take a lock and release it.
        let _ = unsafe { libc::pthread_atfork(Some(pause), Some(resume), Some(resume)) };
    });
    let _working = WORK.read().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Runs in the thread that forks, before the child is made.
extern "C" fn pause() {
    PAUSE.set(Some(ManuallyDrop::new(WORK.write().unwrap_or_else(PoisonError::into_inner))));
}

/// Runs in that thread and in the child, after the child is made.
extern "C" fn resume() {
    if let Some(pause) = PAUSE.take() {
        drop(ManuallyDrop::into_inner(pause));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::fork::tests::in_forked_child;

    #[test]
    fn a_forked_child_never_finds_a_lock_that_the_work_of_another_thread_holds() {
        let lock = Mutex::new(());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    between_forks(|| drop(lock.try_lock()));
                }
            });
            between_forks(|| ());
            for _ in 0..200 {
                in_forked_child(|| {
                    between_forks(|| ());
                    lock.try_lock().is_ok()
                });
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
