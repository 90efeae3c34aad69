//! ^C: the first one ends the test with the rows so far, a later one exits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The exit status that shells report for a command that ^C has ended.
const STATUS: i32 = 130;

/// One ^C may arrive twice, for the process and for its group, as timeout(1) and launchers send it.
/// Signals within this time count as one.
const SAME: Duration = Duration::from_millis(500);

/// Whether the user has pressed ^C.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on ^C only sets the flag.
    pub(super) fn watch() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let watched = |error| Failure::system("watch for ^C", &error);
        let mut signals = Signals::new([SIGINT]).map_err(watched)?;
        let raised = Arc::clone(&asked);
        // A thread that sleeps until a signal arrives, so that a second ^C works however busy the
        // measurement is.
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

    /// Whether ^C was pressed.
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ignores ^C in the second process, which a terminal signals too. It has to live until the first
/// process is done with it, and it exits with the first process in any case.
pub(super) fn ignore() {
    // If this fails, ^C ends this process, and the first one reports it.
    let _ = flag::register(SIGINT, Arc::new(AtomicBool::new(false)));
}
