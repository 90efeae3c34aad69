//! `lat`, `bw`, `rate` and `info` with both sides here: their output, and how they end.

mod common;

use std::io::Read;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use common::{command, eventually, json, kill, lives, matched, refused, tagperf, text};

/// Checks what holds for every document; returns the number of matched receives.
fn check(document: &Value, test: &str) -> u64 {
    assert_eq!(document["schema"], 1);
    assert_eq!(document["tool"], "tagperf");
    assert_eq!(document["test"], test);
    assert_eq!(document["device"], "shm");
    matched(document).iter().sum()
}

#[test]
fn latency_as_json_has_every_key_in_order() {
    let output = tagperf("lat --sizes 8 --iters 100 --json -");
    let line = text(&output.stdout);
    let keys = [
        "{\"schema\":1,\"tool\":\"tagperf\",\"version\":\"",
        "\"test\":\"lat\"",
        "\"device\":\"shm\"",
        "\"config\":{",
        "\"results\":[{\"size\":8,\"posted_depth\":0,\"unexpected_depth\":0,\
         \"wildcard_percent\":0,\"iters\":100,\"samples\":100,\"latency_ns\":{\"min\":",
        "\"p50\":",
        "\"p90\":",
        "\"p99\":",
        "\"p999\":",
        "\"max\":",
        "\"mean\":",
        "\"bandwidth_bytes_per_s\":",
        "\"messages_per_s\":",
        "\"matching\":{\"hardware\":0,\"posted\":",
        "\"unexpected\":",
        "\"not_offloaded\":{\"off\":",
        "\"validated\":true}",
    ];
    let mut rest = line;
    for key in keys {
        let at = rest.find(key).unwrap_or_else(|| panic!("{key} in {rest}"));
        rest = &rest[at + key.len()..];
    }
    assert_eq!(rest, "\n");
    assert!(!line.contains("null"));
}

#[test]
fn a_limit_on_files_is_kept_or_said_and_ends_nobody_by_a_signal() {
    let limited = |kib: u32, args: &str| {
        // The unit of `ulimit -f` is 512 bytes.
        let script = format!("ulimit -f {} && exec \"$0\" {args}", kib * 2);
        let tagperf = env!("CARGO_BIN_EXE_tagperf");
        std::process::Command::new("sh").args(["-c", &script, tagperf]).output().unwrap()
    };
    let fits = limited(16 << 10, "lat --sizes 8,1M --iters 20");
    assert!(fits.status.success(), "{fits:?}");
    let small = limited(8, "lat --sizes 8 --iters 20 --device shm");
    let why = text(&small.stderr);
    assert!(small.status.code() == Some(1) && why.contains("ulimit -f"), "{small:?}");
}

#[test]
fn matches_are_counted_without_warm_up_fillers_and_tokens() {
    let lat = json("lat --sizes 0,8,16K --iters 70 --warmup 33 --json -");
    assert_eq!(check(&lat, "lat"), 3 * 2 * 70);
    let deep = "--posted-depth 300 --unexpected-depth 2000 --wildcard 30";
    let lat = json(&format!("lat --sizes 8,16K --iters 70 {deep} --wildcard-recv --json -"));
    assert_eq!(check(&lat, "lat"), 2 * 2 * 70);
    let row = &lat["results"][1];
    assert_eq!((&row["posted_depth"], &row["unexpected_depth"]), (&300.into(), &2000.into()));
    assert_eq!(row["wildcard_percent"], 30);
    let bw = json("bw --sizes 8,64K --iters 700 --window 16 --json -");
    assert_eq!(check(&bw, "bw"), 2 * 700);
    let rate = json(&format!("rate --iters 700 {deep} --json -"));
    assert_eq!(check(&rate, "rate"), 700);
    assert_eq!(rate["results"][0]["size"], 8);
}

#[test]
fn what_a_test_has_no_value_for_is_absent() {
    for line in ["bw --sizes 8 --iters 10 --json -", "rate --iters 10 --no-validate --json -"] {
        let document = json(line);
        let row = &document["results"][0];
        assert_eq!((&row["samples"], &row["iters"]), (&0.into(), &10.into()));
        assert!(row.get("latency_ns").is_none());
        assert!(row["messages_per_s"].as_u64().unwrap() > 0);
        assert_eq!(document["validated"], !line.contains("--no-validate"));
    }
    let one = json("lat --sizes 8 --iters 1 --json -");
    let latency = &one["results"][0]["latency_ns"];
    for key in ["min", "p50", "p90", "p99", "p999", "max", "mean"] {
        assert!((latency[key].as_f64().unwrap() - latency["min"].as_f64().unwrap()).abs() < 0.1);
    }
}

#[test]
fn a_table_has_a_row_for_each_size_and_says_what_it_rests_on() {
    let output = tagperf("lat --sizes 0..64K --iters 20");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert!(lines[0].contains("half the round trip in us"), "{}", lines[0]);
    for fact in
        ["device", "large", "other side", "effort", "checked", "machine", "clock", "pinning"]
    {
        assert!(lines.iter().any(|line| line.starts_with(&format!("# {fact} "))), "{fact}");
    }
    let rows: Vec<_> = lines.iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 1 + 18);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
    // 20 samples: enough for a median, for nothing above it.
    let words: Vec<_> = rows[1].split_whitespace().collect();
    assert_eq!((words[4], words[5], words[6], words[8]), ("-", "-", "-", "20"), "{words:?}");
    assert_ne!(words[3], "-");
}

