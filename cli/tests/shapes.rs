//! Measurements with options: both ways at once, depths, drains, threads, a single buffer, planned
//! rates, idle peers, a worker that sends to itself.

mod common;

use std::process::Stdio;

use serde_json::Value;

use common::{alone, children, command, eventually, json, refused, tagperf, text};

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

/// Receives that were posted before their message, and receives that met an unexpected message.
/// None was matched by a NIC.
fn matched(document: &Value) -> (u64, u64) {
    let matching = &document["matching"];
    assert_eq!(matching["hardware"], 0);
    (count(&matching["posted"]), count(&matching["unexpected"]))
}

fn rows(document: &Value) -> &Vec<Value> {
    assert_eq!((&document["schema"], &document["validated"]), (&1.into(), &true.into()));
    document["results"].as_array().unwrap()
}

#[test]
fn both_ways_at_once() {
    let _alone = alone();
    let document = json("bibw --sizes 1,8,64K --iters 300 --window 16 --warmup 5 --json -");
    assert_eq!(document["test"], "bibw");
    assert_eq!(matched(&document), (3 * 2 * 300, 0));
    for row in rows(&document) {
        assert_eq!((&row["iters"], &row["samples"]), (&300.into(), &0.into()));
        let bytes = count(&row["bandwidth_bytes_per_s"]);
        let messages = count(&row["messages_per_s"]);
        // Both figures are rounded.
        assert!(bytes.abs_diff(messages * count(&row["size"])) <= count(&row["size"]));
    }
    let output = tagperf("bibw --sizes 8 --iters 20");
    assert!(text(&output.stdout).contains("sum of both ways"), "{}", text(&output.stdout));
}

#[test]
fn one_sided_operations() {
    let _alone = alone();
    for device in ["shm", "tcp", "auto"] {
        for test in ["put --sizes 1,8,64K", "get --sizes 1,8,64K", "fadd"] {
            let measured = format!("{test} --iters 300 --warmup 5 --device {device} --json -");
            let document = json(&measured);
            assert_eq!(document["test"], test.split(' ').next().unwrap());
            assert_eq!(matched(&document), (0, 0), "{measured}");
            for row in rows(&document) {
                assert_eq!([&row["iters"], &row["samples"]], [300; 2], "{measured}");
                assert!(row.get("window").is_none());
                let latency = &row["latency_ns"];
                let [least, most] = ["min", "max"].map(|name| latency[name].as_f64().unwrap());
                let mean = latency["mean"].as_f64().unwrap();
                assert!(0.0 < least && least <= mean && mean <= most, "{row}");
            }
            let document = json(&format!("{measured} --window 16"));
            let name = ["put_bw", "get_bw", "fadd_rate"];
            assert!(name.iter().any(|name| document["test"] == *name), "{document}");
            for row in rows(&document) {
                assert_eq!((&row["iters"], &row["samples"]), (&300.into(), &0.into()));
                assert_eq!(row["window"], 16);
                let bytes = count(&row["bandwidth_bytes_per_s"]);
                let operations = count(&row["messages_per_s"]);
                // Both figures are rounded.
                let size = count(&row["size"]);
                assert!(bytes.abs_diff(operations * size) <= size, "{row}");
            }
        }
    }
    let output = tagperf("put --sizes 8 --iters 20");
    assert!(text(&output.stdout).contains("until the other side sees the bytes"), "{output:?}");
}

#[test]
fn a_sweep_of_depths() {
    let _alone = alone();
    let document = json("depth --depths 0,100 --wildcard 0,50 --iters 40 --warmup 5 --json -");
    assert_eq!(document["test"], "depth");
    let found: Vec<_> = rows(&document)
        .iter()
        .map(|row| {
            let keys = ["posted_depth", "unexpected_depth", "wildcard_percent", "samples"];
            keys.map(|key| count(&row[key]))
        })
        .collect();
    let want = [[0, 0, 0, 40], [100, 0, 0, 40], [100, 0, 50, 40], [0, 100, 0, 40]];
    assert_eq!(found, want);
    // The receives and messages that only make the lists deep never match. All others were posted.
    assert_eq!(matched(&document), (4 * 2 * 40, 0));
    let one =
        json("depth --queue unexpected --depths 5 --sizes 64 --iters 4 --wildcard-recv --json -");
    assert_eq!((rows(&one).len(), &one["results"][0]["size"]), (1, &64.into()));
    for test in ["depth", "depth --drain"] {
        let output = tagperf(&format!("{test} --depths 16 --sizes 24 --iters 16"));
        let title = text(&output.stdout).lines().next().unwrap();
        assert!(title.ends_with("; messages of 24 B"), "{title}");
    }
    let output = tagperf("depth --depths 0..16 --iters 4 --warmup 0");
    let lines = text(&output.stdout).lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.count(), 1 + 1 + 4 * 5);
    assert_eq!(text(&output.stdout).matches("\n# verdict     ").count(), 1, "of the whole sweep");
}

