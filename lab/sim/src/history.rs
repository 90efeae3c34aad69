//! The history of a run: a digest that compares two runs, and lines for a reader.

use tagmatch_testkit::random::mix;

/// The most lines that are kept.
const LINES_MAX: usize = 200_000;

/// The history of a run.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) digest: u64,
    pub(crate) lines: Option<Vec<String>>,
}

impl History {
    pub(crate) fn new(keeps_lines: bool) -> Self {
        History { digest: 0, lines: keeps_lines.then(Vec::new) }
    }

    /// Adds two numbers to the digest.
    pub(crate) fn fact(&mut self, a: u64, b: u64) {
        self.digest = mix(self.digest.rotate_left(5) ^ a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b);
    }

    /// Adds a line if lines are kept.
    pub(crate) fn line(&mut self, words: impl FnOnce() -> String) {
        if let Some(lines) = self.lines.as_mut().filter(|lines| lines.len() < LINES_MAX) {
            lines.push(words());
        }
    }
}
