//! What a device finds on a machine, in words for a person.

use std::fmt;

/// A feature of the machine that a device uses if it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature.
    pub what: &'static str,
    /// Whether the machine has it.
    pub is_available: bool,
    /// How that was found out.
    pub reason: String,
    /// If the machine doesn't have it: the next command to type.
    pub next: Option<&'static str>,
}

impl Finding {
    /// A feature that the machine has.
    pub fn yes(what: &'static str, reason: impl Into<String>) -> Self {
        Finding { what, is_available: true, reason: reason.into(), next: None }
    }

    /// A feature that the machine doesn't have.
    pub fn no(what: &'static str, reason: impl Into<String>, next: Option<&'static str>) -> Self {
        Finding { what, is_available: false, reason: reason.into(), next }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_the_answer_its_reason_and_what_to_type() {
        let has = Finding::yes("pidfd", "pidfd_open works");
        assert!(has.is_available && has.next.is_none());
        assert_eq!(has.to_string(), "pidfd            yes  pidfd_open works");
        let lacks = Finding::no("verbs", "no device", Some("ibv_devices"));
        assert!(!lacks.is_available);
        let lines = "verbs            no   no device\n                      try: ibv_devices";
        assert_eq!(lacks.to_string(), lines);
        assert_eq!(Finding::no("verbs", "no", None).to_string(), "verbs            no   no");
    }
}
