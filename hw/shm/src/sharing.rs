//! Of which long messages a sender is offered a part.
//!
//! A message that both sides copy takes less time than one that its receiver copies, as long as the
//! sender has nothing else to do. Where several long messages are under way, the two copies of one
//! message slow each other down, and the sender's other work. How much depends on the processor and
//! on the number of messages, so each class of lengths learns it.

use std::time::Instant;

use tagmatch_device::{LearnedChoice, LearnedDirection};

use super::class_choices::{ChoiceNames, ClassChoices, ClassStart};
use super::cooperative::OFFERED_MIN;
use super::learned::Alternative;

/// Messages of this length and more are offered as long as nothing was learned. On an Intel Xeon
/// (Sapphire Rapids), messages of 24 to 48 KiB take three quarters of the time alone if they are
/// offered, and twice the time in windows.
const SHARED_MIN: usize = 64 << 10;
/// Messages of a sample of each class: up to twice [`OFFERED_MIN`], four times, .., and all longer
/// ones. So many that a sample has the time in it that passes between two windows of messages.
const MESSAGES_TIMED: [u32; 8] = [64, 64, 64, 64, 64, 32, 16, 8];

/// The ways that are learned for the reads from a peer.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// The first way is to offer a part. Empty: nothing is learned.
    choices: ClassChoices,
    /// Whether messages without a choice are offered.
    pinned: bool,
}

impl Sharing {
    /// Nothing was learned yet. With `pinned`, nothing ever is, and all are offered, or none.
    pub(crate) fn new(pinned: Option<bool>) -> Self {
        let timed = if pinned.is_none() { &MESSAGES_TIMED[..] } else { &[] };
        let starts = timed.iter().enumerate().map(|(class, messages_timed)| {
            let is_offered = OFFERED_MIN << class >= SHARED_MIN;
            let way = if is_offered { Alternative::First } else { Alternative::Second };
            ClassStart { way, messages_timed: *messages_timed }
        });
        let choices = ClassChoices::new(OFFERED_MIN, starts);
        Sharing { choices, pinned: pinned.unwrap_or(true) }
    }

    /// Whether the sender of a message of this length, which may be offered, is to copy a part.
    pub(crate) fn is_offered(&self, length: usize) -> bool {
        let is_pinned = self.pinned && length >= SHARED_MIN;
        self.choices.way(length).map_or(is_pinned, |way| way == Alternative::First)
    }

    /// The choices, for a person.
    pub(crate) fn learned(&self) -> Vec<LearnedChoice> {
        let direction = LearnedDirection::Received;
        self.choices.learned(&ChoiceNames { direction, ways: ["both sides copy", "read alone"] })
    }

    /// A read of this length has ended.
    pub(crate) fn ended(&mut self, length: usize, clock: impl FnOnce() -> Instant) {
        if let Some(way) = self.choices.ended(length, clock) {
            log::debug!("shm: reads of {length} bytes: {way:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Reads messages of this length, which take so long each, offered and not.
    fn read(sharing: &mut Sharing, length: usize, us: [u64; 2]) {
        let mut now = Instant::now();
        // Four epochs of 18 samples.
        for _ in 0..=4 * 18 * MESSAGES_TIMED[0] {
            now += Duration::from_micros(us[usize::from(!sharing.is_offered(length))]);
            sharing.ended(length, || now);
        }
    }

    #[test]
    fn messages_are_offered_or_not_as_they_take_less_time() {
        let mut sharing = Sharing::new(None);
        let offered =
            |sharing: &Sharing| [1, 2, 4, 16].map(|n| sharing.is_offered(n * OFFERED_MIN));
        assert_eq!(offered(&sharing), [false, false, true, true]);
        read(&mut sharing, 4 * OFFERED_MIN, [8, 5]);
        assert_eq!(offered(&sharing), [false, false, false, true]);
        read(&mut sharing, 2 * OFFERED_MIN, [5, 8]);
        assert_eq!(offered(&sharing), [false, true, false, true]);
    }

    #[test]
    fn where_it_is_pinned_all_or_none_is_offered_and_nothing_is_learned() {
        for pinned in [true, false] {
            let mut sharing = Sharing::new(Some(pinned));
            read(&mut sharing, SHARED_MIN, if pinned { [8, 5] } else { [5, 8] });
            let offered = [1, 4, 100].map(|times| sharing.is_offered(times * SHARED_MIN));
            assert_eq!(offered, [pinned; 3]);
            assert!(!sharing.is_offered(SHARED_MIN - 1) && sharing.learned().is_empty());
        }
    }
}
