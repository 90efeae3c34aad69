//! Results as charts for a report, in SVG.
//!
//! `figures` turns a run into charts ([`Figure`]); `axis` turns values into places and ticks;
//! `draw` writes SVG.

mod axis;
mod colours;
mod draw;
mod figure;
mod figures;

use crate::saved_run::SavedRun;
pub use axis::Scale;
pub use draw::render;
pub use figure::{Axis, Figure, Line};

/// The charts of a run: one for each of its tests. `command` is the command line that measured it.
pub fn of_run(run: &SavedRun, command: &str) -> String {
    let figures = figures::figures(run);
    let machine = [run.cpu.as_deref(), run.kernel.as_deref()];
    let machine = machine.into_iter().flatten().collect::<Vec<_>>().join(", Linux ");
    let version = env!("CARGO_PKG_VERSION");
    render(&figures, &[format!("{machine}; tagperf {version}"), format!("$ {command}")], &[])
}
