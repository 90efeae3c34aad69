//! Every figure of a comparison is what the two runs say: random runs, and an oracle that computes
//! each figure anew, out of all pairs of blocks.

use std::collections::BTreeMap;

use serde_json::Value;
use tagmatch_results::{
    BlockFigures, Comparison, Config, Document, Latency, Row, SavedRun, Style, show::show_size,
};
use tagmatch_testkit::random::Random;

/// The two-sided normal quantile of the confidence of 99 %.
const Z: f64 = 2.575_829;
/// Figures are rounded to hundredths of a percent.
const ROUNDING: f64 = 0.005_001;

/// A measurement: its figure, and the figures of its blocks.
#[derive(Clone)]
struct Measured {
    value: f64,
    blocks: Vec<f64>,
}

/// What one run has of each test and size, in the order of its files.
type Results = BTreeMap<(&'static str, u64), Vec<Measured>>;

fn is_latency(test: &str) -> bool {
    test == "lat"
}

/// A run of the cases that chance picks. Some results are there several times, some have few
/// blocks or none, and some have the figure 0.
fn results(random: &mut Random, speed: f64) -> Results {
    let mut results = Results::new();
    for test in ["lat", "bw", "rate"] {
        for size in [8, 4096] {
            if random.chance(1, 5) {
                continue;
            }
            let factor = if is_latency(test) { speed } else { 1.0 / speed };
            let count = random.pick(&[1, 1, 1, 2, 3, 5]);
            let is_nothing = random.chance(1, 10);
            let blocks = random.pick(&[0, 1, 4, 5, 6, 9, 21]);
            let measured = (0..count).map(|_| {
                let mut near = || (factor * (950 + random.below(100)) as f64 * 1000.0).round();
                let value = if is_nothing { 0.0 } else { near() };
                Measured { value, blocks: (0..blocks).map(|_| near()).collect() }
            });
            results.insert((test, size), measured.collect());
        }
    }
    results
}

/// The run as a file that `--json` writes.
fn saved(results: &Results, cpu: &str) -> Option<SavedRun> {
    let mut text = String::new();
    for ((test, size), all) in results {
        for Measured { value, blocks } in all {
            let mut config = Config::default();
            cpu.clone_into(&mut config.environment.cpu);
            let mut document = Document::new(test, "shm".into(), config, true);
            let mut row = Row { size: *size, ..Row::default() };
            let mut figures = BlockFigures::default();
            if is_latency(test) {
                row.latency_ns = Some(Latency { p50: *value, ..Latency::default() });
                figures.latency_ns.clone_from(blocks);
            } else {
                row.messages_per_s = format!("{value}").parse().ok();
                figures.messages_per_s.clone_from(blocks);
            }
            row.blocks = Some(figures);
            document.results.push(row);
            text += &serde_json::to_string(&document).unwrap();
        }
    }
    (!text.is_empty()).then(|| SavedRun::read(text.as_bytes()).unwrap())
}

/// The median of the figures, and all blocks.
fn merged(all: &[Measured]) -> Measured {
    let mut values: Vec<f64> = all.iter().map(|measured| measured.value).collect();
    values.sort_by(f64::total_cmp);
    let blocks = all.iter().flat_map(|measured| measured.blocks.clone()).collect();
    Measured { value: values[values.len() / 2], blocks }
}

/// In how many ways the figures of two samples can be ordered.
fn orders(n: usize, m: usize) -> f64 {
    (1..=n).map(|k| (m + k) as f64 / k as f64).product()
}

/// The estimate of `new / old` and its interval, if there are enough blocks for 99 %.
fn interval(old: &[f64], new: &[f64]) -> Option<[f64; 3]> {
    if 2.0 / orders(old.len(), new.len()) > 0.01 {
        return None;
    }
    let mut ratios: Vec<f64> =
        old.iter().flat_map(|old| new.iter().map(move |new| new / old)).collect();
    ratios.sort_by(f64::total_cmp);
    let [n, m] = [old.len() as f64, new.len() as f64];
    let skip = (n * m / 2.0 - Z * (n * m * (n + m + 1.0) / 12.0).sqrt()).floor().max(0.0);
    let skip: usize = format!("{skip}").parse().unwrap();
    let last = ratios.len() - 1;
    let middle = (ratios[last / 2] * ratios[last.div_ceil(2)]).sqrt();
    Some([middle, ratios[skip], ratios[last - skip]])
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// The words that name what has a figure above 0 here, and not there.
fn alone(here: &Results, there: &Results) -> Vec<String> {
    let has = |of: &Results, key| of.get(key).is_some_and(|all| merged(all).value > 0.0);
    let only = here.keys().filter(|key| has(here, key) && !has(there, key));
    let mut labels: Vec<_> =
        only.map(|(test, size)| format!("{test} {}", show_size(*size))).collect();
    labels.sort();
    labels
}

fn labels(of: &Value) -> Vec<String> {
    let labels = of.as_array().unwrap().iter();
    let mut labels: Vec<_> = labels.map(|label| label.as_str().unwrap().to_owned()).collect();
    labels.sort();
    labels
}

/// Fails unless a result has the figures that the oracle computes. Gives its verdict.
fn check(result: &Value, old: &[Measured], new: &[Measured], limit: f64) -> String {
    let is_near = |shown: &Value, want: f64| (shown.as_f64().unwrap() - want).abs() <= ROUNDING;
    let pooled = [old.len(), new.len()];
    let [old, new] = [merged(old), merged(new)];
    assert_eq!((&result["old"], &result["new"]), (&old.value.into(), &new.value.into()));
    let shown = result.get("pooled").map_or([1, 1], |pooled| {
        [0, 1].map(|side| usize::try_from(pooled[side].as_u64().unwrap()).unwrap())
    });
    assert_eq!(shown, pooled, "{result}");
    let metric = if result["test"] == "lat" { "latency_ns" } else { "messages_per_s" };
    assert_eq!(result["metric"], metric);
    // Of rates, the time of a message is the inverse.
    let [shorter, longer] = if metric == "latency_ns" { [old, new] } else { [new, old] };
    let ratio = interval(&shorter.blocks, &longer.blocks);
    let change = ratio.map_or(longer.value / shorter.value, |[estimate, ..]| estimate);
    assert!(is_near(&result["time_change_percent"], percent(change)), "{result}: {change}");
    let shown = result.get("interval_percent");
    assert_eq!(shown.is_some(), ratio.is_some(), "{result}");
    let ends = ratio.map_or([change; 2], |[_, low, high]| [low, high]).map(percent);
    if let Some(shown) = shown {
        assert!(is_near(&shown[0], ends[0]) && is_near(&shown[1], ends[1]), "{result}: {ends:?}");
    }
    let verdict = result["verdict"].as_str().unwrap();
    // An end that is rounded to a limit may lie on either side of it.
    let is_close = |to: f64| ends.iter().any(|end| (end - to).abs() <= ROUNDING);
    let expected = match ends {
        _ if is_close(0.0) || is_close(limit) => verdict,
        [low, _] if low > limit => "slower",
        [low, _] if low > 0.0 => "within_limit",
        [_, high] if high < 0.0 => "faster",
        _ => "same",
    };
    assert_eq!(verdict, expected, "{result}");
    verdict.to_owned()
}

/// The comparison of two runs, as JSON and as text. `None`: nothing can be compared.
fn compared(seed: u64) -> Option<[usize; 4]> {
    let mut random = Random::new(seed);
    let limit = 5.0;
    let speed = random.pick(&[0.8, 0.98, 1.0, 1.03, 1.2]);
    let old = results(&mut random, 1.0);
    let new = results(&mut random, speed);
    let cpus = ["one", if random.chance(1, 2) { "one" } else { "two" }];
    let saved = [saved(&old, cpus[0])?, saved(&new, cpus[1])?];
    let names = ["before".to_owned(), "after".to_owned()];
    let both = |key: &&(&str, u64)| {
        let is_there = |of: &Results| of.get(*key).is_some_and(|all| merged(all).value > 0.0);
        is_there(&old) && is_there(&new)
    };
    let common: Vec<_> = old.keys().filter(both).collect();
    let comparison = Comparison::new(names, &saved[0], &saved[1], limit);
    if common.is_empty() {
        assert!(comparison.map(drop).unwrap_err().contains("no result in common"));
        return None;
    }
    let comparison = comparison.unwrap();
    let json = serde_json::to_value(&comparison).unwrap();
    let shown = json["results"].as_array().unwrap();
    assert_eq!(shown.len(), common.len(), "seed {seed}: {json}");
    let mut verdicts = BTreeMap::new();
    let mut worst = ("", f64::MIN);
    for result in shown {
        let find = |key: &&&(&str, u64)| (key.0, key.1) == key_of(result);
        let key = common.iter().find(find).unwrap_or_else(|| panic!("seed {seed}: {result}"));
        let verdict = check(result, &old[*key], &new[*key], limit);
        let change = result["time_change_percent"].as_f64().unwrap();
        if verdict == "slower" && change >= worst.1 {
            worst = (result["what"].as_str().unwrap(), change);
        }
        *verdicts.entry(verdict).or_insert(0) += 1;
    }
    assert_eq!(labels(&json["only_old"]), alone(&old, &new), "seed {seed}");
    assert_eq!(labels(&json["only_new"]), alone(&new, &old), "seed {seed}");
    let lacks_interval = shown.iter().any(|result| result.get("interval_percent").is_none());
    let warnings = labels(&json["warnings"]).join("; ");
    assert_eq!(warnings.contains("too few blocks"), lacks_interval, "seed {seed}: {json}");
    assert_eq!(warnings.contains("another machine"), cpus[0] != cpus[1], "seed {seed}: {json}");
    let count = ["slower", "within_limit", "same", "faster"]
        .map(|verdict| verdicts.get(verdict).copied().unwrap_or(0));
    let [slower, within, same, faster] = count;
    assert_eq!(json["slower"], slower);
    let sum = format!(
        "{} compared: {slower} slower by more than {limit} %, {within} slower within it, {same} \
         same, {faster} faster",
        shown.len()
    );
    let text = comparison.text(Style::new(false));
    assert!(text.contains(&sum), "seed {seed}: {text}");
    match comparison.judge() {
        Ok(()) => assert_eq!(slower, 0, "seed {seed}"),
        Err(why) => {
            let begin = format!("{slower} of {} results are slower", shown.len());
            let end = format!("worst: {} by {:.1} %", worst.0, worst.1);
            assert!(why.starts_with(&begin) && why.ends_with(&end), "seed {seed}: {why}");
        }
    }
    Some(count)
}

fn key_of(result: &Value) -> (&str, u64) {
    (result["test"].as_str().unwrap(), result["size"].as_u64().unwrap())
}

#[test]
fn each_figure_of_a_comparison_is_what_the_runs_say() {
    let mut met = [0; 4];
    for count in (0..150).filter_map(compared) {
        met = std::array::from_fn(|at| met[at] + count[at]);
    }
    assert!(met.iter().all(|count| *count > 15), "verdicts that were met: {met:?}");
}
