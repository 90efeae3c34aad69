//! `tagperf replay --hw-tags model` against the oracle: whatever the NIC does where it may choose, the
//! lines are the same.

mod common;
mod oracle;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use common::{tagperf, text};
use oracle::Random;
use serde_json::Value;
use tagmatch::Counters;
use tagperf::replay::write_matches_by_nic;
use tagperf::trace::Trace;

/// Around what makes a receive worth a NIC, 1 KiB, and a message a rendezvous, 8 KiB.
const LENS: [u64; 9] = [0, 8, 1023, 1024, 4096, 8192, 8193, 1 << 20, u64::MAX];
/// Those that a NIC would take, without which a short trace seldom has a receive in it.
const LARGE_LENS: [u64; 4] = [1024, 8192, 8193, 1 << 30];

/// What many traces came to.
#[derive(Default)]
struct Sum {
    traces: u64,
    lines: u64,
    received: u64,
    hardware: u64,
    /// Traces in which the NIC has matched.
    with_hardware: u64,
    /// Receives in software, by reason.
    reasons: [(&'static str, u64); 5],
}

impl Sum {
    fn add(&mut self, lines: &str, counters: &Counters) {
        self.traces += 1;
        self.lines += lines.lines().count() as u64;
        self.received += counters.hardware + counters.posted + counters.unexpected;
        self.hardware += counters.hardware;
        self.with_hardware += u64::from(counters.hardware > 0);
        let why = counters.not_offloaded;
        let reasons = [
            ("unexpected", counters.unexpected),
            ("too_small", why.too_small),
            ("list_full", why.list_full),
            ("order", why.order),
            ("phase", why.phase),
        ];
        for (sum, (name, count)) in self.reasons.iter_mut().zip(reasons) {
            *sum = (name, sum.1 + count);
        }
    }

    /// The comparison is worth its name only if the NIC matches often, and is stopped by everything that
    /// can stop it.
    fn is_worth_its_name(&self) {
        assert!(self.hardware * 20 > self.received, "{} of {}", self.hardware, self.received);
        assert!(self.with_hardware * 3 > self.traces, "{} of {}", self.with_hardware, self.traces);
        for (reason, count) in self.reasons {
            assert!(count * 1000 > self.received, "{reason}: {count} of {}", self.received);
        }
    }
}

/// One random trace through a random NIC.
fn agree(seed: u64, sum: &mut Sum) {
    let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
    let ops = [12, 60, 300, 60][(seed % 4) as usize];
    let lens = if random.below(2) == 0 { &LENS[..] } else { &LARGE_LENS[..] };
    let trace = oracle::random_trace_with(seed, ops, lens);
    let most = [1, 4, 16, 127][random.index(4)];
    let slots = 1 + u32::try_from(random.below(most)).unwrap();
    // One in eight with a NIC at its kindest.
    let nic_seed = (random.below(8) > 0).then_some(seed);
    let parsed = Trace::parse(trace.as_bytes()).unwrap();
    let mut lines = Vec::new();
    let counters = write_matches_by_nic(&parsed, slots, nic_seed, &mut lines)
        .unwrap_or_else(|error| panic!("seed {seed}, {slots} slots: {error}\n{trace}"));
    let lines = String::from_utf8(lines).unwrap();
    let want = oracle::matches(&trace);
    assert_eq!(lines, want, "seed {seed}, {slots} slots, NIC's seed {nic_seed:?}\n{trace}");
    sum.add(&lines, &counters);
}

#[test]
fn random_traces_agree_whatever_the_nic_does() {
    let mut sum = Sum::default();
    for seed in 0..300 {
        agree(seed, &mut sum);
    }
    sum.is_worth_its_name();
}

const LAMMPS: &str = "tests/traces/lammps-crack-rank0of8.trace";
const HPCC: &str = "tests/traces/hpcc-rank0of6.trace";

/// The real command: the lines, and the report as JSON.
fn replay(trace: &str, more: &str) -> (String, Value) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let (process, call) = (std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let report = std::env::temp_dir().join(format!("tagperf-hw-replay-{process}-{call}"));
    let args = format!("replay {trace} --matches - --json {} {more}", report.display());
    let output = tagperf(&args);
    let json = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
    (text(&output.stdout).to_owned(), serde_json::from_str(&json).unwrap())
}

#[test]
fn recorded_traces_agree_and_the_report_says_what_the_nic_matched() {
    for trace in [LAMMPS, HPCC] {
        let (want, off) = replay(trace, "--hw-tags off");
        assert_eq!(want, oracle::matches(&std::fs::read_to_string(trace).unwrap()));
        assert!(off.get("nic").is_none());
        for nic in ["model", "model:1 --seed 1", "model:3 --seed 2", "model:127 --seed 3"] {
            let (lines, report) = replay(trace, &format!("--hw-tags {nic}"));
            assert!(lines == want, "{trace}, {nic}");
            let (nic, matches) = (&report["nic"], &report["matches"]);
            let count = |value: &Value| value.as_u64().unwrap();
            let stopped = nic["stopped"].as_array().unwrap().iter();
            let stopped: u64 = stopped.map(|stop| count(&stop["receives"])).sum();
            // A NIC that lags may match little; one at its kindest must not.
            let least = if nic.get("seed").is_some() { 1 } else { 500 };
            assert!(count(&nic["hardware"]) >= least, "{nic}");
            assert_eq!(count(&nic["hardware"]) + stopped, count(&nic["received"]), "{nic}");
            let received = count(&matches["posted"]) + count(&matches["unexpected"]);
            assert_eq!(received, count(&nic["received"]), "{nic}");
            assert!(!nic["advice"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let report = |seed| replay(HPCC, &format!("--hw-tags model:4 --seed {seed}")).1["nic"].clone();
    let first = report(7);
    assert_eq!(first, report(7));
    assert!((8..16).any(|seed| report(seed)["stopped"] != first["stopped"]), "{first}");
}

#[test]
fn people_are_told_what_stops_the_nic() {
    let output = tagperf(&format!("replay {LAMMPS} --hw-tags model"));
    let report = text(&output.stdout);
    assert!(report.contains("\nnic        41."), "{report}");
    assert!(
        report.contains(", because its message was there before it (unexpected)\n"),
        "{report}"
    );
    assert!(
        report.contains("\nnic advice what would help most: receives posted before their"),
        "{report}"
    );
}

/// Run by `ci/agree`, which says how many.
#[test]
#[ignore = "takes minutes: ci/agree runs it"]
fn many_random_traces_agree() {
    let traces = std::env::var("TRACES").map_or(10_000, |traces| traces.parse().unwrap());
    let first = std::env::var("FIRST_SEED").map_or(0, |seed| seed.parse().unwrap());
    let (start, mut sum) = (Instant::now(), Sum::default());
    for seed in first..first + traces {
        agree(seed, &mut sum);
    }
    let Sum { traces, lines, received, hardware, with_hardware, reasons } = sum;
    let seconds = start.elapsed().as_secs_f64();
    println!("{traces} random traces agree with the oracle, {lines} lines, in {seconds:.1} s");
    println!(
        "{received} messages received, {hardware} of them by the NIC, in {with_hardware} traces"
    );
    for (reason, count) in reasons {
        println!("{count} not: {reason}");
    }
    sum.is_worth_its_name();
}
