//! A choice between two ways for each class of lengths, learned from the time that messages take.
//!
//! The cost of a message is the time since the one before it: that has everything in it that a way
//! makes slower, on either side. So a sample is many messages in a row, of one class.

use std::time::Instant;

use tagmatch_device::{LearnedChoice, LearnedDirection};

use super::learned::{Alternative, Learned};

/// Messages that were begun before a change of the way may end after it: those of so many samples
/// are left out.
const LEFT_OUT: usize = 2;

/// Costs are in this fraction of a nanosecond a byte.
const COSTS_PER_NS: u32 = 1 << 16;

/// The names that a person sees, the same for all classes.
#[derive(Debug)]
pub(crate) struct ChoiceNames {
    pub(crate) direction: LearnedDirection,
    pub(crate) ways: [&'static str; 2],
}

/// A class of lengths before anything was learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassStart {
    /// The way that it begins with.
    pub(crate) way: Alternative,
    /// Messages of a sample.
    pub(crate) messages_timed: u32,
}

/// The choices of all classes.
#[derive(Debug)]
pub(crate) struct ClassChoices {
    /// The first class has lengths from this to twice as much, the second one up to four times as
    /// much, .., and the last one all longer ones.
    length_min: usize,
    /// Empty: nothing is learned.
    classes: Vec<Class>,
    /// The sample that is being taken.
    sample: Option<Sample>,
}

#[derive(Debug)]
struct Class {
    messages_timed: u32,
    learned: Learned,
}

/// Messages of one class in a row.
#[derive(Debug)]
struct Sample {
    class: usize,
    /// When the message before the first one ended.
    began: Instant,
    ended: u32,
    bytes: u64,
}

impl Sample {
    fn begin(class: usize, began: Instant) -> Self {
        Sample { class, began, ended: 0, bytes: 0 }
    }

    /// The cost of the messages that have ended by `now`.
    fn cost(&self, now: Instant) -> u32 {
        let ns = now.duration_since(self.began).as_nanos();
        let cost = ns * u128::from(COSTS_PER_NS) / u128::from(self.bytes.max(1));
        u32::try_from(cost).unwrap_or(u32::MAX)
    }
}

impl ClassChoices {
    /// Nothing was learned yet.
    pub(crate) fn new(length_min: usize, starts: impl IntoIterator<Item = ClassStart>) -> Self {
        let class = |ClassStart { way, messages_timed }| Class {
            messages_timed,
            learned: Learned::new(way, LEFT_OUT),
        };
        ClassChoices { length_min, classes: starts.into_iter().map(class).collect(), sample: None }
    }

    fn class(&self, length: usize) -> Option<usize> {
        let times = (length / self.length_min).checked_ilog2()? as usize;
        Some(times.min(self.classes.len().checked_sub(1)?))
    }

    /// The way to take for a message of this length. `None`: there is no choice.
    pub(crate) fn way(&self, length: usize) -> Option<Alternative> {
        Some(self.classes.get(self.class(length)?)?.learned.way())
    }

    /// A message of this length has ended. Gives the other way if it is to be taken from now on.
    pub(crate) fn ended(
        &mut self,
        length: usize,
        clock: impl FnOnce() -> Instant,
    ) -> Option<Alternative> {
        let Some(index) = self.class(length) else {
            self.sample = None;
            return None;
        };
        let class = self.classes.get_mut(index)?;
        let Some(sample) = self.sample.as_mut().filter(|sample| sample.class == index) else {
            self.sample = Some(Sample::begin(index, clock()));
            return None;
        };
        sample.ended += 1;
        sample.bytes += length as u64;
        if sample.ended < class.messages_timed {
            return None;
        }
        let now = clock();
        let cost = sample.cost(now);
        *sample = Sample::begin(index, now);
        class.learned.sample(cost).then(|| class.learned.way())
    }

    /// The choices, for a person, shortest lengths first.
    pub(crate) fn learned(&self, names: &ChoiceNames) -> Vec<LearnedChoice> {
        let last = self.classes.len().saturating_sub(1);
        let row = |(index, class): (usize, &Class)| {
            let first = self.length_min << index;
            let end = if index == last { usize::MAX } else { 2 * first - 1 };
            let state = class.learned.state(f64::from(COSTS_PER_NS));
            state.describe(LearnedChoice::new(names.direction, first..=end, names.ways))
        };
        self.classes.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIN: usize = 1000;

    fn choices() -> ClassChoices {
        let start = ClassStart { way: Alternative::First, messages_timed: 8 };
        ClassChoices::new(MIN, [start; 3])
    }

    #[test]
    fn each_class_has_lengths_up_to_twice_as_long() {
        let choices = choices();
        let classes = [999, 1000, 1999, 2000, 3999, 4000, 100_000].map(|at| choices.class(at));
        assert_eq!(classes, [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(ClassChoices::new(MIN, []).way(MIN), None);
    }

    /// Messages of this length, which take so long each on the first and on the second way.
    fn send(choices: &mut ClassChoices, length: usize, count: u32, us: [u64; 2]) {
        let mut now = Instant::now();
        for _ in 0..count {
            let is_second = choices.way(length) == Some(Alternative::Second);
            now += Duration::from_micros(us[usize::from(is_second)]);
            choices.ended(length, || now);
        }
    }

    #[test]
    fn a_class_takes_the_way_on_which_its_messages_take_less_time() {
        let mut choices = choices();
        send(&mut choices, MIN, 1000, [8, 5]);
        let ways = [MIN, 4 * MIN].map(|at| choices.way(at));
        assert_eq!(ways, [Alternative::Second, Alternative::First].map(Some));
        send(&mut choices, 4 * MIN, 1000, [20, 30]);
        assert_eq!(choices.way(4 * MIN), Some(Alternative::First));
    }

    #[test]
    fn messages_of_several_classes_in_turn_and_short_ones_are_no_samples() {
        let mut choices = choices();
        for length in [MIN, 4 * MIN, MIN, MIN - 1] {
            for _ in 0..1000 {
                send(&mut choices, length, 8, [8, 5]);
                send(&mut choices, 2 * MIN, 8, [8, 5]);
            }
        }
        let names = ChoiceNames { direction: LearnedDirection::Sent, ways: ["first", "second"] };
        assert!(choices.learned(&names).iter().all(|class| class.samples == 0));
        assert_eq!([MIN, 4 * MIN].map(|at| choices.way(at)), [Some(Alternative::First); 2]);
    }
}
