//! Live progress: one line on a terminal's standard error, nothing anywhere else.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawing takes some microseconds of a core that may be measuring; so never more often.
const REDRAW: Duration = Duration::from_millis(100);

/// A line that says what is being measured. It draws only when [`Progress::at`] is called: no
/// thread of its own shares the cores with the measurement. It has no colours, so `NO_COLOR` and a
/// terminal without them get what they ask for.
pub(crate) struct Progress {
    bar: ProgressBar,
    drawn: Instant,
}

impl Progress {
    /// For `steps` measurements; hidden where nobody watches, or where the line would stay.
    pub(crate) fn new(steps: usize) -> Self {
        let watched = std::io::stderr().is_terminal()
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let target = if watched {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is sound").progress_chars("=> "));
        Self { bar, drawn: Instant::now() }
    }

    /// A measurement begins.
    pub(crate) fn begin(&mut self, what: String) {
        self.bar.set_message(what);
        self.bar.tick();
        self.drawn = Instant::now();
    }

    /// A measurement goes on; `done` of it, between 0 and 1, is over.
    pub(crate) fn at(&mut self, what: impl FnOnce() -> String) {
        if self.drawn.elapsed() >= REDRAW && !self.bar.is_hidden() {
            self.begin(what());
        }
    }

    /// A measurement is over.
    pub(crate) fn end(&mut self) {
        self.bar.inc(1);
    }

    /// Lets `print` print above the line.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
