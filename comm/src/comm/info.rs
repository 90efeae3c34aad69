//! The facts that identify a communicator.

use std::sync::Arc;

use crate::context_id::ContextId;
use crate::group::Group;

/// The facts by which a communicator differs from all others that this process has had or will have
/// at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommInfo {
    /// Its context id. Communicators of other processes may have the same.
    pub id: ContextId,
    /// Its members.
    pub group: Arc<Group>,
    /// This process's rank.
    pub rank: u32,
}
