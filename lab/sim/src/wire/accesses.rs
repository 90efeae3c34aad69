//! Accesses to regions without messages. A wire has no region's memory: whoever runs the workers
//! carries out the accesses that are due ([`Net::take_due`]), and shows the memory of a region to
//! an access that is done in one call ([`RegionView`]).
//!
//! Where several accesses to a peer may be under way, as over TCP, they end in their order. They
//! take effect in their order, too, except that a read may come after later writes.

use tagmatch_device::{
    AccessEnd, AccessKind, AccessLimits, Buffer, Network, PeerId, PublishedRegion, QuickAccess,
    RegionAccess, RegionPlace, RegionSpan, words,
};

use super::net::{AccessProgress, Accessing, Net, NodeState, Ready, RegionBounds};

impl RegionBounds {
    /// Whether a peer may use these bytes with a right.
    fn allow(&self, has_right: bool, offset: u64, length: u64) -> bool {
        has_right && offset.checked_add(length).is_some_and(|end| end <= self.length)
    }
}

impl NodeState {
    /// The peers to which an access is under way, or has ended and was not reported.
    pub(super) fn accesses_to(&self) -> impl Iterator<Item = PeerId> {
        self.accesses.iter().map(|accessing| accessing.access.peer)
    }

    /// Ends an access to a peer that is down.
    pub(super) fn end_access_to(&mut self, peer: u32) -> Option<AccessEnd> {
        let at = self.accesses.iter().position(|other| other.access.peer.0 == peer)?;
        Some(self.report_access(at))
    }

    fn report_access(&mut self, at: usize) -> AccessEnd {
        let Accessing { access: RegionAccess { peer, buffer, .. }, progress, .. } =
            self.accesses.remove(at);
        AccessEnd { peer, buffer, is_done: progress == AccessProgress::Ended { is_done: true } }
    }

    /// Whether an access may take effect before all earlier ones to its peer that have not.
    fn may_pass(&self, at: usize) -> bool {
        let Accessing { access, .. } = &self.accesses[at];
        let is_earlier = |earlier: &&Accessing| {
            earlier.access.peer == access.peer && earlier.progress == AccessProgress::Waiting
        };
        let mut passed = self.accesses[..at].iter().filter(is_earlier);
        passed.all(|earlier| {
            earlier.access.kind == AccessKind::Read && access.kind == AccessKind::Write
        })
    }
}

impl Net {
    pub(super) fn publish(&mut self, at: u32, region: &PublishedRegion<'_>) -> RegionPlace {
        if self.config.accesses_per_mille == 0 {
            return RegionPlace::default();
        }
        let PublishedRegion { key, memory, reads, writes, changes, .. } = *region;
        let bounds = RegionBounds { length: memory.len() as u64, reads, writes, changes };
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
        let progress = AccessProgress::Waiting;
        self.nodes[at as usize].accesses.push(Accessing { access, ready, progress });
        Ok(())
    }

    pub(super) fn access_limits(&self) -> AccessLimits {
        AccessLimits { at_once: self.config.accesses_at_once, ..AccessLimits::default() }
    }

    /// Whether several accesses to a peer may be under way. Then one that is not done is one that
    /// the owner doesn't allow.
    pub(crate) fn has_several_accesses(&self) -> bool {
        self.config.accesses_at_once > 1
    }

