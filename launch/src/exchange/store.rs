//! What an exchange needs of a launcher.

use super::mapping::neighbours;
use crate::error::Error;
use crate::pmi1::Pmi1;
pub(crate) use crate::pmix::Reach;
use crate::pmix::{PARTIAL_SUCCESS, Pmix, PmixError};

/// The key of the value by which a launcher that speaks PMI-1 tells the machines of all processes.
pub(super) const MAPPING: &str = "PMI_process_mapping";
/// The longest value of PMIx that an exchange puts, in bytes.
const PMIX_VALUE_MAX: usize = 128 << 10;

/// A launcher's key-value store and barriers, as one process sees them.
pub(crate) trait ValueStore {
    fn rank(&self) -> u32;

    fn size(&self) -> u32;

    /// The ranks of this machine's processes, in ascending order; empty if the launcher doesn't say
    /// which these are.
    fn neighbours(&mut self) -> Result<Vec<u32>, Error>;

    /// The longest value that can be put under a key of `key` bytes.
    fn value_max(&self, key: usize) -> usize;

    /// Puts a value under a key that no other process uses.
    fn put(&mut self, key: &str, value: &str, reach: Reach) -> Result<(), Error>;

    /// The value that the process of this rank has put before the last barrier. Doesn't wait for
    /// it.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, Error>;

    /// Waits until all processes of the job that live have called this. `reach`: the farthest that
    /// a value was put since the last barrier.
    ///
    /// Where the launcher doesn't let the living go on after a death, a death is an error; but not
    /// at the last barrier of an exchange, since a process that has passed it may leave and end.
    fn barrier(&mut self, reach: Reach, is_last: bool) -> Result<(), Error>;

    /// Whether the process of this rank is known to have died.
    fn is_dead(&mut self, rank: u32) -> Result<bool, Error>;
}

impl ValueStore for Pmi1 {
    fn rank(&self) -> u32 {
        self.rank()
    }

    fn size(&self) -> u32 {
        self.size()
    }

    fn neighbours(&mut self) -> Result<Vec<u32>, Error> {
        let mapping = self.get(MAPPING)?.unwrap_or_default();
        Ok(neighbours(&mapping, self.rank(), self.size()).unwrap_or_default())
    }

    fn value_max(&self, key: usize) -> usize {
        self.value_max(key)
    }

    fn put(&mut self, key: &str, value: &str, _: Reach) -> Result<(), Error> {
        Ok(self.put(key, value)?)
    }

    fn get(&mut self, _: u32, key: &str) -> Result<Option<String>, Error> {
        Ok(self.get(key)?)
    }

    fn barrier(&mut self, _: Reach, _: bool) -> Result<(), Error> {
        Ok(self.barrier()?)
    }

    fn is_dead(&mut self, rank: u32) -> Result<bool, Error> {
        Ok(self.dead()?.contains(&rank))
    }
}

impl ValueStore for Pmix {
    fn rank(&self) -> u32 {
        self.rank()
    }

    fn size(&self) -> u32 {
        self.size()
    }

    fn neighbours(&mut self) -> Result<Vec<u32>, Error> {
        Ok(self.peers_here())
    }

    fn value_max(&self, _: usize) -> usize {
        PMIX_VALUE_MAX
    }

    fn put(&mut self, key: &str, value: &str, reach: Reach) -> Result<(), Error> {
        Ok(self.put_for(reach, key, value)?)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, Error> {
        Ok(Pmix::get(self, rank, key)?)
    }

    fn barrier(&mut self, reach: Reach, is_last: bool) -> Result<(), Error> {
        match self.fence_of_all(reach) {
            Ok(Some(rank)) if !is_last => Err(Error::Dead { rank }),
            Err(PmixError::Failed { status: PARTIAL_SUCCESS, .. }) if is_last => Ok(()),
            ended => Ok(ended.map(drop)?),
        }
    }

    fn is_dead(&mut self, rank: u32) -> Result<bool, Error> {
        Ok(self.dead().contains(&rank))
    }
}
