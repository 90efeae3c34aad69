//! Tables, aims, JSON and charts of a made-up run whose two cores have moved.

use super::record::{Distance, Record};
use super::rows::Stat;
use super::{charts, json, markdown, table};

const CASE: &str = "latency:8:exact:exact:0:500";

/// Near, ours takes 80 where UCX takes 100. Apart it takes 900 where UCX takes 300. The samples
/// between the two were taken while the cores moved, and count nowhere.
fn record() -> Record {
    let mut text = "run\tmachine\ta <machine>\n\
                    plan\tlatency\ttagmatch\t3\tlatency:8:exact:exact:0:500\n\
                    plan\tlatency\tucx\t3\tlatency:8:exact:exact:0:500\n\
                    plan\tmemory\ttagmatch\t1\tposted:100\n\
                    plan\tlatency\tmpich\t3\tlatency:8:exact:exact:0:500\n\
                    version\tucx\t1.13\n\
                    failed\tmpich\tall\tnot there\n\
                    result\ttagmatch\tmemory\tposted:100\t120\t120\t120\t1\t0\t0\n"
        .to_owned();
    let mut add = |program: &str, p50: u32, before: u32, after: u32| {
        let line = format!(
            "result\t{program}\tlatency\t{CASE}\t{}\t{p50}\t{}\t9\t{before}\t{after}\n",
            p50 - 1,
            p50 + 1
        );
        text += &line;
    };
    for ns in [47, 50, 48] {
        add("tagmatch", 80, ns, ns + 2);
        add("ucx", 100, ns, ns + 2);
    }
    for _ in 0..2 {
        add("tagmatch", 900, 130, 140);
        add("ucx", 300, 120, 110);
        add("tagmatch", 5, 47, 130);
        add("ucx", 70_000, 130, 47);
    }
    add("ucx", 300, 130, 130);
    Record::parse(&text).unwrap()
}

/// The lines of the table between two titles.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let from = text.find(&format!("==== {title}")).unwrap();
    text[from..].split("\n==== ").next().unwrap()
}

#[test]
fn figures_and_ratios_are_of_one_distance() {
    let text = table::text(&record(), Stat::P50);
    let near = section(&text, "one cache: two cache lines take 50 ns");
    let apart = section(&text, "apart: two cache lines take 130 ns");
    let row =
        |section: &str| section.lines().find(|line| line.starts_with("8 B  ")).unwrap().to_owned();
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(row(near))[2..], ["80.0", "100.0", "x0.80", "[0.80..0.80]", "ucx"]);
    assert_eq!(
        words(row(apart))[2..],
        ["900.0", "300.0", "x3.00", "[3.00..3.00]", "ucx", "SHORT:", "tagmatch", "2/3"]
    );
    assert!(text.contains("0 % one core, 40 % one cache, 33 % apart, 26 % discarded"), "{text}");
    assert!(text.contains("# NOT MEASURED: mpich, all: not there"), "{text}");
    assert!(!text.contains("70000"), "{text}");
}

#[test]
fn aims_are_judged_at_one_distance() {
    let text = table::text(&record(), Stat::P50);
    let aim = |title: &str| {
        let lines: Vec<_> = section(&text, title).lines().collect();
        lines.iter().find(|line| line.contains("<= ")).unwrap().to_string()
    };
    assert!(aim("one cache").contains("<= 0.95   reached  x0.80"), "{text}");
    assert!(aim("apart").contains("<= 0.95   missed   x3.00"), "{text}");
    assert!(aim("at any").contains("<= 128 B  reached  120.0 B"), "{text}");
}

#[test]
fn rows_in_which_a_peer_is_ahead_are_listed() {
    let text = table::text(&record(), Stat::P50);
    let behind = |title: &str| {
        let found = section(&text, title).split_once("behind the best peer, ").unwrap().1;
        found.split("\n\n").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(behind("one cache"), "0 rows of 1");
    assert_eq!(behind("apart"), "1 rows of 1 latency 8 B x3.00 [3.00..3.00] ucx");
    assert!(!section(&text, "at any").contains("behind"), "{text}");
}

#[test]
fn a_page_has_columns_for_each_distance() {
    let page = markdown(&record(), Stat::P50);
    let head =
        "| half a round trip | one cache (50 ns) | of the best | apart (130 ns) | of the best |";
    assert!(page.contains(head), "{page}");
    assert!(page.contains("| 8 B | 80 ns | 0.80 UCX | 900 ns | **3.00** UCX |"), "{page}");
}

#[test]
fn another_figure_of_the_samples_can_be_compared() {
    let text = table::text(&record(), Stat::Min);
    assert!(section(&text, "one cache").contains("x0.80 [0.80..0.80]"), "{text}");
    assert!(section(&text, "one cache").contains(" 79.0 "), "{text}");
}

#[test]
fn json_has_everything_by_distance() {
    let document = json::document(&record(), Stat::P50);
    let distances = document["distances"].as_array().unwrap();
    let names: Vec<_> = distances.iter().map(|at| at["distance"].as_str().unwrap()).collect();
    assert_eq!(names, ["one cache", "apart", "any distance"]);
    let medians = |at: usize| {
        let figures = distances[at]["rows"][0]["figures"].as_array().unwrap();
        figures.iter().map(|f| f["median"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((medians(0), medians(1)), (vec![80.0, 100.0], vec![900.0, 300.0]));
    assert_eq!(distances[0]["aims"][0]["is_met"], true);
    assert_eq!(distances[1]["aims"][0]["is_met"], false);
    assert_eq!(distances[1]["rows"][0]["figures"][0]["is_short"], true);
    let nowhere =
        document["samples"].as_array().unwrap().iter().filter(|s| s["distance"].is_null());
    assert_eq!(nowhere.count(), 4);
}

#[test]
fn charts_are_of_one_distance() {
    let folder = std::env::temp_dir().join(format!("tagmatch-charts-{}", std::process::id()));
    let names = charts::write(&record(), Stat::P50, &folder).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let near = read("latency-one-cache.svg");
    let apart = read("latency-apart.svg");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names, ["latency-one-cache.svg", "latency-apart.svg"]);
    assert!(near.contains("a &lt;machine&gt;") && near.contains("takes 50 ns"), "{near}");
    assert!(apart.contains("takes 130 ns") && apart.contains(">tagmatch<"), "{apart}");
}

#[test]
fn distances_have_an_order() {
    assert!(Distance::ALL.is_sorted());
}
