//! `--plot`: results as charts for a report, in SVG.
//!
//! `figures` turns a run into charts ([`Figure`]); `axis` turns values into places and ticks;
//! `draw` writes SVG.

mod axis;
mod colours;
mod draw;
mod figure;
mod figures;

use std::path::Path;

use crate::failure::{Failure, one_line};
use crate::output::Output;
use crate::saved_run::SavedRun;
pub use axis::Scale;
pub use draw::render;
pub use figure::{Axis, Figure, Line};

/// Creates the file. Only SVG is written, so another ending is a mistake.
pub(crate) fn create(path: &Path) -> Result<Output, Failure> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("svg")) {
        let wrong = format!("--plot: {} is no SVG file", one_line(path.display()));
        return Err(Failure::usage(wrong, "a file whose name ends in .svg"));
    }
    Output::create("--plot", path)
}

/// The command line of this process, for a chart's heading.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| one_line(word.display()));
    std::iter::once("tagperf".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The charts of a run: one for each of its tests.
pub(crate) fn of_run(run: &SavedRun, command: &str) -> String {
    let figures = figures::figures(run);
    let machine = [run.cpu.as_deref(), run.kernel.as_deref()];
    let machine = machine.into_iter().flatten().collect::<Vec<_>>().join(", Linux ");
    let version = env!("CARGO_PKG_VERSION");
    render(&figures, &[format!("{machine}; tagperf {version}"), format!("$ {command}")], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_svg_is_written() {
        for wrong in ["x.png", "x", "-", ".svg"] {
            let failure = create(Path::new(wrong)).map(drop).unwrap_err();
            assert!(failure.to_string().contains(".svg would be right"), "{failure}");
        }
    }
}
