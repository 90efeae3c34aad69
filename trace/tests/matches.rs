//! The record of a replay, compared with an oracle that searches plain lists.

use std::collections::BTreeMap;

use tagmatch_testkit::tagtrace;
use tagmatch_trace::{IndexedLists, Trace, check, run, write_leftover, write_result};

const LAMMPS: &str = include_str!("traces/lammps-crack-rank0of8.trace");
const HPCC: &str = include_str!("traces/hpcc-rank0of6.trace");

fn matches(trace: &str) -> String {
    let trace = Trace::parse(trace.as_bytes()).unwrap();
    check(&trace);
    let mut out = Vec::new();
    let pass = run(&trace, IndexedLists::default(), u64::MAX, |_, result| match result {
        Some(result) => write_result(&trace, result, &mut out),
        None => Ok(()),
    });
    write_leftover(&trace, &pass.unwrap().lists.leftover(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Replays random traces and compares them with the oracle; counts how often each kind of line
/// occurs.
fn agree(seeds: impl Iterator<Item = u64>) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::<String, u64>::new();
    for seed in seeds {
        // Most are short enough to be read; some have lists of hundreds.
        let ops = [12, 60, 60, 300, 3000][if seed % 40 == 0 { 4 } else { (seed % 4) as usize }];
        let trace = tagtrace::random_trace(seed, ops, &tagtrace::LENS);
        let want = tagtrace::matches(&trace);
        assert_eq!(matches(&trace), want, "seed {seed}, {ops} operations");
        for line in want.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let others = words.iter().filter(|w| ["none", "truncated"].contains(w));
            let kind = others.fold(words[0].to_owned(), |kind, word| kind + " " + word);
            *seen.entry(kind).or_default() += 1;
        }
    }
    seen
}

#[test]
fn random_traces_agree_with_the_oracle() {
    let halves = std::thread::scope(|scope| {
        let halves = [0..1000, 1000..2000].map(|seeds| scope.spawn(move || agree(seeds)));
        halves.map(|half| half.join().expect("they agree"))
    });
    let mut seen = BTreeMap::<String, u64>::new();
    for (kind, count) in halves.into_iter().flatten() {
        *seen.entry(kind).or_default() += count;
    }
    // The random traces must lead to every kind of line, often.
    for kind in [
        "match",
        "match truncated",
        "cancelled",
        "late",
        "probe",
        "probe none",
        "mprobe",
        "mprobe none",
        "mrecv",
        "mrecv none",
        "mrecv truncated",
        "mcancelled",
        "mcancelled none",
        "posted",
        "unexpected",
    ] {
        assert!(seen.remove(kind).is_some_and(|count| count > 1000), "{kind} is rare");
    }
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn recorded_traces_agree_with_the_oracle() {
    for trace in [LAMMPS, HPCC] {
        let want = tagtrace::matches(trace);
        assert!(want.lines().count() > 1000);
        assert_eq!(matches(trace), want);
    }
}

#[test]
fn the_rules_one_by_one() {
    let cases = [
        // The receive posted first, the message that came first, and truncation either way.
        (
            "recv 1 0 * * 0\nrecv 2 0 1 1 9\nmsg 3 0 1 1 1\nmsg 4 0 1 1 9\n",
            "match 1 3 truncated\nmatch 2 4\n",
        ),
        (
            "msg 1 0 5 5 9\nmsg 2 0 6 5 9\nrecv 3 0 * 5 8\nrecv 4 0 6 * 9\n",
            "match 3 1 truncated\nmatch 4 2\n",
        ),
        // A context id has no wildcard: the other fields alone don't match.
        ("msg 1 1 0 0 0\nrecv 2 0 * * 0\n", "posted 2\nunexpected 1\n"),
        // A cancel finds its receive posted, cancelled before, or matched.
        (
            "recv 1 0 0 0 0\ncancel 1\ncancel 1\nmsg 2 0 0 0 0\nrecv 3 0 0 0 0\ncancel 3\n",
            "cancelled 1\nlate 1\nmatch 3 2\nlate 3\n",
        ),
        // A probe leaves the message. A matched probe takes it out of the list for good.
        (
            "probe 0 * *\nmsg 1 0 0 0 0\nprobe 0 * *\nmprobe 2 0 * *\nprobe 0 * *\nrecv 3 0 * * 0\n",
            "probe none\nprobe 1\nmprobe 2 1\nprobe none\nposted 3\n",
        ),
        (
            "msg 1 0 0 0 5\nmprobe 2 0 * *\nmrecv 2 4\nmsg 3 0 0 0 5\nmprobe 4 0 * *\nmrecv 4 5\n",
            "mprobe 2 1\nmrecv 2 1 truncated\nmprobe 4 3\nmrecv 4 3\n",
        ),
        // The receive of a matched probe that found nothing gets nothing. A dropped message is
        // gone.
        (
            "mprobe 1 0 * *\nmsg 2 0 0 0 5\nmrecv 1 0\nmprobe 3 0 * *\nmcancel 3\nmprobe 4 0 * *\n\
          mcancel 4\n",
            "mprobe 1 none\nmrecv 1 none\nmprobe 3 2\nmcancelled 3 2\nmprobe 4 none\n\
          mcancelled 4 none\n",
        ),
        ("", ""),
    ];
    for (ops, want) in cases {
        let trace = format!("tagtrace 1\n{ops}");
        assert_eq!(matches(&trace), want, "{ops}");
        assert_eq!(tagtrace::matches(&trace), want, "the oracle on {ops}");
    }
}
