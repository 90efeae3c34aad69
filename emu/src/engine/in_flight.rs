//! READs and FINs that the device has.

use tagmatch_device::slab::{Key, Slab};
use tagmatch_model::Handle;

/// A request that the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) pair: u32,
    pub(super) handle: Handle,
    pub(super) is_fin: bool,
}

/// The requests that the device has, at most `limit`. The upper half of a token is a place below
/// `limit`; the token of a request that has ended names no other one.
#[derive(Debug)]
pub(super) struct InFlight {
    jobs: Slab<Job>,
    limit: u32,
}

impl InFlight {
    pub(super) fn new(limit: u32) -> Self {
        InFlight { jobs: Slab::default(), limit }
    }

    pub(super) fn put(&mut self, job: Job) -> Option<u64> {
        self.jobs.insert(job, self.limit).ok().map(Key::to_bits)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Job> {
        self.jobs.remove(Key::from_bits(token))
    }

    /// Removes one request of a queue pair.
    pub(super) fn take_of(&mut self, pair: u32) -> Option<Job> {
        let key = *self.jobs.keys_where(|job| job.pair == pair).first()?;
        self.jobs.remove(key)
    }
}
