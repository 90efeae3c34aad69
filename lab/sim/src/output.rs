//! What all runs of seeds print: times, and histories.

use std::fs;
use std::path::Path;
use std::time::Instant;

/// Measures the time of the runs of a profile.
pub(crate) struct Stopwatch {
    begin: Instant,
    began_cpu: Option<f64>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch { begin: Instant::now(), began_cpu: cpu_seconds() }
    }

    /// The elapsed time, and the processor time of this thread. If the kernel doesn't tell the
    /// processor time, the elapsed time takes its place, which includes the time of other threads.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let on_cpu = cpu_seconds().zip(self.began_cpu).map_or(seconds, |(now, then)| now - then);
        (seconds, on_cpu)
    }
}

/// The processor time of this thread, in seconds.
fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// Writes a history to a file, or to stderr.
pub(crate) fn write_history(path: Option<&Path>, lines: &[String]) {
    let text = lines.join("\n") + "\n";
    match path {
        None => eprint!("{text}"),
        Some(path) => {
            if let Err(error) = fs::write(path, &text) {
                eprintln!("{}: {error}\n{text}", path.display());
            }
        }
    }
}
