//! Collective operations in memory that the members of a communicator map together: a layer beneath
//! all others. If the members are on several machines, the members of each machine map memory
//! together, and one leader of each machine exchanges messages with the others.
//!
//! | file | contents |
//! |---|---|
//! | `layer` | the layer: for which communicators it is, and the entries that it overrides |
//! | `members` | one member's state: the order of operations, the segment |
//! | `making` | how the members get the segment, and agree on it |
//! | `operation` | one member's part in an operation, round by round |
//! | `local` | which members are on which machine |
//! | `leaders` | operations of members on several machines |
//! | `running` | how an operation is carried out: by the calling thread, or by progress |
//!
//! # How an operation runs
//! 1. The first call of a communicator makes the segment (`making`). The lowest rank of a machine
//!    makes the memory and tells the machine's other members its name, by messages. Each member
//!    tries to map it. Then all members of the communicator agree whether all could. If not, this
//!    and all later operations go by messages. The agreement is uniform, so living members never
//!    differ about this, whoever dies meanwhile. The agreement is numbered apart from those of the
//!    program: a member may revoke the communicator instead of making the call, and agree with the
//!    others about something else. The revocation then ends this agreement.
//! 2. Each operation has a number, which all members count alike. A process carries out the
//!    operations of a communicator in their order.
//! 3. In each round of an operation a member publishes some bytes, waits until the members that it
//!    needs have published theirs, and reads those (`tagmatch::shm::segment` has the rules).
//! 4. A member that waits makes progress, as every blocking call does. So it learns of deaths and of
//!    a revocation.
//!
//! # Failures
//! An operation fails at a member that waits for a member which is down or gave up; the errors are
//! those of operations by messages. A member whose operation failed gives up its part in that
//! operation, and says so in the segment. Later operations begin afresh, whatever happened before:
//! their rounds have other stamps. So they go on, and fail where they depend on a dead member.

mod layer;
mod leaders;
mod local;
mod making;
mod members;
mod operation;
mod running;

pub(crate) use layer::{SharedLayer, takes};
pub(crate) use members::SharedMembers;
