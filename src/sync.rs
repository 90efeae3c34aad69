//! Locks, atomics, threads and descriptors. In this crate's tests built with `--cfg loom` they are
//! the model checker's, which tries all interleavings; so the code that is checked is the code that
//! ships.

#[cfg(all(loom, test))]
pub(crate) use crate::tests::loom_model::atomics::AtomicBool;
#[cfg(all(loom, test))]
pub(crate) use crate::tests::loom_model::device::{EventFd, Shm, sleep_until_readable};
#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::{Mutex, MutexGuard},
    thread, thread_local,
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::atomic::AtomicBool,
    sync::{Mutex, MutexGuard},
    thread, thread_local,
};
#[cfg(not(all(loom, test)))]
pub(crate) use tagmatch_os::sleep::{EventFd, sleep_until_readable};
#[cfg(not(all(loom, test)))]
pub(crate) use tagmatch_shm::Shm;
