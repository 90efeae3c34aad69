//! Random programs: whatever two senders and a receiver do, each message is received once, whole,
//! and in MPI's order (MPI-4.1, section 3.5).

use std::time::{Duration, Instant};

use tagmatch::{Failed, Match, Peer, Received, Request, Sent, Worker};
use tagmatch_testkit::random::Random;

use crate::common::{config, counterpart};

/// The messages that a program sends.
const MESSAGES: usize = 80;
/// Fewer than the messages behind which some providers of libfabric read nothing more of a peer.
const WAITING_MAX: usize = 40;
/// The first bytes are the message's number. The others are below and above the bounds of a copied,
/// an eager and a piecewise message.
const LENGTHS: [usize; 8] = [8, 40, 64, 1000, 8192, 8193, 20_000, 150_000];

/// A receive, or a matched probe, in the order of the calls.
struct PostedReceive {
    tag: Option<u64>,
    source: Option<usize>,
    /// The sender, the number and the tag of the message that it got, and the step at which that
    /// was seen.
    got: Option<(usize, u64, u64, u32)>,
    /// The step at which it was cancelled.
    cancelled: Option<u32>,
}

impl PostedReceive {
    fn accepts(&self, source: usize, tag: u64) -> bool {
        self.tag.is_none_or(|wanted| wanted == tag) && self.source.is_none_or(|from| from == source)
    }
}

struct Program {
    random: Random,
    receiver: Worker,
    senders: [Worker; 2],
    /// The receiver's number in each sender, and the senders' in the receiver.
    to: [Peer; 2],
    from: [Peer; 2],
    /// The tags and lengths of the messages that each sender has sent, and the sends under way.
    messages: [Vec<(u64, usize)>; 2],
    sends: Vec<Request<Sent>>,
    asked: Vec<PostedReceive>,
    waiting: Vec<(usize, Request<Received>)>,
    step: u32,
}

fn payload(number: u64, length: usize) -> Vec<u8> {
    let rest = (8..length).map(|at| (at as u64 * 7 + number) as u8);
    number.to_le_bytes().into_iter().chain(rest).collect()
}

impl Program {
    fn new(seed: u64) -> Self {
        let receiver = Worker::new(counterpart(&config())).unwrap();
        let senders = [(); 2].map(|()| Worker::new(config()).unwrap());
        let to = [0, 1].map(|at: usize| senders[at].connect(&receiver.address()).unwrap());
        let from = [0, 1].map(|at: usize| receiver.connect(&senders[at].address()).unwrap());
        Program {
            random: Random::new(seed),
            receiver,
            senders,
            to,
            from,
            messages: [Vec::new(), Vec::new()],
            sends: Vec::new(),
            asked: Vec::new(),
            waiting: Vec::new(),
            step: 0,
        }
    }

    fn progress(&mut self) {
        self.senders.iter().for_each(|sender| _ = sender.progress());
        self.receiver.progress();
        self.sends.retain_mut(|send| send.test().map(Result::unwrap).is_none());
        let mut ended = Vec::new();
        self.waiting.retain_mut(|(at, receive)| match receive.test() {
            Some(result) => {
                ended.push((*at, result));
                false
            }
            None => true,
        });
        for (at, result) in ended {
            self.received(at, &result.unwrap());
        }
    }

    fn received(&mut self, at: usize, received: &Received) {
        let bytes = received.data();
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let source = self.from.iter().position(|from| *from == received.status.source).unwrap();
        let (tag, length) = self.messages[source][number as usize];
        assert_eq!((received.status.tag.0, received.status.length), (tag, length));
        assert!(bytes == payload(number, length) && !received.status.truncated);
        let asked = &mut self.asked[at];
        assert!(asked.accepts(source, tag) && asked.got.is_none());
        asked.got = Some((source, number, tag, self.step));
    }

    fn sent(&self) -> usize {
        self.messages.iter().map(Vec::len).sum()
    }

