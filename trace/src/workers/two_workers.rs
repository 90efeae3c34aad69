//! The workers of a replay, and the operations of a trace as calls on them.

use tagmatch::{
    Config, Counters, Error, Failed, HwTags, Match, Message, Received, Request, SendOptions, Sent,
    Status, Tag, TagMask, Worker,
};
use tagmatch_soft::Pattern;

use crate::format::{Id, TraceOp};
use crate::matcher::Leftover;
use crate::result::OpResult;
use crate::trace::Trace;
use crate::workers::error::WorkersError;
use crate::workers::lengths::ShortLengths;
use crate::workers::payload;
use crate::workers::requests::RequestsById;
use crate::workers::senders::Senders;

/// Rounds of progress after which workers that have not come to rest are broken. The model's delays
/// are of some hundred polls.
const ROUNDS_MAX: u32 = 1 << 20;

/// What came of a trace.
#[derive(Debug)]
pub struct WorkersRun {
    /// The result of each operation.
    pub results: Vec<Option<OpResult>>,
    /// What is left at the end.
    pub leftover: Leftover,
    /// The counters of the worker that received.
    pub counters: Counters,
}

/// A replay in progress.
pub(super) struct TwoWorkers<'a> {
    trace: &'a Trace,
    lengths: ShortLengths,
    senders: Senders,
    receiver: Worker,
    sends: RequestsById<Sent>,
    receives: RequestsById<Received>,
    /// The messages that matched probes have found, by the probe's id.
    held: Vec<Option<Message>>,
    /// The operation that sent a message, posted a receive, or received the message of a matched
    /// probe; by id.
    begun_at: Vec<usize>,
    results: Vec<Option<OpResult>>,
    /// Receives that were reported as cancelled.
    cancelled: Vec<Id>,
    /// What a payload should be; kept for its memory.
    wanted: Vec<u8>,
}

impl<'a> TwoWorkers<'a> {
    pub(super) fn new(trace: &'a Trace, hw_tags: HwTags) -> Result<Self, WorkersError> {
        let ids = trace.lens.len();
        // All messages of the trace fit into the unexpected messages' memory, so none has to wait
        // for it.
        let defaults = Config::default();
        let messages = (2 * ids as u64).max(defaults.unexpected_messages);
        let bytes = (messages * 2).saturating_mul(defaults.eager_max as u64);
        let bytes = bytes.max(defaults.unexpected_bytes);
        let config = defaults
            .unexpected_messages(messages)
            .unexpected_bytes(bytes)
            .unexpected_peer_percent(100)
            .hw_tags(hw_tags)
            .layout(trace.layout);
        let receiver = Worker::new(config).map_err(WorkersError::setup)?;
        let senders = Senders::new(trace, &receiver)?;
        let mut workers = Self {
            trace,
            lengths: ShortLengths::new(trace),
            senders,
            receiver,
            sends: RequestsById::new(ids),
            receives: RequestsById::new(ids),
            held: std::iter::repeat_with(|| None).take(ids).collect(),
            begun_at: vec![0; ids],
            results: vec![None; trace.ops.len()],
            cancelled: Vec::new(),
            wanted: Vec::new(),
        };
        workers.settle()?;
        Ok(workers)
    }

