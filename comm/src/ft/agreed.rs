//! The result of an agreement.

/// The result of an agreement. It is the same at all living members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The bitwise AND of the flags of all contributors.
    pub flags: u64,
    /// Ranks of the members that failed before they contributed, and whose failure some contributor
    /// had not acknowledged before. If there are any, MPI's call returns an error of class
    /// process-failed.
    pub unacknowledged: Vec<u32>,
}
