//! Random use of two workers whose network carries each request some time after it was posted, and
//! whose memory can't be registered now and then.

mod scripted;

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::thread;
use std::time::{Duration, Instant};

use tagmatch_device::{Device, Flush, PeerId, Refused};
use tagmatch_testkit::device::{Owned, PATIENCE, message, poll, up};
use tagmatch_testkit::random::Random;
use tagmatch_verbs::{Verbs, VerbsConfig};

use scripted::{Card, carry_one, config, install, run_out_of_memory, slow_down};

const SEEDS: u64 = 60;
const STEPS: usize = 300;
/// Bytes of the longest message. Some are too long for a request, and lie in a send buffer.
const MESSAGE_MAX: u32 = 512;
const KEEPALIVE: Duration = Duration::from_millis(1);
/// A worker reads the clock in one of them at least.
const POLLS: usize = 600;

/// One of the workers, and what it exchanges with the other one.
struct Worker {
    device: Verbs,
    peer: Option<PeerId>,
    /// The messages that have not arrived at the other worker.
    under_way: VecDeque<Vec<u8>>,
    /// How many messages this worker has sent.
    sent: usize,
    /// The flushes of this worker that have not ended, each with the messages sent before it.
    flushes: Vec<(Option<u64>, usize)>,
}

struct Pair {
    random: Random,
    workers: [Worker; 2],
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, 0);
        install(&[Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 0)]);
        slow_down(true);
        let workers = ["a", "b"].map(|name| {
            let device = up(Verbs::new(settings(name, &mut random)).unwrap());
            let under_way = VecDeque::new();
            Worker { device, peer: None, under_way, sent: 0, flushes: Vec::new() }
        });
        Pair { random, workers }
    }

    /// Takes the next event of a worker. `false`: there is none.
    fn poll(&mut self, at: usize) -> bool {
        let peer = self.workers[at].peer;
        match poll(&mut self.workers[at].device) {
            None => return false,
            Some(Owned::Up(peer, _)) => {
                assert!(self.workers[at].peer.replace(peer).is_none(), "up a second time");
            }
            Some(Owned::Message(from, None, bytes)) => {
                let expected = self.workers[1 - at].under_way.pop_front();
                assert_eq!((Some(from), Some(bytes)), (peer, expected));
            }
            Some(other) => panic!("{other:?}"),
        }
        true
    }

    /// Carries a request, if there is one.
    fn carry(&mut self) -> bool {
        carry_one(|count| self.random.index(count))
    }

    fn send(&mut self, at: usize) {
        let length = self.random.index(MESSAGE_MAX as usize + 1);
        let bytes: Vec<u8> = (0..length).map(|_| self.random.bits().to_le_bytes()[0]).collect();
        let worker = &mut self.workers[at];
        let Some(peer) = worker.peer else { return };
        match worker.device.send(peer, message(&bytes)) {
            Ok(()) => {
                worker.under_way.push_back(bytes);
                worker.sent += 1;
            }
            Err(Refused::Full) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Asks how the flushes of a worker stand. The messages before one that has ended are at the
    /// other worker, though the network carries nothing more.
    fn look_at_flushes(&mut self, at: usize) {
        let Some(peer) = self.workers[at].peer else { return };
        for mut flush in std::mem::take(&mut self.workers[at].flushes) {
            if self.workers[at].device.flush(peer, &mut flush.0) != Flush::Done {
                self.workers[at].flushes.push(flush);
                continue;
            }
            let has_arrived = |pair: &Self| {
                let worker = &pair.workers[at];
                worker.sent - worker.under_way.len() >= flush.1
            };
            for _ in 0..POLLS {
                if !has_arrived(self) {
                    self.poll(1 - at);
                }
            }
            assert!(has_arrived(self), "flushed messages are not there");
        }
    }

    fn step(&mut self) {
        let at = self.random.index(2);
        match self.random.below(100) {
            0..35 => {
                self.poll(at);
            }
            35..60 => {
                self.carry();
            }
            60..85 => self.send(at),
            85..90 => {
                let sent = self.workers[at].sent;
                self.workers[at].flushes.push((None, sent));
                self.look_at_flushes(at);
            }
            90..96 => self.look_at_flushes(at),
            96..98 => self.rest(at),
            _ => run_out_of_memory(self.random.chance(1, 2)),
        }
    }

    /// A worker has nothing to do for so long that it gives back the credits that it doesn't use.
    fn rest(&mut self, at: usize) {
        thread::sleep(2 * KEEPALIVE);
        for _ in 0..POLLS {
            self.poll(at);
        }
    }

    /// Everything that was sent arrives, and all flushes end.
    fn settle(&mut self) {
        let start = Instant::now();
        let is_over = |worker: &Worker| worker.under_way.is_empty() && worker.flushes.is_empty();
        while !self.workers.iter().all(is_over) {
            assert!(start.elapsed() < PATIENCE, "messages are missing, or flushes do not end");
            while self.carry() {}
            for at in [0, 1] {
                while self.poll(at) {}
                self.look_at_flushes(at);
            }
        }
    }
}

fn settings(name: &str, random: &mut Random) -> VerbsConfig {
    config(name)
        .message_max(MESSAGE_MAX)
        .keepalive(KEEPALIVE)
        .queue_depth(random.pick(&[16, 17, 42]))
        .send_buffers(random.pick(&[1, 2, 64]))
        .receive_buffers(random.pick(&[0, 3, 64]))
        .window_max(random.pick(&[1, 2, 5, 64]))
        .inline_max(Some(random.pick(&[0, 188])))
}

fn run(seed: u64) {
    let mut pair = Pair::new(seed);
    let address = pair.workers[1].device.address();
    pair.workers[0].device.connect(&address).unwrap();
    let start = Instant::now();
    while pair.workers.iter().any(|worker| worker.peer.is_none()) {
        assert!(start.elapsed() < PATIENCE, "no connection");
        pair.carry();
        for at in [0, 1] {
            pair.poll(at);
        }
    }
    (0..STEPS).for_each(|_| pair.step());
    pair.settle();
    slow_down(false);
    while pair.carry() {}
    // A worker that is dropped looks at its books.
}

/// Messages arrive whole, once and in order, and no connection ends. What was flushed is at the
/// other worker, and each flush ends.
#[test]
fn what_workers_promise_holds_over_a_network_that_takes_its_time() {
    for seed in 0..SEEDS {
        let done = catch_unwind(|| run(seed));
        assert!(done.is_ok(), "seed {seed}");
    }
}
