//! Hashing the numbers of queue pairs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from the numbers of this side's queue pairs. The NIC gives these numbers out, so no peer can
/// choose them to collide, and a fast hash will do: each message that arrives is looked up.
pub(super) type ByQpNumber<T> = HashMap<u32, T, BuildHasherDefault<QpNumberHasher>>;

#[derive(Default)]
pub(super) struct QpNumberHasher(u64);

impl Hasher for QpNumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The map takes the lowest bits and the highest. Both depend on all of the number's bits that
        // differ between neighbours.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
