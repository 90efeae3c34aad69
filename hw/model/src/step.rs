//! The choices of a NIC that is driven by hand.

/// One thing that a NIC driven by hand may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NicStep {
    /// Takes up the oldest operation that waits.
    TakeUp {
        /// Whether its count, if it agrees, wakes inactive entries.
        wakes: bool,
    },
    /// Shows the oldest answer of an operation that is held back.
    Answer,
    /// Shows the oldest match or ordinary buffer that is held back.
    Receive,
    /// Shows data of a match; the number counts those held back, oldest first.
    Data(usize),
}
