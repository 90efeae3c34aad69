//! How many entries searches through plain lists look at. The entries are counted, not walked, so
//! that a trace of any length and depth is counted to its end.

use serde::Serialize;

use crate::format::TraceOp;
use crate::positions::Positions;
use crate::result::OpResult;
use crate::trace::Trace;

/// Entries that searches through plain lists look at, by the kind of search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Walks {
    /// All searches.
    pub searches: u64,
    /// Of messages, through the posted list.
    pub entries_by_messages: u64,
    /// Of receives, through the unexpected list.
    pub entries_by_receives: u64,
    /// Of probes and matched probes, through the unexpected list.
    pub entries_by_probes: u64,
    /// Of cancels, through the posted list.
    pub entries_by_cancels: u64,
}

impl Walks {
    /// The entries of all searches.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.by_kind().iter().map(|(_, entries)| entries).sum()
    }

    /// The mean number of entries.
    #[must_use]
    pub fn entries_per_search(&self) -> f64 {
        self.entries() as f64 / self.searches.max(1) as f64
    }

    /// Each kind of search in words, and its entries.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 4] {
        [
            ("messages seeking a posted receive", self.entries_by_messages),
            ("receives seeking an unexpected message", self.entries_by_receives),
            ("probes seeking an unexpected message", self.entries_by_probes),
            ("cancels seeking their receive", self.entries_by_cancels),
        ]
    }
}

/// Follows a run and counts.
#[derive(Debug)]
pub struct WalkCounter {
    posted: Positions,
    unexpected: Positions,
    walks: Walks,
}

impl WalkCounter {
    /// For a run of `trace`.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let positions = || Positions::new(trace.lens.len());
        Self { posted: positions(), unexpected: positions(), walks: Walks::default() }
    }

    /// What was counted so far.
    #[must_use]
    pub fn walks(&self) -> Walks {
        self.walks
    }

    /// Takes in the next operation and its result. A search that finds an entry looks at all
    /// entries up to that one; a search that finds none looks at the whole list.
    pub fn see(&mut self, op: &TraceOp, result: Option<OpResult>) {
        let Self { posted, unexpected, walks } = self;
        let (entries, walked) = match (op, result) {
            (TraceOp::Msg { .. }, Some(OpResult::Match { recv, .. })) => {
                (&mut walks.entries_by_messages, posted.remove(recv))
            }
            (TraceOp::Msg { id, .. }, _) => {
                unexpected.add(*id);
                (&mut walks.entries_by_messages, posted.len())
            }
            (TraceOp::Recv { .. }, Some(OpResult::Match { msg, .. })) => {
                (&mut walks.entries_by_receives, unexpected.remove(msg))
            }
            (TraceOp::Recv { id, .. }, _) => {
                posted.add(*id);
                (&mut walks.entries_by_receives, unexpected.len())
            }
            (_, Some(OpResult::Probe { msg: Some(msg) })) => {
                (&mut walks.entries_by_probes, unexpected.position(msg))
            }
            (_, Some(OpResult::Mprobe { msg: Some(msg), .. })) => {
                (&mut walks.entries_by_probes, unexpected.remove(msg))
            }
            (TraceOp::Probe { .. } | TraceOp::Mprobe { .. }, _) => {
                (&mut walks.entries_by_probes, unexpected.len())
            }
            (_, Some(OpResult::Cancelled { recv })) => {
                (&mut walks.entries_by_cancels, posted.remove(recv))
            }
            (_, Some(OpResult::Lost { msg: Some(msg) })) => {
                unexpected.remove(msg);
                return;
            }
            // None of these searches: a late cancel finds its request complete, and a matched probe
            // has its message.
            (
                TraceOp::Cancel { .. }
                | TraceOp::Mrecv { .. }
                | TraceOp::Mcancel { .. }
                | TraceOp::Lost { .. },
                _,
            ) => {
                return;
            }
        };
        *entries += walked;
        walks.searches += 1;
    }
}
