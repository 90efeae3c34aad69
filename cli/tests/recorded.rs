//! `tagperf replay` reads what a recorder has written: one trace, and several.

use std::process::{Command, Output};

use tagmatch::{Config, Match, Worker};
use tagmatch_testkit::scratch::Scratch;
use tagmatch_trace::Recorder;

fn replay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tagperf")).arg("replay").args(args).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// A process that receives `messages` from itself, of which each third one is unexpected.
fn record(scratch: &Scratch, name: &str, messages: u64) -> String {
    let file = scratch.path(name);
    let worker = Worker::new(Config::default()).unwrap();
    let recorder = Recorder::create(file.as_ref(), name, Recorder::BYTES_MAX).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    for tag in 0..messages {
        let send = || worker.send(worker.oneself(), tag, vec![1; 2000]).wait().unwrap();
        if tag % 3 == 0 {
            send();
            worker.progress();
            worker.probe(Match::tag(u64::MAX)).unwrap();
            worker.probe(Match::tag(u64::MAX)).unwrap();
        }
        let receive = worker.recv(Match::tag(tag), vec![0; 4096]);
        if tag % 3 != 0 {
            send();
        }
        receive.wait().unwrap();
    }
    file
}

#[test]
fn the_help_names_both_formats() {
    let tagperf = env!("CARGO_BIN_EXE_tagperf");
    let help = Command::new(tagperf).args(["replay", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("tagtrace 1 and 2"), "{help}");
}

#[test]
fn a_recorded_trace_is_replayed_like_any_other() {
    let scratch = Scratch::new("recorded");
    let trace = record(&scratch, "rank-0.trace", 300);
    for nic in ["off", "model"] {
        let output = replay(&[&trace, "--hw-tags", nic, "--matches", "-"]);
        let matches = text(output.stdout);
        let report = text(output.stderr);
        assert!(output.status.success(), "{report}");
        assert_eq!(matches.lines().filter(|line| line.starts_with("match ")).count(), 300);
        assert!(report.contains("program    rank-0.trace\n"), "{report}");
        let all = "all 700 outcomes are those that the program had";
        assert!(report.contains(all), "{report}");
        assert!(report.contains("100 probes repeated one that found nothing"), "{report}");
        assert!(report.contains("33.3 % of them from the unexpected list"), "{report}");
    }
    let json = text(replay(&[&trace, "--json", "-"]).stdout);
    for part in ["\"about\":\"rank-0.trace\"", "\"differing\":0", "\"repeated_probes\":100"] {
        assert!(json.contains(part), "{json}");
    }
}

#[test]
fn several_traces_are_a_line_each_and_a_sum() {
    let scratch = Scratch::new("several");
    let traces: Vec<_> =
        (1..4).map(|rank| record(&scratch, &format!("rank-{rank}.trace"), 300 * rank)).collect();
    let traces: Vec<_> = traces.iter().map(String::as_str).collect();
    let output = text(replay(&traces).stdout);
    let lines: Vec<_> = output.lines().collect();
    for (line, trace) in lines[1..4].iter().zip(&traces) {
        assert!(line.ends_with(trace) && line.contains("33.3 %"), "{output}");
    }
    assert!(lines[4].contains("800  33.3 %") && lines[4].ends_with("in all, 3 traces"), "{output}");
    let json = text(replay(&[&traces[..], &["--json", "-"]].concat()).stdout);
    assert_eq!(json.lines().count(), 3, "{json}");
    for option in ["--matches", "--plot"] {
        let refused = replay(&[&traces[..], &[option, "out.svg"]].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(refused.stderr).contains("one trace"));
    }
}

#[test]
fn a_damaged_trace_is_refused_with_the_byte() {
    let scratch = Scratch::new("damaged");
    let trace = record(&scratch, "rank-0.trace", 30);
    let whole = std::fs::read(&trace).unwrap();
    let damaged = scratch.file("damaged.trace", [&whole[..4112], b"\xff", &whole[4113..]].concat());
    let output = replay(&[&damaged]);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
    let message = text(output.stderr);
    let wanted = format!("{damaged}: at byte 4112: 255 is not a kind of record; it must be 1..18");
    assert!(message.starts_with(&wanted), "{message}");
    let short = scratch.file("short.trace", &whole[..4000]);
    let error_text = text(replay(&[&short]).stderr);
    assert!(
        error_text.starts_with(&format!("{short}: at byte 0: the header must be")),
        "{error_text}"
    );
}

#[test]
fn a_match_that_differs_from_the_programs_own_is_told() {
    let scratch = Scratch::new("differing");
    let file = scratch.path("rank-0.trace");
    let worker = Worker::new(Config::default()).unwrap();
    let recorder = Recorder::create(file.as_ref(), "", Recorder::BYTES_MAX).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    let receives = [100, 200].map(|tag| worker.recv(Match::tag(tag), vec![0; 8]));
    for tag in [100, 200] {
        worker.send(worker.oneself(), tag, vec![0; 8]).wait().unwrap();
    }
    for receive in receives {
        receive.wait().unwrap();
    }
    let mut bytes = std::fs::read(&file).unwrap();
    // The records behind the block's number that say "matched": their last four bytes name the
    // receive.
    let matches: Vec<_> =
        (4096 + 16..bytes.len()).step_by(8).filter(|at| bytes[*at] == 3).collect();
    let &[first, second] = &matches[..] else { panic!("{matches:?}") };
    for byte in 4..8 {
        bytes.swap(first + byte, second + byte);
    }
    let swapped = scratch.file("swapped.trace", &bytes);
    for nic in ["off", "model"] {
        let output = text(replay(&[&swapped, "--hw-tags", nic]).stdout);
        assert!(output.contains("recorded   2 of 4 outcomes are not those"), "{output}");
    }
}
