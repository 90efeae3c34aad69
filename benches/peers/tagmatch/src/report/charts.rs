//! Charts of a run, one file per kind and distance: time over size, time over depth, rate over
//! window.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tagmatch_results::chart::{Axis, Figure, Line, Scale, render};

use super::record::{Distance, Record};
use super::rows::{FLOOR, Row, Stat, rows, size_name};
use super::table::floor_ns;
use crate::case::{Kind, Outcome};

/// Writes all charts into `folder`, and gives their names.
pub(crate) fn write(record: &Record, stat: Stat, folder: &Path) -> Outcome<Vec<String>> {
    fs::create_dir_all(folder)?;
    let series = series(record, stat);
    let mut names = Vec::new();
    for distance in Distance::ALL {
        let rows = rows(record, distance, stat);
        let heading = heading(record, distance);
        for (kind, figures) in [
            ("latency", vec![over_size(&rows)]),
            ("depth", vec![over_depth(&rows)]),
            ("rate", over_window(&rows)),
        ] {
            let figures: Vec<_> = figures.into_iter().filter(|f| !f.lines.is_empty()).collect();
            if !figures.is_empty() {
                let name = format!("{kind}-{}.svg", distance.to_string().replace(' ', "-"));
                fs::write(folder.join(&name), render(&figures, &heading, &series))?;
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// The names of all programs, so that each has one colour in all charts.
fn series(record: &Record, stat: Stat) -> Vec<String> {
    let rows = Distance::ALL.into_iter().flat_map(|distance| rows(record, distance, stat));
    let cells = rows.flat_map(|row| row.cells);
    let named = cells.filter(|cell| cell.program != FLOOR);
    let names: BTreeSet<_> = named.map(|cell| full_name(&cell.program).to_owned()).collect();
    names.into_iter().collect()
}

fn heading(record: &Record, distance: Distance) -> Vec<String> {
    let setting = |wanted: &str| {
        let found = record.settings.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, value)| value.as_str())
    };
    let floor = floor_ns(record, distance);
    let distance = match distance {
        Distance::OneCore => "two threads of one core",
        Distance::OneCache => "two cores with one cache",
        Distance::Apart | Distance::Any => "two cores without a common cache",
    };
    vec![
        setting("machine").to_owned(),
        format!("Two processes on {distance}: a cache line takes {floor:.0} ns each way. Medians."),
    ]
}

fn over_size(rows: &[Row<'_>]) -> Figure {
    let size = |row: &Row<'_>| match row.case.kind {
        Kind::Latency { size, .. } if row.group == "latency" => Some(size),
        _ => None,
    };
    Figure::new(
        "Half a round trip, by size: lower is better",
        Axis::new("bytes of a message", Scale::Sizes),
        Axis::new("half a round trip, us", Scale::Log),
        lines(rows, size, |ns| ns / 1000.0),
    )
}

/// The measured receive and those that never match take any source: the case in which others walk a
/// list.
fn over_depth(rows: &[Row<'_>]) -> Figure {
    let depth = |row: &Row<'_>| match row.case.kind {
        Kind::Latency { any_source: true, any_filler, depth, .. } if any_filler || depth == 0 => {
            Some(depth)
        }
        _ => None,
    };
    Figure::new(
        "8 bytes past receives that wait, any source: lower is better",
        Axis::new("receives that wait on each side and never match", Scale::Sizes),
        Axis::new("half a round trip, us", Scale::Log),
        lines(rows, depth, |ns| ns / 1000.0),
    )
}

/// A figure for each size.
fn over_window(rows: &[Row<'_>]) -> Vec<Figure> {
    let window_of = |row: &Row<'_>| match row.case.kind {
        Kind::Window { size, window } if row.group == "rate" => Some((size, window)),
        _ => None,
    };
    let count = |size: usize| {
        let sizes = rows.iter().filter_map(window_of).filter(|(other, _)| *other == size);
        sizes.count()
    };
    let sizes: BTreeSet<_> = rows.iter().filter_map(window_of).map(|(size, _)| size).collect();
    let figure = |&size: &usize| {
        let window =
            |row: &Row<'_>| window_of(row).filter(|(other, _)| *other == size).map(|found| found.1);
        Figure::new(
            format!("Messages of {}, by window: higher is better", size_name(size)),
            Axis::new("messages before each acknowledgement", Scale::Sizes),
            Axis::new("million messages/s", Scale::Log),
            lines(rows, window, |ns| 1000.0 / ns),
        )
    };
    // One window is no curve.
    sizes.iter().filter(|&&size| count(size) > 1).map(figure).collect()
}

/// A line for each program, of the rows that have an `x`.
fn lines(
    rows: &[Row<'_>],
    x: impl Fn(&Row<'_>) -> Option<usize>,
    y: impl Fn(f64) -> f64,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(x) = x(row) else { continue };
        for cell in row.cells.iter().filter(|cell| cell.samples > 0 && cell.program != FLOOR) {
            let name = full_name(&cell.program);
            let point = (x as f64, y(cell.median));
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name: name.to_owned(), points: vec![point] }),
            }
        }
    }
    lines
}

pub(crate) fn full_name(program: &str) -> &str {
    match program {
        "openmpi-ob1" => "Open MPI",
        "openmpi-ucx" => "Open MPI over UCX",
        "mpich" => "MPICH over UCX",
        "ucx" => "UCX",
        "ucx-fifo-1024" => "UCX, FIFO of 1024",
        "ucx-fifo-4096" => "UCX, FIFO of 4096",
        other => other,
    }
}
