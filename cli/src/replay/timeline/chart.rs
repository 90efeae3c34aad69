//! The charts of a timeline: in text, and for a report.

use std::fmt::Write as _;

use super::Timeline;
use crate::plot::{Axis, Figure, Line, Scale};
use crate::units::show_count;

/// Columns and rows of the chart in text.
const COLUMNS: usize = 64;
const ROWS: u64 = 5;
/// What fills a cell from below, by eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Timeline {
    /// The chart in text, a list below the other; of a list that was never used, nothing.
    pub(in crate::replay) fn text(&self) -> String {
        let mut out = String::new();
        for (name, series, peak) in [
            ("posted", &self.posted_max, self.posted.depth),
            ("unexpected", &self.unexpected_max, self.unexpected.depth),
        ] {
            if peak == 0 {
                continue;
            }
            let columns = columns(series);
            for row in (0..ROWS).rev() {
                let label = match row {
                    0 => "0".to_owned(),
                    _ if row + 1 == ROWS => show_count(peak),
                    _ => String::new(),
                };
                let name = if row + 1 == ROWS { name } else { "" };
                let cells: String = columns.iter().map(|depth| cell(*depth, peak, row)).collect();
                writeln!(out, "{name:<10} {label:>10} │{}", cells.trim_end())
                    .expect("a String takes all");
            }
        }
        if !out.is_empty() {
            let width = columns(&self.posted_max).len();
            let end = format!("{} operations", show_count(self.operations));
            let axis = "─".repeat(width);
            writeln!(
                out,
                "{:<10} {:>10} └{axis}\n{:22}1{end:>gap$}",
                "",
                "",
                "",
                gap = width.max(24)
            )
            .expect("a String takes all");
            out.insert_str(0, "depth over time, the most in each stretch\n");
            out.push('\n');
        }
        out
    }

    /// The chart for a report.
    pub(in crate::replay) fn figure(&self) -> Figure {
        let stretch = self.operations as f64 / self.posted_max.len().max(1) as f64;
        let line = |name: &str, series: &[u64]| Line {
            name: name.into(),
            points: (0u32..)
                .zip(series)
                .flat_map(|(at, depth)| {
                    let from = f64::from(at) * stretch;
                    // A step: the most in the stretch, over all of it.
                    [(from, *depth as f64), (from + stretch, *depth as f64)]
                })
                .collect(),
        };
        Figure {
            title: "Matching depth over the trace".into(),
            x: Axis { label: "operations".into(), scale: Scale::CountsToLast },
            y: Axis {
                label: "entries in the list, most in a stretch".into(),
                scale: Scale::Counts,
            },
            lines: vec![
                line("posted receives", &self.posted_max),
                line("unexpected messages", &self.unexpected_max),
            ],
            markers: false,
        }
    }
}

/// The series in at most as many columns as fit.
fn columns(series: &[u64]) -> Vec<u64> {
    let per_column = series.len().div_ceil(COLUMNS).max(1);
    series.chunks(per_column).map(|points| points.iter().copied().max().unwrap_or(0)).collect()
}

/// How much of a cell `row` rows above the ground is filled. What is not zero shows.
fn cell(depth: u64, peak: u64, row: u64) -> char {
    let eighths = u128::from(depth) * u128::from(ROWS) * 8;
    let eighths = u64::try_from(eighths.div_ceil(u128::from(peak.max(1)))).unwrap_or(u64::MAX);
    let here = eighths.saturating_sub(row * 8).min(8);
    EIGHTHS[usize::try_from(here).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart() {
        let mut timeline = Timeline::new(4);
        for depth in [1, 10, 5, 0] {
            timeline.see(depth, 0);
        }
        assert_eq!(
            timeline.text(),
            "depth over time, the most in each stretch\n\
             posted             10 │ █\n\
             \u{20}                     │ █\n\
             \u{20}                     │ █▄\n\
             \u{20}                     │ ██\n\
             \u{20}                   0 │▄██\n\
             \u{20}                     └────\n\
             \u{20}                     1            4 operations\n\n"
        );
        assert_eq!(Timeline::new(0).text(), "");
    }
}
