//! ^C: the first one asks for an end with what was measured so far, a later one ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// What shells report of a command that ^C has ended.
const STATUS: i32 = 130;

/// One ^C may come twice, to the process and to its group, as timeout(1) and launchers send it.
const SAME: Duration = Duration::from_millis(500);

/// Whether the user has asked for the end.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on ^C ends nothing by itself.
    pub(super) fn watch() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let watched = |error| Failure::Measurement(format!("cannot watch for ^C: {error}"));
        let mut signals = Signals::new([SIGINT]).map_err(watched)?;
        let raised = Arc::clone(&asked);
        // A thread that sleeps until there is a signal, however long the measurement looks elsewhere.
        let wait = move || {
            let mut first = None;
            for _ in signals.forever() {
                raised.store(true, Ordering::Relaxed);
                if first.get_or_insert_with(Instant::now).elapsed() > SAME {
                    std::process::exit(STATUS);
                }
            }
        };
        thread::Builder::new().name("interrupt".into()).spawn(wait).map_err(watched)?;
        Ok(Self(asked))
    }

    /// Whether ^C came.
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A terminal's ^C goes to the second process too. That one has to stay until the first is done with
/// it, and goes with the first in any case.
pub(super) fn ignore() {
    // Without it ^C ends this process, and the first one says so.
    let _ = flag::register(SIGINT, Arc::new(AtomicBool::new(false)));
}
