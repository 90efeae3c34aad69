//! The bytes of messages: a function of the message's number, cheap to write and to check.

use tagmatch_device::Buffer;
use tagmatch_testkit::random::{Random, mix};

/// The byte that fills a receive buffer before a message is received.
const EMPTY: u8 = 0xee;
/// Bytes that are checked behind the message and at the end of a large buffer.
const EDGE: usize = 128;
/// Spare vectors that are kept.
const SPARE_MAX: usize = 256;
/// Buffers, of 1000, that are made of several slices.
const SLICED_PER_MILLE: u32 = 80;

/// Vectors that are reused, because an allocation would cost more than most operations.
#[derive(Debug)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    /// Decides which buffers are made of several slices.
    random: Random,
    /// Whether every byte behind a message is checked, not only the edges.
    pub(crate) thorough: bool,
}

impl Buffers {
    pub(crate) fn new(seed: u64) -> Self {
        Buffers { spare: vec![], random: Random::stream(seed, 5), thorough: false }
    }

    /// A buffer of these bytes, in one run or in several slices.
    pub(crate) fn buffer(&mut self, mut bytes: Vec<u8>) -> Buffer {
        if !self.random.per_mille(SLICED_PER_MILLE) {
            return bytes.into();
        }
        let mut slices = Vec::new();
        for _ in 0..self.random.below_u32(4) {
            // From the end to the start. Slices may be empty.
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            slices.push(bytes.split_off(self.random.below_u32(length + 1) as usize));
        }
        slices.push(bytes);
        slices.reverse();
        Buffer::from_slices(slices)
    }

    /// The bytes of a buffer that an operation has given back, in one run. `None`: it is made of
    /// several slices, and shows the memory that the engine has packed them into.
    pub(crate) fn joined(buffer: Buffer) -> Option<Buffer> {
        let is_sliced = buffer.slices().is_some();
        match (is_sliced, buffer.is_empty()) {
            (false, _) => Some(buffer),
            (true, true) => Some(buffer.into_vec().into()),
            (true, false) => None,
        }
    }

    /// The payload of a message.
    pub(crate) fn payload(&mut self, message: u32, length: u32) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(length as usize, 0);
        let mut word = first_word(message);
        let mut words = bytes.chunks_exact_mut(8);
        for chunk in &mut words {
            chunk.copy_from_slice(&word.to_le_bytes());
            word = next_word(word);
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
        bytes
    }

    /// A buffer to receive into.
    pub(crate) fn room(&mut self, length: u32) -> Buffer {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(length as usize, EMPTY);
        self.buffer(bytes)
    }

    /// Whether the buffer begins with as much of the message as fits, and holds nothing else.
    pub(crate) fn holds(&self, buffer: &[u8], message: u32, length: u32) -> bool {
        let fits = buffer.len().min(length as usize);
        let (begin, behind) = buffer.split_at(fits);
        let is_empty = |bytes: &[u8]| bytes.iter().all(|&b| b == EMPTY);
        is_payload(begin, message)
            && if self.thorough || behind.len() <= 2 * EDGE {
                is_empty(behind)
            } else {
                is_empty(&behind[..EDGE]) && is_empty(&behind[behind.len() - EDGE..])
            }
    }

    /// Whether nothing was received into a buffer.
    pub(crate) fn is_untouched(&self, buffer: &[u8]) -> bool {
        self.holds(buffer, 0, 0)
    }

    /// Gives a buffer back. Its contents are overwritten, so that a read of them is noticed.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        if self.spare.len() < SPARE_MAX && buffer.is_writable() {
            self.spare.push(buffer.into_vec());
        }
    }
}

/// Whether these are the first bytes of a message.
pub(crate) fn is_payload(bytes: &[u8], message: u32) -> bool {
    let mut word = first_word(message);
    let mut same = true;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for chunk in words {
        same &= chunk == word.to_le_bytes();
        word = next_word(word);
    }
    same && rest == &word.to_le_bytes()[..rest.len()]
}

fn first_word(message: u32) -> u64 {
    mix(u64::from(message) + 1)
}

fn next_word(word: u64) -> u64 {
    word.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_is_seen() {
        let mut buffers = Buffers::new(1);
        for length in [0, 1, 7, 8, 9, 40] {
            let payload = buffers.payload(5, length);
            let mut room = vec![EMPTY; 60];
            room[..payload.len()].copy_from_slice(&payload);
            assert!(buffers.holds(&room, 5, length));
            assert!(length == 0 || !buffers.holds(&room, 6, length));
            for at in 0..room.len() {
                room[at] ^= 1;
                assert!(!buffers.holds(&room, 5, length), "byte {at} of {length}");
                room[at] ^= 1;
            }
            assert!(buffers.holds(&payload[..payload.len() / 2], 5, length));
        }
    }
}
