//! The bytes of unexpected messages, in blocks of size classes.
//!
//! A message takes a block of the smallest power of two that holds it, [`SMALLEST_BYTES`] at least,
//! so that a 1-byte message never pins kilobytes. The smallest blocks are part of the message's own
//! record. Freed blocks are kept for the next message of their class, up to [`SPARE_BYTES_MAX`] a
//! class; the others go back to the allocator. The credits that were granted (`credit`) count these
//! blocks, so they bound the memory that blocks take.

use tagmatch_device::Bytes;

/// Bytes in the smallest block.
pub(crate) const SMALLEST_BYTES: usize = 16;
/// Bytes of spare blocks kept per class.
pub(crate) const SPARE_BYTES_MAX: usize = 256 * 1024;

/// What a payload of `length` bytes costs in credits: the size of its block, 0 for an empty one.
#[inline]
pub fn cost_bytes(length: usize) -> u64 {
    match length {
        0 => 0,
        1..=SMALLEST_BYTES => SMALLEST_BYTES as u64,
        _ => length.next_power_of_two() as u64,
    }
}

/// Payload of an unexpected message, which knows its length.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// At most [`SMALLEST_BYTES`].
    Small([u8; SMALLEST_BYTES]),
    /// In a block of the store.
    Block(Box<[u8]>),
}

impl Stored {
    /// The whole block, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Stored::Small(block) => block,
            Stored::Block(block) => block,
        }
    }

    /// The payload, which was this long when it was put in.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        match self {
            Stored::Small(block) => &block[..length],
            Stored::Block(block) => &block[..length],
        }
    }
}

/// Blocks by size class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Spare blocks of 2^(index) bytes.
    spare: Vec<Vec<Box<[u8]>>>,
}

impl Store {
    /// Copies a message's bytes from `offset` on.
    pub(crate) fn put(&mut self, bytes: &Bytes<'_>, offset: usize) -> Stored {
        let length = bytes.len().saturating_sub(offset);
        if length <= SMALLEST_BYTES {
            let mut block = [0; SMALLEST_BYTES];
            bytes.copy_to(offset, &mut block[..length]);
            return Stored::Small(block);
        }
        let mut block = self.take(length);
        bytes.copy_to(offset, &mut block[..length]);
        Stored::Block(block)
    }

    /// The block of a message of this length, with any contents.
    pub(crate) fn block(&mut self, length: usize) -> Stored {
        match length {
            0..=SMALLEST_BYTES => Stored::Small([0; SMALLEST_BYTES]),
            _ => Stored::Block(self.take(length)),
        }
    }

    fn take(&mut self, length: usize) -> Box<[u8]> {
        let size = length.next_power_of_two();
        let class = size.trailing_zeros() as usize;
        let spare = self.spare.get_mut(class).and_then(Vec::pop);
        spare.unwrap_or_else(|| vec![0; size].into_boxed_slice())
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, stored: Stored) {
        let Stored::Block(block) = stored else {
            return;
        };
        let size = block.len();
        let class = size.trailing_zeros() as usize;
        if self.spare.len() <= class {
            self.spare.resize_with(class + 1, Vec::new);
        }
        let spare = &mut self.spare[class];
        if (spare.len() + 1) * size <= SPARE_BYTES_MAX {
            spare.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_costs_the_block_that_it_takes() {
        let mut store = Store::default();
        for length in [0, 1, 15, 16, 17, 64, 100, 4096, 5000] {
            let payload: Vec<u8> = (0..=250u8).cycle().take(length + 3).collect();
            let stored = store.put(&Bytes::from_slice(&payload), 3);
            assert_eq!(stored.bytes(length), &payload[3..]);
            if let Stored::Block(block) = &stored {
                assert_eq!(block.len() as u64, cost_bytes(length));
            }
            store.free(stored);
        }
        assert_eq!([cost_bytes(0), cost_bytes(1), cost_bytes(17)], [0, 16, 32]);
    }

    #[test]
    fn spare_blocks_are_used_again_and_bounded() {
        let mut store = Store::default();
        let payload = vec![1; 64 * 1024];
        let held: Vec<_> = (0..10).map(|_| store.put(&Bytes::from_slice(&payload), 0)).collect();
        for stored in held {
            store.free(stored);
        }
        assert_eq!(store.spare[16].len(), SPARE_BYTES_MAX / (64 * 1024));
        store.put(&Bytes::from_slice(&payload), 0);
        assert_eq!(store.spare[16].len(), SPARE_BYTES_MAX / (64 * 1024) - 1);
    }
}
