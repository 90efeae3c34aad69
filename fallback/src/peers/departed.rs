//! Which peers are down and not forgotten, and when some are to be.

use std::collections::VecDeque;

use tagmatch_device::PeerId;

/// Peers that are down and not forgotten, in the order of their ends.
#[derive(Clone, Debug)]
pub(crate) struct Departed {
    pub(crate) peers: VecDeque<PeerId>,
    /// How many are remembered.
    pub(crate) max: usize,
    /// With how many it is time to look for some that can be forgotten. The look is linear in
    /// requests and messages, so it comes once in as many ends as are remembered.
    pub(crate) look_at: usize,
}

impl Departed {
    pub(crate) fn new(max: usize) -> Self {
        Departed { peers: VecDeque::new(), max, look_at: max.saturating_mul(2) }
    }

    pub(crate) fn push(&mut self, peer: PeerId) {
        if peer != PeerId::ONESELF {
            self.peers.push_back(peer);
        }
    }

    pub(crate) fn are_many(&self) -> bool {
        self.peers.len() >= self.look_at
    }
}
