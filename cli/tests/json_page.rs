//! `cli/JSON.md` has every field that is printed as JSON, and no other.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tagmatch::{Config, Match, Worker};
use tagmatch_trace::Recorder;

use common::{tagperf, text};

/// Fields that appear on some machines or after failures only: each is on the page, but need not be
/// seen here.
const RARE: [&str; 21] = [
    "interrupted",
    "config.governor",
    "config.clock_source",
    "results[].interrupted",
    "matching.by_device",
    "matching.list_faults",
    "matching.bugs",
    "matching.sent_beyond",
    "matching.unregistered",
    "nic_matches.nic",
    "nic_matches.posted",
    "nic_matches.unexpected",
    "nic_matches.in_software",
    "matching.not_offloaded.list_full",
    "matching.not_offloaded.order",
    "matching.not_offloaded.source",
    "matching.not_offloaded.memory",
    "matching.not_offloaded.slices",
    "matching.not_offloaded.phase",
    "cost.plain_stopped_after",
    "operations.lost",
];

/// The paths in the first columns of the tables below a heading.
fn on_page(heading: &str) -> BTreeSet<String> {
    let page = include_str!("../JSON.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut paths = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split(" | ").next().unwrap();
        for path in cell.split('`').skip(1).step_by(2) {
            let (before, rest) = path.split_once('{').unwrap_or((path, "}"));
            let (names, after) = rest.split_once('}').unwrap();
            for name in names.split(',') {
                assert!(paths.insert(format!("{before}{name}{after}")), "{path} is there twice");
            }
        }
    }
    paths
}

/// The paths of all leaves. A list of figures is one leaf, and so is an empty object.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(value, &format!("{path}{dot}{name}"), found);
            }
        }
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            elements.iter().for_each(|element| leaves(element, &format!("{path}[]"), found));
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

/// The lines of JSON that a command prints.
fn printed(args: &str) -> Vec<Value> {
    let output = tagperf(args);
    assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(commands: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for args in commands {
        printed(args).iter().for_each(|value| leaves(value, "", &mut found));
    }
    found
}

/// A path that is an empty object here, or whose names vary, stands for the paths within it.
fn same(page: &BTreeSet<String>, found: &BTreeSet<String>) {
    let within = |path: &str, other: &str| {
        let rest = other.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
    };
    let stands_for = |row: &str, path: &str| {
        row == path
            || within(path, row)
            || row.strip_suffix(".*").is_some_and(|object| within(object, path))
    };
    let unknown: Vec<_> =
        found.iter().filter(|path| !page.iter().any(|row| stands_for(row, path))).collect();
    assert!(unknown.is_empty(), "printed, and not on the page: {unknown:?}");
    let is_seen = |row: &str| found.iter().any(|path| stands_for(row, path) && !within(path, row));
    let unseen: Vec<_> =
        page.iter().filter(|row| !is_seen(row) && !RARE.contains(&&***row)).collect();
    assert!(unseen.is_empty(), "on the page, and not printed: {unseen:?}");
}

/// A trace that has all that a recorder tells: it is full before its program ends.
fn record(file: &Path) {
    let worker = Worker::new(Config::default()).unwrap();
    worker.observe(Box::new(Recorder::create(file, "a program", 0).unwrap())).unwrap();
    for tag in 0..5000u64 {
        assert!(worker.probe(Match::tag(tag)).unwrap().is_none());
        assert!(worker.probe(Match::tag(tag)).unwrap().is_none());
    }
}

#[test]
fn the_page_has_every_field_and_no_other() {
    let few = "--iters 100 --warmup 1 --json -";
    let measurements = of(&[
        &format!("lat --sizes 8 --window 4 --rate 100k --histogram --wildcard-recv {few}"),
        &format!("lat --sizes 8 --idle-peers 1 --threads 2 --single-buffer {few}"),
        &format!("lat --sizes 8,4K --hw-tags model:1 --posted-depth 2 {few}"),
        &format!("rate --self --duration 1s {few}"),
        &format!("depth --depths 0,16 --queue posted --wildcard 0 {few}"),
        &format!("depth --drain --depths 16 --queue posted {few}"),
        &format!("barrier {few}"),
        "shrink --json -",
    ]);
    let page = on_page("Measurements");
    same(&page, &measurements);

    // The fields that a line of a stream shares with a measurement are listed there.
    let mut lines = BTreeSet::new();
    for mut line in printed("rate --duration 1300ms --json-stream") {
        if line["record"] == "result" {
            let fields = line.as_object_mut().unwrap();
            let is_of_row = |name: &str| {
                page.iter().any(|path| {
                    path.strip_prefix("results[].")
                        .is_some_and(|rest| rest.split(['.', '[']).next() == Some(name))
                })
            };
            fields.retain(|name, _| !is_of_row(name));
        }
        leaves(&line, "", &mut lines);
    }
    lines.retain(|path| !page.contains(path));
    same(&on_page("Lines of a stream"), &lines);

    let file = |name: &str| format!("{}/json-page-{name}.json", env!("CARGO_TARGET_TMPDIR"));
    let [old, new] = ["old", "new"].map(file);
    for path in [&old, &new] {
        assert!(
            tagperf(&format!("lat --self --sizes 8 --iters 2000 --json {path}")).status.success()
        );
    }
    let twice = std::fs::read_to_string(&old).unwrap().repeat(2);
    std::fs::write(&old, twice).unwrap();
    let compared = of(&[&format!("compare {old} {new} --fail-if-slower 10000 --json -")]);
    [old, new].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    same(&on_page("Comparisons"), &compared);

    let trace =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/traces/lammps-crack-rank0of8.trace");
    let recorded = file("recorded");
    record(Path::new(&recorded));
    let replayed = of(&[
        &format!("replay {trace} --hw-tags model --seed 1 --json -"),
        &format!("replay {recorded} --json -"),
    ]);
    std::fs::remove_file(&recorded).unwrap();
    let of_replays = on_page("Replays");
    same(&of_replays, &replayed);
    assert!(RARE.iter().all(|path| page.contains(*path) || of_replays.contains(*path)));
}
