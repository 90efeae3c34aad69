//! READs and FINs that the device has.

use tagmatch_model::Handle;

/// A request that the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) pair: u32,
    pub(super) handle: Handle,
    pub(super) is_fin: bool,
}

/// The requests that the device has. A token holds a place and the number of times that it was used, so that a late
/// completion is not taken for that of the next request at the same place.
#[derive(Debug)]
pub(super) struct InFlight {
    places: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
}

impl InFlight {
    pub(super) fn new(count: u32) -> Self {
        InFlight { places: vec![(0, None); count as usize], free: (0..count).rev().collect() }
    }

    pub(super) fn put(&mut self, job: Job) -> Option<u64> {
        let place = self.free.pop()?;
        let (uses, held) = &mut self.places[place as usize];
        *uses = uses.wrapping_add(1) & (u32::MAX >> 1);
        *held = Some(job);
        Some(u64::from(*uses) << 32 | u64::from(place))
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Job> {
        let place = u32::try_from(token & u64::from(u32::MAX)).ok()?;
        let (uses, held) = self.places.get_mut(place as usize)?;
        let job = held.take_if(|_| u64::from(*uses) == token >> 32)?;
        self.free.push(place);
        Some(job)
    }

    /// Removes one request of a queue pair.
    pub(super) fn take_of(&mut self, pair: u32) -> Option<Job> {
        let at = self.places.iter().position(|(_, job)| job.is_some_and(|job| job.pair == pair))?;
        self.free.extend(u32::try_from(at));
        self.places[at].1.take()
    }
}
