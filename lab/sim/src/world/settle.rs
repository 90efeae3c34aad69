//! Workers that come and go, and points at which all workers settle.

use tagmatch_device::Device;
use tagmatch_fallback::{Amount, CreditNow, FlushEngine, MatchEngine, RequestId};
use tagmatch_soft::{Pattern, Tag, TagMask};

use super::World;
use crate::adapter::Adapter;
use crate::program::Ask;
use crate::violation::{Verdict, ensure};

/// The most rounds until all workers must have settled.
const ROUNDS_MAX: u32 = 100_000;
const ANYTHING: Ask = Ask { tag: 0, mask: 0, source: None };

impl<A: Adapter> World<'_, A> {
    pub(super) fn kill(&mut self, at: usize, orderly: bool) -> Verdict {
        let node = self.workers[at].node;
        self.ended.push(node);
        if orderly {
            self.leave(at);
            self.close(at)?;
        } else {
            self.flush(at);
        }
        self.counts.calls += 1;
        self.add_counters(at);
        self.workers[at].engine = None;
        self.workers[at].forget();
        self.net.borrow_mut().kill(node, !orderly);
        self.hear()?;
        self.oracle.gone(node);
        Ok(())
    }

    /// The worker is about to be killed: the messages that it has flushed must arrive.
    fn flush(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        let Some(engine) = &mut worker.engine else { return };
        let unsent = engine.unsent();
        for &(to, peer) in &worker.met {
            let is_flushed = unsent.iter().all(|unsent| unsent.peer != peer);
            if is_flushed && engine.peer_fault(peer).is_none() {
                self.oracle.flushed(worker.node, to);
            }
        }
    }

    /// The worker is about to close: if nothing is unsent, all its messages must arrive.
    fn leave(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        let Some(engine) = &mut worker.engine else { return };
        if engine.has_unsent() {
            return;
        }
        for &(to, peer) in &worker.met {
            if engine.peer_fault(peer).is_none() {
                self.oracle.flushed(worker.node, to);
            }
        }
    }

    /// Adds what a worker has counted. It is about to end, or the run is.
    fn add_counters(&mut self, at: usize) {
        let Some(engine) = &self.workers[at].engine else { return };
        self.counts.hardware += engine.counters().hardware;
        self.counts.past_list += engine.past_list();
        self.counts.sent_beyond += engine.counters().sent_beyond;
    }

    /// After an orderly end every request is over.
    fn close(&mut self, at: usize) -> Verdict {
        let node = self.workers[at].node;
        self.net.borrow_mut().allow(node, u32::MAX);
        self.net.borrow_mut().hurry = true;
        let mut wrong = Vec::new();
        if let Some(engine) = &mut self.workers[at].engine {
            wrong = engine.audit(false);
            engine.close();
            wrong.extend(engine.audit(true));
        }
        ensure!(wrong.is_empty(), Leak, "n{node}: an audit of the engine: {}", wrong.join("; "));
        self.net.borrow_mut().hurry = false;
        self.observe(at, true)?;
        self.all_over(at)
    }

    fn all_over(&self, at: usize) -> Verdict {
        let worker = &self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let node = worker.node;
        let left = worker.requests.len();
        ensure!(left == 0, Lost, "n{node}: {left} requests never ended");
        let requests = engine.requests().len();
        let operations = engine.operations();
        let is_empty = (requests, operations) == (0, 0);
        ensure!(
            is_empty,
            Leak,
            "n{node}: {requests} requests and {operations} operations are left"
        );
        Ok(())
    }

    pub(super) fn revive(&mut self, at: usize) -> Verdict {
        self.workers[at] = self.new_worker()?;
        let step = self.step;
        let node = self.workers[at].node;
        self.history.line(|| format!("{step}: w{at} comes back as n{node}"));
        Ok(())
    }

    /// Runs all workers until nothing happens by itself any more.
    fn settle(&mut self) -> Verdict {
        self.net.borrow_mut().hurry = true;
        let mut quiet = 0;
        let mut rounds = 0;
        while quiet < 2 {
            let mut events = 0;
            for at in 0..self.workers.len() {
                events += self.turn(at)?;
            }
            quiet = if events == 0 && self.is_idle() { quiet + 1 } else { 0 };
            rounds += 1;
            ensure!(rounds < ROUNDS_MAX, Lost, "the workers never settle");
        }
        self.net.borrow_mut().hurry = false;
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let mut engines = self.workers.iter().filter_map(|worker| worker.engine.as_ref());
        engines.all(|engine| !engine.device().has_work())
    }

    fn turn(&mut self, at: usize) -> Result<usize, crate::Violation> {
        let node = self.workers[at].node;
        self.net.borrow_mut().allow(node, 16);
        let Some(engine) = &mut self.workers[at].engine else { return Ok(0) };
        let events = engine.progress();
        self.counts.calls += u64::from(events > 0);
        self.counts.events += events as u64;
        self.in_bounds(at)?;
        self.observe(at, true)?;
        Ok(events)
    }

    pub(super) fn settle_and_check(&mut self) -> Verdict {
        self.settle()?;
        for worker in &self.workers {
            let Some(engine) = &worker.engine else { continue };
            let held_bytes = engine.counters().unexpected_bytes_now;
            self.net.borrow().audit(worker.node, held_bytes, false, &self.setup.engine.credit)?;
        }
        self.check_books()?;
        self.oracle.check_settled()
    }

    /// Receives all that can be received, cancels what is left, and checks that nothing remains.
    pub(crate) fn finish(&mut self, thorough: bool) -> Verdict {
        self.step += 1;
        self.settle_and_check()?;
        let mut found = true;
        while found {
            found = false;
            for at in 0..self.workers.len() {
                found |= self.drain(at)?;
            }
            self.settle()?;
        }
        self.oracle.check_settled()?;
        for at in 0..self.workers.len() {
            let all: Vec<RequestId> = self.workers[at].requests.all();
            for request in all {
                self.cancel_request(at, request);
            }
            self.observe(at, true)?;
        }
        self.settle()?;
        self.check_books()?;
        for at in 0..self.workers.len() {
            self.all_over(at)?;
            self.all_told(at)?;
            self.gives_memory_back(at)?;
            self.add_counters(at);
        }
        self.oracle.at_end()?;
        if thorough { self.oracle.recheck() } else { Ok(()) }
    }

    /// Receives what waits at a worker. Returns whether there was anything.
    fn drain(&mut self, at: usize) -> Result<bool, crate::Violation> {
        let mut found = false;
        while !self.workers[at].held.is_empty() {
            found = true;
            self.discard(at, 0)?;
            self.observe(at, true)?;
        }
        let anything = Pattern::new(Tag(0), TagMask::ANY);
        loop {
            let Some(engine) = &mut self.workers[at].engine else { return Ok(found) };
            if engine.probe(&anything).unwrap().is_none() {
                return Ok(found);
            }
            found = true;
            let room = self.setup.length_max;
            self.receive_any(at, room)?;
            self.observe(at, true)?;
        }
    }

    fn receive_any(&mut self, at: usize, room: u32) -> Verdict {
        // A matched probe takes the message even if receives are posted.
        self.matched_probe(at, &ANYTHING)?;
        self.receive_message(at, 0, room)
    }

    fn gives_memory_back(&self, at: usize) -> Verdict {
        let Some(engine) = &self.workers[at].engine else { return Ok(()) };
        for &(_, peer) in &self.workers[at].met {
            engine.peer_fault(peer).map_or(Ok(()), |fault| self.is_explained(fault))?;
        }
        let counters = engine.counters();
        let left = (counters.unexpected_now, counters.unexpected_bytes_now, counters.posted_now);
        let node = self.workers[at].node;
        ensure!(left == (0, 0, 0), Memory, "n{node}: messages, bytes, receives left: {left:?}");
        let entries = self.adapter.entries(engine.device());
        ensure!(entries == 0, List, "n{node}: the NIC has {entries} entries left");
        self.gives_credit_back(at)?;
        self.net.borrow().audit(node, 0, true, &self.setup.engine.credit)
    }

    /// Checks that no message holds credit and that all credit is granted to peers that are up or
    /// in the pool.
    fn gives_credit_back(&self, at: usize) -> Verdict {
        let Some(engine) = &self.workers[at].engine else { return Ok(()) };
        let CreditNow { free, granted, held } = engine.credit();
        let sum = (free.messages + granted.messages, free.bytes + granted.bytes);
        let pool = self.setup.engine.credit.pool;
        let is_back = held == Amount::default() && sum == (pool.messages, pool.bytes);
        let node = self.workers[at].node;
        ensure!(
            is_back,
            Credit,
            "n{node}: of {pool:?}, {free:?} free, {granted:?} granted, {held:?} held"
        );
        Ok(())
    }
}
