//! How far searches walk through plain lists: counted, not walked, so that a trace of any length and
//! depth is counted to its end.

use serde::Serialize;

use super::engine::{Event, Script, Step};
use super::rank::Ranks;

/// What searches through plain lists look at, by what searches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Walks {
    pub(super) searches: u64,
    pub(super) entries_by_messages: u64,
    pub(super) entries_by_receives: u64,
    /// Probes and matched probes.
    pub(super) entries_by_probes: u64,
    pub(super) entries_by_cancels: u64,
}

impl Walks {
    pub(super) fn entries(&self) -> u64 {
        self.by_kind().iter().map(|(_, entries)| entries).sum()
    }

    pub(super) fn by_kind(&self) -> [(&'static str, u64); 4] {
        [
            ("messages seeking a posted receive", self.entries_by_messages),
            ("receives seeking an unexpected message", self.entries_by_receives),
            ("probes seeking an unexpected message", self.entries_by_probes),
            ("cancels seeking their receive", self.entries_by_cancels),
        ]
    }
}

/// Follows a run and counts.
pub(super) struct Walker {
    posted: Ranks,
    unexpected: Ranks,
    pub(super) walks: Walks,
}

impl Walker {
    pub(super) fn new(script: &Script) -> Self {
        let ranks = || Ranks::new(script.lens.len());
        Self { posted: ranks(), unexpected: ranks(), walks: Walks::default() }
    }

    /// Takes in the next step and what it came to. Who finds walks that far, who does not walks
    /// everywhere.
    pub(super) fn see(&mut self, step: &Step, event: Option<Event>) {
        let Self { posted, unexpected, walks } = self;
        let (entries, walked) = match (step, event) {
            (Step::Msg { .. }, Some(Event::Match { recv, .. })) => {
                (&mut walks.entries_by_messages, posted.take(recv))
            }
            (Step::Msg { id, .. }, _) => {
                unexpected.enter(*id);
                (&mut walks.entries_by_messages, posted.len())
            }
            (Step::Recv { .. }, Some(Event::Match { msg, .. })) => {
                (&mut walks.entries_by_receives, unexpected.take(msg))
            }
            (Step::Recv { id, .. }, _) => {
                posted.enter(*id);
                (&mut walks.entries_by_receives, unexpected.len())
            }
            (_, Some(Event::Probe { msg: Some(msg) })) => {
                (&mut walks.entries_by_probes, unexpected.place(msg))
            }
            (_, Some(Event::Mprobe { msg: Some(msg), .. })) => {
                (&mut walks.entries_by_probes, unexpected.take(msg))
            }
            (Step::Probe { .. } | Step::Mprobe { .. }, _) => {
                (&mut walks.entries_by_probes, unexpected.len())
            }
            (_, Some(Event::Cancelled { recv })) => {
                (&mut walks.entries_by_cancels, posted.take(recv))
            }
            // A cancel that is late finds its receive complete, a matched message is at hand.
            (Step::Cancel { .. } | Step::Mrecv { .. } | Step::Mcancel { .. }, _) => return,
        };
        *entries += walked;
        walks.searches += 1;
    }
}
