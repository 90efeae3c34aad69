//! Choosing between two ways by what each of them costs.
//!
//! Which way is faster depends on the processor, on the distance of two cores, which changes while
//! a virtual machine's processors are moved, and on what the program does. So the choice is learned
//! while messages pass, from the time that each way takes.
//!
//! 1. A way is taken for an *epoch*: some samples, of which the first ones are left out, since they
//!    still show the way before.
//! 2. The figure of an epoch is its lower quartile. A noisy neighbour makes samples longer, so the
//!    short ones tell more.
//! 3. The other way is tried for one epoch after every few epochs of the preferred one: at first
//!    after one, then after four, after twice as many each time that the trial has changed nothing,
//!    up to [`EPOCHS_MAX`]. A trial that was slower by so many percent is not repeated for as many
//!    epochs, so that trials cost a hundredth of the time at most. It ends early if its first
//!    samples are slower by half.
//! 4. The other way wins a trial if its figure is smaller by more than a thirty-second than both
//!    figures of the preferred way's last two epochs. Then the preferred way has one more epoch,
//!    since a noisy neighbour may have slowed it down before. If that is slower than the trial as
//!    well, the preferred way changes.
//! 5. After a change, the other way is tried again after two epochs; and at once when the preferred
//!    way's own figure has moved by a quarter for two epochs, unless trials have cost much lately:
//!    a neighbour that comes and goes would cause many.
//!
//! So a wrong choice at the beginning lasts three epochs, the preferred way changes once in four
//! epochs at most, and where nothing changes, one epoch in 65 goes the slower way.

use tagmatch_device::LearnedChoice;

/// The samples of an epoch that count.
const SAMPLES: usize = 16;
/// A trial ends after so many samples if all of them are dearer by half.
const SAMPLES_MIN: usize = 4;
/// Epochs of the preferred way between two trials of the other one, at first and at most.
const EPOCHS_MIN: u32 = 2;
const EPOCHS_MAX: u32 = 64;
/// A trial's excess in percent counts up to this many times the epochs between trials, so that one
/// trial that was disturbed doesn't put off the next one for long.
const EXCESS_SPANS_MAX: u32 = 16;
/// Where trials have lost this much more than a percent of each epoch, in percent of one epoch, a
/// figure that has moved causes none.
const DEBT_MAX: u32 = 64;

/// One of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alternative {
    First,
    Second,
}

impl Alternative {
    fn other(self) -> Self {
        match self {
            Alternative::First => Alternative::Second,
            Alternative::Second => Alternative::First,
        }
    }
}

/// Which of two ways to take.
#[derive(Debug)]
pub(crate) struct Learned {
    now: Alternative,
    preferred: Alternative,
    /// The figure of the last epoch of the first and of the second way; 0 if there was none.
    figures: [u32; 2],
    /// The figure of the preferred way's last epoch but one.
    figure_before: u32,
    /// The preferred way's figure when the other one was last tried, or at first.
    figure_at_trial: u32,
    samples: [u32; SAMPLES],
    /// Samples of this epoch so far, with those that are left out.
    count: usize,
    /// So many samples at an epoch's beginning are left out.
    left_out: usize,
    /// Epochs until the other way is tried.
    until_trial: u32,
    /// Epochs between the trials.
    span: u32,
    /// The other way has won a trial, and the preferred one has one more epoch.
    is_confirming: bool,
    /// The cost of trials, less a percent of each epoch since, in percent of an epoch.
    debt: u32,
    /// Samples of all epochs that have ended, and how often the preferred way has changed.
    samples_taken: u64,
    changes: u64,
}

impl Learned {
    /// Begins with a way. So many samples after a change show the way before.
    pub(crate) const fn new(start: Alternative, left_out: usize) -> Self {
        Learned {
            now: start,
            preferred: start,
            figures: [0; 2],
            figure_before: 0,
            figure_at_trial: 0,
            samples: [0; SAMPLES],
            count: 0,
            left_out,
            until_trial: 1,
            span: EPOCHS_MIN,
            is_confirming: false,
            debt: 0,
            samples_taken: 0,
            changes: 0,
        }
    }

    /// The way to take now.
    #[inline]
    pub(crate) fn way(&self) -> Alternative {
        self.now
    }

