//! Two connected workers, for the tests that need both ends.

use std::time::{Duration, Instant};

use tagmatch::{Config, Match, Peer, Request, Status, Worker};

use crate::common::{config, counterpart};

/// Two connected workers that one thread drives.
pub(crate) struct Pair {
    pub(crate) a: Worker,
    pub(crate) b: Worker,
    /// The number of `b` in `a`.
    pub(crate) to_b: Peer,
    /// The number of `a` in `b`.
    pub(crate) to_a: Peer,
    _no_bugs: NoBugs,
}

/// Asserts at a test's end that no worker has met a state that can't be.
struct NoBugs;

impl Drop for NoBugs {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || tagmatch_device::bugs() == 0, "a bug was counted");
    }
}

/// How many messages found a posted receive, in software or in a NIC. A device that matches by
/// itself doesn't tell: for it, all received messages count.
pub(crate) fn posted(worker: &Worker) -> u64 {
    let counters = worker.counters();
    counters.posted + counters.hardware + counters.by_device
}

pub(crate) fn pair() -> Pair {
    pair_with(&config())
}

pub(crate) fn pair_with(config: &Config) -> Pair {
    let a = Worker::new(config.clone()).unwrap();
    let b = Worker::new(counterpart(config)).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let pair = Pair::new([a, b], to_b, to_a);
    let hello = pair.b.recv(Match::any(), vec![0; 1]);
    pair.a.inject(to_b, 0, &[]).unwrap();
    pair.ok(hello);
    pair
}

impl Pair {
    pub(crate) fn new([a, b]: [Worker; 2], to_b: Peer, to_a: Peer) -> Self {
        Pair { a, b, to_b, to_a, _no_bugs: NoBugs }
    }

    pub(crate) fn progress(&self) {
        self.a.progress();
        self.b.progress();
    }

    /// Drives both until the request is over.
    pub(crate) fn end<T: tagmatch::Output>(
        &self,
        mut request: Request<T>,
    ) -> Result<T, tagmatch::Failed> {
        let start = Instant::now();
        loop {
            self.progress();
            if let Some(result) = request.test() {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
    }

    pub(crate) fn ok<T: tagmatch::Output>(&self, request: Request<T>) -> T {
        self.end(request).unwrap()
    }

    /// Drives both until everything that `a` has sent to `b` has arrived. A last message tells,
    /// which overtakes none.
    pub(crate) fn all_arrive(&self) {
        const LAST: u64 = 0xffff;
        self.a.inject(self.to_b, LAST, &[]).unwrap();
        self.probe(Match::tag(LAST));
        self.ok(self.b.recv(Match::tag(LAST), vec![]));
    }

    /// Drives both until a probe of `b` finds a message.
    pub(crate) fn probe(&self, which: Match) -> Status {
        loop {
            self.progress();
            if let Some(status) = self.b.probe(which).unwrap() {
                return status;
            }
        }
    }
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + length) as u8).collect()
}

/// Lengths around the bounds of a slot and of an eager message, and beyond.
pub(crate) const SIZES: [usize; 13] =
    [0, 1, 8, 36, 40, 41, 64, 1000, 8192, 8193, 100_000, 1 << 20, 5_000_001];
