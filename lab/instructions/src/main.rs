//! The short ways of a message between two workers of one thread, for `ci/test instructions`, which
//! counts their instructions.
//!
//! `tagmatch-instructions WAY ROUNDS` goes one way so many times and prints the number of messages.
//! Only the function that the table names is to be counted (`--toggle-collect` of callgrind). One
//! thread has both workers, so each message is there when its receiver looks: every run
//! executes the same instructions, but for the seeds of hashes.
//!
//! | way | messages | functions |
//! |---|---|---|
//! | `half-8`, `half-64` | half a round trip of so many bytes | `both_sides` |
//! | `sender`, `receiver` | windows of 512 messages of 8 bytes, as `ci/peers` has them at most | those whose names begin so |
//! | `blocking` | half a round trip of 8 bytes into a borrowed slice | `both_sides` |
//! | `window`, `queue`, `unexpected` | windows of 64 messages of 8 bytes | `both_sides` |
//! | `provider` | the same, between two endpoints of the provider | `both_sides` |

mod provider;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use tagmatch::{Buffer, Config, End, Match, Peer, QueuedSend, Received, Request, Worker};

use crate::provider::ProviderPair;

const TAG: u64 = 7;
/// Messages that are under way at a time.
const WINDOW: usize = 64;
/// The same where one side is counted: the largest windows of `ci/peers`. So many equal receives
/// don't share a lane of the posted list.
const WINDOW_MAX: usize = 512;

/// A worker, and how it names the other one.
struct CountedEnd {
    worker: Worker,
    peer: Peer,
    /// Buffers that are used again, so that no allocation is counted.
    spare: Vec<Buffer>,
    ends: Vec<End>,
}

impl CountedEnd {
    #[inline(always)]
    fn inject(&self, payload: &[u8]) -> Result<(), tagmatch::Error> {
        self.worker.inject(self.peer, TAG, payload)
    }

    #[inline]
    fn which(&self) -> Match {
        Match::tag(TAG).from(self.peer)
    }

    /// Posts a receive, and tests it until it has ended.
    fn recv(&mut self, length: usize) -> Result<(), Box<dyn Error>> {
        let buffer = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(length));
        let mut receive = self.worker.recv(self.which(), buffer);
        loop {
            if let Some(received) = receive.test() {
                self.spare.push(received?.buffer);
                return Ok(());
            }
        }
    }

    fn recv_blocking(&self) -> Result<(), tagmatch::Error> {
        self.worker.recv_blocking(self.which(), &mut [0; 8]).map(drop)
    }

    fn post_window(&self) -> Vec<Request<Received>> {
        (0..WINDOW).map(|_| self.worker.recv(self.which(), vec![0; 8])).collect()
    }

    /// Posts a window of receives, which end in the completion queue.
    fn queue_window(&mut self, window: usize) -> Result<(), Box<dyn Error>> {
        for context in 0..window as u64 {
            let buffer = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(8));
            self.worker.recv_queued(self.which(), buffer, context)?;
        }
        Ok(())
    }

    /// Takes the ends of a window of receives out of the completion queue.
    fn take_window(&mut self, window: usize) -> Result<(), Box<dyn Error>> {
        let mut received = 0;
        while received < window {
            self.worker.ends(&mut self.ends, WINDOW);
            for end in self.ends.drain(..) {
                if let End::Operation { result, buffer, .. } = end {
                    result?;
                    self.spare.push(buffer);
                    received += 1;
                }
            }
        }
        Ok(())
    }
}

/// What the sender of a window does. Counted by its name.
#[inline(never)]
fn sender_injects(sender: &CountedEnd) -> Result<(), tagmatch::Error> {
    for _ in 0..WINDOW_MAX {
        sender.inject(&[0; 8])?;
    }
    Ok(())
}

/// What the receiver of a window does first. Counted by its name.
#[inline(never)]
fn receiver_posts(receiver: &mut CountedEnd) -> Result<(), Box<dyn Error>> {
    receiver.queue_window(WINDOW_MAX)
}

/// What the receiver of a window does once the messages are there. Counted by its name.
#[inline(never)]
fn receiver_takes(receiver: &mut CountedEnd) -> Result<(), Box<dyn Error>> {
    receiver.take_window(WINDOW_MAX)
}

struct CountedPair {
    left: CountedEnd,
    right: CountedEnd,
}

impl CountedPair {
    fn new() -> Result<Self, tagmatch::Error> {
        let left = Worker::new(Config::default())?;
        let right = Worker::new(Config::default())?;
        let right_peer = left.connect(&right.address())?;
        let left_peer = right.connect(&left.address())?;
        let of = |worker, peer| CountedEnd { worker, peer, spare: Vec::new(), ends: Vec::new() };
        let pair = CountedPair { left: of(left, right_peer), right: of(right, left_peer) };
        // Both directions are connected before anything is counted. That takes the progress of
        // both workers.
        for (from, to) in [(&pair.left, &pair.right), (&pair.right, &pair.left)] {
            let mut received = to.worker.recv(Match::tag(TAG), vec![0; 8]);
            from.inject(&[0; 8])?;
            while received.test().is_none() {
                from.worker.progress();
                to.worker.progress();
            }
        }
        Ok(pair)
    }

