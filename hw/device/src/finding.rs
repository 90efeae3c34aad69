//! What a device finds on a machine, and says to a person.

use std::fmt;

/// One thing that the device would like to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub what: &'static str,
    /// Whether it is there.
    pub is_available: bool,
    /// What was seen.
    pub reason: String,
    /// If it isn't there: the next command to type.
    pub next: Option<&'static str>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = if self.is_available { "yes" } else { "no" };
        write!(f, "{:<16} {answer:<4} {}", self.what, self.reason)?;
        match self.next {
            Some(next) => write!(f, "\n{:<16} {:<4} try: {next}", "", ""),
            None => Ok(()),
        }
    }
}
