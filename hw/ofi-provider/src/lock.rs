//! The lock of a domain.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use tagmatch_ofi_sys::cancel::Uncancelled;

/// A value that one thread has at a time. If the program has promised to call from one thread at a
/// time (`FI_THREAD_DOMAIN`, fi_domain(3)), taking it costs nothing; a lock costs some 15 ns a
/// call, of the 100 to 300 ns that a short message takes.
pub(crate) struct Lock<T> {
    /// `None`: the program keeps its calls apart.
    mutex: Option<Mutex<()>>,
    /// A call has the value. Only `try_lock` asks, at the end of the process: a signal handler that
    /// ends the process may have interrupted a call.
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` and `try_lock` give the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until it is dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// `None`: the program keeps its calls apart. Dropped by the guard, in a function that is
    /// called only if there is something to drop.
    held: ManuallyDrop<Option<HeldLock<'a>>>,
}

/// The lock that a thread holds, where other threads may wait for it.
struct HeldLock<'a> {
    _lock: MutexGuard<'a, ()>,
    /// The thread isn't cancelled while it has the lock.
    _uncancelled: Option<Uncancelled>,
}

impl<T> Lock<T> {
    /// A lock. `is_shared`: several threads may call at the same time.
    pub(crate) fn new(value: T, is_shared: bool) -> Self {
        let mutex = is_shared.then(Mutex::default);
        Lock { mutex, is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the value. A thread has at most one guard of it at a time: no function of this library
    /// calls the program.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = self.mutex.as_ref().map(hold);
        // SAFETY: the lock is held; or the program has promised that no other thread is in a call,
        // and the one call of this thread has one guard.
        unsafe { self.guard(held) }
    }

    /// Takes the value, unless a call has it: of another thread, or of this one below a signal
    /// handler.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let lock = match self.mutex.as_ref().map(Mutex::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => return None,
            Some(Err(TryLockError::Poisoned(poisoned))) => Some(poisoned.into_inner()),
            Some(Ok(lock)) => Some(lock),
            None if self.is_taken.load(Ordering::Relaxed) => return None,
            None => None,
        };
        let held = lock.map(|lock| HeldLock { _lock: lock, _uncancelled: None });
        // SAFETY: as for `lock`; and no call of this thread has a guard.
        Some(unsafe { self.guard(held) })
    }

    /// # Safety
    /// There is no other guard.
    #[inline(always)]
    unsafe fn guard<'a>(&'a self, held: Option<HeldLock<'a>>) -> Guard<'a, T> {
        self.is_taken.store(true, Ordering::Relaxed);
        // A signal handler on this thread must see the mark before the value changes.
        compiler_fence(Ordering::SeqCst);
        Guard { lock: self, held: ManuallyDrop::new(held) }
    }
}

#[cold]
#[inline(never)]
fn hold(mutex: &Mutex<()>) -> HeldLock<'_> {
    let uncancelled = Uncancelled::begin();
    let lock = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    HeldLock { _lock: lock, _uncancelled: Some(uncancelled) }
}

#[cold]
#[inline(never)]
fn let_go(held: HeldLock<'_>) {
    drop(held);
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.lock.is_taken.store(false, Ordering::Relaxed);
        // SAFETY: nothing uses the field afterwards.
        if let Some(held) = unsafe { ManuallyDrop::take(&mut self.held) } {
            let_go(held);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time (`Lock::guard`), which gives out one reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_a_call_has_is_not_given_a_second_time() {
        for is_shared in [true, false] {
            let lock = Lock::new(1, is_shared);
            let guard = lock.lock();
            assert!(lock.try_lock().is_none());
            drop(guard);
            let guard = lock.try_lock().expect("no call has the value");
            assert_eq!(*guard, 1);
            assert!(lock.try_lock().is_none());
        }
    }
}