    /// Does an access in this call, or leaves it, or writes a half and leaves the rest.
    pub(super) fn access_at_once(
        &mut self,
        at: u32,
        peer: PeerId,
        of: RegionSpan,
        access: QuickAccess<'_>,
    ) -> bool {
        let owner = self.nodes[at as usize].peers[peer.index()].node;
        let RegionSpan { key, offset, .. } = of;
        let is_shown =
            self.view.as_ref().is_some_and(|view| (view.owner, view.key) == (owner, key));
        if !is_shown || !self.random.per_mille(self.config.calls_per_mille) {
            return false;
        }
        let does_half = self.random.per_mille(100);
        let region = self.nodes[owner as usize].regions.get(&key);
        let length = access.byte_len().unwrap_or(usize::MAX);
        let is_allowed = region.is_some_and(|region| {
            let has_right = match access {
                QuickAccess::Read(_) => region.reads,
                QuickAccess::Write(_) => region.writes,
                QuickAccess::Change(_) => region.changes,
            };
            region.allow(has_right, offset, length as u64)
        });
        let bytes = self.view.as_mut().and_then(|view| {
            let start = usize::try_from(offset).ok()?;
            view.bytes.get_mut(start..start.checked_add(length)?)
        });
        let Some(bytes) = bytes.filter(|_| is_allowed) else { return false };
        match access {
            QuickAccess::Read(room) => {
                room.fill(bytes);
            }
            QuickAccess::Write(from) if does_half => {
                bytes[..length / 2].copy_from_slice(&from[..length / 2]);
                return false;
            }
            QuickAccess::Write(from) => bytes.copy_from_slice(from),
            QuickAccess::Change(changes) => return words::change_elements(bytes, changes),
        }
        true
    }

    /// The next access of a worker that is due, with the number of the region's owner. Accesses
    /// that their region doesn't allow end here. [`Net::end_access`] follows.
    pub(crate) fn take_due(&mut self, at: u32) -> Option<(u32, RegionAccess)> {
        let clock = self.clock;
        let hurry = self.hurry;
        let has_several = self.has_several_accesses();
        loop {
            let me = &self.nodes[at as usize];
            let may_be_next = |next: &usize| {
                let Accessing { ready, progress, .. } = &me.accesses[*next];
                let is_due = hurry || *ready <= clock;
                is_due && *progress == AccessProgress::Waiting && me.may_pass(*next)
            };
            let due: Vec<usize> = (0..me.accesses.len()).filter(may_be_next).collect();
            let mut next = *due.first()?;
            // Mostly a write passes the reads before it.
            if has_several && self.random.per_mille(750) {
                next = *due.last()?;
            }
            let accessing = &mut self.nodes[at as usize].accesses[next];
            accessing.progress = AccessProgress::Taken;
            let buffer = std::mem::take(&mut accessing.access.buffer);
            let access = RegionAccess { buffer, ..accessing.access };
            let me = &self.nodes[at as usize];
            let owner = me.peers[access.peer.index()].node;
            let region = self.nodes[owner as usize].regions.get(&access.of.key);
            let is_allowed = region.is_some_and(|region| {
                let has_right = match access.kind {
                    AccessKind::Read => region.reads,
                    AccessKind::Write => region.writes,
                };
                region.allow(has_right, access.of.offset, access.buffer.len() as u64)
            });
            if is_allowed && (has_several || self.random.per_mille(self.config.accesses_per_mille))
            {
                return Some((owner, access));
            }
            self.end_access(at, access, false);
        }
    }

    /// The access that [`Net::take_due`] gave was carried out, or could not be.
    pub(crate) fn end_access(&mut self, at: u32, access: RegionAccess, is_done: bool) {
        let mut accesses = self.nodes[at as usize].accesses.iter_mut();
        let taken = accesses.find(|accessing| accessing.progress == AccessProgress::Taken);
        if let Some(taken) = taken {
            taken.access = access;
            taken.progress = AccessProgress::Ended { is_done };
        }
    }

    /// The end of an access to which no earlier one is under way to the same peer.
    pub(super) fn next_accessed(&mut self, at: u32, network: Network) -> Option<Ready> {
        let me = &mut self.nodes[at as usize];
        let next = (0..me.accesses.len()).find(|next| {
            let Accessing { access, progress, .. } = &me.accesses[*next];
            let is_of = me.peers[access.peer.index()].network == network;
            let mut earlier = me.accesses[..*next].iter();
            is_of
                && matches!(progress, AccessProgress::Ended { .. })
                && earlier.all(|earlier| earlier.access.peer != access.peer)
        })?;
        Some(Ready::Accessed(me.report_access(next)))
    }
}
