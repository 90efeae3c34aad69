//! The report of `tagperf replay`: depths over time, and a verdict that depends on the trace alone.

mod common;

use serde_json::Value;
use tagmatch_testkit::scratch::Scratch;

use common::{fed, text};

const LAMMPS: &str = include_str!("../../trace/tests/traces/lammps-crack-rank0of8.trace");
const HPCC: &str = include_str!("../../trace/tests/traces/hpcc-rank0of6.trace");

/// Runs the command with the trace on its standard input.
fn replay(trace: &str, more: &str) -> String {
    let output = fed(&format!("replay - {more}"), trace);
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).to_owned()
}

fn json(trace: &str) -> Value {
    serde_json::from_str(&replay(trace, "--json -")).unwrap()
}

/// The report as JSON and as text, of one run.
fn both(trace: &str) -> (Value, String) {
    let scratch = Scratch::new("both");
    let json = scratch.path("json");
    let stdout = replay(trace, &format!("--json {json}"));
    (serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap(), stdout)
}

/// The chart of `--plot`. Tests that run at the same time have traces of different lengths.
fn chart(trace: &str) -> String {
    let scratch = Scratch::new(&format!("chart-{}", trace.len()));
    let svg = scratch.path("depths.svg");
    replay(trace, &format!("--plot {svg}"));
    std::fs::read_to_string(svg).unwrap()
}

