//! What a run can find wrong.

use std::fmt;

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// An earlier posted receive that matched was passed over.
    PostedOrder,
    /// An earlier message of the same sender that matched was passed over.
    Overtaken,
    /// Software matching did otherwise than plain lists do.
    Reference,
    /// Something ended twice, or was named that had ended.
    Twice,
    /// Something never ended, or was lost.
    Lost,
    /// A receive got a message that it does not match, or one that was never sent.
    Mismatch,
    /// Length, truncation, tag, source or immediate data are wrong.
    Status,
    /// Bytes are wrong, or were written where nothing belongs.
    Payload,
    /// A send ended before what it waits for.
    TooEarly,
    /// An error that nothing in the run explains.
    Fault,
    /// At rest, a receive and a message that match are both waiting.
    Rest,
    /// Unexpected memory is beyond its bound, or not given back.
    Memory,
    /// Credit is not back where it was when all has ended.
    Credit,
    /// A NIC and its driver disagree about the NIC's list.
    List,
    /// The engine's tables are not empty when all has ended.
    Leak,
    /// The code under test panicked.
    Panic,
}

/// A broken rule, with the facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What happened, in words.
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

/// Nothing, or what is wrong.
pub(crate) type Verdict = Result<(), Violation>;

/// Fails with a rule and words, unless the condition holds. The words are made only then.
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
