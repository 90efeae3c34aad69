//! Payloads that are different for each message, so that a wrong, stale, shifted or short one is
//! found.
//!
//! Word i of a payload is `seed + i * STEP`; the seed is mixed from size, iteration, direction and
//! thread. Writing and checking are as fast as memory, which keeps long runs of large messages
//! short.

/// The message that a payload belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    /// Number of the message among all of a run in this direction, warm-up included.
    pub(crate) iteration: u64,
    pub(crate) direction: Direction,
    /// The thread that sends it.
    pub(crate) thread: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Ping,
    Pong,
}

/// The first wrong byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("message {iteration} of {size} bytes: byte {at} is {found:#04x}, expected {wanted:#04x}")]
pub(crate) struct Corrupt {
    iteration: u64,
    size: usize,
    at: usize,
    found: u8,
    wanted: u8,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 8;
/// Bytes that are compared before the result is looked at.
const BLOCK: usize = 4096;

impl Stamp {
    fn seed(self, size: usize) -> u64 {
        let direction = match self.direction {
            Direction::Ping => 1,
            Direction::Pong => 2,
        };
        let mut seed = self.iteration.wrapping_mul(4).wrapping_add(direction);
        seed ^= (size as u64).rotate_left(32) ^ self.thread.rotate_right(8);
        // The output function of SplitMix64: near seeds give results that are far apart.
        seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        seed ^ (seed >> 31)
    }

    /// Fills all of `payload`.
    pub(crate) fn fill(self, payload: &mut [u8]) {
        let mut word = self.seed(payload.len());
        let mut words = payload.chunks_exact_mut(WORD);
        for bytes in &mut words {
            bytes.copy_from_slice(&word.to_le_bytes());
            word = word.wrapping_add(STEP);
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
    }

    /// Checks all of `payload`.
    pub(crate) fn check(self, payload: &[u8]) -> Result<(), Corrupt> {
        let mut word = self.seed(payload.len());
        for (number, block) in payload.chunks(BLOCK).enumerate() {
            let mut wrong = 0;
            let start = word;
            let mut words = block.chunks_exact(WORD);
            for bytes in &mut words {
                let found = u64::from_le_bytes(bytes.try_into().expect("a word has 8 bytes"));
                wrong |= found ^ word;
                word = word.wrapping_add(STEP);
            }
            let rest = words.remainder();
            let rest_wrong = *rest != word.to_le_bytes()[..rest.len()];
            if wrong != 0 || rest_wrong {
                return Err(self.corrupt(payload, block, start, number * BLOCK));
            }
        }
        Ok(())
    }

    fn corrupt(self, payload: &[u8], block: &[u8], word: u64, offset: usize) -> Corrupt {
        let right = |at: usize| {
            let word = word.wrapping_add(STEP.wrapping_mul((at / WORD) as u64));
            word.to_le_bytes()[at % WORD]
        };
        let at = (0..block.len()).find(|&at| block[at] != right(at)).unwrap_or(0);
        Corrupt {
            iteration: self.iteration,
            size: payload.len(),
            at: offset + at,
            found: block[at],
            wanted: right(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { iteration: 5, direction: Direction::Ping, thread: 0 };

    #[test]
    fn every_wrong_byte_shows() {
        for size in [0, 1, 7, 8, 9, 64, 4095, 4096, 4097, 10_003] {
            let mut payload = vec![0; size];
            STAMP.fill(&mut payload);
            assert_eq!(STAMP.check(&payload), Ok(()));
            let step = if size > 64 { 97 } else { 1 };
            for at in (0..size).step_by(step) {
                payload[at] ^= 0x10;
                let corrupt = STAMP.check(&payload).unwrap_err();
                assert_eq!((corrupt.at, corrupt.found ^ corrupt.wanted), (at, 0x10));
                payload[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn every_other_message_shows() {
        let mut payload = [0; 8];
        STAMP.fill(&mut payload);
        for other in [
            Stamp { iteration: 6, ..STAMP },
            Stamp { iteration: 4, ..STAMP },
            Stamp { direction: Direction::Pong, ..STAMP },
            Stamp { thread: 1, ..STAMP },
        ] {
            assert!(other.check(&payload).is_err());
        }
        let mut longer = [0; 16];
        STAMP.fill(&mut longer);
        assert!(STAMP.check(&longer[..8]).is_err(), "another size");
        assert!(STAMP.check(&[0; 8]).is_err());
    }
}
