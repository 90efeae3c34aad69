//! Every figure in a table, in CSV and in OSU's format is what the raw samples say: random
//! measurements, and an oracle that computes each figure anew.

use std::collections::BTreeMap;

use tagmatch_results::columns::{
    BANDWIDTH_TABLE, COLLECTIVE_TABLE, Column, DEPTH_TABLE, DRAIN_TABLE, LATENCY_TABLE,
    PLANNED_RATE_TABLE, RATE_TABLE, RECOVERY_TABLE,
};
use tagmatch_results::{
    Config, Csv, Document, Drained, Means, Osu, PerMessage, PlannedRate, Recovered, Row, Samples,
    Table, depth_verdict,
};
use tagmatch_testkit::random::Random;

const SEEDS: u64 = 48;
/// Histograms have four digits.
const COARSE: f64 = 2e-4;

/// A measurement, and what each of its figures has to be: by a name of the oracle's own, in ns,
/// bytes, messages, or messages and bytes a second.
struct Measurement {
    row: Row,
    figures: BTreeMap<&'static str, f64>,
    samples: usize,
}

/// The least sample that at least this share of all samples doesn't exceed.
fn percentile(sorted: &[u64], per_mille: usize) -> f64 {
    let wanted = (per_mille * sorted.len()).div_ceil(1000).max(1);
    sorted[wanted - 1] as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn measurement(seed: u64) -> Measurement {
    let mut random = Random::stream(seed, 0);
    let mut figures = BTreeMap::new();
    let longest = 16u64 << random.below(36);
    let count = [1, 4, 5, 99, 100, 999, 1000, 10_000][random.index(8)] + random.index(3);
    let mut ways: Vec<u64> = (0..count).map(|_| random.below(longest + 1)).collect();
    let mut samples = Samples::default();
    ways.iter().for_each(|ns| samples.record_one_way(*ns));
    ways.sort_unstable();
    for (name, per_mille) in
        [("min", 0), ("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999), ("max", 1000)]
    {
        figures.insert(name, percentile(&ways, per_mille));
    }
    figures.insert("mean", ways.iter().map(|ns| *ns as f64).sum::<f64>() / count as f64);

    let size = random.pick(&[0, 1, 8, 1000, 1024, 4096, 4097, 3 << 20, 64 << 20]);
    let rate = 1 + random.below(5_000_000);
    let ranks = 1 + random.index(9);
    let per_rank: Vec<f64> = (0..ranks).map(|_| random.below(longest + 1) as f64).collect();
    let least = per_rank.iter().copied().fold(f64::INFINITY, f64::min);
    let most = per_rank.iter().copied().fold(0.0, f64::max);
    let steps: [f64; 5] = std::array::from_fn(|_| random.below(longest + 1) as f64);
    let [noticed, revoke, agree, shrink, barrier] = steps;
    let planned = (1 + random.below(5_000_000)) as f64;
    let round: [f64; 3] = std::array::from_fn(|_| (1 + random.below(90_000)) as f64 / 10.0);
    let [drain_min, drain_mean, drain_max] = round;
    let depth = random.below(20_000);
    let unexpected = if depth.is_multiple_of(2) { 0 } else { random.below(20_000) };
    let iters = 1 + random.below(300_000_000);
    let numbers = [
        ("size", size as f64),
        ("bandwidth", rate as f64 * size as f64),
        ("messages_per_s", rate as f64),
        ("ns_per_message", 1e9 / rate as f64),
        ("iters", iters as f64),
        ("samples", count as f64),
        ("posted", depth as f64),
        ("unexpected", unexpected as f64),
        ("depth", depth.max(unexpected) as f64),
        ("wildcard", 37.0),
        ("window", 20.0),
        ("threads", 3.0),
        ("ranks", per_rank.len() as f64),
        ("rank_min", least),
        ("rank_avg", mean(&per_rank)),
        ("rank_max", most),
        ("noticed", noticed),
        ("revoke", revoke),
        ("agree", agree),
        ("shrink", shrink),
        ("barrier", barrier),
        ("planned", planned),
        ("sent", planned - 1.0),
        ("drain_min", drain_min),
        ("drain_mean", drain_mean),
        ("drain_max", drain_max),
        ("rounds", 12.0),
    ];
    figures.extend(numbers);
    let row = Row {
        size,
        posted_depth: depth,
        unexpected_depth: unexpected,
        wildcard_percent: 37,
        iters,
        samples: samples.count(),
        latency_ns: samples.halved(),
        bandwidth_bytes_per_s: Some(rate * size),
        messages_per_s: Some(rate),
        window: Some(20),
        threads: Some(3),
        ranks: u32::try_from(per_rank.len()).ok(),
        rank_means_ns: Some(Means::of(&per_rank)),
        recovery_ns: Some(Recovered { noticed, revoke, agree, shrink, barrier }),
        pace: Some(PlannedRate {
            planned_per_s: planned,
            sent_per_s: planned - 1.0,
            held: true,
            late_max_ns: 0,
        }),
        drain: Some(Drained {
            queue: "posted".into(),
            order: "lifo".into(),
            seed: 1,
            rounds: 12,
            ns_per_message: PerMessage { min: drain_min, mean: drain_mean, max: drain_max },
        }),
        ..Row::default()
    };
    Measurement { row, figures, samples: count }
}

/// The columns of a line, which two or more spaces part.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The number that a cell shows, and by how much it may be rounded.
fn number(cell: &str) -> (f64, f64) {
    let units = [(" B", 1.0), (" KiB", 1024.0), (" MiB", 1048576.0), (" GiB", 1073741824.0)];
    let unit = units.iter().rfind(|(name, _)| cell.ends_with(name));
    let digits = cell.trim_end_matches(|c: char| c == ' ' || c.is_alphabetic()).replace(' ', "");
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let value: f64 = digits.parse().unwrap_or_else(|_| panic!("no number: {cell}"));
    let factor = unit.map_or(1.0, |(_, factor)| *factor);
    (value * factor, 0.5001 * 10f64.powi(-i32::try_from(decimals).unwrap()))
}

/// Fails unless a cell shows a figure in units of `unit`. `slack`: how coarse the figure is itself.
fn check(cell: &str, figure: f64, unit: f64, slack: f64, what: &str) {
    let (shown, rounding) = number(cell);
    let want = figure / unit;
    let may_differ = rounding + want.abs() * slack;
    assert!((shown - want).abs() <= may_differ, "{what}: {cell} is shown, it is {want}");
}

/// The figure in each column, and its unit.
type Figures = &'static [(&'static str, f64)];

/// The columns of each table.
const TABLES: [(&[Column], Figures); 8] = [
    (
        LATENCY_TABLE,
        &[
            ("size", 1.0),
            ("min", 1e3),
            ("p50", 1e3),
            ("p90", 1e3),
            ("p99", 1e3),
            ("p999", 1e3),
            ("max", 1e3),
            ("iters", 1.0),
        ],
    ),
    (
        DEPTH_TABLE,
        &[
            ("posted", 1.0),
            ("unexpected", 1.0),
            ("wildcard", 1.0),
            ("min", 1e3),
            ("p50", 1e3),
            ("p90", 1e3),
            ("p99", 1e3),
            ("max", 1e3),
            ("iters", 1.0),
        ],
    ),
    (
        BANDWIDTH_TABLE,
        &[
            ("size", 1.0),
            ("window", 1.0),
            ("bandwidth", 1e6),
            ("messages_per_s", 1.0),
            ("iters", 1.0),
        ],
    ),
    (
        RATE_TABLE,
        &[
            ("size", 1.0),
            ("window", 1.0),
            ("messages_per_s", 1.0),
            ("ns_per_message", 1.0),
            ("iters", 1.0),
        ],
    ),
    (
        PLANNED_RATE_TABLE,
        &[
            ("size", 1.0),
            ("planned", 1.0),
            ("sent", 1.0),
            ("min", 1e3),
            ("p50", 1e3),
            ("p90", 1e3),
            ("p99", 1e3),
            ("p999", 1e3),
            ("max", 1e3),
            ("iters", 1.0),
        ],
    ),
    (
        DRAIN_TABLE,
        &[
            ("word", 1.0),
            ("depth", 1.0),
            ("word", 1.0),
            ("wildcard", 1.0),
            ("drain_mean", 1.0),
            ("drain_min", 1.0),
            ("drain_max", 1.0),
            ("rounds", 1.0),
            ("iters", 1.0),
        ],
    ),
    (
        COLLECTIVE_TABLE,
        &[
            ("size", 1.0),
            ("rank_avg", 1e3),
            ("rank_min", 1e3),
            ("rank_max", 1e3),
            ("p50", 1e3),
            ("p99", 1e3),
            ("p999", 1e3),
            ("iters", 1.0),
        ],
    ),
    (
        RECOVERY_TABLE,
        &[
            ("ranks", 1.0),
            ("noticed", 1e3),
            ("revoke", 1e3),
            ("agree", 1e3),
            ("shrink", 1e3),
            ("barrier", 1e3),
            ("rank_avg", 1e3),
            ("rank_min", 1e3),
            ("rank_max", 1e3),
        ],
    ),
];

/// How many samples a percentile needs to be shown: ten above it; five for the median.
fn samples_min(figure: &str) -> usize {
    match figure {
        "p50" => 5,
        "p90" => 100,
        "p99" => 1000,
        "p999" => 10_000,
        _ => 0,
    }
}

fn slack(figure: &str) -> f64 {
    match figure {
        "p50" | "p90" | "p99" | "p999" => COARSE,
        // Means are kept in tenths of a nanosecond.
        _ => 1e-9,
    }
}

#[test]
fn each_cell_of_a_table_is_what_the_samples_say() {
    for seed in 0..SEEDS {
        let Measurement { row, figures, samples } = measurement(seed);
        let latency = row.latency_ns.unwrap();
        let ladder =
            [latency.min, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        assert!(ladder.is_sorted(), "seed {seed}: {ladder:?}");
        for (columns, expected) in TABLES {
            let table = Table::new(columns);
            let text = table.row(&row);
            let cells = cells(text.lines().next().unwrap());
            assert_eq!(cells.len(), expected.len(), "{text}");
            let heading = table.heading();
            assert_eq!(heading.trim_end().len(), text.lines().next().unwrap().len(), "{text}");
            for (cell, (figure, unit)) in cells.into_iter().zip(expected) {
                let is_few = samples < samples_min(figure);
                assert_eq!(cell == "-", is_few, "seed {seed}, {figure}: {cell} of {samples}");
                if *figure == "word" || is_few {
                    continue;
                }
                check(cell, figures[figure], *unit, slack(figure), &format!("{seed}: {figure}"));
            }
        }
    }
}

#[test]
fn each_value_of_csv_is_what_the_samples_say() {
    let names = [
        ("size_bytes", "size"),
        ("posted_depth", "posted"),
        ("unexpected_depth", "unexpected"),
        ("wildcard_percent", "wildcard"),
        ("iters", "iters"),
        ("samples", "samples"),
        ("min_ns", "min"),
        ("p50_ns", "p50"),
        ("p90_ns", "p90"),
        ("p99_ns", "p99"),
        ("p999_ns", "p999"),
        ("max_ns", "max"),
        ("mean_ns", "mean"),
        ("bandwidth_bytes_per_s", "bandwidth"),
        ("messages_per_s", "messages_per_s"),
        ("threads", "threads"),
        ("planned_per_s", "planned"),
        ("window", "window"),
        ("ranks", "ranks"),
        ("rank_mean_min_ns", "rank_min"),
        ("rank_mean_avg_ns", "rank_avg"),
        ("rank_mean_max_ns", "rank_max"),
    ];
    let mut csv = Csv::new("off".into());
    let heading = csv.heading();
    let document = Document::new("lat", "shm".into(), Config::default(), true);
    for seed in 0..SEEDS {
        let Measurement { row, figures, .. } = measurement(seed);
        let line = csv.row(&document, &row);
        let columns = heading.trim_end().split(',').zip(line.trim_end().split(','));
        let columns: BTreeMap<_, _> = columns.collect();
        for (name, figure) in names {
            let what = format!("{seed}: {name}");
            let shown: f64 = columns[name].parse().expect("a number");
            let want = figures[figure];
            let may_differ = 0.0501 + want * slack(figure);
            assert!((shown - want).abs() <= may_differ, "{what}: {shown}, it is {want}");
        }
    }
}

#[test]
fn each_value_in_the_format_of_osu_is_what_the_samples_say() {
    let tests: [(&str, Figures); 9] = [
        ("put", &[("size", 1.0), ("mean", 1e3)]),
        ("get_bw", &[("size", 1.0), ("bandwidth", 1e6)]),
        ("fadd_rate", &[("size", 1.0), ("bandwidth", 1e6), ("messages_per_s", 1.0)]),
        ("lat", &[("size", 1.0), ("mean", 1e3)]),
        ("bw", &[("size", 1.0), ("bandwidth", 1e6)]),
        ("bibw", &[("size", 1.0), ("bandwidth", 1e6)]),
        ("rate", &[("size", 1.0), ("bandwidth", 1e6), ("messages_per_s", 1.0)]),
        ("drain", &[("depth", 1.0), ("ns_per_message", 1e3)]),
        (
            "bcast",
            &[
                ("size", 1.0),
                ("rank_avg", 1e3),
                ("rank_min", 1e3),
                ("rank_max", 1e3),
                ("iters", 1.0),
            ],
        ),
    ];
    for seed in 0..SEEDS {
        let Measurement { row, figures, .. } = measurement(seed);
        for (test, expected) in tests {
            let mut osu = Osu::default();
            osu.heading(test);
            let text = osu.row(test, &row);
            let line = text.lines().last().unwrap();
            let cells: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(cells.len(), expected.len(), "{line}");
            for (cell, (figure, unit)) in cells.into_iter().zip(expected) {
                check(cell, figures[figure], *unit, slack(figure), &format!("{seed}: {figure}"));
            }
        }
    }
}

/// A verdict that depth costs something has an interval that lies above noise as a whole, and
/// counts the rows that cost something when each is judged alone.
#[test]
fn a_verdict_on_depths_agrees_with_its_own_interval_and_with_each_row() {
    let mut costs = 0;
    for seed in 0..60 {
        let mut random = Random::stream(seed, 1);
        let noise = random.below(40);
        let mut row = |depth: u64, ns: u64| {
            let block = |_| (ns * 1000 + ns * random.below(noise + 2) * 10) as f64 / 1000.0;
            let latency_ns = (0..20).map(block).collect();
            let blocks = tagmatch_results::BlockFigures { latency_ns, messages_per_s: vec![] };
            Row { posted_depth: depth, blocks: Some(blocks), ..Row::default() }
        };
        let base = row(0, 1000);
        let deep: Vec<Row> =
            (1..5).map(|depth| row(depth, 1000 + 10 * depth * (seed % 4))).collect();
        let is_slow = |row: &&Row| {
            depth_verdict(&[base.clone(), (*row).clone()]).starts_with("depth costs l")
        };
        let slow = deep.iter().filter(is_slow).count();
        let text = depth_verdict(&[std::slice::from_ref(&base), &deep[..]].concat());
        if slow == 0 {
            assert!(text.starts_with("depth costs nothing beyond noise: 4 rows"), "{seed}: {text}");
            continue;
        }
        costs += 1;
        assert!(text.contains(&format!(": {slow} of 4 rows are slower")), "{seed}: {text}");
        let low = text.split("(+").nth(1).and_then(|rest| rest.split(" %").next());
        let low: f64 = low.expect("the lower end of an interval").parse().unwrap();
        assert!(low >= 2.0, "{seed}: {text}");
    }
    assert!((6..54).contains(&costs), "{costs} of 60");
}
