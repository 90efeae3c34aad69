//! `--hw-tags`: where receives were matched, and why not by the NIC.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};
use tagmatch::{Address, Config, Match, Peer, Tag, Worker};

use common::{Server, json, matched, refused, tagperf, text};

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[test]
fn the_model_matches_and_without_it_software_does() {
    let nic = json("lat --sizes 4K --iters 200 --hw-tags model --json -");
    let [hardware, posted, unexpected] = matched(&nic);
    assert!(hardware > 0, "{}", nic["matching"]);
    assert_eq!(hardware + posted + unexpected, 400);
    assert_eq!(nic["matching"]["not_offloaded"].get("off"), None);
    assert_eq!(nic["config"]["hw_tags"], "model:127");
    for args in ["--hw-tags off", ""] {
        let off = json(&format!("lat --sizes 4K --iters 200 {args} --json -"));
        let [hardware, posted, unexpected] = matched(&off);
        assert_eq!((hardware, posted + unexpected), (0, 400));
        assert_eq!(count(&off["matching"]["not_offloaded"]["off"]), posted);
        assert_eq!(off["config"]["hw_tags"], "off");
    }
}

#[test]
fn the_calls_of_ranks_are_matched_by_the_model_too() {
    let call = "bcast -n 3 --by-messages --sizes 4K --iters 100 --warmup 1";
    let bcast = json(&format!("{call} --hw-tags model --json -"));
    let [hardware, posted, unexpected] = matched(&bcast);
    assert!(hardware > 0, "{}", bcast["matching"]);
    assert_eq!(hardware + posted + unexpected, 2 * 100);
}

#[test]
fn small_receives_are_too_small() {
    let small = json("lat --sizes 8,1000 --iters 100 --hw-tags model --json -");
    let [hardware, posted, unexpected] = matched(&small);
    assert_eq!((hardware, posted + unexpected), (0, 400));
    assert_eq!(count(&small["matching"]["not_offloaded"]["too_small"]), posted);
    // The table has the same figures in words.
    let table = tagperf("rate --iters 100 --hw-tags model:5");
    let stdout = text(&table.stdout);
    assert!(stdout.contains("# NIC         a model of one, 5 entries; receives of 1 KiB and more"));
    assert!(stdout.contains("on the other side, which receives"), "{stdout}");
    assert!(stdout.contains("# matched     100 receives: 0 in hardware, "), "{stdout}");
    assert!(stdout.contains("because its buffer is below 1 KiB: not worth a NIC (too_small)"));
}

#[test]
fn every_kind_of_traffic() {
    for (args, receives) in [
        ("bw --sizes 4K,64K", 128),
        ("bibw --sizes 4K", 128),
        ("lat --sizes 4K --rate 10k", 64),
        ("lat --sizes 2K --wildcard-recv --posted-depth 50 --wildcard 50", 128),
        ("lat --sizes 2K --threads 2", 256),
        ("depth --drain --queue posted --sizes 2K --depths 64 --wildcard 50", 64),
        ("depth --queue posted --sizes 2K --depths 0,64 --wildcard 100", 256),
    ] {
        let document = json(&format!("{args} --iters 64 --hw-tags model:9 --json -"));
        let [hardware, posted, unexpected] = matched(&document);
        assert_eq!(hardware + posted + unexpected, receives, "{args}");
        assert!(hardware > 0, "{args}: {}", document["matching"]);
    }
}

#[test]
fn behind_serve_as_well() {
    let server = Server::start("");
    let output = server.client("bw --sizes 4K --iters 100 --hw-tags model --json -");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let [hardware, posted, unexpected] = matched(&serde_json::from_slice(&output.stdout).unwrap());
    assert!(hardware > 0);
    assert_eq!(hardware + posted + unexpected, 100);
}

