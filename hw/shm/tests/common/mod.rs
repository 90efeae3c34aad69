//! What the tests of all devices share, and shared memory.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(unused_imports, reason = "each test binary uses its own part")]

use tagmatch_shm::{Shm, ShmConfig};

pub use tagmatch_testkit::device::*;

/// A device that has reported that it is connected to itself.
pub fn shm(config: ShmConfig) -> Shm {
    tagmatch_testkit::process::share_descriptors();
    up(Shm::new(config).unwrap())
}
