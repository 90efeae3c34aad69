//! The tables of docs/speed.md, as Markdown.

use std::fmt::Write;

use super::charts::full_name;
use super::record::{Distance, Record};
use super::rows::{Cell, OURS, OURS_BY_OPENMPI, Row, Stat, label, rows};
use super::table::floor_ns;

/// A table: its groups, the head of its first column, the program whose figures it has, and those
/// that the figures are divided by.
struct Table {
    groups: &'static [&'static str],
    head: &'static str,
    program: &'static str,
    of: &'static str,
    best: fn(&Row<'_>) -> Option<Cell>,
}

const TABLES: [Table; 6] = [
    table(&["latency"], "half a round trip"),
    table(&["rate", "bandwidth"], "a message, messages at a time"),
    table(&["cold"], "changing buffers, the data read"),
    table(&["depth"], "8 B past receives that never match"),
    table(&["collectives", "ranks"], "a call"),
    Table {
        groups: &["latency", "rate"],
        head: "Open MPI over our provider",
        program: OURS_BY_OPENMPI,
        of: "of its own best",
        best: |row| row.best_openmpi().cloned(),
    },
];

const fn table(groups: &'static [&'static str], head: &'static str) -> Table {
    let best = |row: &Row<'_>| row.best_peer().cloned();
    Table { groups, head, program: OURS, of: "of the best", best }
}

/// All tables, with a pair of columns for each distance.
pub(crate) fn markdown(record: &Record, stat: Stat) -> String {
    let mut text = String::new();
    let distances: Vec<_> = [Distance::OneCore, Distance::OneCache, Distance::Apart]
        .into_iter()
        .map(|distance| (distance, rows(record, distance, stat)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    for table in &TABLES {
        let mut names: Vec<(&str, String)> = Vec::new();
        for row in distances.iter().flat_map(|(_, rows)| rows) {
            let name = (row.group, label(row.group, row.case));
            let has_figure = row.cell(table.program).is_some() && (table.best)(row).is_some();
            if table.groups.contains(&row.group) && has_figure && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            continue;
        }
        let _ = write!(text, "\n| {} |", table.head);
        for (distance, _) in &distances {
            let _ = write!(
                text,
                " {distance} ({:.0} ns) | {} |",
                floor_ns(record, *distance),
                table.of
            );
        }
        let _ = write!(text, "\n|---|{}", "---|---|".repeat(distances.len()));
        for (group, name) in &names {
            let _ = write!(text, "\n| {name} |");
            for (_, rows) in &distances {
                let is_named =
                    |row: &&Row<'_>| row.group == *group && label(row.group, row.case) == *name;
                let _ = write!(text, "{}", cells(table, rows.iter().find(is_named)));
            }
        }
        text.push('\n');
    }
    text
}

fn cells(table: &Table, row: Option<&Row<'_>>) -> String {
    let ratio = || {
        let row = row?;
        let ours = row.cell(table.program)?;
        let best = (table.best)(row)?;
        Some((ours.median, ours.ratio_to(&best)?.median, best.program))
    };
    let Some((median, ratio, best)) = ratio() else { return " | |".to_owned() };
    let digits = if ratio < 0.1 { 4 } else { 2 };
    let shown = format!("{ratio:.digits$}");
    let best = full_name(&best);
    // A ratio that is shown as 1.00 may be either.
    let ratio = if ratio > 1.0 { format!("**{shown}**") } else { shown };
    format!(" {} | {ratio} {best} |", time(median))
}

/// A time in ns, with three digits at least.
fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e4 => format!("{:.2} us", ns / 1e3),
        _ if ns < 1e5 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.0} us", ns / 1e3),
    }
}
