//! Rows of the tables: all programs' figures of one case at one distance.

use super::record::{Distance, Record, Sample};
use crate::case::{Case, Kind};

pub(crate) const OURS: &str = "tagmatch";
/// Our program under MPICH's launcher; otherwise it is under `tagperf run`.
pub(crate) const OURS_BY_MPIEXEC: &str = "tagmatch-mpiexec";
/// A bare client of libfabric over our provider.
pub(crate) const OURS_BY_LIBFABRIC: &str = "tagmatch-libfabric";
/// Open MPI over our provider.
pub(crate) const OURS_BY_OPENMPI: &str = "tagmatch-openmpi";
pub(crate) const FLOOR: &str = "floor";

/// Groups of cases in the order of the tables, with their titles.
pub(crate) const GROUPS: [(&str, &str); 11] = [
    ("latency", "half round trip, ns"),
    ("rate", "one message of a window, one way, ns"),
    ("bandwidth", "one large message of a window, one way, ns"),
    (
        "cold",
        "changing buffers, data read afterwards: half round trip, or one message of a window, ns",
    ),
    ("depth", "half round trip of 8 B past receives that never match, ns"),
    ("memory", "resident memory, bytes each, of 100 000"),
    ("collectives", "collective operations of 2 ranks, ns a call (dup: with free)"),
    ("tcp", "over TCP: half round trip, or one message of a window, ns"),
    ("ofi", "over a provider of libfabric: half round trip, or one message of a window, ns"),
    ("rma", "one-sided: a put's half round trip, a get, a fetch-add, or one of a window, ns"),
    ("ranks", "operations of more ranks than processors, which are two, ns a call"),
];

/// The figure of a sample that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Stat {
    Min,
    P50,
    P90,
}

impl Stat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stat::Min => "min",
            Stat::P50 => "p50",
            Stat::P90 => "p90",
        }
    }

    pub(crate) fn of(self, sample: &Sample) -> f64 {
        match self {
            Stat::Min => sample.min,
            Stat::P50 => sample.p50,
            Stat::P90 => sample.p90,
        }
    }
}

/// One program's samples of a case at a distance.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) program: String,
    pub(crate) samples: usize,
    /// Fewer samples were taken than are enough.
    pub(crate) enough: usize,
    /// Median and quartiles; 0 without samples.
    pub(crate) median: f64,
    pub(crate) quartiles: [f64; 2],
}

/// Ours divided by another figure: of the medians, and of the quartiles that make it smallest and
/// largest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Cell {
    fn new(program: &str, enough: usize, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |quarters: usize| {
            // The value after so many quarters of them, or the mean of the two beside it.
            let last = values.len().saturating_sub(1);
            let beside = |place: usize| values.get(place).copied().unwrap_or(0.0);
            f64::midpoint(beside(quarters * last / 4), beside((quarters * last).div_ceil(4)))
        };
        let median = at(2);
        let quartiles = [at(1), at(3)];
        Cell { program: program.to_owned(), samples: values.len(), enough, median, quartiles }
    }

    pub(crate) fn ratio_to(&self, other: &Cell) -> Option<Ratio> {
        let divided = |a: f64, b: f64| a / b;
        (self.samples > 0 && other.samples > 0 && other.quartiles[0] > 0.0).then(|| Ratio {
            median: divided(self.median, other.median),
            low: divided(self.quartiles[0], other.quartiles[1]),
            high: divided(self.quartiles[1], other.quartiles[0]),
        })
    }
}

/// A case at a distance.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) group: &'a str,
    pub(crate) case: &'a Case,
    /// All programs that the case was planned for, without those that failed before its first
    /// sample.
    pub(crate) cells: Vec<Cell>,
}

impl Row<'_> {
    pub(crate) fn cell(&self, program: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.program == program && cell.samples > 0)
    }

    /// Open MPI by itself, over its faster transport.
    pub(crate) fn best_openmpi(&self) -> Option<&Cell> {
        let is_openmpi = |cell: &&Cell| cell.program.starts_with("openmpi-") && cell.samples > 0;
        self.cells.iter().filter(is_openmpi).min_by(|a, b| a.median.total_cmp(&b.median))
    }

    /// The peer with the smallest median.
    pub(crate) fn best_peer(&self) -> Option<&Cell> {
        let peers = self.cells.iter().filter(|cell| is_peer(&cell.program) && cell.samples > 0);
        peers.min_by(|a, b| a.median.total_cmp(&b.median))
    }
}

pub(crate) fn is_peer(program: &str) -> bool {
    let ours = [OURS, OURS_BY_MPIEXEC, OURS_BY_LIBFABRIC, OURS_BY_OPENMPI];
    !ours.contains(&program) && program != FLOOR
}

/// All rows at `distance`, in the order of the groups and of the plan.
pub(crate) fn rows(record: &Record, distance: Distance, stat: Stat) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (group, _) in GROUPS {
        let turns = record.turns.iter().filter(|turn| turn.group == group);
        for turn in turns {
            for case in &turn.cases {
                let samples = record.samples_of(distance, &turn.program, group, &case.name);
                let values: Vec<_> = samples.map(|sample| stat.of(sample)).collect();
                if turn.failed && values.is_empty() {
                    continue;
                }
                // The samples before a failure count, and there will be no more.
                let enough = if turn.failed { 0 } else { turn.enough };
                let cell = Cell::new(&turn.program, enough, values);
                let known = rows.iter_mut().find(|row| row.group == group && row.case == case);
                match known {
                    Some(row) => row.cells.push(cell),
                    None => rows.push(Row { group, case, cells: vec![cell] }),
                }
            }
        }
    }
    rows.retain(|row| row.cells.iter().any(|cell| cell.samples > 0));
    rows
}

/// The name of a case in a table.
pub(crate) fn label(group: &str, case: &Case) -> String {
    match &case.kind {
        Kind::Latency { any_source, any_filler, depth, .. } if group == "depth" => {
            let source = |any: bool| if any { "any source" } else { "exact" };
            match depth {
                0 => format!("{} past none", source(*any_source)),
                _ => format!("{} past {depth} {}", source(*any_source), source(*any_filler)),
            }
        }
        Kind::Latency { size, .. } => size_name(*size),
        Kind::Window { size, window } => format!("{}, window {window}", size_name(*size)),
        Kind::Cold { size, window: 1 } => size_name(*size),
        Kind::Cold { size, window } => format!("{}, window {window}", size_name(*size)),
        Kind::Buffer { size, .. } => format!("{} out of Worker::buffer", size_name(*size)),
        Kind::Ranks { ranks } => format!("barrier of {ranks} ranks"),
        Kind::Collective { operation, size: 0 } => operation.name().to_owned(),
        Kind::Collective { operation, size } => {
            format!("{} of {}", operation.name(), size_name(*size))
        }
        Kind::Rma { operation, size, window } => {
            let of = format!("{} of {}", operation.name(), size_name(*size));
            if *window == 1 { of } else { format!("{of}, window {window}") }
        }
        Kind::Posted => "posted receive".to_owned(),
        Kind::Unexpected => "unexpected message of 8 B".to_owned(),
    }
}

pub(crate) fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        let cell = |values: &[f64]| Cell::new("ucx", 3, values.to_vec());
        let of_five = cell(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((of_five.median, of_five.quartiles), (3.0, [2.0, 4.0]));
        assert_eq!(cell(&[1.0, 2.0]).median, 1.5);
        assert_eq!(cell(&[]).samples, 0);
        assert_eq!(cell(&[]).ratio_to(&of_five), None);
        let ratio = cell(&[6.0]).ratio_to(&of_five).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 1.5, 3.0));
    }
}
