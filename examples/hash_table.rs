//! A distributed hash table that counts, without a receive anywhere: each node exposes a part of the
//! table, and all nodes change all parts by atomic operations. The nodes are threads here; processes
//! differ only in how they tell each other their addresses and tokens.
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

/// The table, as a node sees it.
struct Table {
    parts: Vec<Remote<Local>>,
}

impl Table {
    /// Adds to the count of a key that isn't 0.
    fn add(&self, key: u64, count: u64) -> Result<(), tagmatch::Error> {
        let place = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0);
        let part = &self.parts[place % NODES];
        for probe in 0..ENTRIES {
            let entry = ((place + probe) % ENTRIES * ENTRY_BYTES) as u64;
            // The entry becomes ours if it is free: what it was tells whose it is.
            let swap = [0u64.to_ne_bytes(), key.to_ne_bytes()].concat();
            let old = part.fetch(entry, AtomicOp::CompareSwap, AtomicType::U64, swap).wait()?;
            if [0u64.to_ne_bytes(), key.to_ne_bytes()].iter().any(|of| old.data() == of) {
                let count = count.to_ne_bytes().to_vec();
                part.atomic(entry + 8, AtomicOp::Sum, AtomicType::U64, count).wait()?;
                return Ok(());
            }
        }
        panic!("the part is full");
    }

    /// The sum of all counts.
    fn total(&self) -> Result<u64, tagmatch::Error> {
        let mut total = 0;
        for part in &self.parts {
            let entries = part.fetch_elements(0, AtomicType::U64, 2 * ENTRIES).wait()?;
            let counts = entries.data().chunks_exact(8).skip(1).step_by(2);
            total += counts.map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).sum::<u64>();
        }
        Ok(total)
    }
}

fn node(parts: &Mutex<Vec<(Address, Token)>>, together: &Barrier) -> Result<u64, tagmatch::Error> {
    // The owner of a part makes progress by a thread, so that others reach the part at any time.
    let owner = SharedWorker::new(Config::default())?;
    let part = vec![0; ENTRIES * ENTRY_BYTES];
    let part = owner.expose_region(part, Rights::ATOMIC)?;
    let progress = owner.progress_thread().expect("a thread");
    parts.lock().unwrap().push((owner.address(), part.token()));
    together.wait();

    let worker = Worker::new(Config::default())?;
    let mut table = Table { parts: Vec::new() };
    for (address, token) in parts.lock().unwrap().iter() {
        let peer = worker.connect(address)?;
        table.parts.push(worker.attach(peer, token)?);
    }
    for key in 1..=WORDS {
        table.add(key, 1)?;
    }
    together.wait();
    let total = table.total()?;
    together.wait(); // Nobody leaves before all have read.
    drop(progress);
    Ok(total)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let parts = Mutex::new(Vec::new());
    let together = Barrier::new(NODES);
    let totals: Vec<_> = thread::scope(|scope| {
        let nodes: Vec<_> = (0..NODES).map(|_| scope.spawn(|| node(&parts, &together))).collect();
        nodes.into_iter().map(|node| node.join().expect("a node")).collect()
    });
    for total in totals {
        let total = total?;
        println!("a node counts {total}");
        assert_eq!(total, NODES as u64 * WORDS);
    }
    Ok(())
}
