//! Where the devices of one worker get the numbers of its peers from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{DeviceError, PeerId};

/// Gives the numbers of one worker's peers; all its devices share it.
#[derive(Clone, Debug, Default)]
pub struct PeerNumbers(Arc<AtomicU32>);

impl PeerNumbers {
    /// Numbers for the peers of several devices, each of which has the worker itself as number 0.
    pub fn of_several_devices() -> Self {
        PeerNumbers(Arc::new(AtomicU32::new(PeerId::ONESELF.0 + 1)))
    }

    /// Most peers over the whole life of a worker, including those that are down.
    pub const MAX: usize = 1 << 20;

    /// The next number.
    ///
    /// # Errors
    /// [`DeviceError::Exhausted`]: all were given.
    pub fn give(&self) -> Result<PeerId, DeviceError> {
        let limit = Self::MAX;
        let what = "peer, those that went down included";
        let below = |number: u32| ((number as usize) < limit).then_some(number + 1);
        let given = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        given.map(PeerId).map_err(|_| DeviceError::Exhausted { what, limit })
    }

    /// Whether all were given.
    pub fn are_given(&self) -> bool {
        self.0.load(Ordering::Relaxed) as usize >= Self::MAX
    }
}