    /// The choice, for a person. A figure divided by `figures_per_ns` is nanoseconds a byte.
    pub(crate) fn state(&self, figures_per_ns: f64) -> LearnedState {
        let ns = |figure: u32| (figure != 0).then(|| f64::from(figure) / figures_per_ns);
        LearnedState {
            ns_per_byte: self.figures.map(ns),
            preferred: self.preferred as usize,
            samples: self.samples_taken,
            changes: self.changes,
        }
    }

    /// The way that was taken has cost this much, in any unit. `true`: another way is to be taken.
    pub(crate) fn sample(&mut self, cost: u32) -> bool {
        self.count += 1;
        let Some(at) = self.count.checked_sub(self.left_out + 1) else { return false };
        self.samples[at] = cost;
        let taken = at + 1;
        if taken < SAMPLES && !(taken == SAMPLES_MIN && self.is_trial_lost()) {
            return false;
        }
        self.count = 0;
        self.samples_taken += taken as u64;
        let (_, figure, _) = self.samples[..taken].select_nth_unstable(taken / 4);
        let figure = *figure;
        let before = self.now;
        self.end_epoch(figure.max(1));
        self.now != before
    }

    /// Whether the first samples of a trial all say that it is lost.
    fn is_trial_lost(&self) -> bool {
        let kept = self.figures[self.preferred as usize];
        let is_dear = |cost: &u32| *cost > kept.saturating_add(kept / 2);
        self.now != self.preferred && self.samples[..SAMPLES_MIN].iter().all(is_dear)
    }

    fn end_epoch(&mut self, figure: u32) {
        let earlier = std::mem::replace(&mut self.figures[self.now as usize], figure);
        if self.now != self.preferred {
            self.now = self.preferred;
            let kept = self.figures[self.preferred as usize].min(self.figure_before);
            if is_better(figure, kept) {
                self.is_confirming = true;
            } else {
                self.keep(kept);
            }
            return;
        }
        self.figure_before = if earlier == 0 { figure } else { earlier };
        self.debt = self.debt.saturating_sub(1);
        if std::mem::take(&mut self.is_confirming) {
            let tried = self.figures[self.preferred.other() as usize];
            if is_better(tried, figure) {
                self.change(tried);
            } else {
                self.keep(figure);
            }
            return;
        }
        self.until_trial -= 1;
        if self.figure_at_trial == 0 {
            self.figure_at_trial = figure;
        } else if self.has_moved() && self.debt < DEBT_MAX {
            self.figure_at_trial = figure;
            self.span = EPOCHS_MIN;
            self.until_trial = 0;
        }
        if self.until_trial == 0 {
            self.now = self.preferred.other();
        }
    }

    /// The other way is preferred from now on, which was tried with this figure.
    fn change(&mut self, tried: u32) {
        self.preferred = self.preferred.other();
        self.now = self.preferred;
        self.changes += 1;
        self.span = EPOCHS_MIN;
        self.until_trial = EPOCHS_MIN;
        self.figure_before = tried;
        self.figure_at_trial = tried;
    }

    /// A trial of the other way has changed nothing. The preferred way has this figure.
    fn keep(&mut self, figure: u32) {
        let tried = self.figures[self.preferred.other() as usize];
        let percent = u64::from(tried.saturating_sub(figure)) * 100 / u64::from(figure);
        self.span = (2 * self.span).min(EPOCHS_MAX);
        let excess = u32::try_from(percent).unwrap_or(u32::MAX).min(EXCESS_SPANS_MAX * self.span);
        self.until_trial = self.span.max(excess);
        self.debt += excess;
        self.figure_at_trial = figure;
    }

    /// Whether the preferred way's last two figures both differ by a quarter from the one at the
    /// last trial.
    fn has_moved(&self) -> bool {
        let figure = self.figures[self.preferred as usize];
        let quarter = self.figure_at_trial / 4;
        figure.min(self.figure_before) > self.figure_at_trial + quarter
            || figure.max(self.figure_before) < self.figure_at_trial - quarter
    }
}

/// Whether a figure is smaller than another one by more than its noise.
fn is_better(figure: u32, than: u32) -> bool {
    figure < than - than / 32
}

