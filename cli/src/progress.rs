//! Live progress: a line on a terminal's standard error, or lines of a JSON stream. Otherwise, and
//! in a launched process, nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tagmatch_results::stream;

use crate::failure::Failure;
use crate::style::is_watched;

/// The time between two drawings. One takes some microseconds of a core that may be measuring.
const REDRAW: Duration = Duration::from_millis(100);

/// A line that says what is being measured. It is drawn only when [`Progress::at`] is called, so no
/// thread of its own takes time from the measurement. It has no colours, as `NO_COLOR` and simple
/// terminals need.
pub(crate) struct Progress {
    bar: ProgressBar,
    drawn: Instant,
    streams: bool,
    /// When this row began, and when the stream last got a line.
    begun: Instant,
    last_line: Instant,
}

impl Progress {
    /// Progress of `steps` rows. The line is hidden where no person watches, or where it would
    /// stay. If `streams`, the stream gets a line of JSON each second.
    pub(crate) fn new(steps: usize, streams: bool) -> Self {
        let watched = is_watched(&std::io::stderr())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let target = if watched {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is sound").progress_chars("=> "));
        let now = Instant::now();
        Self { bar, drawn: now, streams, begun: now, last_line: now }
    }

    /// Begins a row.
    pub(crate) fn begin(&mut self, what: String) {
        self.draw(what);
        (self.begun, self.last_line) = (self.drawn, self.drawn);
    }

    fn draw(&mut self, what: String) {
        self.bar.set_message(what);
        self.bar.tick();
        self.drawn = Instant::now();
    }

    /// Goes on with a row. `tell` writes a line to the stream.
    pub(crate) fn at(
        &mut self,
        what: impl FnOnce() -> String,
        tell: impl FnOnce(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        if self.streams && now - self.last_line >= stream::PROGRESS {
            self.last_line = now;
            let position = usize::try_from(self.bar.position()).unwrap_or(usize::MAX);
            let steps = self.bar.length().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let line = stream::progress(&what(), position + 1, steps, now - self.begun);
            tell(&line)?;
        } else if now - self.drawn >= REDRAW && !self.bar.is_hidden() {
            self.draw(what());
        }
        Ok(())
    }

    /// Ends a row.
    pub(crate) fn end(&mut self) {
        self.bar.inc(1);
    }

    /// Calls `print`, whose output then stands above the line.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
