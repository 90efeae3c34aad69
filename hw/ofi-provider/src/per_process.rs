//! Values that belong to a process, and not to its forked children.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A value that a process keeps for its end. A forked child has a copy of its parent's memory, and
/// runs the same functions when it calls exit(3): it must not take the copy for its own.
pub struct PerProcess<T> {
    /// The process that the value belongs to; 0: none yet.
    process: AtomicU32,
    value: Mutex<T>,
}

impl<T> PerProcess<T> {
    /// A value that belongs to no process yet.
    pub const fn new(value: T) -> Self {
        PerProcess { process: AtomicU32::new(0), value: Mutex::new(value) }
    }
}

impl<T: Default> PerProcess<T> {
    /// Changes this process's value, which is the default one at first. The copy of a parent's
    /// value is forgotten: dropping it could act on what is the parent's.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let own = std::process::id();
        let owner = self.process.swap(own, Ordering::Relaxed);
        if owner != 0 && owner != own {
            mem::forget(mem::take(&mut *value));
        }
        change(&mut value)
    }

    /// Takes this process's value, for its end. A child that has none of its own doesn't touch the
    /// lock: a thread of its parent may have held it when the child was forked, and holds it in the
    /// child for ever.
    pub fn take(&self) -> Option<T> {
        let is_own = self.process.load(Ordering::Relaxed) == std::process::id();
        is_own.then(|| self.change(mem::take))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_for_the_process_that_made_it_alone() {
        let value = PerProcess::new(0);
        assert_eq!(value.take(), None);
        value.change(|number| *number += 1);
        assert_eq!(value.take(), Some(1));
        // As after fork(2): the value is of a process with another number.
        value.change(|number| *number += 2);
        value.process.store(std::process::id() + 1, Ordering::Relaxed);
        assert_eq!(value.take(), None);
        value.change(|number| *number += 3);
        assert_eq!(value.take(), Some(3));
    }
}