    /// Begins the operation at place `at` of the trace.
    pub(super) fn run(&mut self, at: usize, op: &TraceOp) -> Result<(), WorkersError> {
        match *op {
            TraceOp::Msg { id, tag, source } => {
                self.begun_at[id.index()] = at;
                let mut payload = vec![0; self.length(id)];
                payload::fill(id, &mut payload);
                let options = SendOptions::default().immediate(Some(id.0));
                let (worker, to) = self.senders.route(&self.receiver, source);
                self.sends.add(id, worker.send_with(to, tag, payload, options));
            }
            TraceOp::Recv { id, pattern, is_sole } => {
                self.begun_at[id.index()] = at;
                let buffer = vec![0; self.length(id)];
                let which = self.senders.which(&self.receiver, pattern, is_sole);
                self.receives.add(id, self.receiver.recv(which, buffer));
            }
            TraceOp::Cancel { recv } => {
                if let Some(request) = self.receives.get_mut(recv) {
                    request.cancel();
                    self.settle()?;
                }
                self.results[at] = Some(match self.cancelled.pop() {
                    Some(cancelled) if cancelled == recv => OpResult::Cancelled { recv },
                    _ => OpResult::Late { recv },
                });
            }
            TraceOp::Probe { pattern } => {
                let found =
                    self.receiver.probe(self.which(pattern)).map_err(WorkersError::Probe)?;
                let msg = found.map(|status| self.message(&status)).transpose()?;
                self.results[at] = Some(OpResult::Probe { msg });
            }
            TraceOp::Mprobe { id, pattern } => {
                let found =
                    self.receiver.mprobe(self.which(pattern)).map_err(WorkersError::Probe)?;
                let msg = found.as_ref().map(|found| self.message(&found.status())).transpose()?;
                self.held[id.index()] = found;
                self.results[at] = Some(OpResult::Mprobe { id, msg });
            }
            TraceOp::Mrecv { mprobe: id, len } => {
                self.begun_at[id.index()] = at;
                let Some(message) = self.held[id.index()].take() else {
                    self.results[at] = Some(OpResult::Mrecv { id, msg: None, truncated: false });
                    return Ok(());
                };
                let buffer = vec![0; self.lengths.bytes(len)];
                self.receives.add(id, message.recv(buffer));
            }
            TraceOp::Mcancel { mprobe: id } => {
                let dropped = self.held[id.index()].take();
                let status = dropped.as_ref().map(Message::status);
                let msg = status.map(|status| self.message(&status)).transpose()?;
                self.results[at] = Some(OpResult::Mcancelled { id, msg });
            }
            TraceOp::Lost { msg } => {
                let TraceOp::Msg { tag, source, .. } = self.trace.ops[self.begun_at[msg.index()]]
                else {
                    return Err(WorkersError::Unknown);
                };
                let like = Pattern::new(tag, TagMask::EXACT).from_source(source);
                let found = self.receiver.mprobe(self.which(like)).map_err(WorkersError::Probe)?;
                let found = found.map(|found| self.message(&found.status())).transpose()?;
                if found.is_some_and(|found| found != msg) {
                    return Err(WorkersError::LostAmongEquals(self.trace.name(msg)));
                }
                self.results[at] = Some(OpResult::Lost { msg: found });
            }
        }
        Ok(())
    }

    fn which(&self, pattern: Pattern) -> Match {
        self.senders.which(&self.receiver, pattern, false)
    }

    /// How many workers send.
    pub(super) fn senders(&self) -> usize {
        self.senders.len()
    }

    /// Makes progress of one worker, of the receiver or of this sender.
    pub(super) fn progress_of_one(&self, sender: Option<usize>) {
        let sender = sender.and_then(|sender| self.senders.nth(sender));
        sender.unwrap_or(&self.receiver).progress();
    }

    /// Makes progress until nothing is under way, and notes the results.
    pub(super) fn settle(&mut self) -> Result<(), WorkersError> {
        for _ in 0..ROUNDS_MAX {
            let workers = || self.senders.workers().chain([&self.receiver]);
            let events: usize = workers().map(Worker::progress).sum();
            if events == 0 && workers().all(Worker::arm) {
                workers().for_each(Worker::disarm);
                return self.collect();
            }
        }
        Err(WorkersError::Restless)
    }

    /// Notes the requests that have ended.
    fn collect(&mut self) -> Result<(), WorkersError> {
        while let Some((id, result)) = self.sends.next_ended() {
            result.map_err(|failed| self.failed("message", id, failed))?;
        }
        while let Some((id, result)) = self.receives.next_ended() {
            match result {
                Ok(received) => self.received(id, &received)?,
                Err(Failed { error: Error::Cancelled, .. }) => self.cancelled.push(id),
                Err(failed) => return Err(self.failed("receive", id, failed)),
            }
        }
        Ok(())
    }

