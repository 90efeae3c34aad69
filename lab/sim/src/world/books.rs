//! Comparing what is written down twice: in both engines of a pair, or in an engine and the oracle.

use tagmatch_device::PeerId;
use tagmatch_fallback::{FlushEngine, MatchEngine, WhyUnsent};

use super::World;
use crate::adapter::Adapter;
use crate::violation::{Verdict, ensure};

/// How often a flush is looked at until the wires must have acknowledged all: they do so at seven
/// of ten looks.
const LOOKS_MAX: u32 = 64;

impl<A: Adapter> World<'_, A> {
    /// Checks the books of all workers. To be asked when nothing moves any more.
    pub(super) fn check_books(&mut self) -> Verdict {
        for at in 0..self.workers.len() {
            self.engine_agrees(at)?;
            self.snapshot_agrees(at)?;
            for other in 0..self.workers.len() {
                self.credits_agree(at, other)?;
            }
            self.unsent_agrees(at)?;
        }
        Ok(())
    }

    fn engine_agrees(&self, at: usize) -> Verdict {
        let worker = &self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let wrong = engine.audit(false);
        let node = worker.node;
        ensure!(wrong.is_empty(), Leak, "n{node}: an audit of the engine: {}", wrong.join("; "));
        Ok(())
    }

    /// Of two workers that see each other up, each may spend what the other has granted.
    fn credits_agree(&self, at: usize, other: usize) -> Verdict {
        let receiver = &self.workers[at];
        let sender = &self.workers[other];
        let credit = |of: usize, with: u32| {
            let worker = &self.workers[of];
            let peer = self.net.borrow().peer_of(worker.node, with)?;
            worker.engine.as_ref()?.credit_with(PeerId(peer))
        };
        let Some(received) = credit(at, sender.node) else { return Ok(()) };
        let Some(sent) = credit(other, receiver.node) else { return Ok(()) };
        ensure!(
            received.granted == sent.allowance,
            Credit,
            "n{} has granted {:?} to n{}, which may spend {:?}",
            receiver.node,
            received.granted,
            sender.node,
            sent.allowance
        );
        Ok(())
    }

    /// `has_unsent`, flushes and `unsent` say the same, and what the oracle knows.
    fn unsent_agrees(&mut self, at: usize) -> Verdict {
        let node = self.workers[at].node;
        let Some(engine) = &mut self.workers[at].engine else { return Ok(()) };
        let has_unsent = engine.has_unsent();
        let mut flushing = engine.begin_flush();
        let is_flushed = (0..LOOKS_MAX).any(|_| engine.is_flushed(&mut flushing));
        ensure!(
            is_flushed != has_unsent,
            Lost,
            "n{node} has messages that are not sent: {has_unsent}; they are flushed: {is_flushed}"
        );
        // Each look makes the wires acknowledge most of what they hold.
        let mut unsent = (0..LOOKS_MAX).fold(Vec::new(), |_, _| engine.unsent());
        unsent.retain(|unsent| !matches!(unsent.why, WhyUnsent::Down(_)));
        ensure!(
            unsent.is_empty() != has_unsent,
            Lost,
            "n{node} has messages that are not sent: {has_unsent}; it names {unsent:?}"
        );
        for (to, peer) in self.workers[at].met.clone() {
            let receiver = self.workers.iter().find(|worker| worker.node == to);
            let Some(receiver) = receiver.filter(|_| to != node) else { continue };
            let held: Vec<u32> = receiver.held.iter().map(|&(_, message)| message).collect();
            let Some(not_left) = self.oracle.not_left(node, to, &held) else { continue };
            let named = unsent.iter().find(|unsent| unsent.peer == peer);
            let messages = named.map_or(0, |unsent| unsent.messages);
            let possible = not_left.known..=not_left.known + not_left.unclear;
            ensure!(
                possible.contains(&messages),
                Lost,
                "n{node} says that {messages} messages to n{to} are not sent; it is {not_left:?}"
            );
        }
        Ok(())
    }
}