/// A trace of these operations. Each `{id}` becomes an id of its own.
fn trace(operations: impl Iterator<Item = String>) -> String {
    let lines = operations.enumerate().map(|(id, line)| line.replace("{id}", &id.to_string()));
    std::iter::once("tagtrace 1".to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Posts `deep` receives, then sends their messages in reverse order. Then as many messages come
/// unexpectedly, and are received in reverse order.
fn reversed(deep: usize) -> String {
    let line = |what: &str, tag: usize| format!("{what} {{id}} 0 1 {tag} 100");
    let posted = (0..deep).map(move |tag| line("recv", tag));
    let messages = (0..deep).rev().map(move |tag| line("msg", tag));
    let unexpected = (0..deep).map(move |tag| line("msg", tag));
    let receives = (0..deep).rev().map(move |tag| line("recv", tag));
    trace(posted.chain(messages).chain(unexpected).chain(receives))
}

#[test]
fn all_but_the_times_is_the_same_each_time() {
    for trace in [LAMMPS.to_owned(), HPCC.to_owned(), reversed(9000)] {
        let [(mut first, text), (mut again, text_again)] = [(); 2].map(|()| both(&trace));
        for report in [&mut first, &mut again] {
            let cost = report["cost"].as_object_mut().unwrap();
            for time in ["ns_per_operation", "plain_ns_per_operation", "passes"] {
                assert!(cost.remove(time).unwrap().as_f64().unwrap() > 0.0);
            }
        }
        assert_eq!(first, again);
        // The text is the same as well, except for the line of the cost.
        let lines = |text: String| {
            text.lines().filter(|l| !l.starts_with("cost")).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(lines(text), lines(text_again));
    }
}

#[test]
fn a_deep_trace_is_told_from_a_shallow_one() {
    let shallow = json(LAMMPS);
    assert!(shallow["verdict"].as_str().unwrap().starts_with("a plain list is enough"));
    assert_eq!(shallow["advice"], Value::Array(Vec::new()));

    let deep = json(&reversed(500));
    assert!(deep["verdict"].as_str().unwrap().starts_with("depth costs"), "{}", deep["verdict"]);
    assert_eq!(deep["posted_peak"], serde_json::json!({"depth": 500, "operation": 500}));
    assert_eq!(deep["unexpected_peak"], serde_json::json!({"depth": 500, "operation": 1500}));
    assert_eq!(deep["unexpected_bytes_max"], 50_000);
    // Of 500 entries the last is taken each time, from the posted list and from the unexpected
    // list.
    let walked = (1..=500u64).sum::<u64>();
    let walks = &deep["plain_walks"];
    assert_eq!(
        (&walks["entries_by_messages"], &walks["entries_by_receives"]),
        (&walked.into(), &walked.into())
    );
    assert_eq!((&walks["entries_by_probes"], &walks["entries_by_cancels"]), (&0.into(), &0.into()));
    let advice = deep["advice"].as_array().unwrap();
    assert!(advice[0].as_str().unwrap().starts_with("post receives earlier: 50 %"), "{advice:?}");
    assert!(advice.iter().any(|a| a.as_str().unwrap().starts_with("post fewer receives")));
}

/// There is one advice on walks, and it is about the kind of search that walks.
#[test]
fn advice_on_walks_names_the_kind_of_search() {
    let line = |what: &str, tag: usize| format!("{what} {{id}} 0 1 {tag} 0");
    let messages = || (0..100).map(move |tag| line("msg", tag));
    let receives = || (0..100).map(move |tag| line("recv", tag));
    let backwards = |what: &'static str| (0..100).rev().map(move |tag| line(what, tag));
    // The kind of search, the entries it walks, the advice, and a trace that first makes a list
    // deep and then searches it.
    let cases = [
        ("messages", 5050, "a message walks 50.5 of up to 100 posted receives", {
            trace(receives().chain(backwards("msg")))
        }),
        ("receives", 5050, "a receive walks 50.5 of up to 100 unexpected messages", {
            trace(messages().chain(backwards("recv")))
        }),
        ("probes", 100 * 100, "a probe walks 100 of up to 100 unexpected messages", {
            let probes = (0..100).map(|_| "probe 0 1 99".to_owned());
            trace(messages().chain(probes).chain(receives()))
        }),
        ("probes", 5050, "a probe walks 50.5 of up to 100 unexpected messages", {
            let matched = (0..100).rev().map(|tag| format!("mprobe {{id}} 0 1 {tag}"));
            let taken = (100..200).map(|id| format!("mrecv {id} 0"));
            trace(messages().chain(matched).chain(taken))
        }),
        ("cancels", 5050, "a cancel walks 50.5 of up to 100 posted receives", {
            let cancels = (0..100).rev().map(|id| format!("cancel {id}"));
            trace(receives().chain(cancels))
        }),
    ];
    for (kind, walked, advice_text, trace) in cases {
        let report = json(&trace);
        let advice: Vec<_> = report["advice"].as_array().unwrap().iter().collect();
        let walking: Vec<_> =
            advice.iter().filter_map(|a| a.as_str()).filter(|a| a.contains(" walks ")).collect();
        assert!(walking.len() == 1 && walking[0].contains(advice_text), "{kind}: {advice:?}");
        let entries = &report["plain_walks"][format!("entries_by_{kind}")];
        assert_eq!(entries.as_u64(), Some(walked), "{kind}");
    }
}

/// Plain lists are timed up to a bound, but the verdict is about the whole trace.
#[test]
fn long_traces_are_judged_to_their_end() {
    // A deep list whose first entry is always the one that is searched for. The verdict depends on
    // the entries walked, not on the depth.
    let post = |tag: usize| format!("recv {{id}} 0 1 {tag} 0");
    let arrive = |tag: usize| format!("msg {{id}} 0 1 {tag} 0");
    let deep = 10_000;
    let in_order =
        trace((0..deep).map(post).chain((0..deep).flat_map(|n| [arrive(n), post(n + deep)])));
    let report = json(&in_order);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("a plain list is enough: lists are deep"), "{verdict}");
    assert_eq!(report["plain_walks"]["entries_by_messages"], deep);
    assert_eq!(report["cost"]["plain_stopped_after"], Value::Null);
    // Long shallow, then so deep that the time of plain lists is not measured to the end.
    let pairs = (0..15_000).flat_map(|n| [post(n), arrive(n)]);
    let backwards = (0..9000).map(post).chain((0..9000).rev().map(arrive));
    let report = json(&trace(pairs.chain(backwards)));
    assert!(report["cost"]["plain_stopped_after"].as_u64().unwrap() < 48_000);
    assert_eq!(report["plain_walks"]["entries_by_messages"], 15_000 + 9001 * 4500);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("depth costs: a plain list walks 844 entries"), "{verdict}");
}

#[test]
fn each_advice_has_its_cause() {
    let probes = (0..100).map(|_| "probe 0 * *".to_owned());
    let wildcards = (0..100).map(|tag| format!("recv {{id}} 0 * {tag} 8"));
    let messages = (0..90).map(|tag| format!("msg {{id}} 0 3 {tag} 9"));
    let advice = json(&trace(probes.chain(wildcards).chain(messages)))["advice"].to_string();
    for cause in [
        "100 % of 100 probes found nothing",
        "name the source and tag where they are known",
        "90 messages were truncated",
        "10 receives were still posted",
    ] {
        assert!(advice.contains(cause), "{cause}: {advice}");
    }
    let lost = json(&trace((0..7).map(|tag| format!("msg {{id}} 0 3 {tag} 9"))));
    assert!(lost["advice"].to_string().contains("7 messages were never received"));
}

#[test]
fn depths_over_time_are_bounded_and_drawn() {
    let trace = reversed(2000);
    let report = json(&trace);
    let series = &report["depth_over_time"];
    assert_eq!(series["operations"], 8000);
    for (name, peak_in) in [("posted_max", 0..128), ("unexpected_max", 128..256)] {
        let series: Vec<_> =
            series[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(series.len(), 256);
        let peak = series.iter().position(|&depth| depth == 2000).unwrap();
        assert!(peak_in.contains(&peak), "{name} at {peak}");
    }
    // A trace of three operations has three points.
    let short = json("tagtrace 1\nrecv 1 0 0 0 0\nrecv 2 0 0 0 0\nmsg 3 0 0 0 0");
    assert_eq!(short["depth_over_time"]["posted_max"], serde_json::json!([1, 2, 1]));

    let stdout = replay(&trace, "");
    assert!(stdout.contains("depth over time") && stdout.contains("8 000 operations"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() < 200));

    let svg = chart(&trace);
    for word in ["Matching depth over the trace", "posted receives", "unexpected messages"] {
        assert!(svg.contains(word), "{word}");
    }
    // Its size depends on the number of points, not of operations.
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
}

#[test]
fn hostile_traces_are_replayed_to_the_end() {
    let most = u64::MAX;
    // Lengths whose sum overflows 64 bits; then a deep list; then matched probes that find nothing.
    let sums = (0..40).map(|tag| format!("msg {{id}} 0 0 {tag} {most}"));
    let report = json(&trace(sums));
    assert_eq!(report["unexpected_bytes_max"], most);
    let deep = trace(
        (0..40_000)
            .map(|tag| format!("recv {{id}} 0 * {tag} 0"))
            .chain((0..20_000).map(|tag| format!("msg {{id}} 0 1 {} 0", 39_999 - tag))),
    );
    let report = json(&deep);
    assert_eq!(report["posted_peak"]["depth"], 40_000);
    assert!(report["cost"]["plain_stopped_after"].as_u64().unwrap() < 41_000);
    let walked = (20_001..=40_000u64).sum::<u64>();
    assert_eq!(report["plain_walks"]["entries_by_messages"], walked);
    let misses = trace((0..1000).map(|n| match n % 2 {
        0 => "mprobe {id} 0 * *".to_owned(),
        _ => format!("mcancel {}", n - 1),
    }));
    assert_eq!(json(&misses)["probes_missed"], 500);
    let empty = json("tagtrace 1");
    assert_eq!(empty["verdict"], "nothing to match");
    assert!(!chart("tagtrace 1").contains("NaN"));
}
