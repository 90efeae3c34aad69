//! The aims: ours, divided by the best peer's figure or by another one at the same distance.

use tagperf::shared::Operation;

use super::rows::{
    FLOOR, OURS, OURS_BY_LIBFABRIC, OURS_BY_MPIEXEC, OURS_BY_OPENMPI, Ratio, Row, label,
};
use crate::case::{Kind, RmaOperation};

const KIB: usize = 1 << 10;

/// The figure that divides ours.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum By {
    BestPeer,
    /// Our own program, which uses the crate.
    Crate,
    /// Open MPI by itself, over its faster transport.
    BestOpenMpi,
    /// The bare loop of process_vm_readv(2).
    BareRead,
    /// Two cache lines that go back and forth.
    Lines,
    OwnDepthZero,
    /// Bytes, which are divided by nothing.
    Nothing,
}

/// An aim at one distance, and what was reached.
#[derive(Debug)]
pub(crate) struct Aim {
    pub(crate) what: String,
    pub(crate) at_most: f64,
    pub(crate) by: By,
    /// `None`: not measured.
    pub(crate) reached: Option<Reached>,
}

/// The ratio, and the program that it is formed with.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) ratio: Ratio,
    pub(crate) other: String,
}

impl Aim {
    /// Compares the figure as the table shows it: no aim is missed by less than the table tells.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let median = self.reached.as_ref()?.ratio.median;
        let steps = if median < 10.0 { 100.0 } else { 10.0 };
        // An aim of a hundredth is compared in full.
        let steps = if self.at_most < 0.1 { 1e6 } else { steps };
        Some((median * steps).round() / steps <= self.at_most)
    }
}

