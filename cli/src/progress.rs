//! Live progress: one line on a terminal's standard error, nothing anywhere else, nor in a launched process;
//! and lines of a JSON stream, where one was asked for.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::report::stream;
use crate::style::is_watched;

/// Drawing takes some microseconds of a core that may be measuring; so never more often.
const REDRAW: Duration = Duration::from_millis(100);

/// A line that says what is being measured. It draws only when [`Progress::at`] is called: no
/// thread of its own shares the cores with the measurement. It has no colours, so `NO_COLOR` and a
/// terminal without them get what they ask for.
pub(crate) struct Progress {
    bar: ProgressBar,
    drawn: Instant,
    streams: bool,
    /// When this measurement began, and when the stream heard of it last.
    begun: Instant,
    told: Instant,
}

impl Progress {
    /// For `steps` measurements; hidden where nobody watches, or where the line would stay. Where it
    /// `streams`, the stream gets a line of JSON each second.
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
        Self { bar, drawn: now, streams, begun: now, told: now }
    }

    /// A measurement begins.
    pub(crate) fn begin(&mut self, what: String) {
        self.draw(what);
        (self.begun, self.told) = (self.drawn, self.drawn);
    }

    fn draw(&mut self, what: String) {
        self.bar.set_message(what);
        self.bar.tick();
        self.drawn = Instant::now();
    }

    /// A measurement goes on. `tell` tells the stream of it.
    pub(crate) fn at(
        &mut self,
        what: impl FnOnce() -> String,
        tell: impl FnOnce(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        if self.streams && now - self.told >= stream::PROGRESS {
            self.told = now;
            let position = usize::try_from(self.bar.position()).unwrap_or(usize::MAX);
            let steps = self.bar.length().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let line = stream::progress(&what(), position + 1, steps, now - self.begun);
            tell(&line)?;
        } else if now - self.drawn >= REDRAW && !self.bar.is_hidden() {
            self.draw(what());
        }
        Ok(())
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
