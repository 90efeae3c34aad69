//! The steps of a NIC whose choices are made by the caller.

/// A step that a NIC can take after [`Nic::set_manual`](crate::Nic::set_manual).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NicStep {
    /// Executes the oldest operation in the command queue.
    Execute {
        /// Whether inactive entries become active if the operation's count agrees.
        wakes: bool,
    },
    /// Makes the oldest pending completion of an operation visible.
    Answer,
    /// Makes the oldest pending completion of a match or an ordinary buffer visible.
    Receive,
    /// Makes the data completion of a match visible; the number is its index among the pending
    /// ones, oldest first.
    Data(usize),
}
