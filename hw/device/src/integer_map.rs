//! A map whose keys are integers that no peer chooses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by integers that this side or its NIC gives out, such as tokens and numbers of queue
/// pairs. A peer that chose keys could make them collide; the standard hasher is for those.
pub type IntegerMap<K, V> = HashMap<K, V, BuildHasherDefault<IntegerHasher>>;

/// Hashes an integer by one multiplication (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerHasher(u64);

impl Hasher for IntegerHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        // The map takes the lowest bits of the hash and the highest. In the product, a bit depends
        // only on lower bits of the value; so both halves of the product are mixed.
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
        let hash = product as u64 ^ (product >> 64) as u64;
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 256 keys share the lowest 8 bits, or the highest 7, of their hash: the most for
    /// any value of these bits.
    fn most_in_one_place(key: impl Fn(u64) -> u64, place: impl Fn(u64) -> usize) -> usize {
        let mut counts = [0; 256];
        for at in 0..256 {
            let mut hasher = IntegerHasher::default();
            hasher.write_u64(key(at));
            counts[place(hasher.finish())] += 1;
        }
        counts.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn keys_in_steps_of_any_power_of_two_are_spread() {
        for shift in 0..56 {
            let key = |at| at << shift;
            let low = most_in_one_place(key, |hash| (hash & 255) as usize);
            let high = most_in_one_place(key, |hash| (hash >> 57) as usize);
            assert!(low <= 16 && high <= 16, "shift {shift}: {low} and {high}");
        }
    }

    #[test]
    fn a_map_finds_what_was_inserted() {
        let mut map = IntegerMap::default();
        for key in 0..1000u32 {
            map.insert(key, key + 1);
        }
        assert!((0..1000).all(|key| map.get(&key) == Some(&(key + 1))));
    }

    #[test]
    fn keys_of_each_width_have_hashes_of_their_own() {
        let different = |hash: fn(&mut IntegerHasher, u8)| {
            let of = |key| {
                let mut hasher = IntegerHasher::default();
                hash(&mut hasher, key);
                hasher.finish()
            };
            (0..=u8::MAX).map(of).collect::<std::collections::HashSet<u64>>().len()
        };
        assert_eq!(different(|hasher, key| hasher.write_u8(key)), 256);
        assert_eq!(different(|hasher, key| hasher.write_u16(u16::from(key) << 8)), 256);
        assert_eq!(different(|hasher, key| hasher.write_u32(key.into())), 256);
        assert_eq!(different(|hasher, key| hasher.write_usize(key.into())), 256);
        assert_eq!(different(|hasher, key| hasher.write_u128(u128::from(key) << 64)), 256);
    }
}
