//! A replay through two workers, one with a model NIC, compared with the oracle: the record is the
//! same whatever the NIC does where it may choose.

use std::time::Instant;

use tagmatch::model::{Knobs, ModelConfig};
use tagmatch::{Counters, HwTags};
use tagmatch_soft::{Pattern, SourceId, Tag, TagLayout, TagMask};
use tagmatch_testkit::random::Random;
use tagmatch_testkit::tagtrace;
use tagmatch_trace::workers::replay;
use tagmatch_trace::{Id, ONESELF, Trace, TraceOp, write_leftover, write_result};

/// A model NIC with a list of `slots` entries. A seed decides how far it lags.
fn nic(slots: u32, seed: Option<u64>) -> HwTags {
    let knobs = seed.map(Knobs::random).unwrap_or_default();
    let operations = 2 * slots + 2;
    let seed = seed.unwrap_or_default();
    HwTags::Model(
        ModelConfig::default().slots(slots).operations(operations).seed(seed).knobs(knobs),
    )
}

/// Lengths around 1 KiB, from which on a receive is offered to the NIC, and around 8 KiB, above
/// which a message is sent as a rendezvous.
const LENS: [u64; 9] = [0, 8, 1023, 1024, 4096, 8192, 8193, 1 << 20, u64::MAX];
/// Lengths that are all offered to the NIC. Among shorter lengths, a short trace seldom has a
/// receive that the NIC matches.
const LARGE_LENS: [u64; 4] = [1024, 8192, 8193, 1 << 30];

/// The sum over many traces.
#[derive(Default)]
struct Sum {
    traces: u64,
    lines: u64,
    received: u64,
    hardware: u64,
    /// Traces in which the NIC matched at least once.
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

    /// The comparison tests something only if the NIC matches often, and if everything that can
    /// keep a receive from it does so often.
    fn covers_everything(&self) {
        assert!(self.hardware * 20 > self.received, "{} of {}", self.hardware, self.received);
        assert!(self.with_hardware * 3 > self.traces, "{} of {}", self.with_hardware, self.traces);
        for (reason, count) in self.reasons {
            assert!(count * 1000 > self.received, "{reason}: {count} of {}", self.received);
        }
    }
}

/// Replays a random trace with a random NIC.
fn agree(seed: u64, sum: &mut Sum) {
    let mut random = Random::stream(seed, 1);
    let ops = [12, 60, 300, 60][(seed % 4) as usize];
    let lens = if random.chance(1, 2) { &LENS[..] } else { &LARGE_LENS[..] };
    let trace = tagtrace::random_trace(seed, ops, lens);
    let most = random.pick(&[1, 4, 16, 127]);
    let slots = 1 + random.below_u32(most);
    // Without a seed, in one of eight traces, the NIC does not lag.
    let nic_seed = random.chance(7, 8).then_some(seed);
    let parsed = Trace::parse(trace.as_bytes()).unwrap();
    let run = replay(&parsed, nic(slots, nic_seed), nic_seed)
        .unwrap_or_else(|error| panic!("seed {seed}, {slots} slots: {error}\n{trace}"));
    let mut lines = Vec::new();
    for result in run.results.iter().flatten() {
        write_result(&parsed, *result, &mut lines).unwrap();
    }
    write_leftover(&parsed, &run.leftover, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let want = tagtrace::matches(&trace);
    assert_eq!(lines, want, "seed {seed}, {slots} slots, NIC's seed {nic_seed:?}\n{trace}");
    sum.add(&lines, &run.counters);
}

#[test]
fn random_traces_agree_whatever_the_nic_does() {
    let mut sum = Sum::default();
    for seed in 0..300 {
        agree(seed, &mut sum);
    }
    sum.covers_everything();
}

#[test]
fn a_receive_from_a_source_that_sends_nothing_takes_no_message_of_the_process_itself() {
    let tag = Tag(7);
    let pattern = Pattern::new(tag, TagMask::EXACT).from_source(SourceId(5));
    let trace = Trace {
        ops: vec![
            TraceOp::Recv { id: Id(0), pattern, is_sole: false },
            TraceOp::Msg { id: Id(1), tag, source: ONESELF },
        ],
        names: vec![1, 2],
        lens: vec![8, 8],
        recorded: None,
        about: String::new(),
        repeated_probes: 0,
        layout: TagLayout::MPI,
        stop: None,
    };
    let run = replay(&trace, nic(1, None), None).unwrap();
    assert_eq!(run.results, [None, None]);
}

/// Run by `ci/agree`, which says how many.
#[test]
#[ignore = "takes minutes: ci/agree runs it"]
fn many_random_traces_agree() {
    let traces = std::env::var("TRACES").map_or(10_000, |traces| traces.parse().unwrap());
    let first = std::env::var("FIRST_SEED").map_or(0, |seed| seed.parse().unwrap());
    let start = Instant::now();
    let mut sum = Sum::default();
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
    sum.covers_everything();
}
