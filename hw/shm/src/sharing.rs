//! Of which long messages a sender is offered a part.
//!
//! A message that both sides copy takes less time than one that its receiver copies, as long as the
//! sender has nothing else to do. Where several long messages are under way, the two copies of one
//! message slow each other down, and the sender's other work. How much depends on the processor and
//! on the number of messages, so each class of lengths learns it. The cost of a message is the time
//! since the one before it ended: that has everything in it that a way makes slower.

use std::time::Instant;

use super::cooperative::OFFERED_MIN;
use super::learned::{Alternative, Learned};

/// Classes: up to twice [`OFFERED_MIN`], four times, .., and all longer ones.
const CLASSES: usize = 6;
/// Messages of a sample, so that it has the time in it that passes between two windows of messages.
const MESSAGES_TIMED: u32 = 8;
/// Messages that were begun before a change of the way may end after it: those of so many samples
/// are left out.
const LEFT_OUT: usize = 2;

/// What the reads from a peer have taught.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// The first way is to offer a part. Empty: nothing is learned, and all are offered.
    classes: Vec<Learned>,
    /// The sample that is being taken.
    sample: Option<Sample>,
}

/// Reads of one class in a row.
#[derive(Debug)]
struct Sample {
    class: usize,
    /// When the read before the first one ended.
    began: Instant,
    ended: u32,
}

/// The class of a length that may be offered.
fn class(length: usize) -> Option<usize> {
    let times = (length / OFFERED_MIN).checked_ilog2()?;
    Some((times as usize).min(CLASSES - 1))
}

impl Sharing {
    /// Nothing was learned yet; nothing ever is without `learns`.
    pub(crate) fn new(learns: bool) -> Self {
        let count = if learns { CLASSES } else { 0 };
        let classes = (0..count).map(|_| Learned::new(Alternative::First, LEFT_OUT)).collect();
        Sharing { classes, sample: None }
    }

    /// Whether the sender of a message of this length, which may be offered, is to copy a part.
    pub(crate) fn is_offered(&self, length: usize) -> bool {
        let learned = class(length).and_then(|class| self.classes.get(class));
        learned.is_none_or(|learned| learned.way() == Alternative::First)
    }

    /// A read of this length has ended.
    pub(crate) fn ended(&mut self, length: usize, clock: impl FnOnce() -> Instant) {
        let class = class(length);
        let Some((class, learned)) = class.and_then(|at| Some((at, self.classes.get_mut(at)?)))
        else {
            self.sample = None;
            return;
        };
        let Some(sample) = self.sample.as_mut().filter(|sample| sample.class == class) else {
            self.sample = Some(Sample { class, began: clock(), ended: 0 });
            return;
        };
        sample.ended += 1;
        if sample.ended == MESSAGES_TIMED {
            let now = clock();
            let ns = now.duration_since(sample.began).as_nanos();
            self.sample = Some(Sample { class, began: now, ended: 0 });
            if learned.sample(u32::try_from(ns).unwrap_or(u32::MAX)) {
                log::debug!("shm: reads of class {class}: {:?}", learned.way());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_class_has_lengths_up_to_twice_as_long() {
        let of = |times: usize| class(times * OFFERED_MIN);
        assert_eq!(class(OFFERED_MIN - 1), None);
        assert_eq!([1, 2, 3, 4, 31, 32, 1000].map(of), [0, 1, 1, 2, 4, 5, 5].map(Some));
    }

    /// Reads messages of this length, which take so long each, offered and not.
    fn read(sharing: &mut Sharing, length: usize, count: u32, us: [u64; 2]) {
        let mut now = Instant::now();
        for _ in 0..count {
            let us = us[usize::from(!sharing.is_offered(length))];
            now += Duration::from_micros(us);
            sharing.ended(length, || now);
        }
    }

    #[test]
    fn a_class_offers_or_not_as_its_messages_take_less_time() {
        let mut sharing = Sharing::new(true);
        let long = 4 * OFFERED_MIN;
        assert!(sharing.is_offered(OFFERED_MIN) && sharing.is_offered(long));
        read(&mut sharing, OFFERED_MIN, 1000, [8, 5]);
        assert!(!sharing.is_offered(OFFERED_MIN) && sharing.is_offered(long));
        read(&mut sharing, long, 1000, [20, 30]);
        assert!(!sharing.is_offered(OFFERED_MIN) && sharing.is_offered(long));
    }

    #[test]
    fn reads_of_several_classes_in_turn_and_short_ones_are_no_samples() {
        let mut sharing = Sharing::new(true);
        for length in [OFFERED_MIN, 4 * OFFERED_MIN, OFFERED_MIN, OFFERED_MIN - 1] {
            for _ in 0..1000 {
                read(&mut sharing, length, MESSAGES_TIMED, [8, 5]);
                read(&mut sharing, 2 * OFFERED_MIN, MESSAGES_TIMED, [8, 5]);
            }
        }
        assert!(sharing.is_offered(OFFERED_MIN) && sharing.is_offered(4 * OFFERED_MIN));
    }

    #[test]
    fn all_is_offered_where_nothing_is_learned() {
        let mut sharing = Sharing::new(false);
        read(&mut sharing, OFFERED_MIN, 1000, [8, 5]);
        assert!(sharing.is_offered(OFFERED_MIN));
    }
}
