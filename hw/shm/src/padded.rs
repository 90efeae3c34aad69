//! Words that share no cache line with others.

/// A word with two cache lines of its own, because processors fetch lines in pairs.
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
