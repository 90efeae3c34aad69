//! The learner on figures that were measured.
//!
//! Each case has what both ways took, in nanoseconds a message. Intel: an Intel Xeon (Sapphire
//! Rapids), commit `a07aba83`, cores apart; the way that was taken there has the shortest, the
//! median and the ninth decile of each of seven turns of `ci/peers`, and the other way the range
//! of its medians with that way pinned. AMD: an EPYC 9004; medians of both ways that were noted as
//! each choice was made (`streaming`, `cooperative`, `ring::lap`), without a series, so that they
//! get the spread of an Intel series.

use super::learned::{Alternative, Learned};

/// The times of both ways.
struct Recorded {
    what: &'static str,
    /// Messages of a sample.
    messages_timed: u32,
    /// Nanoseconds a message of both ways, one after the other.
    first: &'static [u32],
    second: &'static [u32],
}

/// 64 KiB that both sides copy, alone, in nanoseconds. Figures without a series of their own are
/// spread as this one.
const SPREAD: [u32; 21] = [
    3145, 3362, 3774, 3190, 3452, 3803, 3264, 3589, 3907, 3242, 3546, 3792, 3135, 3495, 3701, 3151,
    3362, 3495, 3052, 3466, 3738,
];
/// Its median.
const SPREAD_MEDIAN: u32 = 3466;

const RECORDED: [Recorded; 13] = [
    Recorded {
        what: "Intel, 64 KiB alone: both sides copy, or read alone",
        messages_timed: 64,
        first: &SPREAD,
        second: &[4156],
    },
    Recorded {
        what: "Intel, 64 KiB, windows of 64: both sides copy, or read alone",
        messages_timed: 64,
        first: &[
            4484, 4663, 5112, 4541, 4855, 6114, 4137, 4696, 5092, 4551, 4703, 5029, 4258, 4734,
            5009, 4495, 4757, 5432, 4330, 4836, 5194,
        ],
        second: &[3080, 3440],
    },
    Recorded {
        what: "Intel, 128 KiB, windows of 16: both sides copy, or read alone",
        messages_timed: 64,
        first: &[
            7534, 7860, 8452, 7545, 7786, 8405, 7599, 7890, 8572, 8007, 8346, 9303, 7669, 7931,
            8685, 7670, 8057, 9252, 7714, 8206, 9038,
        ],
        second: &[5260, 5900],
    },
    Recorded {
        what: "Intel, 1 MiB, windows of 4: both sides copy, or read alone",
        messages_timed: 16,
        first: &[
            23474, 29136, 50406, 25713, 43054, 59578, 23550, 41384, 67809, 26178, 44148, 72528,
            26404, 41748, 56345, 24243, 43434, 70162, 22046, 43282, 60825,
        ],
        second: &[70_000],
    },
    Recorded {
        what: "Intel, 16 KiB alone: in fragments, or read",
        messages_timed: 128,
        first: &[
            1640, 1826, 1946, 1723, 1807, 1890, 1693, 1883, 2225, 1695, 1817, 1909, 1755, 1852,
            1959, 1709, 1808, 2029, 1692, 1908, 2058,
        ],
        second: &[1790, 1960],
    },
    Recorded {
        what: "Intel, 256 B, windows of 64: short laps, or whole ones",
        messages_timed: 64,
        first: &[91],
        second: &[56],
    },
    Recorded {
        what: "AMD, 1 KiB in one cache: short laps, or whole ones",
        messages_timed: 64,
        first: &[766],
        second: &[1086],
    },
    Recorded {
        what: "AMD, 128 KiB alone, in percent: both sides copy, or read alone",
        messages_timed: 64,
        first: &[77],
        second: &[100],
    },
    Recorded {
        what: "AMD, 1 MiB alone, in percent: both sides copy, or read alone",
        messages_timed: 16,
        first: &[62],
        second: &[100],
    },
    Recorded {
        what: "AMD, 4 KiB in one cache: ordinary stores, or past the cache",
        messages_timed: 256,
        first: &[620],
        second: &[760],
    },
    Recorded {
        what: "AMD, 4 KiB apart: ordinary stores, or past the cache",
        messages_timed: 256,
        first: &[2650],
        second: &[820],
    },
    Recorded {
        what: "AMD, 8 KiB in one cache: ordinary stores, or past the cache",
        messages_timed: 256,
        first: &[1150],
        second: &[1080],
    },
    Recorded {
        what: "AMD, 2 KiB apart, windows of 64: ordinary stores, or past the cache",
        messages_timed: 256,
        first: &[1174],
        second: &[553],
    },
];

/// Samples of an epoch, with those that are left out at its beginning.
const EPOCH: usize = 18;
/// Samples of a run.
const RUN: usize = 6000;

impl Recorded {
    /// The cost of a sample, in thousandths of a nanosecond a message.
    fn cost(&self, way: Alternative, sample: usize) -> u32 {
        let series = if way == Alternative::First { self.first } else { self.second };
        let cost = 1000 * series[sample % series.len()];
        if series.len() == SPREAD.len() {
            return cost;
        }
        cost / SPREAD_MEDIAN * SPREAD[sample % SPREAD.len()]
    }