    /// Half a round trip each way: a posted receive takes an injected message.
    fn half<const LENGTH: usize>(&mut self) -> Result<usize, Box<dyn Error>> {
        self.left.inject(&[0; LENGTH])?;
        self.right.recv(LENGTH)?;
        self.right.inject(&[0; LENGTH])?;
        self.left.recv(LENGTH)?;
        Ok(2)
    }

    /// As [`CountedPair::half`], into borrowed slices.
    fn blocking(&mut self) -> Result<usize, Box<dyn Error>> {
        self.left.inject(&[0; 8])?;
        self.right.recv_blocking()?;
        self.right.inject(&[0; 8])?;
        self.left.recv_blocking()?;
        Ok(2)
    }

    /// A window of messages from one worker to the other, whose sides are counted apart.
    fn one_side(&mut self) -> Result<usize, Box<dyn Error>> {
        receiver_posts(&mut self.right)?;
        sender_injects(&self.left)?;
        receiver_takes(&mut self.right)?;
        self.left.worker.progress();
        Ok(WINDOW_MAX)
    }

    /// A window of posted receives and of sends, which end by requests.
    fn window(&mut self) -> Result<usize, Box<dyn Error>> {
        let receives = self.right.post_window();
        let send = |_| self.left.worker.send(self.left.peer, TAG, vec![0; 8]);
        let sends: Vec<_> = (0..WINDOW).map(send).collect();
        for receive in receives {
            receive.wait()?;
        }
        for send in sends {
            send.wait()?;
        }
        self.left.worker.progress();
        Ok(WINDOW)
    }

    /// A window of posted receives and of sends, which end in the completion queue.
    fn queue(&mut self) -> Result<usize, Box<dyn Error>> {
        self.right.queue_window(WINDOW)?;
        for context in 0..WINDOW as u64 {
            let buffer = Buffer::from(vec![0; 8]);
            match self.left.worker.send_queued(self.left.peer, TAG, buffer, context)? {
                QueuedSend::Complete(_) => {}
                QueuedSend::UnderWay(_) => return Err("a short send is not complete".into()),
            }
        }
        self.right.take_window(WINDOW)?;
        self.left.worker.progress();
        Ok(WINDOW)
    }

    /// A window of messages that wait before their receives are posted.
    fn unexpected(&mut self) -> Result<usize, Box<dyn Error>> {
        for _ in 0..WINDOW {
            self.left.inject(&[0; 8])?;
        }
        while self.right.worker.progress() > 0 {}
        for receive in self.right.post_window() {
            receive.wait()?;
        }
        self.left.worker.progress();
        Ok(WINDOW)
    }
}

/// One round of a way; gives its number of messages.
type Round = fn(&mut CountedPair) -> Result<usize, Box<dyn Error>>;

fn round_of(way: &str) -> Option<Round> {
    Some(match way {
        "half-8" => CountedPair::half::<8>,
        "half-64" => CountedPair::half::<64>,
        "sender" | "receiver" => CountedPair::one_side,
        "blocking" => CountedPair::blocking,
        "window" => CountedPair::window,
        "queue" => CountedPair::queue,
        "unexpected" => CountedPair::unexpected,
        _ => return None,
    })
}

/// Both sides of a way. Counted by its name.
#[inline(never)]
fn both_sides<P>(
    pair: &mut P,
    round: impl Fn(&mut P) -> Result<usize, Box<dyn Error>>,
    rounds: usize,
) -> Result<usize, Box<dyn Error>> {
    let mut messages = 0;
    for _ in 0..rounds {
        messages += round(pair)?;
    }
    Ok(messages)
}

fn run(way: &str, rounds: &str) -> Result<usize, Box<dyn Error>> {
    let rounds = rounds.parse()?;
    if way == "provider" {
        return both_sides(&mut ProviderPair::new(), |pair| Ok(pair.window(WINDOW)), rounds);
    }
    let round = round_of(way).ok_or_else(|| format!("no way {way}"))?;
    both_sides(&mut CountedPair::new()?, round, rounds)
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let [way, rounds] = &words[..] else {
        eprintln!("usage: tagmatch-instructions WAY ROUNDS");
        return ExitCode::from(2);
    };
    match run(way, rounds) {
        Ok(messages) => {
            println!("{messages}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tagmatch-instructions: {error}");
            ExitCode::FAILURE
        }
    }
}
