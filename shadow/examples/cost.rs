//! Measures what posting and matching cost with a NIC's list of 127 slots:
//! `cargo run --release -p tagmatch-shadow --example cost`.

use std::hint::black_box;
use std::time::Instant;

use tagmatch_shadow::{Op, Shadow, ShadowConfig};
use tagmatch_soft::{Pattern, Tag, TagMask};

const ROUNDS: u32 = 200_000;

fn shadow(slots: u32) -> Shadow {
    Shadow::new(&ShadowConfig {
        slots,
        operations: 1024,
        sync_every: 1 << 14,
        first_count: 0,
        threshold: 1024,
        read_max: u64::MAX,
        source_bits: TagMask(0),
    })
}

/// Plays a NIC that answers each operation at once.
fn drain(shadow: &mut Shadow) {
    while let Some(due) = shadow.next_op() {
        let op = due.op();
        let (Op::Add { slot, .. } | Op::Delete { slot, .. }) = op else {
            due.accepted(None);
            continue;
        };
        due.accepted(Some(slot));
        if matches!(op, Op::Add { .. }) {
            shadow.added(slot).expect("just added");
        }
    }
}

fn post(shadow: &mut Shadow, id: u32, mask: u64, length: u64) {
    shadow.post(id, &Pattern::new(Tag(u64::from(id)), TagMask(mask)), length, true);
    drain(shadow);
}

/// Posts one more receive and matches it in software, with `depth` receives posted before it.
fn software(name: &str, depth: u32, blocker: Option<u64>) {
    let mut shadow = shadow(127);
    if let Some(mask) = blocker {
        post(&mut shadow, depth, mask, 0);
    }
    (0..depth).for_each(|id| post(&mut shadow, id, u64::MAX, 4096));
    let start = Instant::now();
    for _ in 0..ROUNDS {
        post(&mut shadow, depth + 1, u64::MAX, 4096);
        black_box(shadow.take(depth + 1, true));
        shadow.searched();
        drain(&mut shadow);
    }
    report(name, depth, start, &shadow);
}

/// The NIC matches the oldest receive, the oldest waiting one is added, and one more is posted.
fn hardware(name: &str, depth: u32) {
    let mut shadow = shadow(127);
    (0..depth).for_each(|id| post(&mut shadow, id, u64::MAX, 4096));
    let start = Instant::now();
    for round in 0..ROUNDS {
        let slot = 126 - round % 127;
        let id = shadow.matched(slot).expect("active");
        shadow.landed(slot).expect("matched");
        drain(&mut shadow);
        post(&mut shadow, id, u64::MAX, 4096);
    }
    report(name, depth, start, &shadow);
}

fn report(name: &str, depth: u32, start: Instant, shadow: &Shadow) {
    let each = start.elapsed().as_nanos() / u128::from(ROUNDS);
    let counters = shadow.counters();
    println!("{name:40} {depth:6} posted {each:6} ns, {} in the NIC", counters.slots);
}

fn main() {
    for depth in [127, 1_000, 10_000] {
        software("post and take, list full or not", depth, None);
        software("post and take behind a short wildcard", depth, Some(0));
        hardware("post, match in the NIC, promotion", depth);
    }
}
