//! Where the devices of one worker get the numbers of its peers from.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{DeviceError, PeerId};

/// Gives the numbers of one worker's peers; all its devices share it.
#[derive(Clone, Debug, Default)]
pub struct PeerNumbers(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// How many indices were given.
    indices: usize,
    /// The numbers to give next, whose indices were given back: the longest unused first.
    free: VecDeque<PeerId>,
}

impl PeerNumbers {
    /// Numbers for the peers of several devices, each of which has the worker itself as number 0.
    pub fn of_several_devices() -> Self {
        let numbers = Numbers { indices: 1, free: VecDeque::new() };
        PeerNumbers(Arc::new(Mutex::new(numbers)))
    }

    /// Most peers of a worker at a time, including those that are down and whose numbers were not
    /// given back.
    pub const MAX: usize = PeerId::INDEX_MAX;

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        // No call leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DeviceError::Exhausted`]: all were given.
    pub fn give(&self) -> Result<PeerId, DeviceError> {
        let mut numbers = self.lock();
        if let Some(peer) = numbers.free.pop_front() {
            return Ok(peer);
        }
        if numbers.indices >= Self::MAX {
            let what = "peer, those included that went down and are not forgotten";
            return Err(DeviceError::Exhausted { what, limit: Self::MAX });
        }
        numbers.indices += 1;
        Ok(PeerId::first(numbers.indices - 1))
    }

    /// Takes a number back of which no device and nothing above knows anything any more. Its index
    /// is given again, with another generation; an index whose generations are used up is not.
    pub fn give_back(&self, peer: PeerId) {
        self.lock().free.extend(peer.next());
    }

    /// Whether all were given.
    pub fn are_given(&self) -> bool {
        let numbers = self.lock();
        numbers.free.is_empty() && numbers.indices >= Self::MAX
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice_and_indices_are_used_up_one_by_one() {
        let numbers = PeerNumbers::default();
        let mut given = HashSet::new();
        assert_eq!(numbers.give().unwrap(), PeerId::ONESELF);
        let mut index_max = 0;
        for round in 0..10_000 {
            let peer = numbers.give().unwrap();
            assert!(given.insert(peer) && peer != PeerId::ONESELF && peer != PeerId(u32::MAX));
            assert_eq!(peer.index(), 1 + round / 4095, "one of 4096 is no number");
            index_max = index_max.max(peer.index());
            numbers.give_back(peer);
        }
        assert_eq!(index_max, 3);
    }

    #[test]
    fn all_indices_can_be_given_and_one_that_comes_back_ends_the_shortage() {
        let numbers = PeerNumbers::of_several_devices();
        for _ in 1..PeerNumbers::MAX {
            assert!(!numbers.are_given());
            numbers.give().unwrap();
        }
        assert!(numbers.are_given());
        assert!(matches!(numbers.give(), Err(DeviceError::Exhausted { .. })));
        numbers.give_back(PeerId(77));
        let again = numbers.give().unwrap();
        assert_eq!(
            (again.index(), again.generation(), again.to_string()),
            (77, 1, "peer 77.1".into())
        );
    }
}
