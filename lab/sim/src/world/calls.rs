//! The API calls of a program.

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::{
    Fault, MatchEngine, MessageId, RequestId, Send, SendMode, Started, Status,
};
use tagmatch_soft::{Tag, TagLayout};

use super::World;
use crate::adapter::Adapter;
use crate::oracle::{NONE, OracleProbe, SentMessage};
use crate::payload::Buffers;
use crate::program::{Ask, Mode, SendCall};
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::worker::Purpose;

/// The bytes of a buffer that an operation has given back, in one run.
pub(super) fn joined(buffer: Buffer) -> Result<Buffer, Violation> {
    let packed = || Violation::new(Rule::Payload, "the slices of a buffer are packed");
    Buffers::joined(buffer).ok_or_else(packed)
}

impl<A: Adapter> World<'_, A> {
    pub(super) fn send(&mut self, at: usize, call: SendCall) -> Verdict {
        let SendCall { to, tag, length, mode, .. } = call;
        let target = self.workers.get(usize::from(to)).map(|worker| worker.node);
        let Some(target) = target else { return Ok(()) };
        let from = self.workers[at].node;
        if self.oracle.untaken(target, from) >= self.setup.waiting_max as usize {
            return Ok(());
        }
        let Some(peer) = self.connect(at, target)? else { return Ok(()) };
        let message = self.oracle.next_message();
        let immediate = call.immediate || !self.oracle.may_be_plain(target, from, length);
        let payload = self.buffers.payload(message, length);
        self.history.line(|| format!("    m{message} n{from} -> n{target} tag {tag:#x}"));
        self.history.fact(u64::from(message), 2 << 40 | u64::from(target));
        self.counts.calls += 1;
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        let word = immediate.then_some(message);
        let ended = match mode {
            Mode::Inject => {
                let result = engine
                    .inject(Send::new(peer, Tag(tag), &payload[..]).immediate(word), u64::MAX);
                self.buffers.recycle(payload.into());
                result.map(|_| None)
            }
            Mode::Send(mode) => {
                match engine.send(
                    Send::new(peer, Tag(tag), self.buffers.buffer(payload)).immediate(word),
                    mode,
                ) {
                    Started::Sent(buffer) => {
                        let buffer = joined(buffer)?;
                        let early = mode != SendMode::Standard;
                        ensure!(!early, TooEarly, "m{message}, sent {mode:?}, is over at once");
                        self.returned(message, length, &buffer)?;
                        self.buffers.recycle(buffer);
                        Ok(None)
                    }
                    Started::Pending(request) => Ok(Some(request)),
                    Started::Refused(refused) => Err(refused.fault),
                }
            }
        };
        match ended {
            Ok(request) => {
                self.oracle.sent(SentMessage { from, to: target, tag, length, immediate, mode });
                request.map_or(Ok(()), |request| self.begun(at, request, Purpose::Send(message)))
            }
            Err(fault) => self.refused_by(at, peer, fault),
        }
    }

    /// Checks that the buffer of a send comes back unchanged.
    pub(super) fn returned(&self, message: u32, length: u32, buffer: &Buffer) -> Verdict {
        let is_same =
            buffer.len() == length as usize && self.buffers.holds(buffer, message, length);
        ensure!(is_same, Payload, "the send of m{message} gave back another buffer");
        Ok(())
    }

    /// Checks a refusal: the peer of the operation has to be down.
    fn refused_by(&mut self, at: usize, peer: PeerId, fault: Fault) -> Verdict {
        let node = self.workers[at].node;
        match fault {
            Fault::PeerDown { peer: down, fault } if down == peer => {
                self.is_explained(fault)?;
                self.history.fact(u64::from(node), 3 << 40 | u64::from(peer.0));
                Ok(())
            }
            other => {
                ensure!(false, Fault, "n{node}: refused: {other}");
                Ok(())
            }
        }
    }

    /// Records a request that is in the engine's table.
    pub(super) fn begun(&mut self, at: usize, request: RequestId, what: Purpose) -> Verdict {
        self.hear()?;
        let worker = &mut self.workers[at];
        let is_new = worker.requests.insert(request, what);
        ensure!(is_new, Twice, "n{}: two requests of one name, {what:?}", worker.node);
        let Some(engine) = &mut worker.engine else { return Ok(()) };
        if self.random.per_mille(250) {
            self.queue(at, request);
            return Ok(());
        }
        if engine.requests().is_over(request) {
            if self.random.per_mille(40) {
                worker.late.push(request);
                return Ok(());
            }
            return self.take(at, &[request]);
        }
        if self.random.per_mille(100) || !engine.requests_mut().watch(request) {
            worker.unwatched.push(request);
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, at: usize, ask: &Ask, room: u32) -> Verdict {
        if self.workers[at].requests.receives() >= self.setup.waiting_max as usize {
            return Ok(());
        }
        let Some((wanted, pattern)) = self.resolve(at, ask)? else { return Ok(()) };
        let node = self.workers[at].node;
        let now = self.net.borrow_mut().tick();
        let is_sole = ask.source.is_some() && TagLayout::MPI.pins_source(&pattern);
        let receive = self.oracle.posting(node, wanted, is_sole, now);
        self.history.line(|| format!("    r{receive} n{node} {ask} at {now}"));
        self.counts.calls += 1;
        let buffer = self.buffers.room(room);
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        let is_queued = self.random.per_mille(250);
        self.contexts += u64::from(is_queued);
        match engine.receive_with(&pattern, buffer, is_sole, is_queued.then_some(self.contexts)) {
            Ok(request) if is_queued => self.begun_queued(at, request, Purpose::Receive(receive)),
            Ok(request) => self.begun(at, request, Purpose::Receive(receive)),
            Err(refused) => {
                let untouched = self.buffers.is_untouched(&joined(refused.buffer)?);
                ensure!(untouched, Payload, "r{receive} was refused, its buffer written");
                let source = pattern.source().map_or(PeerId(u32::MAX), |source| PeerId(source.0));
                self.oracle.refused(receive)?;
                self.refused_by(at, source, refused.fault)
            }
        }
    }

    /// Identifies the message that a probe found.
    fn found(&mut self, at: usize, status: Option<&Status>) -> Result<u32, Violation> {
        let Some(status) = status else { return Ok(NONE) };
        ensure!(!status.truncated, Status, "a probe says truncated: {status:?}");
        let from = self.node_of(at, status.source)?;
        self.oracle.identify(self.workers[at].node, from, status)
    }

    pub(super) fn probe(&mut self, at: usize, ask: &Ask) -> Verdict {
        let Some((wanted, pattern)) = self.resolve(at, ask)? else { return Ok(()) };
        let now = self.net.borrow_mut().tick();
        self.counts.calls += 1;
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        let status = engine.probe(&pattern).unwrap();
        let found = self.found(at, status.as_ref())?;
        let node = self.workers[at].node;
        self.history.fact(u64::from(found), 4 << 40);
        self.history.line(|| format!("    n{node} {ask}: probe finds {found:?} at {now}"));
        self.oracle.probed(OracleProbe { node, wanted, found, takes: false }, now)
    }

    pub(super) fn matched_probe(&mut self, at: usize, ask: &Ask) -> Verdict {
        if self.workers[at].held.len() >= self.setup.waiting_max as usize {
            return Ok(());
        }
        let Some((wanted, pattern)) = self.resolve(at, ask)? else { return Ok(()) };
        let now = self.net.borrow_mut().tick();
        self.counts.calls += 1;
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        let taken = engine.matched_probe(&pattern).unwrap();
        let found = self.found(at, taken.as_ref().map(|(_, status)| status))?;
        let node = self.workers[at].node;
        self.history.fact(u64::from(found), 5 << 40);
        self.history.line(|| format!("    n{node} {ask}: matched probe takes {found:?} at {now}"));
        self.oracle.probed(OracleProbe { node, wanted, found, takes: true }, now)?;
        self.workers[at].held.extend(taken.map(|(id, _)| (id, found)));
        Ok(())
    }

    /// One of the messages that matched probes took.
    fn let_go(&mut self, at: usize, which: u8) -> Option<(MessageId, u32)> {
        let held = &mut self.workers[at].held;
        (!held.is_empty()).then(|| held.swap_remove(usize::from(which) % held.len()))
    }

    pub(super) fn receive_message(&mut self, at: usize, which: u8, room: u32) -> Verdict {
        let Some((id, message)) = self.let_go(at, which) else { return Ok(()) };
        self.history.line(|| format!("    receives m{message}"));
        let buffer = self.buffers.room(room);
        self.counts.calls += 1;
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        match engine.receive_message(id, buffer) {
            Ok(request) => self.begun(at, request, Purpose::Message(message)),
            Err(refused) => {
                self.hear()?;
                let from = self.oracle.message(message).from;
                let excused = self.oracle.may_lose(message);
                ensure!(excused, Fault, "m{message} is held, and n{from} not down");
                let peer = self.net.borrow().peer_of(self.workers[at].node, from);
                self.refused_by(at, PeerId(peer.unwrap_or(u32::MAX)), refused.fault)
            }
        }
    }

    pub(super) fn discard(&mut self, at: usize, which: u8) -> Verdict {
        let Some((id, message)) = self.let_go(at, which) else { return Ok(()) };
        self.history.line(|| format!("    discards m{message}"));
        self.counts.calls += 1;
        let Some(engine) = self.workers[at].engine.as_mut() else { return Ok(()) };
        let found = engine.discard_message(id);
        ensure!(found, Lost, "m{message} is held, and can't be discarded");
        let found = engine.discard_message(id);
        ensure!(!found, Twice, "m{message} was discarded twice");
        Ok(())
    }

    pub(super) fn cancel(&mut self, at: usize, which: u8) {
        let Some(request) = self.workers[at].requests.pick(which) else { return };
        self.cancel_request(at, request);
    }

    pub(super) fn cancel_request(&mut self, at: usize, request: RequestId) {
        let now = self.net.borrow_mut().tick();
        let worker = &mut self.workers[at];
        if let Some(Purpose::Receive(receive)) = worker.requests.what(request) {
            self.oracle.cancelling(receive, now);
            self.history.line(|| format!("    cancels r{receive} at {now}"));
        }
        self.counts.calls += 1;
        if let Some(engine) = &mut worker.engine {
            engine.cancel(request);
        }
    }

    /// Drops a request, except a receive that has ended: the message that it took would stay
    /// unknown.
    pub(super) fn detach(&mut self, at: usize, which: u8) {
        let worker = &mut self.workers[at];
        let Some(request) = worker.requests.pick(which) else { return };
        let Some(engine) = &mut worker.engine else { return };
        if worker.queued.values().any(|&queued| queued == request) {
            return;
        }
        let what = worker.requests.what(request);
        if engine.requests().is_over(request) && matches!(what, Some(Purpose::Receive(_))) {
            return;
        }
        self.counts.calls += 1;
        engine.detach(request);
        worker.requests.remove(request);
        worker.unwatched.retain(|&other| other != request);
        worker.late.retain(|&other| other != request);
        self.history.line(|| format!("    drops {what:?}"));
        if let Some(Purpose::Receive(receive)) = what {
            self.oracle.dropped(receive);
        }
    }

    pub(super) fn disconnect(&mut self, at: usize, with: usize) -> Verdict {
        let Some(other) = self.workers.get(with).map(|worker| worker.node) else { return Ok(()) };
        let node = self.workers[at].node;
        if other == node {
            return Ok(());
        }
        let Some(peer) = self.connect(at, other)? else { return Ok(()) };
        self.broken.push((node, other));
        self.oracle.broke(node, other);
        self.counts.calls += 1;
        if let Some(engine) = &mut self.workers[at].engine {
            engine.disconnect(peer);
        }
        Ok(())
    }
}
