//! Telling the crate above of an engine's decisions, so that it can log them.

use std::fmt::{self, Debug, Formatter};

use tagmatch_device::PeerId;
use tagmatch_shadow::Why;

use crate::error::PeerFault;

/// A decision of an engine about a peer or about a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Decision {
    /// A peer is connected.
    #[error("peer {} is connected", .0.0)]
    PeerUp(PeerId),
    /// A peer is down.
    #[error("peer {} is down: {}", .0.0, .1)]
    PeerDown(PeerId, PeerFault),
    /// Software matched a receive that the NIC's list might have had.
    #[error("a receive was not matched by the NIC: {0}")]
    NotOffloaded(Why),
}

/// Is told of each decision. It is called with the engine locked, so it must not call the engine.
pub type DecisionWatcher = Box<dyn FnMut(Decision) + Send>;

/// An engine's watcher, if it has one. A clone of the engine has none.
#[derive(Default)]
pub(crate) struct Decisions(pub(crate) Option<DecisionWatcher>);

impl Decisions {
    /// Tells the watcher, if there is one.
    pub(crate) fn tell(&mut self, decision: Decision) {
        if let Some(watcher) = &mut self.0 {
            watcher(decision);
        }
    }
}

impl Clone for Decisions {
    fn clone(&self) -> Self {
        Decisions(None)
    }
}

impl Debug for Decisions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Decisions({})", self.0.is_some())
    }
}
