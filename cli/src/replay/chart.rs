//! The chart of the depths over time, as text and as a figure of `--plot`.

use tagmatch_results::chart::{Axis, Figure, Line, Scale};
use tagmatch_results::show::show_count;
use tagmatch_trace::Timeline;

/// Columns and rows of the chart in text.
const COLUMNS: usize = 64;
const ROWS: u64 = 5;
/// A cell that is filled from below, by eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The chart as text: one list below the other. A list that was never used is left out.
pub(super) fn text(timeline: &Timeline) -> String {
    let mut out = String::new();
    for (name, series, peak) in [
        ("posted", &timeline.posted_max, timeline.posted.depth),
        ("unexpected", &timeline.unexpected_max, timeline.unexpected.depth),
    ] {
        if peak == 0 {
            continue;
        }
        let columns = columns(series);
        for row in (0..ROWS).rev() {
            let is_top = row + 1 == ROWS;
            let label = match row {
                0 => "0".to_owned(),
                _ if is_top => show_count(peak),
                _ => String::new(),
            };
            let name = if is_top { name } else { "" };
            let cells: String = columns.iter().map(|depth| cell(*depth, peak, row)).collect();
            out += &format!("{name:<10} {label:>10} │{}\n", cells.trim_end());
        }
    }
    if out.is_empty() {
        return out;
    }
    let width = columns(&timeline.posted_max).len();
    let axis = "─".repeat(width);
    let end = format!("{} operations", show_count(timeline.operations));
    let gap = width.max(24);
    format!(
        "depth over time, the most in each stretch\n{out}{:21} └{axis}\n{:22}1{end:>gap$}\n\n",
        "", ""
    )
}

/// The chart as a figure.
pub(super) fn figure(timeline: &Timeline) -> Figure {
    let stretch = timeline.operations as f64 / timeline.posted_max.len().max(1) as f64;
    let line = |name: &str, series: &[u64]| Line {
        name: name.into(),
        points: (0u32..)
            .zip(series)
            .flat_map(|(at, depth)| {
                let from = f64::from(at) * stretch;
                // The greatest depth of a stretch is drawn over the whole stretch.
                [(from, *depth as f64), (from + stretch, *depth as f64)]
            })
            .collect(),
    };
    let lines = vec![
        line("posted receives", &timeline.posted_max),
        line("unexpected messages", &timeline.unexpected_max),
    ];
    let x = Axis::new("operations", Scale::CountsToLast);
    let y = Axis::new("entries in the list, most in a stretch", Scale::Counts);
    Figure { markers: false, ..Figure::new("Matching depth over the trace", x, y, lines) }
}

/// The series in at most [`COLUMNS`] columns.
fn columns(series: &[u64]) -> Vec<u64> {
    let per_column = series.len().div_ceil(COLUMNS).max(1);
    series.chunks(per_column).map(|points| points.iter().copied().max().unwrap_or(0)).collect()
}

/// The cell `row` rows above the axis. A depth that is not 0 fills at least one eighth.
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
            text(&timeline),
            "depth over time, the most in each stretch\n\
             posted             10 │ █\n\
             \u{20}                     │ █\n\
             \u{20}                     │ █▄\n\
             \u{20}                     │ ██\n\
             \u{20}                   0 │▄██\n\
             \u{20}                     └────\n\
             \u{20}                     1            4 operations\n\n"
        );
        assert_eq!(text(&Timeline::new(0)), "");
    }
}
