//! The end of a peer, and of the device.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use tagmatch_ucx_sys as sys;

use super::Ucx;
use super::operations::{Canceller, Kind};
use super::peers::Stage;
use crate::matching::MatchingEvent;
use crate::{DownReason, PeerId};

/// What a peer that has gone had sent may still come in for so long at least, until UCX finds nothing for
/// so many polls; and for so long at most.
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_POLLS: u32 = 64;
/// How long what was sent may take to leave a device that is being closed.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long a device that is dropped lets UCX progress until nothing is under way.
const DROP_MAX: Duration = Duration::from_secs(3);

impl Ucx {
    /// Begins a peer's end.
    pub(super) fn break_with(&mut self, peer: PeerId, reason: DownReason) {
        let Some(entry) = self.peers.find_mut(peer) else { return };
        match entry.stage {
            Stage::Ending { .. } | Stage::Down => return,
            Stage::Leaving { .. } if reason == DownReason::Gone => return,
            Stage::Leaving { .. } => {}
            _ => self.peers.leaving.push(peer),
        }
        if reason == DownReason::Gone {
            let until = Instant::now() + LINGER_MIN;
            self.peers.set_stage(peer, Stage::Leaving { reason, until, quiet: 0 });
        } else {
            self.cut_off(peer, reason);
        }
    }

    /// Ends what depends on a peer.
    fn cut_off(&mut self, peer: PeerId, reason: DownReason) {
        self.peers.set_stage(peer, Stage::Ending { reason });
        let Some(entry) = self.peers.find_mut(peer) else { return };
        let (connection, endpoint) = (entry.connection.take(), entry.endpoint.take());
        let waiting = std::mem::take(&mut entry.waiting);
        if let Some(id) = connection {
            self.hang_up(id);
        }
        for index in waiting {
            self.operations.at(index).end(sys::UCS_ERR_CANCELED);
        }
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive && operation.peer.get() == Some(peer) {
                self.worker.cancel(operation, Canceller::PeersEnd);
            }
        }
        // That to oneself has no error handling; what was sent there is thrown away instead.
        if peer != PeerId::ONESELF
            && let Some(endpoint) = endpoint
        {
            self.closing.extend(self.worker.disconnect(endpoint));
        }
    }

    /// Goes on with the ends of peers.
    #[cold]
    pub(super) fn tend_leaving(&mut self, was_busy: bool) {
        let worker = &self.worker;
        self.closing.retain(|request| !worker.has_ended(*request));
        let now = Instant::now();
        if let Some((request, until)) = self.flushing
            && (now >= until || self.worker.has_ended(request))
        {
            // One that takes too long ends with the endpoints.
            self.closing.extend((now >= until).then_some(request));
            self.flushing = None;
        }
        for peer in self.peers.leaving.clone() {
            self.tend_end_of(peer, was_busy, now);
        }
        let peers = &mut self.peers;
        let mut leaving = std::mem::take(&mut peers.leaving);
        leaving.retain(|peer| peers.find(*peer).is_some_and(|entry| entry.stage != Stage::Down));
        peers.leaving = leaving;
    }

    fn tend_end_of(&mut self, peer: PeerId, was_busy: bool, now: Instant) {
        let Some(entry) = self.peers.find_mut(peer) else { return };
        match entry.stage {
            Stage::Leaving { reason, until, quiet } => {
                let quiet = if was_busy { 0 } else { quiet + 1 };
                let has_lingered = now >= until && quiet >= LINGER_POLLS;
                if self.flushing.is_none() && (has_lingered || now >= until + LINGER_MAX) {
                    self.cut_off(peer, reason);
                } else {
                    entry.stage = Stage::Leaving { reason, until, quiet };
                }
            }
            Stage::Ending { reason } => {
                if peer == PeerId::ONESELF {
                    self.discard_own();
                }
                let is_over = self.peers.find(peer).is_some_and(|entry| entry.live == 0);
                if is_over && !self.operations.has_ends() {
                    self.peers.set_stage(peer, Stage::Down);
                    self.events.push_back(MatchingEvent::PeerDown { peer, reason });
                }
            }
            _ => {}
        }
    }

    /// Throws away what was sent to oneself, so that its sends end.
    fn discard_own(&mut self) {
        let own = self.peers.find(PeerId::ONESELF).and_then(|entry| entry.its_number);
        let Ok(wire) = self.carrier.pattern(0, 0, own) else { return };
        while let Some(found) = self.worker.probe(wire, true) {
            self.discard(found);
        }
    }

    /// See [`MatchingDevice::close`](crate::matching::MatchingDevice::close). What was sent is let out first.
    pub(super) fn close_all(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        self.doors.close();
        let strangers = self.connections.iter().filter(|(_, other)| other.owner.is_none());
        for id in strangers.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.hang_up(id);
        }
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive {
                self.worker.cancel(operation, Canceller::Caller);
            }
        }
        let now = Instant::now();
        self.flushing = self.worker.flush().map(|request| (request, now + FLUSH_MAX));
        for peer in self.peers.ids() {
            let Some(stage) = self.peers.find(peer).map(|entry| entry.stage) else { continue };
            let reason = DownReason::Disconnected;
            match stage {
                Stage::Up | Stage::Greeted => {
                    let leaving = Stage::Leaving { reason, until: now, quiet: LINGER_POLLS };
                    self.peers.set_stage(peer, leaving);
                    self.peers.leaving.push(peer);
                }
                _ => self.break_with(peer, reason),
            }
        }
    }

    /// Whether nothing is left that UCX may still touch.
    fn is_over(&self) -> bool {
        self.operations.live() == 0
            && self.closing.is_empty()
            && self.flushing.is_none()
            && self.peers.leaving.is_empty()
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        if !self.worker.is_own_process() {
            // A forked child: UCX's memory here is a copy that nothing may be done with.
            return;
        }
        self.close_all();
        for found in self.held.release_all() {
            self.discard(found);
        }
        let deadline = Instant::now() + DROP_MAX;
        while !self.is_over() && Instant::now() < deadline {
            if self.next_event().is_none() {
                std::thread::yield_now();
            }
        }
        if !self.is_over() {
            // UCX may still read or write what is under way: that is left to it, with the worker.
            return;
        }
        // SAFETY: dropped once, here; nothing uses either afterwards. The worker goes first, for it has
        // pointers into the table.
        unsafe {
            ManuallyDrop::drop(&mut self.worker);
            ManuallyDrop::drop(&mut self.operations);
        }
    }
}
