//! A choice between two ways for each class of lengths, learned from the time that messages take.
//!
//! The cost of a message is the time since the one before it: that has everything in it that a way
//! makes slower, on either side. So a sample is many messages in a row, of one class.

use std::time::Instant;

use super::learned::{Alternative, Learned};

/// Messages that were begun before a change of the way may end after it: those of so many samples
/// are left out.
const LEFT_OUT: usize = 2;

/// The choices of all classes.
#[derive(Debug)]
pub(crate) struct ClassChoices {
    /// The first class has lengths from this to twice as much, the second one up to four times as
    /// much, .., and the last one all longer ones.
    length_min: usize,
    /// Messages of a sample.
    messages_timed: u32,
    /// Empty: nothing is learned.
    classes: Vec<Learned>,
    /// The sample that is being taken.
    sample: Option<Sample>,
}

/// Messages of one class in a row.
#[derive(Debug)]
struct Sample {
    class: usize,
    /// When the message before the first one ended.
    began: Instant,
    ended: u32,
}

impl ClassChoices {
    /// Nothing was learned yet: each class begins with the way that is given for it.
    pub(crate) fn new(
        length_min: usize,
        messages_timed: u32,
        starts: impl IntoIterator<Item = Alternative>,
    ) -> Self {
        let classes = starts.into_iter().map(|start| Learned::new(start, LEFT_OUT)).collect();
        ClassChoices { length_min, messages_timed, classes, sample: None }
    }

    fn class(&self, length: usize) -> Option<usize> {
        let times = (length / self.length_min).checked_ilog2()? as usize;
        Some(times.min(self.classes.len().checked_sub(1)?))
    }

    /// The way to take for a message of this length. `None`: there is no choice.
    pub(crate) fn way(&self, length: usize) -> Option<Alternative> {
        Some(self.classes.get(self.class(length)?)?.way())
    }

    /// A message of this length has ended. Gives the other way if it is to be taken from now on.
    pub(crate) fn ended(
        &mut self,
        length: usize,
        clock: impl FnOnce() -> Instant,
    ) -> Option<Alternative> {
        let Some(class) = self.class(length) else {
            self.sample = None;
            return None;
        };
        let Some(sample) = self.sample.as_mut().filter(|sample| sample.class == class) else {
            self.sample = Some(Sample { class, began: clock(), ended: 0 });
            return None;
        };
        sample.ended += 1;
        if sample.ended < self.messages_timed {
            return None;
        }
        let now = clock();
        let ns = now.duration_since(sample.began).as_nanos();
        self.sample = Some(Sample { class, began: now, ended: 0 });
        let learned = self.classes.get_mut(class)?;
        let has_changed = learned.sample(u32::try_from(ns).unwrap_or(u32::MAX));
        has_changed.then(|| learned.way())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIN: usize = 1000;

    fn choices() -> ClassChoices {
        ClassChoices::new(MIN, 8, [Alternative::First; 3])
    }

    #[test]
    fn each_class_has_lengths_up_to_twice_as_long() {
        let choices = choices();
        let classes = [999, 1000, 1999, 2000, 3999, 4000, 100_000].map(|at| choices.class(at));
        assert_eq!(classes, [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(ClassChoices::new(MIN, 8, []).way(MIN), None);
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
        assert_eq!([MIN, 4 * MIN].map(|at| choices.way(at)), [Some(Alternative::First); 2]);
    }
}
