//! What a program is promised about the results of other processes.

/// What a process knows about the results of the other processes of both groups when an
/// intercommunicator was created.
///
/// A creation with [`Eventual`](Self::Eventual) or [`Strict`](Self::Strict) is not ended by a
/// revocation of the communicator: a process that gave up might have another result than the
/// others. So all living members of the group must call it, even if they revoke the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Uniformity {
    /// Nothing: after a failure, some processes may have the intercommunicator and others not.
    None,
    /// All living members of a group have the same result. If one group has the intercommunicator
    /// and the other has not, then the intercommunicator is revoked: the processes that have it
    /// learn of that in the end. A program that needs to know at once needs
    /// [`Strict`](Self::Strict).
    Eventual,
    /// All living members of both groups have the same result.
    Strict,
}
