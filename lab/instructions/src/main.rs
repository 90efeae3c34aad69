//! The short ways of a message of 8 bytes between two workers of one thread, for `ci/test
//! instructions`, which counts their instructions.
//!
//! `tagmatch-instructions WAY ROUNDS` goes one way so many times and prints the number of messages.
//! One thread has both workers, so each message is there when its receiver looks: every run
//! executes the same instructions, but for the seeds of hashes.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use tagmatch::{Buffer, Config, End, Match, Peer, QueuedSend, Received, Request, Worker};

const TAG: u64 = 7;
/// Messages that are under way at a time.
const WINDOW: usize = 64;

/// Two workers, and how each names the other.
struct CountedPair {
    left: Worker,
    right: Worker,
    left_peer: Peer,
    right_peer: Peer,
}

impl CountedPair {
    fn new() -> Result<Self, tagmatch::Error> {
        let left = Worker::new(Config::default())?;
        let right = Worker::new(Config::default())?;
        let right_peer = left.connect(&right.address())?;
        let left_peer = right.connect(&left.address())?;
        let pair = CountedPair { left, right, left_peer, right_peer };
        // Both directions are connected before anything is counted. That takes the progress of
        // both workers.
        for (from, to, peer) in
            [(&pair.left, &pair.right, pair.right_peer), (&pair.right, &pair.left, pair.left_peer)]
        {
            let mut received = to.recv(Match::tag(TAG), vec![0; 8]);
            from.inject(peer, TAG, &[0; 8])?;
            while received.test().is_none() {
                from.progress();
                to.progress();
            }
        }
        Ok(pair)
    }

    /// Half a round trip each way: a posted receive takes an injected message.
    fn ping_pong(&self) -> Result<usize, tagmatch::Error> {
        let mut bytes = [0; 8];
        self.left.inject(self.right_peer, TAG, &bytes)?;
        self.right.recv_blocking(Match::tag(TAG).from(self.left_peer), &mut bytes)?;
        self.right.inject(self.left_peer, TAG, &bytes)?;
        self.left.recv_blocking(Match::tag(TAG).from(self.right_peer), &mut bytes)?;
        Ok(2)
    }

    /// A window of injected messages, whose receives are posted one after the other.
    fn inject(&self) -> Result<usize, tagmatch::Error> {
        let mut bytes = [0; 8];
        for _ in 0..WINDOW {
            self.left.inject(self.right_peer, TAG, &bytes)?;
        }
        for _ in 0..WINDOW {
            self.right.recv_blocking(Match::tag(TAG).from(self.left_peer), &mut bytes)?;
        }
        Ok(WINDOW)
    }

    fn post(&self) -> Vec<Request<Received>> {
        let which = Match::tag(TAG).from(self.left_peer);
        (0..WINDOW).map(|_| self.right.recv(which, vec![0; 8])).collect()
    }

    /// A window of posted receives and of sends, which end by requests.
    fn window(&self) -> Result<usize, tagmatch::Error> {
        let receives = self.post();
        let sends: Vec<_> =
            (0..WINDOW).map(|_| self.left.send(self.right_peer, TAG, vec![0; 8])).collect();
        for receive in receives {
            receive.wait()?;
        }
        for send in sends {
            send.wait()?;
        }
        Ok(WINDOW)
    }

    /// A window of posted receives and of sends, which end in the completion queue.
    fn queue(&self) -> Result<usize, Box<dyn Error>> {
        for context in 0..WINDOW as u64 {
            let which = Match::tag(TAG).from(self.left_peer);
            self.right.recv_queued(which, vec![0; 8], context)?;
        }
        for context in 0..WINDOW as u64 {
            let buffer = Buffer::from(vec![0; 8]);
            match self.left.send_queued(self.right_peer, TAG, buffer, context)? {
                QueuedSend::Complete(_) => {}
                QueuedSend::UnderWay(_) => return Err("a short send is not complete".into()),
            }
        }
        let mut ends = Vec::new();
        let mut received = 0;
        while received < WINDOW {
            self.right.ends_blocking(&mut ends, WINDOW);
            for end in ends.drain(..) {
                if let End::Operation { result, .. } = end {
                    result?;
                    received += 1;
                }
            }
        }
        Ok(WINDOW)
    }

    /// A window of messages that wait before their receives are posted.
    fn unexpected(&self) -> Result<usize, tagmatch::Error> {
        for _ in 0..WINDOW {
            self.left.inject(self.right_peer, TAG, &[0; 8])?;
        }
        while self.right.progress() > 0 {}
        for receive in self.post() {
            receive.wait()?;
        }
        Ok(WINDOW)
    }
}

fn run(way: &str, rounds: usize) -> Result<usize, Box<dyn Error>> {
    let pair = CountedPair::new()?;
    let mut messages = 0;
    for _ in 0..rounds {
        messages += match way {
            "ping-pong" => pair.ping_pong()?,
            "inject" => pair.inject()?,
            "window" => pair.window()?,
            "queue" => pair.queue()?,
            "unexpected" => pair.unexpected()?,
            _ => return Err(format!("no way {way}").into()),
        };
        // Credit comes back to the sender.
        pair.left.progress();
    }
    Ok(messages)
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let [way, rounds] = &words[..] else {
        eprintln!("usage: tagmatch-instructions WAY ROUNDS");
        return ExitCode::from(2);
    };
    match rounds.parse().map_err(Into::into).and_then(|rounds| run(way, rounds)) {
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