    fn under_way(&self) -> usize {
        self.sent() - self.asked.iter().filter(|asked| asked.got.is_some()).count()
    }

    fn send(&mut self) {
        let at = self.random.index(2);
        let tag = 1 + self.random.below(3);
        let length = self.random.pick(&LENGTHS);
        let number = self.messages[at].len() as u64;
        self.messages[at].push((tag, length));
        let sender = &self.senders[at];
        let to = self.to[at];
        let bytes = payload(number, length);
        let send = match self.random.below(3) {
            0 if length <= 64 => return sender.inject(to, tag, &bytes).unwrap(),
            1 => sender.send_sync(to, tag, bytes),
            _ => sender.send(to, tag, bytes),
        };
        self.sends.push(send);
    }

    /// A pattern, and its place among the receives.
    fn ask(&mut self, is_any: bool) -> (Match, usize) {
        let tag = (!is_any && self.random.chance(2, 3)).then(|| 1 + self.random.below(3));
        let source = (!is_any && self.random.chance(1, 2)).then(|| self.random.index(2));
        let which = tag.map_or(Match::any(), Match::tag);
        let which = source.map_or(which, |at| which.from(self.from[at]));
        self.asked.push(PostedReceive { tag, source, got: None, cancelled: None });
        (which, self.asked.len() - 1)
    }

    fn receive(&mut self, is_any: bool) {
        let (which, at) = self.ask(is_any);
        self.waiting.push((at, self.receiver.recv(which, vec![0; 150_000])));
    }

    fn matched_probe(&mut self) {
        let (which, at) = self.ask(false);
        match self.receiver.mprobe(which).unwrap() {
            Some(message) => self.waiting.push((at, message.recv(vec![0; 150_000]))),
            None => _ = self.asked.pop(),
        }
    }

    fn cancel(&mut self, place: usize) {
        let (at, mut receive) = self.waiting.swap_remove(place);
        receive.cancel();
        let ended = loop {
            if let Some(ended) = receive.test() {
                break ended;
            }
            self.progress();
        };
        match ended {
            Ok(received) => self.received(at, &received),
            Err(Failed { error: tagmatch::Error::Cancelled, .. }) => {
                self.asked[at].cancelled = Some(self.step);
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn run(&mut self) {
        let start = Instant::now();
        while self.sent() < MESSAGES {
            self.step += 1;
            assert!(start.elapsed() < Duration::from_secs(20), "messages are missing");
            match self.random.below(10) {
                0..4 if self.under_way() < WAITING_MAX => self.send(),
                4..7 => self.receive(false),
                7 => self.matched_probe(),
                8 if !self.waiting.is_empty() && self.random.chance(1, 2) => {
                    let place = self.random.index(self.waiting.len());
                    self.cancel(place);
                }
                _ => self.progress(),
            }
        }
        while !self.waiting.is_empty() {
            self.step += 1;
            self.cancel(0);
        }
        let start = Instant::now();
        while self.under_way() > 0 || !self.sends.is_empty() {
            self.step += 1;
            if self.waiting.is_empty() && self.under_way() > 0 {
                self.receive(true);
            }
            self.progress();
            assert!(start.elapsed() < Duration::from_secs(20), "messages are missing");
        }
    }

    /// No two messages of a sender, and no two receives, have overtaken each other.
    fn check(&self) {
        for (first, earlier) in self.asked.iter().enumerate() {
            for later in &self.asked[first + 1..] {
                let Some((source, number, tag, seen)) = later.got else { continue };
                if !earlier.accepts(source, tag) {
                    continue;
                }
                let is_wrong = match (earlier.got, earlier.cancelled) {
                    (Some((other, its, ..)), _) => other == source && its > number,
                    (None, Some(cancelled)) => seen < cancelled,
                    (None, None) => true,
                };
                assert!(!is_wrong, "receive {first} was passed by message {number} of {source}");
            }
        }
    }
}

#[test]
fn random_programs_keep_messages_and_receives_in_order() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut program = Program::new(seed);
        program.run();
        program.check();
    }
}
