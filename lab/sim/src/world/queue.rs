//! The completion queue: queued operations and events of peers, each told once.

use tagmatch_device::PeerId;
use tagmatch_fallback::{Completion, End, MatchEngine, RequestId};

use super::World;
use crate::adapter::Adapter;
use crate::limited_ends::{LimitedEnds, ROOMS};
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::worker::{Purpose, Worker};

impl<A: Adapter> World<'_, A> {
    /// Has the end of a request told by the queue.
    pub(super) fn queue(&mut self, at: usize, request: RequestId) {
        self.contexts += 1;
        let worker = &mut self.workers[at];
        worker.queued.insert(self.contexts, request);
        if let Some(engine) = &mut worker.engine {
            engine.requests_mut().queue(request, self.contexts);
        }
    }

    /// Records a receive whose end the queue tells with the last context.
    pub(super) fn begun_queued(&mut self, at: usize, request: RequestId, what: Purpose) -> Verdict {
        self.hear()?;
        let worker = &mut self.workers[at];
        let is_new = worker.requests.insert(request, what);
        ensure!(is_new, Twice, "n{}: two requests of one name, {what:?}", worker.node);
        worker.queued.insert(self.contexts, request);
        Ok(())
    }

    /// The ends that a worker took while it made progress, and ends from its queue: some of them,
    /// or all.
    pub(super) fn queued_ends(
        &mut self,
        at: usize,
        all: bool,
    ) -> Result<Vec<(Purpose, Completion)>, Violation> {
        let worker = &mut self.workers[at];
        let mut ends = std::mem::take(&mut worker.ends);
        let Some(engine) = &mut worker.engine else { return Ok(vec![]) };
        if engine.requests().has_ends() {
            let room = if all { usize::MAX } else { self.random.pick(&ROOMS) };
            engine.requests_mut().take_ends(&mut LimitedEnds { ends: &mut ends, room });
        }
        let mut ended = Vec::with_capacity(ends.len());
        for end in ends {
            match end {
                End::Operation { context, completion } => {
                    if let Ok(status) = completion.result {
                        self.is_told_up(at, status.source)?;
                    }
                    let purpose = self.queued_end(at, context)?;
                    ended.push((purpose, completion));
                }
                End::PeerUp { peer } => {
                    let before = self.workers[at].told.insert(peer, true);
                    ensure!(before.is_none(), Twice, "{peer} is told up after {before:?}");
                }
                End::PeerDown { peer, fault } => {
                    let before = self.workers[at].told.insert(peer, false);
                    ensure!(before != Some(false), Twice, "{peer} is told down again: {fault}");
                    self.is_explained(fault)?;
                    let node = self.node_of(at, peer)?;
                    let is_down = self.may_be_down(at, node);
                    ensure!(is_down, Fault, "n{node} is told down, which it is not");
                }
            }
        }
        Ok(ended)
    }

    /// Checks that the queue has told of a peer before it tells of a message from or to the peer.
    fn is_told_up(&self, at: usize, peer: PeerId) -> Verdict {
        let worker = &self.workers[at];
        let is_told = worker.told.contains_key(&peer) || peer == PeerId::ONESELF;
        let is_early = Worker::<A::Device>::tells_peers(worker.node) && !is_told;
        ensure!(!is_early, TooEarly, "a message of {peer} has ended before the peer is told up");
        Ok(())
    }

    /// The purpose of the operation that was queued with this context.
    fn queued_end(&mut self, at: usize, context: u64) -> Result<Purpose, Violation> {
        let worker = &mut self.workers[at];
        let node = worker.node;
        let request = worker.queued.remove(&context);
        let purpose = request.and_then(|request| worker.requests.remove(request));
        let twice = || Violation::new(Rule::Twice, format!("n{node}: {context} has ended again"));
        let purpose = purpose.ok_or_else(twice)?;
        if let Purpose::Send(message) = purpose {
            let to = self.net.borrow().peer_of(node, self.oracle.message(message).to);
            let is_down = to.is_some_and(|to| worker.told.get(&PeerId(to)) == Some(&false));
            ensure!(!is_down, TooEarly, "the send of m{message} ends after its peer is down");
        }
        self.counts.calls += 1;
        self.counts.completions += 1;
        Ok(purpose)
    }

    /// Checks, once nothing moves any more, that each peer that is down was told to be.
    pub(super) fn all_told(&self, at: usize) -> Verdict {
        let worker = &self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let numbers = 1..u32::try_from(self.net.borrow().peers(worker.node)).unwrap_or(u32::MAX);
        for peer in numbers.map(PeerId).filter(|_| Worker::<A::Device>::tells_peers(worker.node)) {
            let is_down = engine.peer_fault(peer).is_some();
            let is_told_down = worker.told.get(&peer) == Some(&false);
            ensure!(is_down == is_told_down, Lost, "{peer}: down {is_down}, told {is_told_down}");
        }
        Ok(())
    }
}