#[test]
fn runs_with_and_without_are_not_compared() {
    let kept = ["off", "model", "model:127", "model:5"].map(|hw_tags| {
        let name = format!("hw-tags-{}.json", hw_tags.replace(':', "-"));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let line = json(&format!("lat --sizes 2K --iters 40 --hw-tags {hw_tags} --json -"));
        std::fs::write(&path, line.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let [off, model, spelled, short] = &kept;
    assert!(refused(&format!("compare {off} {model}")).contains("in common"));
    assert!(refused(&format!("compare {short} {model}")).contains("in common"));
    let same = tagperf(&format!("compare {model} {spelled} --fail-if-slower 10000"));
    assert!(text(&same.stdout).contains("1 compared"), "{}", text(&same.stderr));
    kept.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let csv = tagperf("lat --sizes 8 --iters 9 --hw-tags model:5 --csv");
    let lines: Vec<Vec<_>> =
        text(&csv.stdout).lines().map(|line| line.split(',').collect()).collect();
    let at = lines[0].iter().position(|name| *name == "hw_tags").unwrap();
    assert_eq!(lines[1][at], "model:5");
}

#[test]
fn what_no_nic_would_do_is_refused() {
    assert!(refused("rate --self --hw-tags model").contains("pass no NIC"));
    assert!(refused("depth --drain --queue unexpected --hw-tags model").contains("match none"));
    assert!(refused("lat --hw-tags nic").contains("expected off, auto, emu, model or model:SLOTS"));
    assert!(refused("lat --hw-tags model:0").contains("1 to 65535 slots"));
}

#[test]
fn info_says_why_a_receive_stays_in_software() {
    let output = tagperf("info");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("model   yes"), "{stdout}");
    assert!(
        stdout.contains("entries: 127") && stdout.contains("offered from 1 KiB on"),
        "{stdout}"
    );
    let lines: Vec<_> = stdout.lines().map(str::trim_start).collect();
    for reason in ["too_small", "list_full", "order", "source", "memory", "slices", "phase", "off"]
    {
        let at = lines.iter().position(|line| line.starts_with(reason));
        let remedy = lines[at.unwrap_or_else(|| panic!("{reason}: {stdout}")) + 1];
        assert!(remedy.starts_with("-> "), "{reason}: {remedy}");
    }
}

const TOKEN: Tag = Tag(1 << 56);
const DATA: Tag = Tag(2 << 56);

/// The other side of a ping-pong, which checks nothing, until the last token.
fn echo(worker: &Worker, client: Peer, size: usize) {
    loop {
        let token = worker.recv(Match::tag(TOKEN), vec![0; 24]).wait().unwrap();
        let word = |at: usize| u64::from_le_bytes(token.data()[at..at + 8].try_into().unwrap());
        let messages = word(0);
        let counts = word(8);
        worker.send(client, TOKEN, token.data().to_vec()).wait().unwrap();
        for _ in 0..messages {
            let ping = worker.recv(Match::tag(DATA), vec![0; size]).wait().unwrap();
            worker.send(client, DATA, ping.buffer).wait().unwrap();
        }
        if (messages, counts) == (0, 0) {
            return;
        }
    }
}

/// A server whose NIC's list breaks its rules in every measurement except the first message.
fn faulty(listener: &TcpListener) {
    let (stream, _) = listener.accept().unwrap();
    let say = |line: Value| writeln!(&stream, "{line}").unwrap();
    let mut lines = BufReader::new(&stream).lines();
    let hello: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    say(hello);
    for (faults, line) in [0, 3].into_iter().zip(lines) {
        let ask: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let worker = Worker::new(Config::default()).unwrap();
        let address: Address = ask["case"]["address"].as_str().unwrap().parse().unwrap();
        let client = worker.connect(&address).unwrap();
        say(json!({"ready": {"address": worker.address().to_string(), "device": "shm"}}));
        echo(&worker, client, ask["case"]["size"].as_u64().unwrap().try_into().unwrap());
        say(json!({"done": {"matching": {"hardware": 5, "posted": 0, "unexpected": 0,
                   "not_offloaded": {}, "list_faults": faults}}}));
    }
}

#[test]
fn a_list_that_breaks_its_rules_fails_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = std::thread::spawn(move || faulty(&listener));
    let output = tagperf(&format!(
        "lat 127.0.0.1:{port} --sizes 4K,8K --iters 5 --warmup 0 --no-validate --json -"
    ));
    other.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let error_text = text(&output.stderr);
    assert!(error_text.contains("a NIC's list broke its rules: list_faults 3"), "{error_text}");
    // Rows that were measured before are printed and marked.
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["results"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&document["matching"]["list_faults"], &document["interrupted"]),
        (&3.into(), &true.into())
    );
}
