//! Posted receives by their tokens.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::operations::Index;

/// Receives by their tokens. The caller chooses tokens, not a peer, so the hash needs no secret.
pub(super) type Tokens = HashMap<u64, Index, BuildHasherDefault<TokenHasher>>;

/// Spreads a token by one multiplication (Fibonacci hashing).
#[derive(Default)]
pub(super) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
