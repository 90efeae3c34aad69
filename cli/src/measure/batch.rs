//! The limits of a phase; a batch of messages, its token, and the tags of all messages.

use std::time::Duration;

use crate::link::Buffer;

/// Tags have the kind of the message above, a number below.
pub(super) const TOKEN: u64 = 1 << 56;
pub(super) const DATA: u64 = 2 << 56;
pub(super) const ANSWER: u64 = 3 << 56;
pub(super) const POSTED_FILLER: u64 = 4 << 56;
pub(super) const UNEXPECTED_FILLER: u64 = 5 << 56;
pub(super) const IDLE: u64 = 6 << 56;
/// The last message of an open loop.
pub(super) const END: u64 = 7 << 56;

/// Length of a token.
pub(super) const TOKEN_BYTES: usize = 24;

/// The limits of the warm-up, or of the part that counts. Whichever is reached first ends it.
#[derive(Clone, Copy)]
pub(super) struct PhaseLimits {
    pub(super) iters: u64,
    pub(super) time: Duration,
    pub(super) counts: bool,
}

/// A batch, as its token announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) messages: u64,
    /// Whether it is more than warm-up.
    pub(crate) counts: bool,
    /// The clock when it was announced, for traffic that has planned times.
    pub(crate) base_ns: u64,
}

impl Batch {
    pub(crate) fn of(messages: u64, counts: bool) -> Self {
        Self { messages, counts, base_ns: 0 }
    }

    pub(crate) fn count(self) -> usize {
        usize::try_from(self.messages).unwrap_or(usize::MAX)
    }

    pub(super) fn emit(self) -> Buffer {
        let words = [self.messages, u64::from(self.counts), self.base_ns];
        Buffer::from(words.map(u64::to_le_bytes).concat())
    }

    /// `most` bounds what a peer may announce.
    pub(super) fn parse(bytes: &[u8], most: u64) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let [messages, counts, base_ns] = <[_; 3]>::try_from(words).ok()?.map(u64::from_le_bytes);
        let sound = messages <= most && counts <= 1 && rest.is_empty();
        sound.then_some(Self { messages, counts: counts == 1, base_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_bounded() {
        let batch = Batch { messages: 7, counts: true, base_ns: u64::MAX };
        assert_eq!(Batch::parse(&batch.emit(), 7), Some(batch));
        assert_eq!(Batch::parse(&batch.emit(), 6), None);
        for length in [0, 16, 23] {
            assert_eq!(Batch::parse(&batch.emit()[..length], 7), None);
        }
        assert_eq!(Batch::parse(&[0xff; 24], u64::MAX), None);
        assert_eq!(Batch::parse(&[0; 25], u64::MAX), None);
    }
}
