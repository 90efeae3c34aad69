//! Accesses to regions without messages. A wire has no region's memory: whoever runs the workers
//! carries out the accesses that are due ([`Net::take_due`]).

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Network, PeerId, PublishedRegion, RegionAccess, RegionPlace,
};

use super::net::{Accessing, Net, NodeState, Ready, RegionBounds};

impl NodeState {
    /// The peers to which an access is under way, or has ended and was not reported.
    pub(super) fn accesses_to(&self) -> impl Iterator<Item = PeerId> {
        let ended = self.accessed.iter().map(|end| end.peer);
        self.accesses.iter().map(|accessing| accessing.access.peer).chain(ended)
    }

    /// Ends an access to a peer that is down.
    pub(super) fn end_access_to(&mut self, peer: u32) -> Option<AccessEnd> {
        if let Some(at) = self.accessed.iter().position(|end| end.peer.0 == peer) {
            return self.accessed.remove(at);
        }
        let at = self.accesses.iter().position(|other| other.access.peer.0 == peer)?;
        let RegionAccess { peer, buffer, .. } = self.accesses.remove(at).access;
        Some(AccessEnd { peer, buffer, is_done: false })
    }
}

impl Net {
    pub(super) fn publish(&mut self, at: u32, region: &PublishedRegion<'_>) -> RegionPlace {
        if self.config.accesses_per_mille == 0 {
            return RegionPlace::default();
        }
        let PublishedRegion { key, memory, reads, writes, .. } = *region;
        let bounds = RegionBounds { length: memory.len() as u64, reads, writes };
        self.nodes[at as usize].regions.insert(key, bounds);
        RegionPlace { record: 1, address: 0 }
    }

    pub(super) fn unpublish(&mut self, at: u32, key: u64) {
        self.nodes[at as usize].regions.remove(&key);
    }

    /// Takes an access, or refuses it at once.
    pub(super) fn access(&mut self, at: u32, access: RegionAccess) -> Result<(), Buffer> {
        if !self.random.per_mille(self.config.accesses_per_mille) {
            return Err(access.buffer);
        }
        let ready = self.clock + self.delay();
        self.nodes[at as usize].accesses.push(Accessing { access, ready });
        Ok(())
    }

    /// The next access of a worker that is due, with the number of the region's owner. Accesses
    /// that their region doesn't allow end here. [`Net::end_access`] follows.
    pub(crate) fn take_due(&mut self, at: u32) -> Option<(u32, RegionAccess)> {
        let clock = self.clock;
        let hurry = self.hurry;
        loop {
            let me = &mut self.nodes[at as usize];
            let is_due = |accessing: &Accessing| hurry || accessing.ready <= clock;
            let next = me.accesses.iter().position(is_due)?;
            let access = me.accesses.remove(next).access;
            let owner = me.peers[access.peer.index()].node;
            let region = self.nodes[owner as usize].regions.get(&access.of.key);
            let is_allowed = region.is_some_and(|region| {
                let end = access.of.offset.checked_add(access.buffer.len() as u64);
                let has_right = match access.kind {
                    AccessKind::Read => region.reads,
                    AccessKind::Write => region.writes,
                };
                has_right && end.is_some_and(|end| end <= region.length)
            });
            if is_allowed && self.random.per_mille(self.config.accesses_per_mille) {
                return Some((owner, access));
            }
            self.end_access(at, access, false);
        }
    }

    /// An access was carried out, or could not be.
    pub(crate) fn end_access(&mut self, at: u32, access: RegionAccess, is_done: bool) {
        let RegionAccess { peer, buffer, .. } = access;
        let end = AccessEnd { peer, buffer, is_done };
        self.nodes[at as usize].accessed.push_back(end);
    }

    pub(super) fn next_accessed(&mut self, at: u32, network: Network) -> Option<Ready> {
        let me = &mut self.nodes[at as usize];
        let is_of = |end: &AccessEnd| me.peers[end.peer.index()].network == network;
        let next = me.accessed.iter().position(is_of)?;
        me.accessed.remove(next).map(Ready::Accessed)
    }
}
