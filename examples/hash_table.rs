//! A distributed hash table that counts, without a receive anywhere: each node exposes a part, and
//! all nodes change all parts by atomic operations. The nodes are threads here; processes differ
//! only in how they tell each other their addresses and tokens.
//!
//! `cargo run --release --example hash_table`

use std::error::Error;
use std::sync::{Barrier, Mutex};
use std::thread;

use tagmatch::{
    Address, AtomicOp, AtomicType, Config, Local, Remote, Rights, SharedWorker, Token, Worker,
};

const NODES: usize = 3;
/// Entries of a node's part. An entry is a key, 0 while it is free, and a count.
const ENTRIES: usize = 512;
const ENTRY_BYTES: usize = 16;
const WORDS: u64 = 300;

/// Adds to the count of a key that isn't 0.
fn add(parts: &[Remote<Local>], key: u64, count: u64) -> Result<(), tagmatch::Error> {
    let place = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0);
    let part = &parts[place % parts.len()];
    for probe in 0..ENTRIES {
        let entry = ((place + probe) % ENTRIES * ENTRY_BYTES) as u64;
        // A free entry becomes the key's. The old value tells which key the entry belongs to.
        let [free, key] = [0, key].map(u64::to_ne_bytes);
        let old = part.compare_swap(entry, AtomicType::U64, &free, &key).wait()?;
        if old.data() == free || old.data() == key {
            let count = count.to_ne_bytes().to_vec();
            part.atomic(entry + 8, AtomicOp::Sum, AtomicType::U64, count).wait()?;
            return Ok(());
        }
    }
    panic!("the part is full");
}

fn node(known: &Mutex<Vec<(Address, Token)>>, all: &Barrier) -> Result<u64, tagmatch::Error> {
    // The owner of a part makes progress by a thread, so that others reach the part at any time.
    let owner = SharedWorker::new(Config::default())?;
    let own = owner.expose_region(vec![0; ENTRIES * ENTRY_BYTES], Rights::ATOMIC)?;
    let _progress = owner.progress_thread().expect("a thread");
    known.lock().unwrap().push((owner.address(), own.token()));
    all.wait();

    let worker = Worker::new(Config::default())?;
    let attach =
        |(address, token): &(Address, Token)| worker.attach(worker.connect(address)?, token);
    let parts: Result<Vec<_>, _> = known.lock().unwrap().iter().map(attach).collect();
    let parts = parts?;
    for key in 1..=WORDS {
        add(&parts, key, 1)?;
    }
    all.wait();
    let mut total = 0;
    for part in &parts {
        let entries = part.fetch_elements(0, AtomicType::U64, 2 * ENTRIES).wait()?;
        let counts = entries.data().chunks_exact(8).skip(1).step_by(2);
        total += counts.map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).sum::<u64>();
    }
    all.wait(); // Nobody leaves before all have read.
    Ok(total)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let known = Mutex::new(Vec::new());
    let all = Barrier::new(NODES);
    thread::scope(|scope| {
        let nodes = [(); NODES].map(|()| scope.spawn(|| node(&known, &all)));
        for node in nodes {
            let total = node.join().expect("a node")?;
            println!("a node counts {total}");
            assert_eq!(total, NODES as u64 * WORDS);
        }
        Ok(())
    })
}
