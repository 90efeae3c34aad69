//! The workers that send the messages of a trace: one for each source.

use std::collections::BTreeMap;

use tagmatch::{Config, Match, Peer, Worker};
use tagmatch_soft::{Pattern, SourceId};

use crate::format::{ONESELF, TraceOp};
use crate::trace::Trace;
use crate::workers::error::WorkersError;

/// The most sources of a trace that is run through workers. Each takes some shared memory.
const SENDERS_MAX: usize = 256;

/// A worker that sends.
struct Sender {
    worker: Worker,
    /// The receiver, as this worker knows it.
    to: Peer,
    /// This worker, as the receiver knows it.
    seen_as: Peer,
}

/// The sending workers, by source.
pub(super) struct Senders(BTreeMap<u32, Sender>);

impl Senders {
    /// A worker for each source of the trace that isn't the receiver itself, connected to it.
    pub(super) fn new(trace: &Trace, receiver: &Worker) -> Result<Self, WorkersError> {
        let sources = trace.ops.iter().filter_map(|op| match op {
            TraceOp::Msg { source, .. } => Some(*source),
            TraceOp::Recv { pattern, .. }
            | TraceOp::Probe { pattern }
            | TraceOp::Mprobe { pattern, .. } => pattern.source(),
            _ => None,
        });
        let mut senders = BTreeMap::new();
        for source in sources.filter(|source| *source != ONESELF) {
            if let std::collections::btree_map::Entry::Vacant(vacant) = senders.entry(source.0) {
                vacant.insert(Sender::new(receiver)?);
            }
            if senders.len() > SENDERS_MAX {
                return Err(WorkersError::TooManySources(SENDERS_MAX));
            }
        }
        Ok(Self(senders))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The worker with this number.
    pub(super) fn nth(&self, at: usize) -> Option<&Worker> {
        self.0.values().nth(at).map(|sender| &sender.worker)
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.0.values().map(|sender| &sender.worker)
    }

    /// The worker that sends for a source, and the receiver as that worker knows it.
    pub(super) fn route<'a>(
        &'a self,
        receiver: &'a Worker,
        source: SourceId,
    ) -> (&'a Worker, Peer) {
        match self.0.get(&source.0) {
            Some(Sender { worker, to, .. }) => (worker, *to),
            None => (receiver, receiver.oneself()),
        }
    }

    /// A source of the trace, as the receiver knows it.
    pub(super) fn peer(&self, receiver: &Worker, source: SourceId) -> Peer {
        self.0.get(&source.0).map_or(receiver.oneself(), |sender| sender.seen_as)
    }

    /// A pattern of the trace, with the receiver's peer in place of the trace's source.
    pub(super) fn which(&self, receiver: &Worker, pattern: Pattern, is_sole: bool) -> Match {
        let which = Match::masked(pattern.tag(), pattern.mask());
        match pattern.source().map(|source| self.peer(receiver, source)) {
            None => which,
            Some(peer) if is_sole => which.sent_only_by(peer),
            Some(peer) => which.from(peer),
        }
    }
}

impl Sender {
    /// Completes the connection, so that from here on a message arrives at the next progress.
    fn new(receiver: &Worker) -> Result<Self, WorkersError> {
        let worker = Worker::new(Config::default()).map_err(WorkersError::setup)?;
        let to = worker.connect(&receiver.address()).map_err(WorkersError::setup)?;
        worker.inject(to, 0, &[]).map_err(WorkersError::setup)?;
        loop {
            if let Some(first) = receiver.mprobe(Match::any()).map_err(WorkersError::setup)? {
                let seen_as = first.status().source;
                return Ok(Self { worker, to, seen_as });
            }
            worker.progress();
            if let Some(fault) = worker.peer_fault(to).map_err(WorkersError::setup)? {
                return Err(WorkersError::setup(fault));
            }
        }
    }
}
