//! A fast 64-bit hash of states. States are not hostile input.

use std::hash::Hasher;

/// Multiplies into 128 bits and folds the halves, as wyhash does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fold(u64);

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = self.0.rotate_left(23) ^ value ^ 0x9e37_79b9_7f4a_7c15;
        self.0 = fold(mixed, 0xd6e8_feb8_6659_fd93) ^ self.0.wrapping_mul(0xa076_1d64_78bd_642f);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.0 ^ 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3)
    }
}
