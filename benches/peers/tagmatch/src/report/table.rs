//! The tables, one set per distance, as text.

use std::fmt::Write;

use tagmatch_results::{ONE_CACHE_BELOW_NS, ONE_CORE_BELOW_NS};

use super::aims::{Aim, By, aims};
use super::record::{Distance, Record};
use super::rows::{
    Cell, FLOOR, GROUPS, OURS, OURS_BY_LIBFABRIC, OURS_BY_MPIEXEC, OURS_BY_OPENMPI, Ratio, Row,
    Stat, is_peer, label, rows,
};

const LABEL_WIDTH: usize = 32;
const FIGURE_WIDTH: usize = 13;

/// The tables and aims at all distances at which something was measured.
pub(crate) fn text(record: &Record, stat: Stat) -> String {
    let mut text = String::new();
    for (name, value) in &record.settings {
        line(&mut text, format_args!("# {name:<11} {value}"));
    }
    for (program, version) in &record.versions {
        line(&mut text, format_args!("# {program:<11} {version}"));
    }
    line(
        &mut text,
        format_args!(
            "# {:<12}one core below {ONE_CORE_BELOW_NS} ns, one cache below {ONE_CACHE_BELOW_NS} ns, otherwise \
             apart; in this run: {}",
            "distances",
            shares(record)
        ),
    );
    for [program, group, reason] in &record.failures {
        line(&mut text, format_args!("# NOT MEASURED: {program}, {group}: {reason}"));
    }
    for distance in Distance::ALL {
        let rows = rows(record, distance, stat);
        if !rows.is_empty() {
            section(&mut text, record, distance, &rows);
        }
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string doesn't fail.
    let _ = writeln!(text, "{}", line.to_string().trim_end());
}

/// How the samples are distributed over the distances.
fn shares(record: &Record) -> String {
    let probed: Vec<_> =
        record.samples.iter().filter(|s| s.distance != Some(Distance::Any)).collect();
    let share = |distance| {
        let count = probed.iter().filter(|sample| sample.distance == distance).count();
        100 * count / probed.len().max(1)
    };
    let at = |distance: Distance| format!("{} % {distance}", share(Some(distance)));
    let all: Vec<_> = Distance::ALL[..3].iter().map(|&distance| at(distance)).collect();
    format!("{}, {} % discarded", all.join(", "), share(None))
}

/// The median of what the probes around the samples at `distance` saw, in ns.
pub(crate) fn floor_ns(record: &Record, distance: Distance) -> f64 {
    let at = record.samples.iter().filter(|sample| sample.distance == Some(distance));
    let mut probes: Vec<f64> = at.flat_map(|sample| sample.probes).collect();
    probes.sort_by(f64::total_cmp);
    probes.get(probes.len() / 2).copied().unwrap_or(0.0)
}

fn section(text: &mut String, record: &Record, distance: Distance, rows: &[Row<'_>]) {
    let floor = floor_ns(record, distance);
    let title = match distance {
        Distance::Any => format!("==== at {distance}"),
        _ => format!("==== {distance}: two cache lines take {floor:.0} ns each way"),
    };
    line(text, format_args!("\n{title}"));
    for (group, title) in GROUPS {
        let rows: Vec<_> = rows.iter().filter(|row| row.group == group).collect();
        let Some(first) = rows.first() else { continue };
        line(text, format_args!("\n== {distance}: {title}"));
        let columns: Vec<_> = columns(&rows);
        let mut heading = format!("{:LABEL_WIDTH$}", "");
        for program in &columns {
            let _ = write!(heading, "{program:>width$}", width = width(program));
        }
        if first.cells.iter().any(|cell| is_peer(&cell.program)) {
            heading += "  ours / best peer [quartiles]";
        }
        line(text, format_args!("{heading}"));
        for row in rows {
            let mut columns_of_row = format!("{:LABEL_WIDTH$}", label(group, row.case));
            for program in &columns {
                let figure = row.cell(program).map_or("-".to_owned(), |cell| number(cell.median));
                let _ = write!(columns_of_row, "{figure:>width$}", width = width(program));
            }
            columns_of_row += &to_best(row);
            columns_of_row += &short(row);
            line(text, format_args!("{columns_of_row}"));
        }
    }
    behind(text, distance, rows);
    let aims = aims(rows);
    if !aims.is_empty() {
        line(text, format_args!("\n== {distance}: aims"));
    }
    for aim in aims {
        line(text, format_args!("{}", show_aim(&aim)));
    }
}

/// The rows in which a peer is ahead, the largest ratio first.
fn behind(text: &mut String, distance: Distance, rows: &[Row<'_>]) {
    let behind = rows.iter().filter_map(|row| {
        let best = row.best_peer()?;
        let ratio = row.cell(OURS)?.ratio_to(best)?;
        (ratio.median > 1.0).then_some((ratio, row, best))
    });
    let mut behind: Vec<_> = behind.collect();
    behind.sort_by(|(a, ..), (b, ..)| b.median.total_cmp(&a.median));
    let compared = rows.iter().filter(|row| row.best_peer().is_some()).count();
    if compared > 0 {
        let count = behind.len();
        line(
            text,
            format_args!("\n== {distance}: behind the best peer, {count} rows of {compared}"),
        );
    }
    for (ratio, row, best) in behind {
        let name = label(row.group, row.case);
        let ratio = show_ratio(ratio);
        line(text, format_args!("{:12}{name:LABEL_WIDTH$}  {ratio}  {}", row.group, best.program));
    }
}

fn width(program: &str) -> usize {
    FIGURE_WIDTH.max(program.len() + 2)
}

/// Ours, the floor, the peers: those that have figures in `rows`.
fn columns<'a>(rows: &[&'a Row<'_>]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells).filter(|cell| cell.samples > 0) {
        if !columns.contains(&&*cell.program) {
            columns.push(&cell.program);
        }
    }
    let place = |program: &&str| match *program {
        OURS => 0,
        OURS_BY_MPIEXEC | OURS_BY_LIBFABRIC => 1,
        OURS_BY_OPENMPI => 2,
        FLOOR => 3,
        _ => 4,
    };
    columns.sort_by_key(place);
    columns
}

fn to_best(row: &Row<'_>) -> String {
    let ratio = |best: &Cell| row.cell(OURS)?.ratio_to(best);
    let best = row.best_peer().and_then(|best| Some((ratio(best)?, &best.program)));
    best.map_or(String::new(), |(ratio, best)| format!("  {}  {best}", show_ratio(ratio)))
}

/// The programs that have too few samples in this row.
fn short(row: &Row<'_>) -> String {
    let cells = row.cells.iter().filter(|cell| cell.samples < cell.enough);
    let short: Vec<_> =
        cells.map(|cell| format!("{} {}/{}", cell.program, cell.samples, cell.enough)).collect();
    if short.is_empty() { String::new() } else { format!("  SHORT: {}", short.join(", ")) }
}

fn show_ratio(ratio: Ratio) -> String {
    let Ratio { median, low, high } = ratio;
    // Past many receives, ours takes a hundredth of what a walk of a list takes.
    let digits = if median < 0.1 { 4 } else { 2 };
    format!("x{median:.digits$} [{low:.digits$}..{high:.digits$}]")
}

fn show_aim(aim: &Aim) -> String {
    let is_bytes = aim.by == By::Nothing;
    let wanted =
        if is_bytes { format!("<= {} B", aim.at_most) } else { format!("<= {}", aim.at_most) };
    let Some(reached) = &aim.reached else {
        return format!("{:48}{wanted:10}-", aim.what);
    };
    let figure = if is_bytes {
        format!("{} B", number(reached.ratio.median))
    } else {
        format!("{}  {}", show_ratio(reached.ratio), reached.other)
    };
    let verdict = if aim.is_met() == Some(true) { "reached" } else { "missed" };
    format!("{:48}{wanted:10}{verdict:9}{figure}", aim.what)
}

/// Four digits at least of what is small, no fractions of what is large.
fn number(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 1000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}