    fn received(&mut self, id: Id, received: &Received) -> Result<(), WorkersError> {
        let status = received.status;
        let msg = self.message(&status)?;
        self.wanted.clear();
        self.wanted.resize(self.length(msg), 0);
        payload::fill(msg, &mut self.wanted);
        let fits = self.wanted.len().min(received.buffer.len());
        let truncated = fits < self.wanted.len();
        if status.truncated != truncated || received.data() != &self.wanted[..fits] {
            return Err(self.wrong(msg, "came with other bytes than it was sent with"));
        }
        let at = self.begun_at[id.index()];
        let (at, result) = if let TraceOp::Mrecv { .. } = self.trace.ops[at] {
            (at, OpResult::Mrecv { id, msg: Some(msg), truncated })
        } else {
            let sent_at = self.begun_at[msg.index()];
            let unexpected = sent_at < at;
            (at.max(sent_at), OpResult::Match { recv: id, msg, truncated, unexpected })
        };
        if self.results[at].replace(result).is_some() {
            return Err(self.wrong(msg, "was matched twice"));
        }
        Ok(())
    }

    /// The message that a status belongs to. Its immediate value is the message's id.
    fn message(&self, status: &Status) -> Result<Id, WorkersError> {
        let msg = status.immediate.map(Id).filter(|msg| msg.index() < self.begun_at.len());
        let Some(msg) = msg else {
            return Err(WorkersError::Unknown);
        };
        let is_as_sent = |tag: Tag| status.tag == tag && status.length == self.length(msg);
        match self.trace.ops[self.begun_at[msg.index()]] {
            TraceOp::Msg { id, tag, source }
                if id == msg
                    && is_as_sent(tag)
                    && status.source == self.senders.peer(&self.receiver, source) =>
            {
                Ok(msg)
            }
            _ => Err(self.wrong(msg, "came with another envelope than it was sent with")),
        }
    }

    /// Ends the replay: notes what is left, cancels the receives that are still posted, and checks
    /// that everything ends.
    pub(super) fn finish(mut self) -> Result<WorkersRun, WorkersError> {
        self.settle()?;
        let counters = self.receiver.counters();
        let mut unexpected = Vec::new();
        while let Some(message) = self.receiver.mprobe(Match::any()).map_err(WorkersError::Probe)? {
            unexpected.push(self.message(&message.status())?);
        }
        let posted = self.receives.under_way();
        for recv in &posted {
            if let Some(receive) = self.receives.get_mut(*recv) {
                Request::cancel(receive);
            }
        }
        self.held.clear();
        self.settle()?;
        if let Some(id) = self.receives.under_way().first() {
            return Err(self.wrong(*id, "is a receive that never ended"));
        }
        if let Some(id) = self.sends.under_way().first() {
            return Err(self.wrong(*id, "is a message whose send never ended"));
        }
        if self.cancelled.len() != posted.len() {
            return Err(WorkersError::AfterEnd);
        }
        let faults = self.receiver.counters().list_faults;
        if faults > 0 {
            return Err(WorkersError::ListFaults(faults));
        }
        Ok(WorkersRun { results: self.results, leftover: (posted, unexpected), counters })
    }

    /// The bytes of a message or of a receive's buffer.
    fn length(&self, id: Id) -> usize {
        self.lengths.bytes(self.trace.lens[id.index()])
    }

    fn failed(&self, what: &'static str, id: Id, failed: Failed) -> WorkersError {
        WorkersError::Request { what, id: self.trace.name(id), error: failed.error }
    }

    fn wrong(&self, id: Id, what: &'static str) -> WorkersError {
        WorkersError::Wrong { id: self.trace.name(id), what }
    }
}
