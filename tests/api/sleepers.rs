//! Random programs of threads that sleep: whatever calls the threads of two workers block in, each
//! of them is woken. Without safety timers (`hw/os/src/safety.rs`), a lost wake-up ends the
//! process.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tagmatch::{End, Match, Peer, SharedWorker, WaitPolicy};
use tagmatch_testkit::random::Random;

use crate::common::{config, counterpart};

const PROGRAMS: u64 = 3;
/// The threads of a worker that receive. The last [`QUEUE_READERS`] take ends of the completion
/// queue, of receives with the tag [`QUEUED`]. Each other one has a tag of its own.
const RECEIVERS: u64 = 5;
const QUEUE_READERS: u64 = 2;
const QUEUED: u64 = RECEIVERS - QUEUE_READERS;
/// The messages that each of them receives in a phase.
const MESSAGES: u64 = 3;
const PHASES: u64 = 8;
/// The threads of a worker that send.
const SENDERS: usize = 2;
/// The first eight bytes are the message's number. The others are below and above the bounds of a
/// copied, an eager and a fragmented message.
const LENGTHS: [usize; 6] = [8, 40, 1000, 8193, 20_000, 150_000];
/// No message has this tag.
const SILENT: u64 = 99;
/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message that is to be sent.
#[derive(Clone, Copy)]
struct Order {
    /// The receiving worker.
    to: usize,
    tag: u64,
    number: u64,
}

#[derive(Clone)]
struct Program {
    workers: [SharedWorker; 2],
    /// The peers of each worker: the two workers, in the same order.
    peers: [[Peer; 2]; 2],
    /// The messages that have been received, and what is signalled for each.
    received: Arc<(Mutex<Vec<u64>>, Condvar)>,
    /// Whether the first worker has a progress thread.
    moves: bool,
}

impl Program {
    fn new(random: &mut Random) -> Self {
        let moves = random.chance(1, 2);
        let config = config();
        let workers = [config.clone(), counterpart(&config)].map(|config| {
            // A sender that polls takes part in the copy of a long message.
            let polls = random.pick(&[0, 0, 0, 100]);
            SharedWorker::new(config.wait(WaitPolicy::SLEEP.spin(polls))).unwrap()
        });
        let others = [0, 1].map(|own| workers[own].connect(&workers[1 - own].address()).unwrap());
        let peers = [[workers[0].oneself(), others[0]], [others[1], workers[1].oneself()]];
        Program { workers, peers, received: Arc::default(), moves }
    }

    fn send(&self, own: usize, order: Order, random: &mut Random) {
        let worker = &self.workers[own];
        let to = self.peers[own][order.to];
        // What receivers of the queue leave behind is a read, if there is one.
        let shortest = if order.tag == QUEUED { 3 } else { 0 };
        let length = random.pick(&LENGTHS[shortest..]);
        let mut bytes = vec![0; length];
        bytes[..8].copy_from_slice(&order.number.to_le_bytes());
        match random.below(4) {
            0 if length <= 40 => worker.inject(to, order.tag, &bytes).unwrap(),
            1 => drop(worker.send_sync(to, order.tag, bytes).wait().unwrap()),
            // It goes on after the drop.
            2 => {
                drop(worker.send(to, order.tag, bytes));
                if self.moves && own == 0 {
                    self.wait_for(order.number);
                }
            }
            _ => drop(worker.send(to, order.tag, bytes).wait().unwrap()),
        }
        match random.below(4) {
            0 => thread::sleep(Duration::from_micros(random.below(1500))),
            1 => thread::yield_now(),
            _ => {}
        }
    }

    /// Receives a message of a tag, in one of the ways to wait for it.
    /// Gives how many it has received.
    fn receive(&self, own: usize, tag: u64, is_last: bool, random: &mut Random) -> u64 {
        let worker = &self.workers[own];
        let post = |tag| worker.recv(Match::tag(tag), vec![0; 150_000]);
        let bytes = match random.below(6) {
            0 => post(tag).wait().unwrap().data().to_vec(),
            1 => {
                let mut receive = post(tag);
                // An interrupt may end the call.
                let result = std::iter::repeat_with(|| receive.wait_timeout(Duration::MAX));
                result.flatten().next().unwrap().unwrap().data().to_vec()
            }
            2 => {
                let mut receives = [post(SILENT), post(tag)];
                assert_eq!(worker.wait_any(&receives), Some(1));
                receives[1].test().unwrap().unwrap().data().to_vec()
            }
            3 => {
                let message = worker.mprobe_blocking(Match::tag(tag)).unwrap();
                message.recv_whole().wait().unwrap().data().to_vec()
            }
            4 if !is_last => {
                let mut receives = [(); 2].map(|()| post(tag));
                for _ in 0..2 {
                    let place = worker.wait_any(&receives).expect("both were posted");
                    let received = receives[place].test().expect("it has ended").unwrap();
                    self.note(received.data());
                }
                return 2;
            }
            _ => worker.block_on(post(tag)).unwrap().unwrap().data().to_vec(),
        };
        self.note(&bytes);
        1
    }

    /// Posts a receive whose end the completion queue tells.
    fn post_queued(&self, own: usize) {
        let worker = &self.workers[own];
        worker.recv_queued(Match::tag(QUEUED), vec![0; 150_000], 0).unwrap();
    }

    /// Posts receives, and makes no progress: the threads that take their ends have to. When it
    /// posts the last one, all of them sleep, on most runs.
    fn post_for_others(&self, own: usize, random: &mut Random) {
        for left in (0..QUEUE_READERS * MESSAGES).rev() {
            let pause = if left > 0 { random.below(3000) } else { 10_000 };
            thread::sleep(Duration::from_micros(pause));
            self.post_queued(own);
        }
    }

