//! Context ids.

use std::fmt;

/// Tells the messages of one communicator from those of all other communicators that a process has.
///
/// It is not unique in a job: after a split, the communicators of all colours have the same id. So
/// a table whose key is a context id needs the group in its key, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub(crate) u32);

impl ContextId {
    /// The bits, as in the tag of a message.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextId({:#x})", self.0)
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
