//! The matcher by itself: depth x order x share of wildcards x list, beside a bare hash and a plain list;
//! then the recorded traces.
//!
//! `cargo bench -p tagmatch-soft --bench matching` takes some minutes; `-- --quick` less, and
//! `-- posted/random/10%` only what has this in its name. One iteration is one match and the entry that takes
//! its place: depth is constant, steps are drawn before the clock starts. `depth` prints the same as a table.

mod work;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tagmatch_soft::{PostedList, UnexpectedList};
use work::bare::BareHash;
use work::plain::PlainList;
use work::traces::{self, Lists};
use work::{Mix, Order, Step, Steps};

const DEPTHS: [usize; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Beyond this depth the plain list takes too long to be interesting.
const PLAIN_DEPTH_MAX: usize = 1_000;
const WILD_PERCENTS: [u32; 3] = [0, 10, 50];
/// Steps that are drawn at a time.
const BATCH: u64 = 1 << 14;

/// What leaves when, and the tags: the adversary's all go into one chain of a table of 1021.
const ORDERS: [(&str, Order, u32); 4] = [
    ("forward", Order::Forward, 1),
    ("reverse", Order::Reverse, 1),
    ("random", Order::Random, 1),
    ("adversarial", Order::Random, 1021),
];

/// What is measured: entries come, and leave by what they match.
trait Queue {
    fn new(depth: usize, mix: Mix) -> Self;
    fn add(&mut self, number: u32);
    fn step(&mut self, step: Step);
}

struct Posted(PostedList<u32>, Mix);

impl Queue for Posted {
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

impl Queue for Unexpected {
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

impl Queue for Bare {
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

struct Plain(PlainList, Mix);

impl Queue for Plain {
    fn new(_depth: usize, mix: Mix) -> Self {
        Plain(PlainList::new(), mix)
    }

    fn add(&mut self, number: u32) {
        self.0.post(&self.1.receive(number), number);
    }

    fn step(&mut self, step: Step) {
        let (tag, source) = self.1.message(step.leaves);
        black_box(self.0.take_match(tag, source)).expect("posted");
        self.add(step.comes);
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Measures a queue of constant depth, which is filled when its turn comes.
fn run<Q: Queue>(group: &mut Group<'_>, depth: usize, order: Order, mix: Mix) {
    let mut filled: Option<(Q, Steps)> = None;
    group.bench_function(BenchmarkId::from_parameter(depth), |bencher| {
        let (queue, steps) = filled.get_or_insert_with(|| {
            let steps = Steps::new(depth, order);
            let mut queue = Q::new(depth, mix);
            steps.queued().iter().for_each(|&number| queue.add(number));
            (queue, steps)
        });
        bencher.iter_custom(|iterations| {
            let mut took = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let batch = left.min(BATCH);
                left -= batch;
                let drawn = steps.draw(usize::try_from(batch).expect("a batch"));
                let start = Instant::now();
                drawn.iter().for_each(|&step| queue.step(step));
                took += start.elapsed();
            }
            took
        });
    });
}

fn replays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    for trace in traces::load() {
        group.throughput(Throughput::Elements(trace.ops.len() as u64));
        let mut bench = |name: &str, replay: &mut dyn FnMut() -> Duration| {
            group.bench_function(BenchmarkId::new(name, &trace.name), |bencher| {
                bencher.iter_custom(|passes| (0..passes).map(|_| replay()).sum());
            });
        };
        bench("lists", &mut || timed(&trace.ops, (PostedList::new(1), UnexpectedList::new(1))));
        bench("plain list", &mut || timed(&trace.ops, (PlainList::new(), PlainList::new())));
    }
}

fn timed(ops: &[traces::Op], mut lists: impl Lists) -> Duration {
    let start = Instant::now();
    black_box(traces::replay(ops, &mut lists));
    start.elapsed()
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
            let lists: [(&str, Bench); 3] = [
                ("posted", run::<Posted>),
                ("unexpected", run::<Unexpected>),
                ("plain list", run::<Plain>),
            ];
            for (list, bench) in lists {
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
