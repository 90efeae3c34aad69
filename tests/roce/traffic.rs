//! Traffic whose receiver knows which message comes next, and every byte of it.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tagmatch::{Error, Failed, Match, Peer, PeerFault, Received, Request, Sent, TagLayout, Worker};

/// The tag of the messages by which two sides learn that both are there.
const MET: u64 = 1000;

/// More sends than receives at a time, so that some messages find a posted receive and others are
/// unexpected.
const SENDS: usize = 24;
pub const RECEIVES: usize = 8;

/// How many messages a stream may be ahead of its peer's. So one side can't finish all of its
/// traffic while the other one is kept from running.
const LEAD: u64 = 32;

/// How long messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Eager,
    Rendezvous,
    /// Eager messages and rendezvous in turns, so that one kind could overtake the other.
    Mixed,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Eager, Kind::Rendezvous, Kind::Mixed];

    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| format!("{kind:?}") == name).unwrap()
    }

    /// The tag of all messages of the kind.
    pub fn tag(self) -> u64 {
        self as u64
    }

    /// The length of the message with this number. An eager one fits into one message of the
    /// device.
    fn length(self, number: u64) -> u64 {
        match self {
            Kind::Eager => 8 + number * 397 % 3800,
            Kind::Rendezvous => 9000 + number * 7919 % 60_000,
            Kind::Mixed if number % 3 == 1 => Kind::Rendezvous.length(number),
            Kind::Mixed => Kind::Eager.length(number),
        }
    }

    /// The message with this number: the number, then words that depend on it and on their place.
    pub fn payload(self, number: u64) -> Vec<u8> {
        let length = usize::try_from(self.length(number)).unwrap();
        let word = |at: u64| {
            let mixed = (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).to_le_bytes()
        };
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend((0..length as u64 / 8).flat_map(word));
        bytes.truncate(length);
        bytes
    }

    /// Fails unless this is the message with that number.
    pub fn check(self, number: u64, received: &Received, from: Peer, tag: u64) {
        let got = self.number(received, from, tag);
        assert_eq!(got, number, "{self:?}: a message was lost, repeated or overtaken");
    }

    /// The number of a message; fails unless every byte is right.
    fn number(self, received: &Received, from: Peer, tag: u64) -> u64 {
        let bytes = received.data();
        let status = received.status;
        assert_eq!((status.source, status.tag.0, status.truncated), (from, tag, false));
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes == self.payload(number), "{self:?}: message {number} has changed on its way");
        number
    }
}

/// Messages of one kind, both ways between two workers.
pub struct Stream {
    kind: Kind,
    peer: Peer,
    total: u64,
    /// The tags of the messages that are sent, and of those that are received.
    tags: [u64; 2],
    which: Match,
    sends: VecDeque<Request<Sent>>,
    receives: VecDeque<Request<Received>>,
    sent: u64,
    asked: u64,
    pub received: u64,
}

impl Stream {
    pub fn new(kind: Kind, peer: Peer, total: u64) -> Self {
        let which = Match::tag(kind.tag()).from(peer);
        Self::with_tags(kind, peer, total, [kind.tag(); 2], which)
    }

    /// A stream whose tags hold the sender's rank, so that a NIC may match them. `ranks`: this one,
    /// and the peer's.
    pub fn of_ranks(kind: Kind, peer: Peer, total: u64, ranks: [u64; 2]) -> Self {
        let tags = ranks.map(|rank| TagLayout::MPI.pack(0, rank, kind.tag()).unwrap().0);
        Self::with_tags(kind, peer, total, tags, Match::tag(tags[1]).sent_only_by(peer))
    }

    fn with_tags(kind: Kind, peer: Peer, total: u64, tags: [u64; 2], which: Match) -> Self {
        let (sends, receives) = Default::default();
        Stream { kind, peer, total, tags, which, sends, receives, sent: 0, asked: 0, received: 0 }
    }

    pub fn is_over(&self) -> bool {
        self.sent == self.total && self.sends.is_empty() && self.received == self.total
    }