#[test]
fn drains_match_all_of_a_queue_in_every_order() {
    let _alone = alone();
    let orders = "forward,reverse,random,adversarial";
    let document = json(&format!(
        "depth --drain --order {orders} --depths 50,500 --wildcard 0,30 --iters 1000 --warmup 1 \
         --seed 77 --json -"
    ));
    assert_eq!(document["test"], "drain");
    let mut at = 0;
    for order in orders.split(',') {
        for queue in ["posted", "unexpected"] {
            for percent in [0, 30] {
                for depth in [50, 500] {
                    let row = &rows(&document)[at];
                    at += 1;
                    let drain = &row["drain"];
                    assert_eq!((&drain["order"], &drain["queue"]), (&order.into(), &queue.into()));
                    assert_eq!(row["wildcard_percent"], percent);
                    let depths = [&row["posted_depth"], &row["unexpected_depth"]].map(count);
                    assert_eq!(depths, if queue == "posted" { [depth, 0] } else { [0, depth] });
                    assert_eq!((&drain["seed"], &row["iters"]), (&77.into(), &1000.into()));
                    assert_eq!(count(&drain["rounds"]) * depth, 1000);
                    let ns = &drain["ns_per_message"];
                    let [min, mean, max] =
                        ["min", "mean", "max"].map(|key| ns[key].as_f64().unwrap());
                    assert!(0.0 < min && min <= mean + 0.1 && mean <= max + 0.1, "{ns}");
                }
            }
        }
    }
    assert_eq!(at, rows(&document).len());
    // Half of the rows are about posted receives, half about unexpected messages.
    assert_eq!(matched(&document), (16 * 1000, 16 * 1000));
    // At least one whole round is measured.
    let one = json("depth --drain --queue posted --depths 300 --iters 1 --sizes 20000 --json -");
    assert_eq!((rows(&one)[0]["iters"].clone(), matched(&one)), (300.into(), (300, 0)));
}

#[test]
fn threads_share_a_worker() {
    let _alone = alone();
    for (line, receives, samples) in [
        ("lat --sizes 8,16K --iters 40", 2 * 40, 40),
        ("bw --sizes 8,16K --iters 40", 40, 0),
        ("bibw --sizes 8,16K --iters 40", 2 * 40, 0),
        ("rate --sizes 8,16K --iters 40 --self", 40, 0),
        ("lat --sizes 8,16K --iters 40 --self", 40, 40),
    ] {
        let document = json(&format!("{line} --threads 1,3 --warmup 2 --json -"));
        let (posted, unexpected) = matched(&document);
        assert_eq!(posted + unexpected, 2 * (1 + 3) * receives, "{line}");
        assert_eq!(document["config"]["threads"], serde_json::json!([1, 3]));
        let wanted = [(8, 1), (16384, 1), (8, 3), (16384, 3)];
        for (row, (size, threads)) in rows(&document).iter().zip(wanted) {
            assert_eq!((count(&row["size"]), count(&row["threads"])), (size, threads));
            assert_eq!(count(&row["iters"]), threads * 40, "{line}");
            assert_eq!(count(&row["samples"]), threads * samples, "{line}");
            let each = row.get("per_thread").map_or(0, |each| each.as_array().unwrap().len());
            assert_eq!(each, if threads == 3 { 3 } else { 0 }, "{line}");
            for thread in (0..each).map(|at| &row["per_thread"][at]) {
                assert_eq!(thread["iters"], 40, "{line}");
                assert_eq!(thread.get("latency_ns").is_some(), samples > 0, "{line}");
                assert!(count(&thread["messages_per_s"]) > 0, "{line}");
            }
        }
    }
    let output = tagperf("rate --self --threads 1,2 --iters 100");
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().filter(|line| line.starts_with("# thread ")).count(), 2, "{stdout}");
}

