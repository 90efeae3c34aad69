//! What a process knows of the other group of an intercommunicator.

use std::ops::Range;
use std::sync::Arc;

use crate::context_id::ContextId;
use crate::group::Group;

/// The other group of an intercommunicator.
#[derive(Debug)]
pub(crate) struct RemoteGroup {
    /// The context id in which its members receive.
    pub(crate) id: ContextId,
    pub(crate) group: Arc<Group>,
}

/// The remote members of an operation of both groups, and the context in which they receive. The
/// members of both groups have ranks in one list, the same on both sides.
#[derive(Clone, Debug)]
pub(crate) struct RemoteRanks {
    pub(crate) ranks: Range<u32>,
    pub(crate) context: ContextId,
}

impl RemoteRanks {
    /// The context in which this member receives, if it is a remote one.
    pub(crate) fn context_of(&self, rank: u32) -> Option<ContextId> {
        self.ranks.contains(&rank).then_some(self.context)
    }
}
