//! Sends that wait for a peer to receive what it has: told to people, since a program that waits
//! says nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tagmatch::{Peer, Worker};
use tagmatch_os::notice;

/// How often the peers are looked at.
const PAUSE: Duration = Duration::from_secs(1);
/// A wait of this time is told.
const LONG: Duration = Duration::from_secs(3);

/// Whether this process has told of a wait: it does so once.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The sends of an endpoint that wait for credit.
#[derive(Default)]
pub(crate) struct Stalls {
    last_look: Option<Instant>,
    /// Peers whose credit is waited for, the sends that had gone on by then, and since when.
    waits: Vec<(Peer, u64, Instant)>,
}

impl Stalls {
    /// Reads the clock, and looks at the peers once a [`PAUSE`]. To be called now and then.
    pub(crate) fn look(&mut self, worker: &Worker) {
        let now = Instant::now();
        if self.last_look.is_some_and(|then| now - then < PAUSE) || IS_TOLD.load(Ordering::Relaxed)
        {
            return;
        }
        self.last_look = Some(now);
        let before = std::mem::take(&mut self.waits);
        let since = |(peer, gone): &(Peer, u64)| {
            let same = before.iter().find(|(other, had, _)| other == peer && had == gone);
            same.map_or(now, |(.., since)| *since)
        };
        let waits = worker.credit_waits().into_iter();
        self.waits = waits.map(|wait| (wait.0, wait.1, since(&wait))).collect();
        let longest = self.waits.iter().map(|(.., since)| now - *since).max();
        if longest.is_some_and(|longest| longest >= LONG) && !IS_TOLD.swap(true, Ordering::Relaxed)
        {
            notice::tell(&text(LONG));
        }
    }
}

fn text(waited: Duration) -> String {
    format!(
        "tagmatch: a message has waited {} s for its receiver, which holds as many unexpected messages \
         of this process as it keeps. If the program hangs, raise TAGMATCH_FI_UNEXPECTED_BYTES (or \
         TAGMATCH_FI_UNEXPECTED_MESSAGES) in all its processes; see docs/provider.md, Unexpected \
         messages.",
        waited.as_secs()
    )
}
