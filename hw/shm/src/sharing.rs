//! Of which long messages a sender is offered a part.
//!
//! A message that both sides copy takes less time than one that its receiver copies, as long as the
//! sender has nothing else to do. Where several long messages are under way, the two copies of one
//! message slow each other down, and the sender's other work. How much depends on the processor and
//! on the number of messages, so each class of lengths learns it.

use std::time::Instant;

use super::class_choices::ClassChoices;
use super::cooperative::OFFERED_MIN;
use super::learned::Alternative;

/// Classes: up to twice [`OFFERED_MIN`], four times, .., and all longer ones.
const CLASSES: usize = 6;
/// Messages of a sample, so that it has the time in it that passes between two windows of messages.
const MESSAGES_TIMED: u32 = 8;

/// The ways that are learned for the reads from a peer.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// The first way is to offer a part.
    choices: ClassChoices,
}

impl Sharing {
    /// Nothing was learned yet. Without `learns`, nothing ever is, and all are offered.
    pub(crate) fn new(learns: bool) -> Self {
        let count = if learns { CLASSES } else { 0 };
        let starts = std::iter::repeat_n(Alternative::First, count);
        Sharing { choices: ClassChoices::new(OFFERED_MIN, MESSAGES_TIMED, starts) }
    }

    /// Whether the sender of a message of this length, which may be offered, is to copy a part.
    pub(crate) fn is_offered(&self, length: usize) -> bool {
        self.choices.way(length) != Some(Alternative::Second)
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

    /// Reads messages of the shortest length, which take so long each, offered and not.
    fn read(sharing: &mut Sharing, us: [u64; 2]) {
        let mut now = Instant::now();
        for _ in 0..1000 {
            now += Duration::from_micros(us[usize::from(!sharing.is_offered(OFFERED_MIN))]);
            sharing.ended(OFFERED_MIN, || now);
        }
    }

    #[test]
    fn messages_are_offered_or_not_as_they_take_less_time() {
        let mut sharing = Sharing::new(true);
        assert!(sharing.is_offered(OFFERED_MIN));
        read(&mut sharing, [8, 5]);
        assert!(!sharing.is_offered(OFFERED_MIN) && sharing.is_offered(4 * OFFERED_MIN));
    }

    #[test]
    fn all_is_offered_where_nothing_is_learned() {
        let mut sharing = Sharing::new(false);
        read(&mut sharing, [8, 5]);
        assert!(sharing.is_offered(OFFERED_MIN));
    }
}
