//! The charts of a run, and their curves.

use std::collections::BTreeSet;

use super::axis::Scale;
use super::figure::{Axis, Figure, LINES_MAX, Line};
use crate::samples::{PERCENTILES, Percentile};
use crate::saved_run::{Metric, SavedResult, SavedRun};
use crate::show::show_size;

/// A chart for each test of `run`; several where it has more curves than a reader can tell apart.
pub(super) fn figures(run: &SavedRun) -> Vec<Figure> {
    // `tagperf` alone measures latency twice, over sizes and then over depths, with other tests
    // between.
    let tests = run.entries.chunk_by(|a, b| a.key.test == b.key.test);
    tests.map(|group| figure(&group.iter().collect::<Vec<_>>())).flat_map(split).collect()
}

/// Sorts the points, since a list of sizes need not be in order, and divides curves among charts.
fn split(mut figure: Figure) -> Vec<Figure> {
    for line in &mut figure.lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let queue = |line: &Line| ["posted", "unexpected"].map(|name| line.name.starts_with(name));
    let charts: Vec<&[Line]> = if figure.lines.len() > LINES_MAX {
        figure.lines.sort_by_key(|line| std::cmp::Reverse(queue(line)));
        let queues = figure.lines.chunk_by(|a, b| queue(a) == queue(b));
        let evenly = |lines: &[Line]| lines.len().div_ceil(lines.len().div_ceil(LINES_MAX));
        queues.flat_map(|lines| lines.chunks(evenly(lines))).collect()
    } else {
        vec![&figure.lines]
    };
    let count = charts.len();
    let part = |(at, lines): (usize, &[Line])| {
        let part = if count > 1 { format!(" ({at} of {count})") } else { String::new() };
        Figure { title: format!("{}{part}", figure.title), lines: lines.to_vec(), ..figure.clone() }
    };
    (1..).zip(charts).map(part).collect()
}

