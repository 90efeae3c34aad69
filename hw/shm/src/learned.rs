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
//! 3. The preferred way changes if the other one's figure is smaller by more than a thirty-second.
//! 4. The other way is tried for one epoch after every few epochs of the preferred one: after two
//!    at first, after twice as many each time that the trial has changed nothing, up to
//!    [`EPOCHS_MAX`]. After a change, or when the preferred way's own figure has moved by a
//!    quarter, it begins again with two.
//!
//! So a wrong choice lasts three epochs, the preferred way changes once in three epochs at most,
//! and where nothing changes, one epoch in 65 goes the slower way.

/// The samples of an epoch that count.
const SAMPLES: usize = 16;
/// Epochs of the preferred way between two trials of the other one, at first and at most.
const EPOCHS_MIN: u32 = 2;
const EPOCHS_MAX: u32 = 64;

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
    samples: [u32; SAMPLES],
    /// Samples of this epoch so far, with those that are left out.
    count: usize,
    /// So many samples at an epoch's beginning are left out.
    left_out: usize,
    /// Epochs until the other way is tried.
    until_trial: u32,
    /// Epochs between the trials.
    span: u32,
}

impl Learned {
    /// Begins with a way. So many samples after a change show the way before.
    pub(crate) const fn new(start: Alternative, left_out: usize) -> Self {
        Learned {
            now: start,
            preferred: start,
            figures: [0; 2],
            samples: [0; SAMPLES],
            count: 0,
            left_out,
            until_trial: EPOCHS_MIN,
            span: EPOCHS_MIN,
        }
    }

    /// The way to take now.
    #[inline]
    pub(crate) fn way(&self) -> Alternative {
        self.now
    }

    /// The way that was taken has cost this much, in any unit. `true`: another way is to be taken.
    pub(crate) fn sample(&mut self, cost: u32) -> bool {
        self.count += 1;
        let Some(at) = self.count.checked_sub(self.left_out + 1) else { return false };
        self.samples[at] = cost;
        if at + 1 < SAMPLES {
            return false;
        }
        self.count = 0;
        let (_, figure, _) = self.samples.select_nth_unstable(SAMPLES / 4);
        let figure = *figure;
        let before = self.now;
        self.end_epoch(figure.max(1));
        self.now != before
    }

    fn end_epoch(&mut self, figure: u32) {
        let earlier = std::mem::replace(&mut self.figures[self.now as usize], figure);
        if self.now == self.preferred {
            if earlier != 0 && figure.abs_diff(earlier) > earlier / 4 {
                self.span = EPOCHS_MIN;
                self.until_trial = self.until_trial.min(EPOCHS_MIN);
            }
            self.until_trial -= 1;
            if self.until_trial == 0 {
                self.now = self.now.other();
            }
            return;
        }
        let kept = self.figures[self.preferred as usize];
        if figure < kept - kept / 32 {
            self.preferred = self.now;
            self.span = EPOCHS_MIN;
        } else {
            self.now = self.preferred;
            self.span = (2 * self.span).min(EPOCHS_MAX);
        }
        self.until_trial = self.span;
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
    fn when_the_cores_move_the_other_way_is_found_within_six_epochs() {
        let mut learned = Learned::new(Alternative::First, 2);
        run(&mut learned, 1000 * (SAMPLES + 2), of(100, 150));
        assert_eq!((learned.preferred, learned.span), (Alternative::First, EPOCHS_MAX));
        run(&mut learned, 6 * (SAMPLES + 2), of(400, 200));
        assert_eq!(learned.preferred, Alternative::Second);
    }
}
