//! The rules that a run checks, and their violations.

use std::fmt;

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// An earlier posted receive that matched was passed over.
    PostedOrder,
    /// An earlier message of the same sender that matched was passed over.
    Overtaken,
    /// Software matching differs from matching by plain lists.
    Reference,
    /// Something ended twice, or was reported after its end.
    Twice,
    /// Something never ended, or was lost.
    Lost,
    /// A receive got a message that it does not match, or one that was never sent.
    Mismatch,
    /// Length, truncation, tag, source or immediate data are wrong.
    Status,
    /// Bytes are wrong, or were written where nothing belongs.
    Payload,
    /// A send ended before the event that it waits for.
    TooEarly,
    /// An error that nothing in the run explains.
    Fault,
    /// A receive and a message that match both wait, and nothing moves any more.
    Unmatched,
    /// Memory of unexpected messages exceeds its bound, or was not given back.
    Memory,
    /// Credit is missing after all requests have ended.
    Credit,
    /// A NIC and its driver disagree about the NIC's list.
    List,
    /// The engine's tables are not empty after all requests have ended.
    Leak,
    /// The code under test panicked.
    Panic,
}

/// A broken rule, with the facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// A description of what happened.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Violation { rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// `Ok`, or the violation that was found.
pub(crate) type Verdict = Result<(), Violation>;

/// Returns a violation of a rule unless the condition holds. The text is formatted only on failure.
macro_rules! ensure {
    ($condition:expr, $rule:ident, $($words:tt)*) => {
        if !$condition {
            return Err($crate::violation::Violation::new(
                $crate::violation::Rule::$rule,
                format!($($words)*),
            ));
        }
    };
}
pub(crate) use ensure;