fn depth(entry: &SavedResult) -> (u64, u64, &str) {
    let number = |name: &str| {
        entry.key.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    let wildcard = entry.key.parameters.get("wildcard_percent").map_or("0", String::as_str);
    (number("posted_depth"), number("unexpected_depth"), wildcard)
}

fn figure(group: &[&SavedResult]) -> Figure {
    let sizes: BTreeSet<_> = group.iter().map(|entry| entry.key.size).collect();
    let depths: BTreeSet<_> = group.iter().map(|entry| depth(entry)).collect();
    let variants: BTreeSet<_> = group.iter().map(|entry| variant(entry)).collect();
    // Orders of a drain are compared as depths are, at one depth too.
    let orders = group[0].key.test == "drain" && variants.len() > 1;
    if depths.len() > 1 || orders {
        by_depth(group, sizes.len() > 1, variants.len() > 1)
    } else if sizes.len() > 1 {
        by_size(group, variants.len() > 1)
    } else if variants.len() > 1 {
        by_threads(group)
    } else {
        single(group[0])
    }
}

/// The parameters, beside size and depths, that tell results apart.
fn variant(entry: &SavedResult) -> String {
    // The depths say which queue is deep, and the title says that a process sends to itself. All
    // results of a run have one window, though for some sizes it is the default.
    let names =
        ["posted_depth", "unexpected_depth", "wildcard_percent", "queue", "oneself", "window"];
    parameters_but(&names, entry).collect::<Vec<_>>().join(", ")
}

fn parameters_but(names: &[&str], entry: &SavedResult) -> impl Iterator<Item = String> {
    let others = entry.key.parameters.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    others.map(|(name, value)| words(name, value))
}

/// All parameters of a result, for a title that has the test and its ranks.
fn described(entry: &SavedResult) -> String {
    let has_size = !matches!(entry.key.test.as_str(), "barrier" | "dup" | "agree");
    let size = has_size.then(|| show_size(entry.key.size));
    let others = parameters_but(&["queue", "oneself", "ranks"], entry);
    size.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn words(name: &str, value: &str) -> String {
    match (name, value) {
        ("order", value) => value.to_owned(),
        ("threads", count) => format!("{count} threads"),
        ("ranks", count) => format!("{count} ranks"),
        ("posted_depth", count) => format!("{count} posted"),
        ("unexpected_depth", count) => format!("{count} unexpected"),
        ("wildcard_percent", share) => format!("{share} % any source"),
        ("planned_per_s", rate) => format!("{} messages/s", rate.trim_end_matches(".0")),
        (name, "true") => name.to_owned(),
        (name, value) => format!("{name} {value}"),
    }
}

/// A collective operation is timed at each rank; its percentiles are those of rank 0.
const OF_RANK_0: &str = "a call at rank 0, µs";

/// The title of a test's chart, and the label of its axis.
fn measure(entry: &SavedResult) -> (String, &'static str) {
    let (title, label) = named(entry);
    let ranks = entry.key.parameters.get("ranks");
    (ranks.map_or(title.to_owned(), |ranks| format!("{title} of {ranks} ranks")), label)
}

fn named(entry: &SavedResult) -> (&'static str, &'static str) {
    let is = |name: &str| entry.key.parameters.contains_key(name);
    match (entry.metric, entry.key.test.as_str()) {
        (_, "barrier") => ("Barrier", OF_RANK_0),
        (_, "bcast") => ("Broadcast", OF_RANK_0),
        (_, "allreduce") => ("Allreduce", OF_RANK_0),
        (_, "alltoall") => ("Alltoall", OF_RANK_0),
        (_, "dup") => ("Duplicate of a communicator", OF_RANK_0),
        (_, "agree") => ("Agreement", OF_RANK_0),
        (Metric::LatencyNs, _) if is("planned_per_s") => ("Latency at a rate", "one way, µs"),
        (Metric::LatencyNs, _) if is("oneself") => {
            ("Latency to oneself", "one receive and one send, µs")
        }
        (_, "put") => ("Put", "from the call to its end, µs"),
        (_, "get") => ("Get", "from the call to its end, µs"),
        (_, "fadd") => ("Fetch and add", "from the call to its end, µs"),
        (Metric::LatencyNs, _) => ("Latency", "half the round trip, µs"),
        (_, "bw") if is("oneself") => ("Bandwidth to oneself", "MB/s"),
        (_, "bw") => ("Bandwidth", "one way, MB/s"),
        (_, "put_bw") => ("Put bandwidth", "MB/s"),
        (_, "get_bw") => ("Get bandwidth", "MB/s"),
        (_, "fadd_rate") => ("Rate of fetch and add", "additions/s"),
        (_, "bibw") => ("Bidirectional bandwidth", "both ways together, MB/s"),
        (_, "drain") => ("Draining a queue", "ns a message"),
        _ if is("oneself") => ("Message rate to oneself", "messages/s"),
        _ => ("Message rate", "messages/s"),
    }
}

/// The figure that a curve shows, in the axis' unit.
fn value(entry: &SavedResult) -> f64 {
    match (entry.metric, entry.key.test.as_str()) {
        (Metric::LatencyNs, _) => entry.value / 1e3,
        (_, "bw" | "bibw" | "put_bw" | "get_bw") => {
            entry.row.bandwidth_bytes_per_s.unwrap_or(0) as f64 / 1e6
        }
        (_, "drain") if entry.value > 0.0 => 1e9 / entry.value,
        _ => entry.value,
    }
}

/// A curve for each variant, in the order of the results.
fn by_variant(group: &[&SavedResult], place: impl Fn(&SavedResult) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for entry in group {
        let name = variant(entry);
        let point = (place(entry), value(entry));
        let name = if !name.is_empty() {
            name
        } else if group.iter().any(|e| e.key.parameters.contains_key("threads")) {
            "1 thread".into()
        } else {
            entry.key.test.clone()
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    lines
}

/// A chart of one size and depth: by the number of threads, or with one point for each variant.
fn by_threads(group: &[&SavedResult]) -> Figure {
    let threads = |entry: &SavedResult| -> f64 {
        entry.key.parameters.get("threads").and_then(|n| n.parse().ok()).unwrap_or(1.0)
    };
    let counts: BTreeSet<_> = group.iter().map(|entry| threads(entry).to_bits()).collect();
    let (title, label) = measure(group[0]);
    let lines = if counts.len() == group.len() {
        let points = group.iter().map(|entry| (threads(entry), value(entry))).collect();
        vec![Line { name: group[0].key.test.clone(), points }]
    } else {
        by_variant(group, threads)
    };
    let title = format!("{title} by threads a side, {}", show_size(group[0].key.size));
    let x = Axis::new("threads that share a worker", Scale::Sizes);
    Figure::new(title, x, Axis::new(median_of(group[0], label), Scale::FromZero), lines)
}

fn median_of(entry: &SavedResult, label: &str) -> String {
    let median = if entry.metric == Metric::LatencyNs { "median of " } else { "" };
    format!("{median}{label}")
}

fn by_size(group: &[&SavedResult], variants: bool) -> Figure {
    let (title, label) = measure(group[0]);
    let points = |of: &dyn Fn(&SavedResult) -> Option<f64>| {
        let points = group.iter().filter_map(|entry| Some((entry.key.size as f64, of(entry)?)));
        points.filter(|(_, y)| *y > 0.0).collect::<Vec<_>>()
    };
    let lines = if variants {
        by_variant(group, |entry| entry.key.size as f64)
    } else if group[0].metric == Metric::LatencyNs {
        // As in the table, a percentile on too few samples is not shown.
        let rung = |(at, rung): (usize, &Percentile)| Line {
            name: rung.shown.into(),
            points: points(&|entry| {
                Some(entry.row.latency_ns?.percentiles()[at] / 1e3)
                    .filter(|_| entry.row.samples >= rung.samples_min)
            }),
        };
        let rungs = PERCENTILES.iter().enumerate().rev().map(rung);
        rungs.filter(|line| !line.points.is_empty()).collect()
    } else {
        vec![Line { name: group[0].key.test.clone(), points: points(&|entry| Some(value(entry))) }]
    };
    let x = Axis::new("message size, bytes", Scale::Sizes);
    let label = if variants { median_of(group[0], label) } else { label.into() };
    Figure::new(format!("{title} by message size"), x, Axis::new(label, Scale::Log), lines)
}

fn by_depth(group: &[&SavedResult], sizes_vary: bool, variants: bool) -> Figure {
    let (title, label) = measure(group[0]);
    let is_zero = |entry: &&&SavedResult| matches!(depth(entry), (0, 0, _));
    let mut lines: Vec<Line> = Vec::new();
    for (at, entry) in group.iter().enumerate().filter(|(_, entry)| !is_zero(entry)) {
        let (posted, unexpected, wildcard) = depth(entry);
        let mut name = match (posted, unexpected) {
            (_, 0) => "posted".to_owned(),
            (0, _) => "unexpected".to_owned(),
            _ => "both".to_owned(),
        };
        if wildcard != "0" {
            name += &format!(", {wildcard} % any source");
        }
        if sizes_vary {
            name += &format!(", {}", show_size(entry.key.size));
        }
        if variants {
            name += &format!(", {}", variant(entry));
        }
        let point = (posted.max(unexpected) as f64, value(entry));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => {
                // Every curve begins at depth 0: at the last result of depth 0 before it, or at
                // another one.
                let alike = |z: &&&SavedResult| {
                    z.key.size == entry.key.size && variant(z) == variant(entry)
                };
                let zeros = || group[..at].iter().rev().chain(&group[at..]).filter(is_zero);
                let own = zeros().filter(alike).find(|zero| depth(zero).2 == wildcard);
                let start = own.or_else(|| zeros().find(alike)).map(|zero| (0.0, value(zero)));
                lines.push(Line { name, points: start.into_iter().chain([point]).collect() });
            }
        }
    }
    let (by, x) = match group[0].key.test.as_str() {
        "drain" => ("by its depth", "entries in the queue at first"),
        _ => ("by matching depth", "entries in the list that never match"),
    };
    let size = Some(format!(", {}", show_size(group[0].key.size))).filter(|_| !sizes_vary);
    let title = format!("{title} {by}{}", size.unwrap_or_default());
    let y = Axis::new(median_of(group[0], label), Scale::FromZero);
    Figure::new(title, Axis::new(x, Scale::Sizes), y, lines)
}

/// The chart of a single result: its percentiles, or its figure over time.
fn single(entry: &SavedResult) -> Figure {
    let (title, label) = measure(entry);
    let title = match described(entry) {
        words if words.is_empty() => title,
        words => format!("{title}, {words}"),
    };
    let line = |points| vec![Line { name: entry.key.test.clone(), points }];
    let Some(latency) = entry.row.latency_ns else {
        // The blocks of a drain are rates; its figure is the time of a message.
        let is_inverse = entry.key.test == "drain";
        let scale = value(entry) / entry.value;
        let shown = |block: f64| if is_inverse { 1e9 / block.max(1e-9) } else { block * scale };
        let points = entry.blocks.iter().enumerate();
        let share = 100.0 / entry.blocks.len().max(1) as f64;
        let points = points.map(|(at, block)| ((at as f64 + 0.5) * share, shown(*block)));
        let x = Axis::new("time of the measurement, %", Scale::Percent);
        let y = Axis::new(label, Scale::FromZero);
        return Figure::new(title, x, y, line(points.collect()));
    };
    let rungs = PERCENTILES.iter().zip(latency.percentiles());
    let shown = rungs.filter(|(rung, _)| entry.row.samples >= rung.samples_min);
    let points = shown.map(|(rung, ns)| (rung.quantile, ns / 1e3)).collect();
    let x = Axis::new("share of the samples at most as slow", Scale::Quantiles);
    Figure::new(title, x, Axis::new(label, Scale::Log), line(points))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::of_run;
    use super::*;
    use crate::{Config, Document, Drained, Latency, Row};

    fn row(size: u64, posted_depth: u64, wildcard_percent: u8, us: f64) -> Row {
        let [min, p50, p90, p99, p999, max] =
            [0.9, 1.0, 1.1, 1.5, 4.0, 90.0].map(|factor| us * 1e3 * factor);
        let latency_ns = Some(Latency { min, p50, p90, p99, p999, max, mean: p50 });
        Row { size, posted_depth, wildcard_percent, samples: 50_000, latency_ns, ..Row::default() }
    }

    fn run(rows: &[Row]) -> SavedRun {
        let mut config = Config::default();
        config.environment.cpu = "A <fast> & \"good\" CPU".into();
        let mut document = Document::new("lat", "shm".into(), config, true);
        document.results = rows.to_vec();
        let mut run = SavedRun::default();
        run.add(&document).unwrap();
        run
    }

    fn drained(queue: &str, order: &str) -> Option<Drained> {
        Some(Drained { queue: queue.into(), order: order.into(), ..Drained::default() })
    }

    fn names(figure: &Figure) -> Vec<&str> {
        figure.lines.iter().map(|line| line.name.as_str()).collect()
    }

    #[test]
    fn sizes_give_a_ladder() {
        let rows = [0, 8, 4096].map(|size| row(size, 0, 0, 1.0));
        let figures = figures(&run(&rows));
        assert_eq!(figures.len(), 1);
        assert_eq!(names(&figures[0]), ["max", "p99.9", "p99", "p90", "p50", "min"]);
        assert_eq!(figures[0].lines[4].points, [(0.0, 1.0), (8.0, 1.0), (4096.0, 1.0)]);
        assert_eq!((figures[0].x.scale, figures[0].y.scale), (Scale::Sizes, Scale::Log));
    }

    #[test]
    fn depths_give_a_curve_for_each_kind_from_a_common_start() {
        let rows =
            [row(8, 0, 0, 1.0), row(8, 16, 0, 1.1), row(8, 4096, 0, 1.2), row(8, 4096, 50, 1.3)];
        let of_rows = figures(&run(&rows));
        assert_eq!(of_rows.len(), 1);
        let lines = &of_rows[0].lines;
        assert_eq!(lines[0].points, [(0.0, 1.0), (16.0, 1.1), (4096.0, 1.2)]);
        assert_eq!(lines[1].name, "posted, 50 % any source");
        assert_eq!(lines[1].points, [(0.0, 1.0), (4096.0, 1.3)]);
        // A curve with a depth 0 of its own begins there, in whatever order the depths come.
        let unexpected = Row { unexpected_depth: 4096, ..row(8, 0, 0, 2.1) };
        let each = [row(8, 16, 0, 1.1), row(8, 0, 0, 1.0), row(8, 0, 0, 2.0), unexpected];
        let lines = figures(&run(&each)).remove(0).lines;
        assert_eq!(lines[0].points, [(0.0, 1.0), (16.0, 1.1)]);
        assert_eq!(lines[1].points, [(0.0, 2.0), (4096.0, 2.1)]);
    }

    #[test]
    fn what_else_varies_has_a_curve_each() {
        let threads = [1, 2, 4].map(|n| Row { threads: Some(n), ..row(8, 0, 0, n as f64) });
        let figure = &figures(&run(&threads))[0];
        assert_eq!(figure.title, "Latency by threads a side, 8 B");
        assert_eq!(figure.lines[0].points, [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]);
        let order = |depth, order| Row { drain: drained("posted", order), ..row(8, depth, 0, 1.0) };
        let orders = [order(16, "forward"), order(64, "forward"), order(16, "reverse")];
        let of_orders = figures(&run(&orders));
        assert_eq!(names(&of_orders[0]), ["posted, forward", "posted, reverse"]);
        let two =
            [8, 64].map(|size| [1, 2].map(|n| Row { threads: Some(n), ..row(size, 0, 0, 1.0) }));
        let figures_of_two = figures(&run(&two.concat()));
        assert_eq!(names(&figures_of_two[0]), ["1 thread", "2 threads"]);
        let window = [Row { window: Some(4), ..row(8, 0, 0, 1.0) }, row(1 << 20, 0, 0, 1.0)];
        assert_eq!(names(&figures(&run(&window))[0]).len(), 6, "the percentiles_ns of one sweep");
        let x = BTreeMap::from([("x".to_owned(), 1.into())]);
        let both = [row(8, 0, 0, 1.0), row(64, 0, 0, 2.0)]
            .map(|row| [Row { others: x.clone(), ..row.clone() }, row]);
        let figures = figures(&run(&both.concat()));
        assert_eq!((figures.len(), names(&figures[0])), (1, vec!["x 1", "lat"]));
    }

    #[test]
    fn all_tests_have_a_chart_for_each_table() {
        let rows = [0, 8, 4096].map(|size| row(size, 0, 0, 1.0));
        let mut all = run(&rows);
        let mut rate = all.entries[1].clone();
        rate.key.test = "rate".into();
        all.entries.push(rate);
        let rows = [row(8, 0, 0, 1.0), row(8, 16, 0, 1.1), row(8, 4096, 0, 1.2)];
        all.entries.extend(run(&rows).entries);
        let titles: Vec<_> = figures(&all).into_iter().map(|figure| figure.title).collect();
        let want = ["Latency by message size", "Latency, 8 B", "Latency by matching depth, 8 B"];
        assert_eq!(titles, want);
    }

    #[test]
    fn sizes_in_any_order_are_one_chart() {
        let figures = figures(&run(&[4096, 0, 8, 8].map(|size| row(size, 0, 0, size as f64))));
        assert_eq!(figures.len(), 1);
        let p50 = &figures[0].lines[4].points;
        assert_eq!(p50[..], [(0.0, 0.0), (8.0, 8.0), (8.0, 8.0), (4096.0, 4096.0)][1..]);
    }

    #[test]
    fn drains_are_told_apart_at_one_depth_and_by_their_wildcards() {
        let drain = |queue: &str, order, wildcard| {
            let depth = |name| if queue == name { 16 } else { 0 };
            Row {
                unexpected_depth: depth("unexpected"),
                drain: drained(queue, order),
                ..row(8, depth("posted"), wildcard, 1.0)
            }
        };
        let of = |rows: &[Row]| {
            let mut run = run(rows);
            run.entries.iter_mut().for_each(|entry| entry.key.test = "drain".into());
            figures(&run)
        };
        let orders = of(&["forward", "reverse"].map(|order| drain("posted", order, 0)));
        assert_eq!(orders[0].title, "Latency by its depth, 8 B");
        assert_eq!(names(&orders[0]), ["posted, forward", "posted, reverse"]);
        let shares = of(&[0, 50, 100].map(|share| drain("unexpected", "forward", share)));
        let want = ["unexpected", "unexpected, 50 % any source", "unexpected, 100 % any source"];
        assert_eq!(names(&shares[0]), want);
        // More curves than a reader can tell apart make several charts, with all curves.
        let many = (0..11)
            .flat_map(|share| ["posted", "unexpected"].map(|queue| drain(queue, "forward", share)));
        let many = of(&many.collect::<Vec<_>>());
        assert_eq!(many.iter().map(|figure| figure.lines.len()).collect::<Vec<_>>(), [6, 5, 6, 5]);
        assert!(
            many.iter().zip(["posted", "posted", "unexpected", "unexpected"]).all(
                |(figure, queue)| figure.lines.iter().all(|line| line.name.starts_with(queue))
            )
        );
        assert_eq!(many[1].title, "Latency by its depth, 8 B (2 of 4)");
    }

    #[test]
    fn sends_to_oneself_have_no_half_round_trip() {
        let text = run(&[row(8, 0, 0, 1.0), row(64, 0, 0, 1.0)]);
        let mut oneself = text.clone();
        for entry in &mut oneself.entries {
            entry.key.parameters.insert("oneself".into(), "true".into());
        }
        for (run, label) in
            [(text, "half the round trip, µs"), (oneself, "one receive and one send, µs")]
        {
            let figure = &figures(&run)[0];
            assert_eq!((&figure.y.label[..], figure.lines.len()), (label, 6));
        }
    }

    #[test]
    fn collective_operations_are_no_latencies() {
        for (test, title) in [
            ("barrier", "Barrier of 4 ranks"),
            ("bcast", "Broadcast of 4 ranks"),
            ("allreduce", "Allreduce of 4 ranks"),
            ("alltoall", "Alltoall of 4 ranks"),
            ("dup", "Duplicate of a communicator of 4 ranks"),
            ("agree", "Agreement of 4 ranks"),
        ] {
            let has_size = ["bcast", "allreduce", "alltoall"].contains(&test);
            let charts = |sizes: &[u64]| {
                let mut run =
                    run(&sizes.iter().map(|size| row(*size, 0, 0, 1.0)).collect::<Vec<_>>());
                for entry in &mut run.entries {
                    entry.key.test = test.into();
                    entry.key.parameters.insert("ranks".into(), "4".into());
                }
                figures(&run)
            };
            let one = charts(&[8]);
            let want = if has_size { format!("{title}, 8 B") } else { title.to_owned() };
            assert_eq!((one.len(), &one[0].title, &one[0].y.label[..]), (1, &want, OF_RANK_0));
            let many = charts(&[8, 64]);
            assert_eq!(many[0].title, format!("{title} by message size"));
            assert_eq!(many[0].y.label, OF_RANK_0);
        }
    }

    #[test]
    fn one_result_is_described_in_words() {
        let mut run = run(&[row(8, 16, 50, 1.0)]);
        assert_eq!(figures(&run)[0].title, "Latency, 8 B, 16 posted, 50 % any source");
        let drain = [("queue", "posted"), ("order", "reverse")];
        let planned = [("planned_per_s", "250000.0")];
        for (parameters, title) in [
            (&[("oneself", "true")][..], "Latency to oneself, 8 B"),
            (&planned[..], "Latency at a rate, 8 B, 250000 messages/s"),
            (&drain[..], "Latency, 8 B, reverse"),
        ] {
            let named = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            run.entries[0].key.parameters = named.collect();
            assert_eq!(figures(&run)[0].title, title);
        }
    }

    #[test]
    fn what_is_drawn_is_sound_whatever_the_names() {
        for rows in [
            vec![row(8, 0, 0, 0.1)],
            vec![row(0, 0, 0, 0.0)],
            vec![row(0, 0, 0, 1e12), row(1 << 30, 0, 0, 1e-6)],
            (0..20).map(|n| row(8, n * 1000, 0, n as f64)).collect(),
        ] {
            let svg = of_run(&run(&rows), "tagperf lat --plot <&\">.svg");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("A &lt;fast&gt; &amp; &quot;good&quot; CPU"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
