//! The tests of all devices share a module; this one adds shared memory.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]

#[path = "../../../tests/common.rs"]
mod devices;

pub use devices::*;
use tagmatch_shm::{Shm, ShmConfig};

/// A device that has reported itself up.
pub fn shm(config: ShmConfig) -> Shm {
    up(Shm::new(config).unwrap())
}