#[test]
fn the_distance_of_both_cpus_is_told_where_each_side_has_one() {
    let document = json("lat --sizes 8 --iters 20 --json -");
    let is_pinned = document["config"].get("pin").is_some();
    assert_eq!(document["config"].get("distance_ns").is_some(), is_pinned);
    assert_eq!(document["config"].get("distance").is_some(), is_pinned);
    let probes = document["results"][0]["distance_ns"].as_array().map_or(0, Vec::len);
    assert_eq!(probes, if is_pinned { 2 } else { 0 });
    let free = json("lat --sizes 8 --iters 20 --pin none --json -");
    assert!(free["config"].get("distance").is_none());
    assert!(free["results"][0].get("distance_ns").is_none());
}

#[test]
fn json_goes_to_a_file_beside_the_table() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside.json");
    let output = tagperf(&format!("bw --sizes 8 --iters 10 --json {}", path.display()));
    assert!(text(&output.stdout).contains("MB/s"));
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(check(&document, "bw"), 10);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn bad_usage_is_one_line() {
    assert!(refused("lat --device rdma").contains("ucx, ucx:TRANSPORTS, ofi or ofi:PROVIDER"));
    assert!(refused("lat --pin 0,99999").contains("CPU 99999 is not open"));
    assert!(refused("lat --pin 99999,0").contains("CPU 99999 is not open"));
    assert!(refused("lat --sizes 4X").contains("invalid size `4X`: expected"));
    assert!(refused("bw --sizes 1G --window 1000").contains("4 GiB is the most"));
    assert!(refused("lat --json /nonexistent/x").contains("cannot create /nonexistent/x"));
    let far = refused("lat 192.0.2.1 --iters 1");
    assert!(far.contains("another machine") && far.contains("--device verbs"), "{far}");
    assert!(refused("--device rdma").contains("shm, verbs"));
    assert!(refused("nonsense").contains("nonsense"));
}

#[test]
fn nothing_listens_is_a_failure_that_says_what_to_do() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = tagperf(&format!("lat 127.0.0.1:{port} --iters 1"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("`tagperf serve --port"), "{}", text(&output.stderr));
}

#[test]
fn the_second_process_killed() {
    let mut first = command("lat --sizes 8 --duration 60s --json -")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(eventually(|| common::children(first.id()).len() == 1));
    let second = common::children(first.id())[0];
    std::thread::sleep(std::time::Duration::from_millis(300));
    let start = Instant::now();
    kill(second);
    let output = first.wait().map(|status| (status.code(), start.elapsed())).unwrap();
    assert_eq!(output.0, Some(1));
    assert!(output.1.as_secs() < 5, "{:?}", output.1);
    let mut line = String::new();
    first.stderr.take().unwrap().read_to_string(&mut line).unwrap();
    assert_eq!(line, "tagperf: the second process was killed by signal 9\n");
    assert!(!lives(second));
}

#[test]
fn the_first_process_killed() {
    for (traffic, wait_ms) in [("lat --sizes 8", 0), ("lat --sizes 1M", 200), ("bw", 300)] {
        let mut first = command(&format!("{traffic} --duration 60s"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| common::children(first.id()).len() == 1));
        let second = common::children(first.id())[0];
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(eventually(|| !lives(second)), "{traffic}: {second} outlives its parent");
    }
}

#[test]
fn a_reader_that_has_seen_enough() {
    let mut first = command("lat --sizes 0..1K --iters 10").stdout(Stdio::piped()).spawn().unwrap();
    drop(first.stdout.take());
    assert_eq!(first.wait().unwrap().code(), Some(0));
    // Long before the row is done; a failure would be on standard error.
    for form in ["", "--csv", "--osu"] {
        let mut first = command(&format!("lat --sizes 8 --duration 600s {form}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut heading = [0; 16];
        first.stdout.take().unwrap().read_exact(&mut heading).unwrap();
        let mut status = None;
        assert!(eventually(|| {
            status = first.try_wait().unwrap();
            status.is_some()
        }));
        assert_eq!(status.unwrap().code(), Some(0), "{form}");
    }
    let full = std::fs::File::create("/dev/full").unwrap();
    let failed = command("lat --sizes 8 --iters 10").stdout(full).output().unwrap();
    let why = text(&failed.stderr);
    assert!(failed.status.code() == Some(1) && !why.contains("memory"), "{failed:?}");
}

#[test]
fn info_ends_every_no_with_a_command() {
    let output = tagperf("info");
    assert_eq!(output.status.code(), Some(0));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("shm     yes"), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    for at in (0..lines.len()).filter(|&at| lines[at].contains(" no   ")) {
        assert!(lines[at + 1].contains("next: "), "{stdout}");
    }
}
