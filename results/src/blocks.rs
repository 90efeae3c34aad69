//! A measurement in up to 64 blocks of time, to judge how steady it was.
//!
//! Single round trips say little about noise: neighbours are alike, and a million of them would
//! make any difference look certain. Figures of longer stretches differ by the noise within a run,
//! and are few enough to be kept in the JSON for a later comparison.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Blocks of a measurement, at most. When there are twice as many, pairs are merged.
const BLOCKS_MAX: usize = 64;
/// Round trips of which the median is one part of a block.
const ROUND_TRIPS: usize = 16;

/// A part of a measurement; its figure is `amount / of`.
#[derive(Clone, Copy, Default)]
struct Block {
    amount: f64,
    of: f64,
    parts: u64,
}

impl Block {
    fn add(&mut self, more: Self) {
        self.amount += more.amount;
        self.of += more.of;
        self.parts += more.parts;
    }
}

/// Collects blocks while a measurement runs. Constant memory; not for the measured loop.
#[derive(Default)]
pub struct Blocks {
    done: Vec<Block>,
    current: Block,
    /// Parts that make a block.
    full: u64,
    /// Round trips that do not make a part yet.
    waiting: Vec<u64>,
    is_latency: bool,
}

impl Blocks {
    /// No blocks.
    pub fn new() -> Self {
        Self { full: 1, ..Self::default() }
    }

    /// Takes round trips in ns, in order.
    pub fn round_trips(&mut self, ns: impl IntoIterator<Item = u64>) {
        for ns in ns {
            self.is_latency = true;
            self.waiting.push(ns);
            if self.waiting.len() == ROUND_TRIPS {
                let (_, &mut median, _) = self.waiting.select_nth_unstable(ROUND_TRIPS / 2);
                self.waiting.clear();
                // One way is half of a round trip.
                self.part(Block { amount: median as f64 / 2.0, of: 1.0, parts: 1 });
            }
        }
    }

    /// Takes a stretch of a stream.
    pub fn stream(&mut self, messages: u64, took: Duration) {
        if !took.is_zero() {
            self.part(Block { amount: messages as f64, of: took.as_secs_f64(), parts: 1 });
        }
    }

    fn part(&mut self, part: Block) {
        self.current.add(part);
        if self.current.parts < self.full {
            return;
        }
        self.done.push(std::mem::take(&mut self.current));
        if self.done.len() == 2 * BLOCKS_MAX {
            let pairs = self.done.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|more| sum.add(*more));
                sum
            });
            self.done = pairs.collect();
            self.full *= 2;
        }
    }

    /// The figures of all blocks; `None` if there are none. A last block that is not half full is
    /// left out.
    pub fn figures(&self) -> Option<BlockFigures> {
        let mut done = self.done.clone();
        if self.current.parts * 2 >= self.full && self.current.parts > 0 {
            done.push(self.current);
        }
        // At most 64 figures, whenever the measurement ended.
        let pairs = if done.len() > BLOCKS_MAX { 2 } else { 1 };
        let figure = |blocks: &[Block]| {
            let (amount, of) =
                blocks.iter().fold((0.0, 0.0), |(a, o), block| (a + block.amount, o + block.of));
            (amount / of * 100.0).round() / 100.0
        };
        let figures: Vec<_> = done.chunks(pairs).map(figure).collect();
        (!figures.is_empty()).then(|| {
            if self.is_latency {
                BlockFigures { latency_ns: figures, ..BlockFigures::default() }
            } else {
                BlockFigures { messages_per_s: figures, ..BlockFigures::default() }
            }
        })
    }
}

/// A figure for each block, in order of time, as in JSON.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockFigures {
    /// Mean of the medians of 16 round trips each, halved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency_ns: Vec<f64>,
    /// Messages of a block over its time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages_per_s: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_mean_of_its_medians() {
        let mut blocks = Blocks::new();
        for base in [100, 200] {
            // One outlier in sixteen changes nothing.
            let round_trips: Vec<u64> =
                (0..16).map(|n| if n == 3 { 1 << 40 } else { base }).collect();
            blocks.round_trips(round_trips[..5].iter().copied());
            blocks.round_trips(round_trips[5..].iter().copied());
        }
        blocks.round_trips([7; 15]);
        assert_eq!(blocks.figures().unwrap().latency_ns, [50.0, 100.0]);
    }

    #[test]
    fn a_rate_is_of_all_messages_over_all_time() {
        let mut blocks = Blocks::new();
        blocks.stream(100, Duration::from_millis(100));
        blocks.stream(100, Duration::ZERO);
        blocks.stream(300, Duration::from_millis(100));
        assert_eq!(blocks.figures().unwrap().messages_per_s, [1000.0, 3000.0]);
        assert_eq!(Blocks::new().figures(), None);
    }

    #[test]
    fn however_long_it_lasts_blocks_are_few_and_nothing_is_lost() {
        for parts in [1, 63, 64, 65, 127, 128, 129, 1000, 12_345, 100_000] {
            let mut blocks = Blocks::new();
            for part in 0..parts {
                blocks.stream(part, Duration::from_secs(1));
            }
            let figures = blocks.figures().unwrap().messages_per_s;
            let least = usize::try_from(parts).unwrap().min(33);
            assert!((least..=BLOCKS_MAX).contains(&figures.len()), "{parts}: {}", figures.len());
            assert!(figures.is_sorted(), "{parts}: in order of time");
            let mean = figures.iter().sum::<f64>() / figures.len() as f64;
            let want = (parts - 1) as f64 / 2.0;
            assert!((mean - want).abs() <= want * 0.03, "{parts}: {mean}, not {want}");
        }
    }

    #[test]
    fn a_last_block_counts_if_it_is_half_full() {
        // From 128 parts on, a block has two parts, from 256 on four.
        for (parts, blocks) in [(257, 64), (258, 33), (259, 33), (260, 33)] {
            let mut collected = Blocks::new();
            (0..parts).for_each(|_| collected.stream(1, Duration::from_secs(1)));
            let figures = collected.figures().unwrap().messages_per_s;
            assert_eq!(figures.len(), blocks, "{parts}");
        }
    }
}