    /// Begins as many operations as there is room for, and checks those that have ended.
    pub fn step(&mut self, worker: &Worker) -> Result<(), Error> {
        let limit = self.total.min(self.received + LEAD);
        while self.sends.len() < SENDS && self.sent < limit {
            let payload = self.kind.payload(self.sent);
            self.sends.push_back(worker.send(self.peer, self.tags[0], payload));
            self.sent += 1;
        }
        self.post(worker);
        let mut result = Ok(());
        self.sends.retain_mut(|send| match send.test() {
            None => true,
            Some(ended) => {
                result = ended.map(drop).and(std::mem::replace(&mut result, Ok(())));
                false
            }
        });
        result?;
        match self.receives.front_mut().and_then(Request::test) {
            // Sleeps rather than spins: two hosts share this machine's processors.
            None => sleep(Duration::from_micros(200)),
            Some(ended) => {
                self.receives.pop_front();
                self.received += 1;
                self.kind.check(self.received - 1, &ended?, self.peer, self.tags[1]);
            }
        }
        Ok(())
    }

    /// Posts as many receives as there is room for.
    pub fn post(&mut self, worker: &Worker) {
        while self.receives.len() < RECEIVES && self.asked < self.total {
            self.receives.push_back(self.receive(worker));
            self.asked += 1;
        }
    }

    /// Receives the next message of the stream.
    fn receive(&self, worker: &Worker) -> Request<Received> {
        worker.recv(self.which, vec![0; 1 << 17])
    }

    /// Steps until this many messages have arrived.
    pub fn run_until(&mut self, worker: &Worker, received: u64) -> Result<(), Error> {
        while self.received < received {
            self.step(worker)?;
        }
        Ok(())
    }

    /// Steps for this time.
    pub fn run_for(&mut self, worker: &Worker, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step(worker)?;
        }
        Ok(())
    }

    /// Steps until all messages have been sent and received on both sides, and checks that none is
    /// left over.
    pub fn finish(mut self, worker: &Worker) -> Result<(), Error> {
        while !self.is_over() {
            self.step(worker)?;
        }
        meet(worker, self.peer)?;
        // The peer may have left by now: a probe then fails if there is no such message.
        match worker.probe(self.which) {
            Ok(None) | Err(Error::PeerDown { fault: PeerFault::Left, .. }) => Ok(()),
            Ok(Some(more)) => panic!("{:?}: a message too many: {more:?}", self.kind),
            Err(error) => Err(error),
        }
    }

    /// After the peer is down, every operation ends. Messages that had arrived whole are received.
    /// Messages that were still to be read from the peer are not, and neither are eager ones that
    /// waited there for credit.
    pub fn end(mut self, worker: &Worker) {
        let peer = self.peer;
        for send in std::mem::take(&mut self.sends) {
            if let Err(failed) = send.wait() {
                is_down(Err::<(), _>(failed), peer);
            }
        }
        for (receive, number) in std::mem::take(&mut self.receives).into_iter().zip(self.received..)
        {
            match receive.wait() {
                Ok(received) => self.kind.check(number, &received, peer, self.tags[1]),
                Err(failed) => is_down(Err::<(), _>(failed), peer),
            }
        }
        let mut least = self.asked;
        loop {
            match self.receive(worker).wait() {
                Ok(received) => {
                    let number = self.kind.number(&received, peer, self.tags[1]);
                    assert!(number >= least, "{number} after {least}: repeated or overtaken");
                    least = number + 1;
                }
                Err(failed) => break is_down(Err::<(), _>(failed), peer),
            }
        }
    }
}

/// Sends and receives this many messages, and knows that the peer has done so, too.
pub fn exchange(worker: &Worker, peer: Peer, kind: Kind, total: u64) -> Result<(), Error> {
    Stream::new(kind, peer, total).finish(worker)
}

/// Waits until the peer has reached this point.
pub fn meet(worker: &Worker, peer: Peer) -> Result<(), Error> {
    let send = worker.send_sync(peer, MET, vec![]);
    worker.recv(Match::tag(MET).from(peer), vec![]).wait()?;
    send.wait()?;
    Ok(())
}

/// Fails unless the error says that this peer is down.
pub fn is_down<T>(result: Result<T, Failed>, who: Peer) {
    match result.map_err(|failed| failed.error) {
        Err(Error::PeerDown { peer, .. }) => assert_eq!(peer, who),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("succeeded with a peer that is down"),
    }
}
