//! The spread of latencies: bins for JSON, bars for people.

use serde::{Deserialize, Serialize};

use crate::show::{show_3, show_count};

/// Lines of bars that are aimed at, and columns of the longest bar. Bins are not split: where they
/// are wide there are up to twice as many lines.
const LINES: usize = 12;
const BAR_COLUMNS: f64 = 40.0;
/// Characters that fill a part of a column, in eighths.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Latencies one way, counted by their first two digits, so a bin is at most a tenth wide. Empty
/// bins are left out: there are at most 90 for each power of ten.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// From this many ns, below this many, counted.
    bins: Vec<(f64, f64, u64)>,
}

impl Histogram {
    /// `latencies` are in ns, with how often each occurred, ascending.
    pub fn new(latencies: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut bins: Vec<(f64, f64, u64)> = Vec::new();
        for (ns, count) in latencies.filter(|(_, count)| *count > 0) {
            match bins.last_mut() {
                Some((_, below, so_far)) if ns < *below => *so_far += count,
                _ => {
                    let width = bin_width(ns);
                    let from = (ns / width).floor() * width;
                    bins.push((from, from + width, count));
                }
            }
        }
        Self { bins }
    }

    /// Bars, one a line, as comments like all lines that are not rows of the table.
    pub fn bars(&self) -> String {
        let lines = self.lines();
        let most = lines.iter().map(|line| line.2).max().unwrap_or(0).max(1) as f64;
        let mut out = String::new();
        for (from, below, count) in lines {
            let from = show_3(from / 1e3);
            let below = show_3(below / 1e3);
            let bar = bar(count as f64 / most * BAR_COLUMNS);
            let count = show_count(count);
            out += &format!("# {from:>9} .. {below:>9} us {count:>12} {bar}\n");
        }
        out
    }

    /// Merges bins into lines: up to the 99th percentile evenly on a logarithmic axis, so that the
    /// shape is visible however long the tail is; above it one line for each power of ten.
    fn lines(&self) -> Vec<(f64, f64, u64)> {
        let (Some(first), Some(last)) = (self.bins.first(), self.bins.last()) else {
            return Vec::new();
        };
        if self.bins.len() <= LINES {
            return self.bins.clone();
        }
        let all: u64 = self.bins.iter().map(|bin| bin.2).sum();
        let mut sum = 0;
        let most = self.bins.iter().find(|bin| {
            sum += bin.2;
            sum >= all - all / 100
        });
        let most = most.map_or(last.1, |bin| bin.1);
        // Below 1 ns ratios mean nothing.
        let ratio = (most / first.0.max(1.0)).powf(1.0 / LINES as f64);
        let mut lines: Vec<(f64, f64, u64)> = Vec::new();
        for &(from, below, count) in &self.bins {
            let room = |line_from: f64| {
                if from < most {
                    below <= (line_from.max(1.0) * ratio).min(most)
                } else {
                    line_from >= most && below <= 10f64.powf(line_from.log10().floor() + 1.0)
                }
            };
            match lines.last_mut() {
                Some(line) if room(line.0) => (line.1, line.2) = (below, line.2 + count),
                _ => lines.push((from, below, count)),
            }
        }
        lines
    }
}

/// A tenth of the power of ten below `ns`.
fn bin_width(ns: f64) -> f64 {
    let mut width = 0.5;
    while width * 100.0 <= ns {
        width *= if width < 1.0 { 2.0 } else { 10.0 };
    }
    width
}

/// A bar of so many columns; it is never empty.
fn bar(columns: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 8 * 40")]
    let eighths = ((columns * 8.0).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    if let Some(part) = (eighths % 8).checked_sub(1) {
        bar.push(EIGHTHS[part]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_of_two_digits_and_hold_everything_once() {
        let latencies = [(0.5, 1), (99.5, 2), (100.0, 3), (109.5, 4), (110.0, 5), (12_345.0, 6)];
        let histogram = Histogram::new(latencies.into_iter());
        assert_eq!(
            histogram.bins,
            [
                (0.5, 1.0, 1),
                (99.0, 100.0, 2),
                (100.0, 110.0, 7),
                (110.0, 120.0, 5),
                (12_000.0, 13_000.0, 6),
            ]
        );
        assert_eq!(
            serde_json::to_string(&Histogram::new([(120.0, 7)].into_iter())).unwrap(),
            "{\"bins\":[[120.0,130.0,7]]}"
        );
    }

    #[test]
    fn bars_are_few_and_as_long_as_they_should_be() {
        let histogram = Histogram::new([(100.0, 80), (110.0, 40), (50_000.0, 1)].into_iter());
        assert_eq!(
            histogram.bars(),
            format!(
                "#     0.100 ..     0.110 us           80 {}\n#     0.110 ..     0.120 us           \
                 40 {}\n#      50.0 ..      51.0 us            1 ▌\n",
                "█".repeat(40),
                "█".repeat(20)
            )
        );
        // A narrow shape with a long tail is still seen as a shape.
        let shape = (0..30).map(|n| (f64::from(n).mul_add(10.0, 100.0), 1000));
        let tail = (0..50).map(|n| (f64::from(n).mul_add(200_000.0, 4000.0), 1));
        let lines = Histogram::new(shape.chain(tail)).lines();
        assert!(lines.iter().filter(|line| line.1 <= 400.0).count() >= 10, "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.2).sum::<u64>(), 30_050);
        assert!(lines.len() <= 2 * LINES + 10, "{lines:?}");
        let wide = Histogram::new((0..10_000).map(|n| (f64::from(n) * 50.0, 1)));
        let lines = wide.lines();
        assert!(lines.len() <= 2 * LINES + 10, "{}", lines.len());
        assert_eq!(lines.iter().map(|line| line.2).sum::<u64>(), 10_000);
        assert!(lines.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(Histogram::new(std::iter::empty()).bars(), "");
    }
}
