//! ^C: the first one asks for an end with what was measured so far, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::Failure;

/// What shells report of a command that ^C has ended.
const STATUS: i32 = 130;

/// Whether the user has asked for the end.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on ^C ends nothing by itself.
    pub(super) fn watch() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        // In this order: the first ^C finds the flag down, and raises it.
        flag::register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&asked))
            .and_then(|_| flag::register(SIGINT, Arc::clone(&asked)))
            .map_err(|error| Failure::Measurement(format!("cannot watch for ^C: {error}")))?;
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
