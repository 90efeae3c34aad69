//! Colour on a terminal, unless told otherwise.

use std::fmt::Display;
use std::io::IsTerminal;

use tagmatch_launch::Job;

/// Whether a person sees what is written to `output`. Launchers give ranks terminals (Open MPI
/// does) whose output may go to a file, so a launched process counts as not watched.
pub(crate) fn is_watched(output: &impl IsTerminal) -> bool {
    output.is_terminal() && !Job::is_launched()
}

/// Adds colour, or leaves the text alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// The style of standard output. Colour only on a terminal that can show it, never in a
    /// launched process, and never if `NO_COLOR` is set and not empty (no-color.org).
    pub(crate) fn stdout() -> Self {
        Self::on(&std::io::stdout())
    }

    /// The style of standard error, by the rules of [`stdout`](Self::stdout).
    pub(crate) fn stderr() -> Self {
        Self::on(&std::io::stderr())
    }

    fn on(output: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        Self { colour: is_watched(output) && !set("NO_COLOR") && !dumb }
    }

    pub(crate) fn good(self, text: impl Display) -> String {
        self.sgr(text, "32")
    }

    pub(crate) fn bad(self, text: impl Display) -> String {
        self.sgr(text, "1;31")
    }

    pub(crate) fn heading(self, text: impl Display) -> String {
        self.sgr(text, "1")
    }

    /// Colours a block of lines: comments are dim, warnings stand out, rows stay as they are.
    pub(crate) fn block(self, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let lines = text.split_inclusive('\n').map(|line| {
            let (said, end) = line.strip_suffix('\n').map_or((line, ""), |said| (said, "\n"));
            let said = match said {
                _ if said.starts_with("# warning") => self.sgr(said, "33"),
                _ if said.starts_with('#') => self.sgr(said, "2"),
                _ => said.to_owned(),
            };
            said + end
        });
        lines.collect()
    }

    fn sgr(self, text: impl Display, code: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Style {
        /// No colour.
        pub(crate) fn plain() -> Self {
            Self { colour: false }
        }
    }

    #[test]
    fn colour_or_none() {
        let text = "# a\n# warning b\nc\n";
        assert_eq!(Style::plain().block(text), text);
        assert_eq!(Style::plain().bad(1), "1");
        let colour = Style { colour: true };
        assert_eq!(
            colour.block(text),
            "\u{1b}[2m# a\u{1b}[0m\n\u{1b}[33m# warning b\u{1b}[0m\nc\n"
        );
        assert_eq!(colour.good("x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
