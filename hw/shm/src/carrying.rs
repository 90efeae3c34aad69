//! Which messages of middle length go out in fragments, through the ring, and which ones their
//! receiver reads out of this worker's memory.
//!
//! Fragments are copied twice, and need no call of the kernel. From which length on a read is
//! faster depends on the time of such a call, which the handshake measures, on the processor, and
//! on the number of messages under way, since a receiver reads several of them in one call. So each
//! class of lengths begins with the way that the handshake's figure suggests, and learns from
//! there.

use std::time::Instant;

use tagmatch_device::{LearnedChoice, LearnedDirection};

use super::class_choices::{ChoiceNames, ClassChoices, ClassStart};
use super::learned::Alternative;

/// The shortest message for which it is learned.
const LENGTH_MIN: usize = 8 << 10;
/// Longer ones are not: those are always read.
const LENGTH_MAX: usize = (128 << 10) - 1;
/// Messages of a sample of each class: up to 16, 32, 64 and 128 KiB. So many that a sample has
/// several windows of messages in it, and the time between.
const MESSAGES_TIMED: [u32; 4] = [256, 128, 64, 32];

/// The ways that are learned for the messages to a peer.
#[derive(Debug)]
pub(crate) struct Carrying {
    /// The first way is to send fragments.
    choices: ClassChoices,
    /// The longest message that goes out in fragments where there is nothing to learn.
    fragmented_max: usize,
}

impl Carrying {
    /// Begins with fragments for messages of up to `fragmented_max` bytes; that stays so without
    /// `learns`, and where that is all messages, or none. With `pinned`, all messages that could
    /// learn go out in fragments, or none.
    pub(crate) fn new(learns: bool, pinned: Option<bool>, fragmented_max: usize) -> Self {
        let has_choice = (1..=1 << 30).contains(&fragmented_max);
        let fragmented_max = match pinned.filter(|_| has_choice) {
            Some(true) => LENGTH_MAX,
            Some(false) => 0,
            None => fragmented_max,
        };
        let learns = learns && pinned.is_none() && has_choice;
        let timed = if learns { &MESSAGES_TIMED[..] } else { &[] };
        let starts = timed.iter().enumerate().map(|(class, messages_timed)| {
            let is_fragmented = LENGTH_MIN << class <= fragmented_max;
            let way = if is_fragmented { Alternative::First } else { Alternative::Second };
            ClassStart { way, messages_timed: *messages_timed }
        });
        Carrying { choices: ClassChoices::new(LENGTH_MIN, starts), fragmented_max }
    }

    /// The choices, for a person.
    pub(crate) fn learned(&self) -> Vec<LearnedChoice> {
        let direction = LearnedDirection::Sent;
        let ways = ["in fragments", "read by the peer"];
        let mut choices = self.choices.learned(&ChoiceNames { direction, ways });
        if let Some(last) = choices.last_mut() {
            last.lengths = *last.lengths.start()..=LENGTH_MAX;
        }
        choices
    }

    /// The longest message that ever goes out in fragments.
    pub(crate) fn fragmented_max(&self) -> usize {
        let has_choice = self.choices.way(LENGTH_MAX).is_some();
        self.fragmented_max.max(if has_choice { LENGTH_MAX } else { 0 })
    }

    /// Whether a message of this length goes out in fragments.
    pub(crate) fn is_fragmented(&self, length: usize) -> bool {
        let learned = self.choices.way(length).filter(|_| length <= LENGTH_MAX);
        learned.map_or(length <= self.fragmented_max, |way| way == Alternative::First)
    }

    /// A message of this length has gone out.
    pub(crate) fn sent(&mut self, length: usize, clock: impl FnOnce() -> Instant) {
        if length <= LENGTH_MAX
            && let Some(way) = self.choices.ended(length, clock)
        {
            log::debug!("shm: messages of {length} bytes: {way:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Sends messages of this length, which take so long each, in fragments and read.
    fn send(carrying: &mut Carrying, length: usize, us: [u64; 2]) {
        let mut now = Instant::now();
        // Four epochs of 18 samples.
        for _ in 0..=4 * 18 * MESSAGES_TIMED[0] {
            now += Duration::from_micros(us[usize::from(!carrying.is_fragmented(length))]);
            carrying.sent(length, || now);
        }
    }

    #[test]
    fn messages_begin_with_what_the_handshake_has_found_and_learn_the_other_way() {
        for fragmented_max in [6_000, 20_000] {
            let mut carrying = Carrying::new(true, None, fragmented_max);
            assert_eq!(carrying.fragmented_max(), LENGTH_MAX);
            assert_eq!(carrying.is_fragmented(16 << 10), fragmented_max == 20_000);
            assert!(!carrying.is_fragmented(32 << 10));
            send(&mut carrying, 16 << 10, [2, 1]);
            assert!(!carrying.is_fragmented(16 << 10));
            send(&mut carrying, 32 << 10, [2, 3]);
            assert!(carrying.is_fragmented(32 << 10) && !carrying.is_fragmented(16 << 10));
            let lengths: Vec<_> = carrying.learned().into_iter().map(|way| way.lengths).collect();
            let kib = |from: usize, to: usize| (from << 10)..=(to << 10) - 1;
            assert_eq!(lengths, [kib(8, 16), kib(16, 32), kib(32, 64), kib(64, 128)]);
        }
    }

    #[test]
    fn nothing_is_learned_where_all_or_no_messages_are_fragmented_or_a_setting_forbids_it() {
        for (learns, fragmented_max) in [(true, usize::MAX), (true, 0), (false, 20_000)] {
            let mut carrying = Carrying::new(learns, None, fragmented_max);
            send(&mut carrying, 16 << 10, [2, 1]);
            send(&mut carrying, 32 << 10, [2, 1]);
            assert_eq!(carrying.fragmented_max(), fragmented_max);
            let lengths = [100, 16 << 10, 32 << 10, 1 << 20];
            let expected = lengths.map(|length| length <= fragmented_max);
            assert_eq!(lengths.map(|length| carrying.is_fragmented(length)), expected);
        }
    }

    #[test]
    fn longer_messages_have_no_choice() {
        let mut carrying = Carrying::new(true, None, 200_000);
        send(&mut carrying, LENGTH_MAX + 1, [2, 1]);
        assert!(carrying.is_fragmented(LENGTH_MAX + 1) && !carrying.is_fragmented(200_001));
    }
}