#[test]
fn a_worker_that_sends_to_itself_needs_no_other_process() {
    let _alone = alone();
    let document = json("lat --self --sizes 0,8,64K --iters 50 --posted-depth 20 --json -");
    assert_eq!(matched(&document), (3 * 50, 0));
    let other = document["config"]["other_side"].as_str().unwrap();
    assert!(other.contains("sends to itself"), "{other}");
    assert_eq!(document["config"]["oneself"], true);
    // There is no other side that could be pinned.
    assert_eq!(
        json("lat --self --sizes 8 --iters 5 --pin 0,0 --json -")["config"]["pin"],
        serde_json::json!([0])
    );
    let output = tagperf("lat --self --sizes 8 --iters 5 --pin 0,0");
    assert!(text(&output.stdout).contains("pinning     CPU 0\n"), "{}", text(&output.stdout));
    assert!(rows(&document).iter().all(|row| row["samples"] == 50 && row.get("threads").is_none()));
    for line in
        ["bw --self --sizes 8,64K --iters 50", "rate --self --iters 50 --unexpected-depth 9"]
    {
        let document = json(&format!("{line} --json -"));
        assert_eq!(matched(&document), (50 * rows(&document).len() as u64, 0), "{line}");
    }
}

#[test]
fn operations_of_windows_end_by_requests_or_in_the_queue() {
    let _alone = alone();
    let fillers = "--posted-depth 30 --unexpected-depth 20 --wildcard 50 --wildcard-recv";
    for (line, matches) in [
        (format!("rate --iters 700 {fillers}"), 700),
        ("bw --sizes 0,8,64K --iters 300 --window 16".into(), 3 * 300),
        ("bibw --sizes 8,64K --iters 300 --window 16".into(), 2 * 2 * 300),
        ("bw --sizes 8,64K --iters 50 --self".into(), 2 * 50),
        ("rate --iters 50 --threads 1".into(), 50),
    ] {
        for (option, way) in [
            ("", "requests"),
            ("--completions requests", "requests"),
            ("--completions queue", "queue"),
        ] {
            let document = json(&format!("{line} {option} --json -"));
            assert_eq!(document["config"]["completions"], way, "{line} {option}");
            assert!(rows(&document).iter().all(|row| row["completions"] == way), "{document}");
            assert_eq!(matched(&document), (matches, 0), "{line} {option}");
        }
    }
    for line in ["lat --sizes 8 --iters 5", "depth --drain --depths 16 --iters 16"] {
        let document = json(&format!("{line} --json -"));
        assert!(document["config"].get("completions").is_none(), "{line}");
        assert!(rows(&document).iter().all(|row| row.get("completions").is_none()), "{line}");
    }
    for (way, words) in [("requests", "requests, each tested"), ("queue", "completion queues")] {
        let output = tagperf(&format!("rate --iters 20 --completions {way}"));
        let stdout = text(&output.stdout);
        let line = stdout.lines().find(|line| line.starts_with("# completions "));
        assert!(line.is_some_and(|line| line.contains(words)), "{stdout}");
    }
}

#[test]
fn a_single_buffer_says_how_little_was_checked() {
    let _alone = alone();
    // A batch is 256 round trips or 1024 messages. Of each batch the last window of 64 can be
    // checked.
    for (line, checked) in [
        ("lat --sizes 8 --iters 600", 3),
        ("bw --sizes 8 --iters 2048", 2 * 64),
        ("bw --sizes 8 --iters 2048 --completions queue", 2 * 64),
        ("bibw --sizes 8 --iters 2048", 2 * 128),
        ("rate --self --iters 1025", 64 + 1),
    ] {
        let document = json(&format!("{line} --single-buffer --json -"));
        assert_eq!(document["validated"], false, "not every byte of every message was looked at");
        assert_eq!(document["config"]["single_buffer"], true);
        assert_eq!(document["results"][0]["checked"], checked, "{line}");
        let none = json(&format!("{line} --single-buffer --no-validate --json -"));
        assert!(none["results"][0].get("checked").is_none());
    }
    let output = tagperf("lat --sizes 8 --iters 20 --single-buffer");
    assert!(text(&output.stdout).contains("a batch leaves behind"), "{}", text(&output.stdout));
}

