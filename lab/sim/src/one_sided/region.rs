//! A region of a simulated worker, and what is known of its memory.

use tagmatch_device::RegionPlace;
use tagmatch_fallback::{RegionKey, Rights};

use super::bytes::{WrittenBytes, wrong_byte};
use super::counters::RegionCounter;
use crate::violation::{Verdict, ensure};

/// Counters at the beginning of a region, which all workers change.
pub(super) const COUNTERS: usize = 4;
/// Bytes of a counter, and of an element that one worker alone uses.
pub(super) const WORD: usize = 8;
/// The most workers of a run. Each has an element of its own behind the counters.
pub(super) const WORKERS_MAX: usize = 4;
pub(super) const OWN_WORDS: usize = COUNTERS * WORD;
/// Bytes that all put and get, behind these elements.
pub(super) const SHARED: usize = OWN_WORDS + WORKERS_MAX * WORD;
pub(super) const REGION_BYTES: usize = SHARED + 160;

/// A region, open or closed.
#[derive(Clone, Debug)]
pub(super) struct SimRegion {
    pub(super) owner: usize,
    pub(super) key: RegionKey,
    pub(super) place: RegionPlace,
    pub(super) rights: Rights,
    /// When it was closed, and its bytes then.
    pub(super) closed: Option<(u64, Vec<u8>)>,
    pub(super) bytes: WrittenBytes,
    pub(super) counters: [RegionCounter; COUNTERS],
    /// What each worker's own element has once all operations that have begun are done.
    pub(super) own: [u64; WORKERS_MAX],
}

impl SimRegion {
    pub(super) fn new(
        owner: usize,
        key: RegionKey,
        place: RegionPlace,
        rights: Rights,
    ) -> SimRegion {
        SimRegion {
            owner,
            key,
            place,
            rights,
            closed: None,
            bytes: WrittenBytes::new(REGION_BYTES),
            counters: [(); COUNTERS].map(|()| RegionCounter::new(WORKERS_MAX)),
            own: [0; WORKERS_MAX],
        }
    }

    /// Checks bytes from `at` on that the owner sees.
    pub(super) fn check_bytes(&self, at: usize, found: &[u8]) -> Verdict {
        let wrong = wrong_byte(self.bytes.values((at, found.len()), None), found);
        if let Some(index) = wrong {
            let byte = at + index;
            let owner = self.owner;
            ensure!(false, Payload, "byte {byte} of a region of w{owner} is {}", found[index]);
        }
        Ok(())
    }

    /// Checks all bytes and counters that the owner sees.
    pub(super) fn check_all(&self, memory: &[u8]) -> Verdict {
        for (counter, word) in self.counters.iter().zip(memory.chunks_exact(WORD)) {
            counter.check(u64::from_ne_bytes(word.try_into().unwrap_or_default()))?;
        }
        self.check_bytes(OWN_WORDS, &memory[OWN_WORDS..])
    }
}
