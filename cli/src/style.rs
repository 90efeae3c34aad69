//! Colour on a terminal, unless NO_COLOR or TERM=dumb is set.

use std::io::IsTerminal;

use tagmatch_launch::Job;
use tagmatch_results::Style;

/// Whether a person sees what is written to `output`. Launchers give ranks terminals (Open MPI
/// does) whose output may go to a file, so a launched process counts as not watched.
pub(crate) fn is_watched(output: &impl IsTerminal) -> bool {
    output.is_terminal() && !Job::is_launched()
}

/// The style of standard output or standard error. Colour only on a terminal that can show it,
/// never in a launched process, and never if `NO_COLOR` is set and not empty (no-color.org).
pub(crate) fn style_of(output: &impl IsTerminal) -> Style {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    Style::new(is_watched(output) && !set("NO_COLOR") && !dumb)
}

/// The style of standard output.
pub(crate) fn stdout() -> Style {
    style_of(&std::io::stdout())
}
