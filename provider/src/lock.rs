//! The lock of a domain.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value that one thread has at a time. If the program has promised to call from one thread at a
/// time (`FI_THREAD_DOMAIN`, fi_domain(3)), taking it costs nothing; a lock costs some 15 ns a call,
/// of the 100 to 300 ns that a short message takes.
pub(crate) struct Lock<T> {
    /// `None`: the program keeps its calls apart.
    mutex: Option<Mutex<()>>,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` and `try_lock` give the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until it is dropped.
pub(crate) struct Guard<'a, T> {
    value: &'a mut T,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Lock<T> {
    /// A lock. `is_shared`: several threads may call at the same time.
    pub(crate) fn new(value: T, is_shared: bool) -> Self {
        Lock { mutex: is_shared.then(Mutex::default), value: UnsafeCell::new(value) }
    }

    /// Takes the value. A thread has at most one guard of it at a time: no function of this library
    /// calls the program.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let lock = self.mutex.as_ref();
        let lock = lock.map(|mutex| mutex.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the lock is held; or the program has promised that no other thread is in a call,
        // and the one call of this thread has one guard.
        Guard { value: unsafe { &mut *self.value.get() }, _lock: lock }
    }

    /// Takes the value, unless another thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let lock = match self.mutex.as_ref().map(Mutex::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => return None,
            Some(Err(TryLockError::Poisoned(poisoned))) => Some(poisoned.into_inner()),
            Some(Ok(lock)) => Some(lock),
            None => None,
        };
        // SAFETY: as for `lock`.
        Some(Guard { value: unsafe { &mut *self.value.get() }, _lock: lock })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}