    fn sum(&self, way: Alternative, samples: usize) -> u64 {
        (0..samples).map(|sample| u64::from(self.cost(way, sample))).sum()
    }

    /// The way that costs less over a run, and the other one's cost in percent of it.
    fn better(&self) -> (Alternative, u64) {
        let [first, second] =
            [Alternative::First, Alternative::Second].map(|way| self.sum(way, RUN));
        if first <= second {
            (Alternative::First, second * 100 / first)
        } else {
            (Alternative::Second, first * 100 / second)
        }
    }
}

/// A learner, and what its messages have cost.
struct LearningRun<'a> {
    recorded: &'a Recorded,
    learned: Learned,
    samples: usize,
    cost: u64,
}

impl LearningRun<'_> {
    fn begin(recorded: &Recorded, start: Alternative) -> LearningRun<'_> {
        LearningRun { recorded, learned: Learned::new(start, 2), samples: 0, cost: 0 }
    }

    /// One more sample, which a neighbour makes so many times as long.
    fn sample(&mut self, times: u32) {
        let cost = self.recorded.cost(self.learned.way(), self.samples) * times;
        self.learned.sample(cost);
        self.samples += 1;
        self.cost += u64::from(cost);
    }

    fn preferred(&self) -> usize {
        self.learned.state(1.0).preferred
    }
}

#[test]
fn the_loss_against_the_better_fixed_way_is_at_most_three_percent() {
    for recorded in &RECORDED {
        for start in [Alternative::First, Alternative::Second] {
            let mut run = LearningRun::begin(recorded, start);
            (0..RUN).for_each(|_| run.sample(1));
            let best = recorded.sum(recorded.better().0, RUN);
            let percent = run.cost as f64 / best as f64 * 100.0;
            assert!(percent <= 103.0, "{}, from {start:?}: {percent:.2}", recorded.what);
        }
    }
}

#[test]
fn a_wrong_start_is_unlearned_within_a_thousand_messages_or_a_tenth_of_a_second() {
    for recorded in &RECORDED {
        let (better, percent) = recorded.better();
        // Ways that are as good as each other needn't be told apart.
        if percent < 105 {
            continue;
        }
        for start in [Alternative::First, Alternative::Second] {
            let mut run = LearningRun::begin(recorded, start);
            while run.preferred() != better as usize {
                run.sample(1);
            }
            let messages = run.samples * recorded.messages_timed as usize;
            let ms = run.cost as f64 * f64::from(recorded.messages_timed) / 1e9;
            let what = recorded.what;
            assert!(messages <= 1000 || ms <= 100.0, "{what}: {messages} messages, {ms:.0} ms");
        }
    }
}

#[test]
fn the_preferred_way_changes_once_where_nothing_changes_and_in_four_epochs_at_most() {
    for recorded in &RECORDED {
        for start in [Alternative::First, Alternative::Second] {
            let mut run = LearningRun::begin(recorded, start);
            let mut since = EPOCH;
            for _ in 0..RUN {
                let before = run.preferred();
                run.sample(1);
                since += 1;
                if run.preferred() != before {
                    assert!(since >= EPOCH * 2, "{}", recorded.what);
                    since = 0;
                }
            }
            let changes = run.learned.state(1.0).changes;
            assert!(changes <= 1, "{}, from {start:?}: {changes} changes", recorded.what);
        }
    }
}

#[test]
fn a_neighbour_with_bursts_of_ten_times_the_cost_changes_nothing() {
    for recorded in &RECORDED {
        let (better, percent) = recorded.better();
        if percent < 105 {
            continue;
        }
        // Samples of a burst, and from one burst to the next one.
        for (burst, period) in [(1, 4), (5, 20), (40, 200), (60, 331), (300, 1000)] {
            let mut run = LearningRun::begin(recorded, better);
            let mut best = 0;
            for sample in 0..4 * RUN {
                let times = if sample % period < burst { 10 } else { 1 };
                best += u64::from(recorded.cost(better, sample) * times);
                run.sample(times);
            }
            let changes = run.learned.state(1.0).changes;
            let what = recorded.what;
            assert_eq!(changes, 0, "{what}, bursts of {burst} in {period}");
            let percent = run.cost as f64 / best as f64 * 100.0;
            assert!(percent <= 103.0, "{what}, bursts of {burst} in {period}: {percent:.2}");
        }
    }
}

#[test]
fn where_another_way_becomes_better_it_is_found_again_and_again() {
    let [alone, windows] = [&RECORDED[0], &RECORDED[1]];
    let mut run = LearningRun::begin(alone, Alternative::First);
    let mut best = 0;
    for turn in 0..10 {
        run.recorded = if turn % 2 == 0 { alone } else { windows };
        let better = run.recorded.better().0;
        for sample in 0..2 * RUN {
            best += u64::from(run.recorded.cost(better, run.samples));
            run.sample(1);
            assert!(sample < 70 * EPOCH || run.preferred() == better as usize, "turn {turn}");
        }
    }
    let percent = run.cost as f64 / best as f64 * 100.0;
    assert!(percent <= 103.0, "{percent:.2}");
}