/// A choice, for a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LearnedState {
    /// The last figure of each way, in nanoseconds a byte, if the way was measured.
    pub(crate) ns_per_byte: [Option<f64>; 2],
    /// Which of both is preferred.
    pub(crate) preferred: usize,
    pub(crate) samples: u64,
    pub(crate) changes: u64,
}

impl LearnedState {
    /// Fills in what is known.
    pub(crate) fn describe(self, mut choice: LearnedChoice) -> LearnedChoice {
        for (way, ns_per_byte) in choice.ways.iter_mut().zip(self.ns_per_byte) {
            way.ns_per_byte = ns_per_byte;
        }
        choice.preferred = self.preferred;
        choice.samples = self.samples;
        choice.changes = self.changes;
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives costs of both ways until so many samples have passed; gives the sum of costs, and how
    /// often the way has changed.
    fn run(
        learned: &mut Learned,
        samples: usize,
        mut cost: impl FnMut(Alternative) -> u32,
    ) -> (u64, u32) {
        let mut sum = 0;
        let mut changes = 0;
        for _ in 0..samples {
            let cost = cost(learned.way());
            sum += u64::from(cost);
            changes += u32::from(learned.sample(cost));
        }
        (sum, changes)
    }

    fn of(first: u32, second: u32) -> impl FnMut(Alternative) -> u32 {
        move |way| if way == Alternative::First { first } else { second }
    }

    #[test]
    fn a_wrong_start_is_unlearned_within_three_epochs() {
        for start in [Alternative::First, Alternative::Second] {
            let mut learned = Learned::new(start, 2);
            let costs = if start == Alternative::First { (150, 100) } else { (100, 150) };
            run(&mut learned, 3 * (SAMPLES + 2), of(costs.0, costs.1));
            assert_eq!(learned.way(), start.other());
        }
    }

    #[test]
    fn the_loss_against_the_better_way_is_below_three_percent() {
        let mut learned = Learned::new(Alternative::First, 2);
        let samples = 10_000;
        let (sum, _) = run(&mut learned, samples, of(150, 100));
        assert!(sum < samples as u64 * 103, "{sum}");
    }

    #[test]
    fn ways_that_are_alike_change_nothing_but_for_ever_rarer_trials() {
        let mut learned = Learned::new(Alternative::First, 2);
        let mut noise = 12_345u32;
        let noisy = |_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            100 + (noise >> 24) % 8
        };
        let (_, changes) = run(&mut learned, 1000 * (SAMPLES + 2), noisy);
        // Trials after 2, 4, 8, .. 64 epochs: there and back.
        assert!(changes <= 2 * (6 + 1000 / 64), "{changes}");
    }

    #[test]
    fn a_noisy_neighbour_does_not_change_the_choice() {
        let mut learned = Learned::new(Alternative::Second, 2);
        let mut noise = 1u32;
        let mut cost = of(150, 100);
        run(&mut learned, 1000 * (SAMPLES + 2), |way| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Half of the samples take up to seventeen times as long.
            cost(way) * if noise >> 31 == 1 { 1 + (noise >> 20) % 16 } else { 1 }
        });
        assert_eq!(learned.preferred, Alternative::Second);
    }

    #[test]
    fn one_trial_that_was_disturbed_puts_the_next_one_off_for_a_bounded_time() {
        let mut learned = Learned::new(Alternative::First, 2);
        run(&mut learned, 2 * (SAMPLES + 2), of(100, 100_000_000));
        let epochs = (EXCESS_SPANS_MAX * learned.span + 6) as usize;
        run(&mut learned, epochs * (SAMPLES + 2), of(100, 50));
        assert_eq!(learned.preferred, Alternative::Second);
    }

    #[test]
    fn when_the_cores_move_the_other_way_is_found_within_six_epochs() {
        let mut learned = Learned::new(Alternative::First, 2);
        run(&mut learned, 1000 * (SAMPLES + 2), of(100, 150));
        assert_eq!((learned.preferred, learned.span), (Alternative::First, EPOCHS_MAX));
        run(&mut learned, 6 * (SAMPLES + 2), of(400, 200));
        assert_eq!(learned.preferred, Alternative::Second);
    }
}
