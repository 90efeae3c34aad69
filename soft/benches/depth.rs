//! A table of time by depth: one post and one matching message (or one unexpected message and one
//! receive that takes it), while the depth stays constant and entries leave in random order. Beside
//! it a bare hash and a plain list. Then the recorded traces.
//!
//! `cargo bench -p tagmatch-soft --bench depth` prints nanoseconds per pair, the best of many
//! batches; with `-- --quick` of fewer. Orders are drawn before the clock starts. Nothing else
//! should run on the machine.

mod work;

use std::hint::black_box;
use std::time::Instant;

use tagmatch_soft::{PostedList, UnexpectedList};
use tagmatch_trace::{Id, IndexedLists, Matcher, PlainLists, PlainQueue, Trace};

use work::bare::BareHash;
use work::traces;
use work::{Mix, Order, Step, Steps};

const DEPTHS: [usize; 10] = [0, 1, 10, 18, 32, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Beyond this depth the plain list takes too long to be interesting.
const PLAIN_DEPTH_MAX: usize = 1_000;
const CLASSES: [u32; 4] = [1, 2, 4, 8];
const BATCH: usize = 1 << 14;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    batches: usize,
}

impl Effort {
    /// Nanoseconds per step of the best batch. As many steps as the queue is deep are not timed
    /// first.
    fn measure(self, depth: usize, mut batch: impl FnMut(&[Step])) -> f64 {
        let mut steps = Steps::new(depth, Order::Random);
        for _ in 0..depth.div_ceil(BATCH) {
            batch(steps.draw(BATCH));
        }
        let time = |_| {
            let steps = steps.draw(BATCH);
            let start = Instant::now();
            batch(steps);
            start.elapsed().as_nanos() as f64 / BATCH as f64
        };
        (0..self.batches).map(time).fold(f64::INFINITY, f64::min)
    }

    fn posted(self, depth: usize, mix: Mix) -> f64 {
        let mut list = PostedList::new(1);
        for &number in Steps::new(depth, Order::Random).entries() {
            list.post(mix.receive(number), number);
        }
        self.measure(depth, |steps| {
            for step in steps {
                if depth == 0 {
                    list.post(mix.receive(step.comes), step.comes);
                }
                let (tag, source) = mix.message(step.leaves);
                black_box(list.take_match(tag, source)).expect("posted");
                if depth != 0 {
                    list.post(mix.receive(step.comes), step.comes);
                }
            }
        })
    }

    fn unexpected(self, depth: usize, mix: Mix) -> f64 {
        let mut list = UnexpectedList::new(1);
        for &number in Steps::new(depth, Order::Random).entries() {
            let (tag, source) = mix.message(number);
            list.push(tag, source, number);
        }
        self.measure(depth, |steps| {
            for step in steps {
                let (tag, source) = mix.message(step.comes);
                if depth == 0 {
                    list.push(tag, source, step.comes);
                }
                black_box(list.take(&mix.receive(step.leaves))).expect("arrived");
                if depth != 0 {
                    list.push(tag, source, step.comes);
                }
            }
        })
    }

    fn plain(self, depth: usize) -> f64 {
        let mix = Mix::of_classes(4);
        let mut list = PlainQueue::default();
        for &number in Steps::new(depth, Order::Random).entries() {
            list.push(mix.receive(number), Id(number));
        }
        self.measure(depth, |steps| {
            for step in steps {
                if depth == 0 {
                    list.push(mix.receive(step.comes), Id(step.comes));
                }
                let (tag, source) = mix.message(step.leaves);
                black_box(list.take(|pattern| pattern.matches(tag, source))).expect("posted");
                if depth != 0 {
                    list.push(mix.receive(step.comes), Id(step.comes));
                }
            }
        })
    }

    fn bare(self, depth: usize) -> f64 {
        let mix = Mix::of_classes(1);
        let mut hash = BareHash::new(depth);
        for &number in Steps::new(depth, Order::Random).entries() {
            hash.insert(mix.message(number).0.0, u64::from(number));
        }
        self.measure(depth, |steps| {
            for step in steps {
                if depth == 0 {
                    hash.insert(mix.message(step.comes).0.0, u64::from(step.comes));
                }
                black_box(hash.take(mix.message(step.leaves).0.0)).expect("inserted");
                if depth != 0 {
                    hash.insert(mix.message(step.comes).0.0, u64::from(step.comes));
                }
            }
        })
    }

    /// The time of the loop itself.
    fn nothing(self, depth: usize) -> f64 {
        let mix = Mix::of_classes(4);
        self.measure(depth, |steps| {
            for step in steps {
                black_box((mix.message(step.leaves), mix.receive(step.comes)));
            }
        })
    }

    /// Nanoseconds per operation of a trace: the best and the median of many runs.
    fn replay<M: Matcher>(self, trace: &Trace, fresh: impl Fn() -> M) -> (f64, f64) {
        let runs = self.batches * 8;
        let mut times: Vec<f64> =
            (0..runs).map(|_| traces::replay(trace, fresh()).ns_per_op()).collect();
        times.sort_by(f64::total_cmp);
        (times[0], times[runs / 2])
    }
}

fn table(name: &str, effort: Effort, run: impl Fn(usize, Mix) -> f64) {
    println!("\n{name}: ns per pair, the loop included");
    print!("{:>8}", "depth");
    for classes in CLASSES {
        print!("{:>10}", format!("{classes} class{}", if classes == 1 { "" } else { "es" }));
    }
    println!("{:>10}{:>12}{:>10}{:>10}", "bare hash", "4 cl : bare", "plain", "loop");
    let mut four_classes = Vec::new();
    for depth in DEPTHS {
        let [one, two, four, eight] = CLASSES.map(|classes| run(depth, Mix::of_classes(classes)));
        let bare = effort.bare(depth);
        print!("{depth:>8}{one:>10.1}{two:>10.1}{four:>10.1}{eight:>10.1}");
        print!("{bare:>10.1}{:>12.2}", four / bare);
        if depth <= PLAIN_DEPTH_MAX {
            print!("{:>10.1}", effort.plain(depth));
        } else {
            print!("{:>10}", "-");
        }
        println!("{:>10.1}", effort.nothing(depth));
        four_classes.push((depth, four));
    }
    let at = |depth| four_classes.iter().find(|row| row.0 == depth).map_or(f64::NAN, |row| row.1);
    println!("4 classes, depth 10000 : 10 = {:.2}", at(10_000) / at(10));
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = Effort { batches: if quick { 8 } else { 64 } };
    table("post and match", effort, |depth, mix| effort.posted(depth, mix));
    table("arrive unexpected and take", effort, |depth, mix| effort.unexpected(depth, mix));
    replays(effort);
}

/// The recorded traces, through both lists.
fn replays(effort: Effort) {
    println!("\nrecorded traces: ns per operation, best / median");
    println!("{:>24}{:>16}{:>16}{:>8}", "trace", "lists", "plain list", "ratio");
    for recorded in traces::load() {
        let (best, median) = effort.replay(&recorded.trace, IndexedLists::default);
        let (plain, plain_median) = effort.replay(&recorded.trace, PlainLists::default);
        println!(
            "{:>24}{:>16}{:>16}{:>8.2}",
            recorded.name,
            format!("{best:.1} / {median:.1}"),
            format!("{plain:.1} / {plain_median:.1}"),
            median / plain_median
        );
    }
}
