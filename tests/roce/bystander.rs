//! Peers that a fault must not touch.

use std::time::{Duration, Instant};

use tagmatch::{Failed, Match, Output, Peer, Request, Worker};

use super::devices::Setup;
use super::hosts::{Host, Process};
use super::traffic::Kind;

/// The end of a peer must be known by then: two seconds for packets that are repeated in vain,
/// twice the interval at which silent peers are probed, two seconds for operations under way; and
/// all of it doubled, since the machine is emulated and busy.
pub const SOON: Duration = Duration::from_secs(10);

/// The request must end soon, with success or with an error.
pub fn soon<T: Output>(request: Request<T>) -> Result<T, Failed> {
    let start = Instant::now();
    let result = request.wait();
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
    result
}

/// Peers that the fault must not touch: the worker itself, and mostly another process.
pub struct Bystander {
    process: Option<Process>,
    peers: Vec<Peer>,
    rounds: u64,
}

impl Bystander {
    pub fn new(host: Option<Host>, worker: &Worker, setup: Setup) -> Self {
        let role = format!("{setup} echo");
        let process = host.map(|host| Process::start(host, &role, &worker.address()));
        let other = process.iter().map(|process| worker.connect(&process.address()).unwrap());
        let peers = other.chain([worker.oneself()]).collect();
        let mut bystander = Bystander { process, peers, rounds: 0 };
        bystander.ask(worker);
        bystander
    }

    /// Sees that they still answer.
    pub fn ask(&mut self, worker: &Worker) {
        let kind = Kind::Mixed;
        let number = self.rounds;
        for peer in self.peers.iter().copied() {
            let answer = worker.recv(Match::tag(kind.tag()).from(peer), vec![0; 1 << 17]);
            let question = worker.send(peer, kind.tag(), kind.payload(number));
            kind.check(number, &soon(answer).unwrap(), peer, kind.tag());
            soon(question).unwrap();
        }
        self.rounds += 1;
    }

    pub fn finish(mut self, worker: &Worker) {
        self.ask(worker);
        for peer in &self.peers {
            assert!(worker.peer_fault(*peer).unwrap().is_none());
        }
        if let Some(process) = self.process {
            worker.send(self.peers[0], 0, vec![0; 1]).wait().unwrap();
            process.hear("done");
        }
    }
}
