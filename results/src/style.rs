//! Colour, for a text that goes to a terminal.

use std::fmt::Display;

/// Adds colour, or leaves the text alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// A style that adds colour, or one that doesn't.
    pub fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// What is good news.
    pub fn good(self, text: impl Display) -> String {
        self.sgr(text, "32")
    }

    /// What is bad news.
    pub fn bad(self, text: impl Display) -> String {
        self.sgr(text, "1;31")
    }

    /// A table's heading.
    pub fn heading(self, text: impl Display) -> String {
        self.sgr(text, "1")
    }

    /// Colours a block of lines: comments are dim, warnings stand out, rows stay as they are.
    pub fn block(self, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let lines = text.split_inclusive('\n').map(|line| {
            let (content, end) =
                line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
            let content = match content {
                _ if content.starts_with("# warning") => self.sgr(content, "33"),
                _ if content.starts_with('#') => self.sgr(content, "2"),
                _ => content.to_owned(),
            };
            content + end
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

    #[test]
    fn colour_or_none() {
        let text = "# a\n# warning b\nc\n";
        assert_eq!(Style::new(false).block(text), text);
        assert_eq!(Style::new(false).bad(1), "1");
        let colour = Style::new(true);
        assert_eq!(
            colour.block(text),
            "\u{1b}[2m# a\u{1b}[0m\n\u{1b}[33m# warning b\u{1b}[0m\nc\n"
        );
        assert_eq!(colour.good("x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