    /// Takes an end of a queued receive, which may be one of another thread.
    fn take_end(&self, own: usize, random: &mut Random) {
        let worker = &self.workers[own];
        let mut ends = Vec::new();
        loop {
            if random.chance(1, 2) {
                worker.ends_blocking(&mut ends, 1);
            } else {
                worker.ends_timeout(&mut ends, 1, Duration::MAX);
            }
            if let Some(End::Operation { result, buffer, .. }) = ends.pop() {
                result.unwrap();
                return self.note(buffer.as_ref());
            }
        }
    }

    fn note(&self, bytes: &[u8]) {
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        self.received.0.lock().unwrap().push(number);
        self.received.1.notify_all();
    }

    /// Waits for a message to be received, in no call of a worker: the progress thread has to do
    /// what this thread's send has left.
    fn wait_for(&self, number: u64) {
        let received = self.received.0.lock().unwrap();
        let is_missing = |received: &mut Vec<u64>| !received.contains(&number);
        let waited = self.received.1.wait_timeout_while(received, PATIENCE, is_missing);
        assert!(!waited.unwrap().1.timed_out(), "message {number} does not arrive");
    }
}

/// Runs a program in phases. A wake-up that is lost at the end of a phase is not made good by what
/// comes later.
fn run(seed: u64) {
    let mut random = Random::new(seed);
    let program = Program::new(&mut random);
    let _moves = program.moves.then(|| program.workers[0].progress_thread().unwrap());
    for phase in 0..PHASES {
        program.run_phase(&mut Random::stream(seed, phase));
        let mut received = std::mem::take(&mut *program.received.0.lock().unwrap());
        received.sort_unstable();
        let total = received.len() as u64;
        assert_eq!(total, 2 * RECEIVERS * MESSAGES, "seed {seed}, phase {phase}");
        assert_eq!(received, (0..total).collect::<Vec<_>>(), "seed {seed}, phase {phase}");
    }
}

impl Program {
    fn run_phase(&self, random: &mut Random) {
        let mut orders = Vec::new();
        let receivers = || (0..2).flat_map(|own| (0..RECEIVERS).map(move |at| (own, at)));
        for (to, at) in receivers() {
            let first = orders.len() as u64;
            let tag = at.min(QUEUED);
            orders.extend((first..first + MESSAGES).map(|number| Order { to, tag, number }));
        }
        random.shuffle(&mut orders);
        let of_each = orders.len().div_ceil(2 * SENDERS);
        // A worker that only sends to itself has no event of its device.
        let is_alone = random.chance(1, 2);
        let is_posted_for = random.chance(1, 2);
        // An interrupt may end a flush.
        let flush = |own: usize| while self.workers[own].flush(PATIENCE).is_err() {};
        thread::scope(|threads| {
            for (at, orders) in orders.chunks(of_each).enumerate() {
                let mut random = Random::new(random.bits());
                threads.spawn(move || {
                    for order in orders {
                        let own = if is_alone { order.to } else { at % 2 };
                        self.send(own, *order, &mut random);
                    }
                    (0..2).for_each(flush);
                });
            }
            for (own, at) in receivers() {
                let mut random = Random::new(random.bits());
                threads.spawn(move || {
                    let mut left = MESSAGES;
                    while left > 0 {
                        left -= if at < QUEUED {
                            self.receive(own, at, left == 1, &mut random)
                        } else {
                            if !is_posted_for {
                                self.post_queued(own);
                            }
                            self.take_end(own, &mut random);
                            1
                        };
                    }
                    // Acknowledgements of the last receives leave with somebody's progress.
                    flush(own);
                });
            }
            for own in (0..2).filter(|_| is_posted_for) {
                let mut random = Random::new(random.bits());
                threads.spawn(move || self.post_for_others(own, &mut random));
            }
            let interrupters = self.workers.each_ref().map(|worker| worker.interrupter());
            for _ in 0..3 {
                thread::sleep(Duration::from_micros(random.below(2000)));
                interrupters[random.index(2)].interrupt();
            }
        });
    }
}

#[test]
fn an_interrupt_that_comes_at_any_moment_ends_a_call() {
    const INTERRUPTS: u64 = 300;
    let worker = SharedWorker::new(config().wait(WaitPolicy::SLEEP)).unwrap();
    let interrupter = worker.interrupter();
    let (tell, told) = channel();
    let waits = thread::spawn(move || {
        let mut receive = worker.recv(Match::tag(SILENT), vec![0; 8]);
        for _ in 0..INTERRUPTS {
            // Not for ever, so that a lost interrupt fails the test.
            assert!(receive.wait_timeout(2 * PATIENCE).is_none());
            tell.send(()).unwrap();
        }
    });
    let mut random = Random::new(1);
    for _ in 0..INTERRUPTS {
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
        interrupter.interrupt();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "an interrupt was lost");
    }
    waits.join().unwrap();
}

#[test]
fn every_thread_that_sleeps_is_woken() {
    for seed in 0..PROGRAMS {
        let (running, ended) = channel::<()>();
        let program = thread::spawn(move || {
            let _running = running;
            run(seed);
        });
        // Nothing is sent: the end of the thread closes the channel.
        let is_over = ended.recv_timeout(PATIENCE);
        assert_eq!(is_over, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "seed {seed}");
        program.join().unwrap();
    }
}
