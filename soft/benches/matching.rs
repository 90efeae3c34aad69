//! Matching alone, by list, order, share of wildcards and depth, beside a bare hash and a plain
//! list. Then the recorded traces.
//!
//! `cargo bench -p tagmatch-soft --bench matching` takes some minutes, with `-- --quick` fewer.
//! With `-- posted/random/10%` it runs only the measurements that have this in their names. One
//! iteration is one match and the entry that takes its place, so the depth is constant. Steps are
//! drawn before the clock starts. The benchmark `depth` prints a table.

mod work;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use tagmatch_soft::{Pattern, PostedList, UnexpectedList};
use tagmatch_trace::{Id, IndexedLists, PlainLists, PlainQueue};

use work::bare::BareHash;
use work::traces;
use work::{Mix, Order, Step, Steps};

const DEPTHS: [usize; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Beyond this depth the plain list takes too long to be interesting.
const PLAIN_DEPTH_MAX: usize = 1_000;
const WILD_PERCENTS: [u32; 3] = [0, 10, 50];
/// Steps that are drawn at a time.
const BATCH: u64 = 1 << 14;

/// Which entry leaves next, and how far tags are apart. All tags of the adversarial order have the
/// same place in a table of 1021, the size that a well known library has.
const ORDERS: [(&str, Order, u32); 4] = [
    ("forward", Order::Forward, 1),
    ("reverse", Order::Reverse, 1),
    ("random", Order::Random, 1),
    ("adversarial", Order::Random, 1021),
];

/// What is measured: a list of entries, each of which is removed by what it matches.
trait MeasuredList {
    fn new(depth: usize, mix: Mix) -> Self;
    fn add(&mut self, number: u32);
    fn step(&mut self, step: Step);
}

struct Posted(PostedList<u32>, Mix);

impl MeasuredList for Posted {
    fn new(_depth: usize, mix: Mix) -> Self {
        Posted(PostedList::new(1), mix)
    }

    fn add(&mut self, number: u32) {
        self.0.post(self.1.receive(number), number);
    }

    fn step(&mut self, step: Step) {
        let (tag, source) = self.1.message(step.leaves);
        black_box(self.0.take_match(tag, source)).expect("posted");
        self.add(step.comes);
    }
}

struct Unexpected(UnexpectedList<u32>, Mix);

impl MeasuredList for Unexpected {
    fn new(_depth: usize, mix: Mix) -> Self {
        Unexpected(UnexpectedList::new(1), mix)
    }

    fn add(&mut self, number: u32) {
        let (tag, source) = self.1.message(number);
        self.0.push(tag, source, number);
    }

    fn step(&mut self, step: Step) {
        black_box(self.0.take(&self.1.receive(step.leaves))).expect("arrived");
        self.add(step.comes);
    }
}

struct Bare(BareHash, Mix);

impl MeasuredList for Bare {
    fn new(depth: usize, mix: Mix) -> Self {
        Bare(BareHash::new(depth), mix)
    }

    fn add(&mut self, number: u32) {
        self.0.insert(self.1.message(number).0.0, u64::from(number));
    }

    fn step(&mut self, step: Step) {
        black_box(self.0.take(self.1.message(step.leaves).0.0)).expect("inserted");
        self.add(step.comes);
    }
}

struct Plain(PlainQueue<Pattern>, Mix);

impl MeasuredList for Plain {
    fn new(_depth: usize, mix: Mix) -> Self {
        Plain(PlainQueue::default(), mix)
    }

    fn add(&mut self, number: u32) {
        self.0.push(self.1.receive(number), Id(number));
    }

    fn step(&mut self, step: Step) {
        let (tag, source) = self.1.message(step.leaves);
        black_box(self.0.take(|pattern| pattern.matches(tag, source))).expect("posted");
        self.add(step.comes);
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Measures a list of constant depth. The list is filled only if the filter selects the
/// measurement.
fn run<L: MeasuredList>(group: &mut Group<'_>, depth: usize, order: Order, mix: Mix) {
    let mut filled: Option<(L, Steps)> = None;
    group.bench_function(BenchmarkId::from_parameter(depth), |bencher| {
        let (list, steps) = filled.get_or_insert_with(|| {
            let steps = Steps::new(depth, order);
            let mut list = L::new(depth, mix);
            steps.entries().iter().for_each(|&number| list.add(number));
            (list, steps)
        });
        bencher.iter_custom(|iterations| {
            let mut took = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let batch = left.min(BATCH);
                left -= batch;
                let drawn = steps.draw(usize::try_from(batch).expect("a batch"));
                let start = Instant::now();
                drawn.iter().for_each(|&step| list.step(step));
                took += start.elapsed();
            }
            took
        });
    });
}

fn replays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    for recorded in traces::load() {
        let trace = &recorded.trace;
        group.throughput(Throughput::Elements(trace.ops.len() as u64));
        let mut bench = |name: &str, replay: &mut dyn FnMut() -> Duration| {
            group.bench_function(BenchmarkId::new(name, &recorded.name), |bencher| {
                bencher.iter_custom(|runs| (0..runs).map(|_| replay()).sum());
            });
        };
        bench("lists", &mut || traces::replay(trace, IndexedLists::default()).took);
        bench("plain list", &mut || traces::replay(trace, PlainLists::default()).took);
    }
}

type Bench = fn(&mut Group<'_>, usize, Order, Mix);

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20)
        .configure_from_args();
    for (name, order, stride) in ORDERS {
        for percent in WILD_PERCENTS {
            let mix = Mix::of_wildcards(percent).with_stride(stride);
            let benches: [(&str, Bench); 3] = [
                ("posted", run::<Posted>),
                ("unexpected", run::<Unexpected>),
                ("plain list", run::<Plain>),
            ];
            for (list, bench) in benches {
                let mut group =
                    criterion.benchmark_group(format!("{list}/{name}/{percent}% wildcards"));
                for depth in DEPTHS {
                    if list != "plain list" || depth <= PLAIN_DEPTH_MAX {
                        bench(&mut group, depth, order, mix);
                    }
                }
            }
        }
        let mut group = criterion.benchmark_group(format!("bare hash/{name}"));
        for depth in DEPTHS {
            run::<Bare>(&mut group, depth, order, Mix::of_wildcards(0).with_stride(stride));
        }
    }
    replays(&mut criterion);
    criterion.final_summary();
}