#[test]
fn a_planned_rate_is_kept_or_said_not_to_be() {
    let _alone = alone();
    let document = json("lat --rate 2k --iters 100 --sizes 8,20000 --warmup 5 --json -");
    assert_eq!(matched(&document), (2 * 100, 0));
    for row in rows(&document) {
        assert_eq!((&row["iters"], &row["samples"]), (&100.into(), &100.into()));
        let pace = &row["pace"];
        assert_eq!(pace["planned_per_s"], 2000.0);
        let sent = pace["sent_per_s"].as_f64().unwrap();
        assert!(sent > 0.0 && sent <= 2000.0, "{pace}");
        assert_eq!(pace["held"], sent >= 0.99 * 2000.0, "{pace}");
        assert!(row["latency_ns"]["max"].as_f64() >= row["latency_ns"]["min"].as_f64());
        assert!(count(&pace["late_max_ns"]) < 60_000_000_000);
    }
    // A rate of 10^9 messages a second can't be kept, and the run ends in time all the same. Each
    // message is late by the time of all before it, so the last one by nearly the whole run.
    let document = json("lat --rate 1000M --duration 50ms --json -");
    let row = &rows(&document)[0];
    assert_eq!(row["pace"]["held"], false);
    let sent = count(&row["iters"]);
    let late = count(&row["pace"]["late_max_ns"]);
    assert!(sent > 0 && sent < 50_000_000);
    assert!(row["latency_ns"]["max"].as_f64().unwrap() >= late as f64 * 0.999, "{row}");
    let output = tagperf("lat --rate 1000M --duration 20ms");
    let stdout = text(&output.stdout);
    assert!(stdout.lines().any(|line| line.starts_with("# not held ")), "{stdout}");
    assert!(stdout.contains("from the planned time"), "{stdout}");
}

#[test]
fn idle_peers_change_nothing_that_is_counted() {
    let _alone = alone();
    let fillers = "--posted-depth 30 --unexpected-depth 20 --wildcard 50";
    for line in ["lat --sizes 8,16K --iters 50", "depth --queue posted --depths 9 --iters 50"] {
        let fillers = if line.starts_with("lat") { fillers } else { "--wildcard 50" };
        let document = json(&format!("{line} {fillers} --idle-peers 12 --json -"));
        assert_eq!(matched(&document), (rows(&document).len() as u64 * 2 * 50, 0), "{line}");
        assert_eq!(document["config"]["idle_peers"], 12);
    }
    let output = tagperf("lat --sizes 8 --iters 5 --idle-peers 3");
    assert!(text(&output.stdout).contains("3 more peers connected"), "{}", text(&output.stdout));
}

/// The entries of `/proc/PID/WHAT`.
fn entries(pid: u32, what: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/{what}")).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Starts a measurement, waits until `seen` is true of both of its processes, and ends it.
fn watch(line: &str, seen: impl Fn(u32) -> bool) {
    let mut first = command(&format!("{line} --duration 60s"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let both = || {
        let second = children(first.id());
        second.len() == 1 && seen(first.id()) && seen(second[0])
    };
    let found = eventually(both);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(found, "{line}");
}

#[test]
fn threads_and_idle_peers_are_there() {
    let _alone = alone();
    let is_measuring = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "measuring")
    };
    let measuring = |pid| entries(pid, "task").iter().filter(|task| is_measuring(task)).count();
    watch("lat --sizes 8 --threads 3", |pid| measuring(pid) == 3);
    // A worker has a socket to listen on, and each connection has a socket at each end.
    watch("lat --sizes 8 --idle-peers 30", |pid| entries(pid, "fd").len() > 90);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let _alone = alone();
    for (line, why) in [
        ("lat --wildcard 50", "none is posted; use --posted-depth N"),
        ("lat --wildcard 50 --unexpected-depth 5", "none is posted"),
        ("rate --rate 100", "tagperf lat --rate"),
        ("bibw --self", "tagperf bw --self"),
        ("lat --rate 10 --threads 2", "cannot be used with"),
        ("lat 127.0.0.1 --self", "cannot be used with"),
        ("lat [::1", "expected HOST[:PORT]"),
        ("lat --window 8", "--rate R with it, or tagperf bw --window"),
        ("depth --queue unexpected --wildcard 100", "--drain or --wildcard-recv"),
        ("depth --drain --seed 5", "--order random with it"),
        ("lat --posted-depth 2M", "from 0 to 1048576"),
        ("depth --drain --depths 0", "--depths 16..16K"),
        ("depth --order reverse", "--drain"),
        ("depth --depths 3M", "at most 1M"),
        ("lat --threads 65", "expected 1 to 64"),
        ("rate --completions polls", "[possible values: requests, queue]"),
        ("lat --completions queue", "tagperf bw, bibw or rate --completions"),
        ("bw --completions queue --threads 1,2", "use one thread"),
    ] {
        let message = refused(line);
        assert!(message.contains(why), "{line}: {message}");
    }
}
