//! The verdict on a sweep of depths: whether depth costs anything.

use crate::Row;
use crate::comparison::{CONFIDENCE_PERCENT, ratio};
use crate::show::show_count;

/// Rows are measured one after the other, and a machine's speed drifts this much between them.
const DRIFT: f64 = 1.02;
/// A row that is slower by less than this factor costs little: walking a list of the swept depths
/// costs many times as much, and other processes may cost as much as this.
const LITTLE: f64 = 1.5;

/// The verdict on rows that differ in their depths.
pub fn depth_verdict(rows: &[Row]) -> String {
    let is_base = |row: &&Row| (row.posted_depth, row.unexpected_depth) == (0, 0);
    let Some(base) = rows.iter().find(is_base) else {
        return "none: depth 0, to compare with, was not measured; --depths 0,... does that".into();
    };
    let blocks = |row: &Row| row.blocks.as_ref().map_or(Vec::new(), |b| b.latency_ns.clone());
    let old = blocks(base);
    let deep = rows.iter().filter(|row| !is_base(row));
    let ratios: Vec<_> = deep.filter_map(|row| Some((row, ratio(&old, &blocks(row))?))).collect();
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let slower = ratios.iter().filter(|(_, ratio)| ratio.low > DRIFT);
    let worst = slower.clone().max_by(|(_, a), (_, b)| a.estimate.total_cmp(&b.estimate));
    let highest = ratios.iter().map(|(_, ratio)| ratio.high).max_by(f64::total_cmp);
    match (worst, highest) {
        (_, None) => "none: too few rows or round trips to tell from noise; measure longer".into(),
        (Some((row, ratio)), _) => format!(
            "depth costs{}: {} of {} rows are slower than depth 0; most with {}, by {} ({} .. {}, at \
             {CONFIDENCE_PERCENT} %)",
            if ratio.estimate < LITTLE { " little" } else { "" },
            slower.count(),
            ratios.len(),
            describe(row),
            percent(ratio.estimate),
            percent(ratio.low),
            percent(ratio.high),
        ),
        (None, Some(high)) => format!(
            "depth costs nothing beyond noise: {} rows, all below {} over depth 0, at \
             {CONFIDENCE_PERCENT} %",
            ratios.len(),
            percent(high.max(DRIFT)),
        ),
    }
}

fn describe(row: &Row) -> String {
    let mut words = Vec::new();
    if row.posted_depth > 0 {
        words.push(format!("{} posted", show_count(row.posted_depth)));
    }
    if row.wildcard_percent > 0 {
        words.push(format!("{} % any source", row.wildcard_percent));
    }
    if row.unexpected_depth > 0 {
        words.push(format!("{} unexpected", show_count(row.unexpected_depth)));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockFigures;

    fn row(posted: u64, unexpected: u64, percent: u8, ns: f64, blocks: u32) -> Row {
        let latency_ns = (0..blocks).map(|n| ns * (0.99 + 0.001 * f64::from(n % 21))).collect();
        let blocks = Some(BlockFigures { latency_ns, messages_per_s: Vec::new() });
        let wildcard_percent = percent;
        let posted_depth = posted;
        let unexpected_depth = unexpected;
        Row { posted_depth, unexpected_depth, wildcard_percent, blocks, ..Row::sample() }
    }

    #[test]
    fn a_sweep_says_whether_depth_costs() {
        let base = row(0, 0, 0, 300.0, 42);
        let alike = row(16, 0, 0, 301.0, 42);
        let verdict = depth_verdict(&[base.clone(), alike.clone(), row(0, 16, 0, 299.0, 42)]);
        assert!(
            verdict.starts_with("depth costs nothing beyond noise: 2 rows, all below +2."),
            "{verdict}"
        );
        let slow = row(16384, 0, 50, 360.0, 42);
        let verdict =
            depth_verdict(&[alike.clone(), base.clone(), slow, row(0, 4096, 0, 330.0, 42)]);
        let want = "depth costs little: 2 of 3 rows are slower than depth 0; most with 16 384 posted, 50 % \
                    any source, by +20.0 % (+19.";
        assert!(verdict.starts_with(want), "{verdict}");
        let verdict = depth_verdict(&[base.clone(), row(64, 0, 0, 3000.0, 42)]);
        assert!(verdict.starts_with("depth costs: 1 of 1 rows"), "{verdict}");
        for (rows, why) in [
            (vec![alike], "none: depth 0,"),
            (vec![base.clone()], "none: too few"),
            (vec![base, row(16, 0, 0, 900.0, 1)], "none: too few"),
        ] {
            assert!(depth_verdict(&rows).starts_with(why), "{why}");
        }
    }
}