/// The aims that `rows`, all at one distance, have.
pub(crate) fn aims(rows: &[Row<'_>]) -> Vec<Aim> {
    rows.iter().flat_map(|row| of_row(rows, row)).collect()
}

fn of_row(rows: &[Row<'_>], row: &Row<'_>) -> Vec<Aim> {
    let Some((at_most, by)) = aim_of(row) else { return Vec::new() };
    // Few bytes are compared with what the processors take for two cache lines, too.
    let is_short = matches!(row.case.kind, Kind::Latency { size: 0..=32, depth: 0, .. });
    let lines = (is_short && row.group == "latency").then_some((1.15, By::Lines));
    // Past receives that never match, ours are compared with our own past none, too.
    let is_deep = matches!(row.case.kind, Kind::Latency { depth: 16.., .. });
    let own = (is_deep && row.group == "depth").then_some((1.02, By::OwnDepthZero));
    let name = label(row.group, row.case);
    let what = match row.group {
        "latency" => format!("{name}, half round trip"),
        _ => name,
    };
    // A job's barrier has an aim under each launcher.
    let programs: &[(&str, &str)] = match row.group {
        "ranks" => &[(OURS, ", tagperf run"), (OURS_BY_MPIEXEC, ", mpiexec")],
        _ => &[(OURS, "")],
    };
    let aim = |(program, launcher): &(&str, &str)| Aim {
        what: format!("{what}{launcher}"),
        at_most,
        by: by.clone(),
        reached: reached(rows, row, program, &by),
    };
    let provider = provider_aims(row).into_iter().map(|(program, at_most, by)| Aim {
        what: format!("{what}, {}", program.trim_start_matches("tagmatch-")),
        at_most,
        reached: reached(rows, row, program, &by),
        by,
    });
    let further = lines.into_iter().chain(own).map(|(at_most, by)| Aim {
        what: what.clone(),
        at_most,
        reached: reached(rows, row, OURS, &by),
        by,
    });
    programs.iter().map(aim).chain(further).chain(provider).collect()
}

/// The aims of programs over the provider for libfabric.
fn provider_aims(row: &Row<'_>) -> Vec<(&'static str, f64, By)> {
    match &row.case.kind {
        _ if matches!(row.group, "tcp" | "ofi") => Vec::new(),
        Kind::Latency { size, depth: 0, .. } if row.group == "latency" => {
            let of_openmpi = match *size {
                0..=64 => 1.1,
                65..=65536 => 0.9,
                _ => 0.75,
            };
            let libfabric = (*size == 8).then_some((OURS_BY_LIBFABRIC, 1.05, By::Crate));
            libfabric.into_iter().chain([(OURS_BY_OPENMPI, of_openmpi, By::BestOpenMpi)]).collect()
        }
        Kind::Window { size: 8, window: 64 } => {
            vec![(OURS_BY_LIBFABRIC, 1.2, By::Crate), (OURS_BY_OPENMPI, 1.3, By::BestOpenMpi)]
        }
        Kind::Latency { depth: 16384, any_source: true, any_filler: true, .. } => {
            vec![(OURS_BY_OPENMPI, 0.01, By::BestOpenMpi)]
        }
        _ => Vec::new(),
    }
}

fn reached(rows: &[Row<'_>], row: &Row<'_>, program: &str, by: &By) -> Option<Reached> {
    let ours = row.cell(program)?;
    let other = match by {
        By::BestPeer => row.best_peer()?,
        By::Crate => row.cell(OURS)?,
        By::BestOpenMpi => row.best_openmpi()?,
        By::BareRead => row.cell(FLOOR)?,
        By::Lines => rows.iter().find_map(|row| {
            let is_lines = row.group == "latency" && matches!(row.case.kind, Kind::Latency { .. });
            row.cell(FLOOR).filter(|_| is_lines)
        })?,
        By::OwnDepthZero => {
            rows.iter().find(|other| is_depth_zero_of(other, row))?.cell(program)?
        }
        By::Nothing => {
            let [low, high] = ours.quartiles;
            let ratio = Ratio { median: ours.median, low, high };
            return Some(Reached { ratio, other: "bytes".to_owned() });
        }
    };
    let other_name = if other.program == program { "past none" } else { &other.program };
    Some(Reached { ratio: ours.ratio_to(other)?, other: other_name.to_owned() })
}

fn is_depth_zero_of(other: &Row<'_>, row: &Row<'_>) -> bool {
    let source = |row: &Row<'_>| match row.case.kind {
        Kind::Latency { any_source, .. } => Some(any_source),
        _ => None,
    };
    let is_shallow = matches!(other.case.kind, Kind::Latency { depth: 0, .. });
    other.group == row.group && is_shallow && source(other) == source(row)
}

/// How small the ratio is to be.
fn aim_of(row: &Row<'_>) -> Option<(f64, By)> {
    let to_best = |at_most: f64| Some((at_most, By::BestPeer));
    match row.case.kind {
        _ if row.group == "tcp" => to_best(0.9),
        Kind::Latency { size: 8, .. } if row.group == "ofi" => to_best(1.3),
        Kind::Window { size: 8, .. } if row.group == "ofi" => to_best(1.5),
        Kind::Window { size, .. } if row.group == "ofi" && size > 64 * KIB => to_best(1.05),
        _ if row.group == "ofi" => None,
        Kind::Latency { depth: 16.., .. } => to_best(0.95),
        Kind::Latency { .. } if row.group == "depth" => None,
        Kind::Latency { size: 64..=1024, .. } => to_best(0.85),
        Kind::Latency { size, .. } => to_best(if size <= 64 * KIB { 0.95 } else { 0.7 }),
        Kind::Window { .. } => to_best(0.85),
        Kind::Cold { .. } => to_best(0.95),
        Kind::Buffer { .. } => Some((0.8, By::BareRead)),
        Kind::Collective { operation: Operation::Dup | Operation::Agree, .. } => None,
        Kind::Collective { size: 0..=8, .. } => to_best(0.8),
        Kind::Rma { operation: RmaOperation::FetchAdd, .. } => to_best(1.0),
        Kind::Collective { .. } | Kind::Rma { .. } => to_best(0.9),
        Kind::Ranks { .. } => to_best(1.0),
        Kind::Posted => Some((128.0, By::Nothing)),
        Kind::Unexpected => Some((136.0, By::Nothing)),
    }
}
