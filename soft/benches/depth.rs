//! Time of one post and one matching arrival at constant depth, in random order.
//!
//! `cargo bench -p tagmatch-soft` prints nanoseconds per pair, best and median of many batches.
//! The order of matches is drawn before the clock starts; the machine should be idle otherwise.

use std::hint::black_box;
use std::time::Instant;
use tagmatch_soft::{Pattern, PostedList, SourceId, Tag, TagLayout, TagMask, UnexpectedList};

const DEPTHS: [usize; 8] = [0, 1, 10, 18, 100, 1_000, 10_000, 100_000];
const CLASSES: [usize; 4] = [1, 2, 4, 8];
const BATCH: usize = 1 << 16;
const BATCHES: usize = 31;

/// A receive of one class, and a message that it alone accepts.
#[derive(Clone, Copy)]
struct Pair {
    pattern: Pattern,
    tag: Tag,
    source: SourceId,
}

/// The pairs of class `n % classes`: exact with a source, exact from any, any source in the tag,
/// any tag, and then masks that miss one more context bit each.
fn pair(number: usize, classes: usize) -> Pair {
    let layout = TagLayout::MPI;
    let class = (number % classes) as u64;
    let id = number as u64 & 0xff_ffff;
    let tag = layout.pack(class, id, id).expect("fits");
    let source = SourceId((id % 61) as u32);
    let mask = match class {
        0 | 1 => TagMask::EXACT,
        2 => TagMask(!layout.source_mask().0),
        3 => TagMask(!layout.tag_mask().0),
        more => TagMask(!(1 << (50 + more))),
    };
    let pattern = Pattern::new(tag, mask);
    let pattern = if class == 0 { pattern.from_source(source) } else { pattern };
    Pair { pattern, tag, source }
}

/// For each step which of the queued pairs leaves; the new one takes its place.
fn order(depth: usize, mut state: u64) -> Vec<usize> {
    (0..BATCH)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % depth.max(1)
        })
        .collect()
}

/// More different pairs than any depth, so that a queued one never comes again too soon.
fn pairs(classes: usize) -> Vec<Pair> {
    (0..1 << 18).map(|number| pair(number, classes)).collect()
}

/// Best and median nanoseconds per step over all batches.
fn measure(mut batch: impl FnMut(u64)) -> (f64, f64) {
    let mut times: Vec<f64> = (0..BATCHES as u64)
        .map(|number| {
            let start = Instant::now();
            batch(number);
            start.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[BATCHES / 2])
}

fn posted(depth: usize, classes: usize) -> (f64, f64) {
    let mut list = PostedList::new(1);
    let pairs = pairs(classes);
    let mut queued = pairs[..depth.max(1)].to_vec();
    for (n, pair) in queued.iter().enumerate().skip(usize::from(depth == 0)) {
        list.post(pair.pattern, n);
    }
    let order = order(depth, 0x9e37_79b9);
    let mut next = depth;
    measure(|_| {
        for &at in &order {
            let new = pairs[next % pairs.len()];
            next += 1;
            if depth == 0 {
                list.post(new.pattern, at);
                black_box(list.take_match(new.tag, new.source)).expect("posted");
                continue;
            }
            let old = std::mem::replace(&mut queued[at], new);
            black_box(list.take_match(old.tag, old.source)).expect("posted");
            list.post(new.pattern, at);
        }
    })
}

fn unexpected(depth: usize, classes: usize) -> (f64, f64) {
    let mut list = UnexpectedList::new(1);
    let pairs = pairs(classes);
    let mut queued = pairs[..depth.max(1)].to_vec();
    for (n, pair) in queued.iter().enumerate().skip(usize::from(depth == 0)) {
        list.push(pair.tag, pair.source, n);
    }
    let order = order(depth, 0x9e37_79b9);
    let mut next = depth;
    measure(|_| {
        for &at in &order {
            let new = pairs[next % pairs.len()];
            next += 1;
            if depth == 0 {
                list.push(new.tag, new.source, at);
                black_box(list.take(&new.pattern)).expect("pushed");
                continue;
            }
            let old = std::mem::replace(&mut queued[at], new);
            black_box(list.take(&old.pattern)).expect("pushed");
            list.push(new.tag, new.source, at);
        }
    })
}

/// What the loop itself costs.
fn nothing(depth: usize, classes: usize) -> (f64, f64) {
    let pairs = pairs(classes);
    let mut queued = pairs[..depth.max(1)].to_vec();
    let order = order(depth, 0x9e37_79b9);
    let mut next = depth;
    measure(|_| {
        for &at in &order {
            let new = pairs[next % pairs.len()];
            next += 1;
            black_box(std::mem::replace(&mut queued[at], new));
        }
    })
}

fn table(name: &str, run: impl Fn(usize, usize) -> (f64, f64)) {
    println!("\n{name}, ns per pair, best / median");
    print!("{:>8}", "depth");
    for classes in CLASSES {
        print!("{:>18}", format!("{classes} classes"));
    }
    println!();
    for depth in DEPTHS {
        print!("{depth:>8}");
        for classes in CLASSES {
            let (best, median) = run(depth, classes);
            print!("{:>18}", format!("{best:.1} / {median:.1}"));
        }
        println!();
    }
}

fn main() {
    table("loop alone", nothing);
    table("post and match", posted);
    table("arrive unexpected and take", unexpected);
}
