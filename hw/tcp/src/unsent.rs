//! How many bytes the kernel may hold that it has not sent yet. A message waits for them.

use std::os::fd::BorrowedFd;

use tagmatch_os::tcp;

use super::frame::{PIECE_BYTES, PIECE_MAX};

/// Two pieces of a read.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "128 KiB")]
pub(crate) const UNSENT_MIN: i32 = 2 * PIECE_BYTES as i32;
/// The most for the fastest network.
const UNSENT_MAX: i32 = 1 << 20;
/// What a connection sends in this part of a second may be unsent. A worker can't be back with more
/// bytes in a shorter time.
const PARTS_OF_A_SECOND: u64 = 8192;
/// The rate is looked at once in so many bytes.
const LOOK_BYTES: u64 = 8 << 20;

/// The limit of a connection, which follows its rate.
#[derive(Default)]
pub(crate) struct UnsentLimit {
    set: i32,
    look_at: u64,
}

impl UnsentLimit {
    /// How many bytes of a read one frame carries: half of what may be unsent.
    pub(crate) fn piece_bytes(&self) -> usize {
        let half = usize::try_from(self.set / 2).unwrap_or(PIECE_BYTES);
        half.clamp(PIECE_BYTES, PIECE_MAX)
    }

    /// Sets the limit anew, if the connection has sent enough since the last time.
    #[inline]
    pub(crate) fn follow(&mut self, socket: BorrowedFd<'_>, taken: u64) {
        if taken >= self.look_at {
            self.look(socket, taken);
        }
    }

    #[cold]
    fn look(&mut self, socket: BorrowedFd<'_>, taken: u64) {
        self.look_at = taken + LOOK_BYTES;
        let limit = limit_at(tcp::delivery_rate(socket).unwrap_or(0));
        // Both calls fail for no connected socket.
        if limit != self.set && tcp::set_unsent_max(socket, limit).is_ok() {
            self.set = limit;
        }
    }
}

/// The limit at a rate in bytes a second: a power of two.
fn limit_at(rate: u64) -> i32 {
    let bytes = i32::try_from(rate / PARTS_OF_A_SECOND).unwrap_or(UNSENT_MAX);
    bytes.clamp(UNSENT_MIN, UNSENT_MAX).cast_unsigned().next_power_of_two().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_network_has_two_pieces_and_a_fast_one_what_it_sends_in_a_moment() {
        let gigabit = 125_000_000;
        assert_eq!(limit_at(0), 128 << 10);
        assert_eq!(limit_at(gigabit), 128 << 10);
        assert_eq!(limit_at(10 * gigabit), 256 << 10);
        assert_eq!(limit_at(100 * gigabit), 1 << 20);
        assert_eq!(limit_at(u64::MAX), 1 << 20);
    }
}
