//! Peers that have met this device, while the provider makes its own connection to them.

use std::time::{Duration, Instant};

use tagmatch_device::PeerId;
use tagmatch_device::matching::MatchingEvent;
use tagmatch_fabric::handshake::{MeetingHost, PeerState};

use super::OfiTransport;
use super::endpoint::Lane;
use super::link::Marks;

impl OfiTransport {
    /// Tells that a peer is up; `false` if that was told already.
    pub(super) fn rise(&mut self, peer: PeerId) -> bool {
        if let Some(entry) = self.core.meeting.peers.find_mut(peer)
            && std::mem::take(&mut entry.link.is_rising)
        {
            self.rising.retain(|(_, other)| *other != peer);
            self.core.events.push_back(MatchingEvent::PeerUp { peer });
            self.launch_waiting(peer);
            return true;
        }
        false
    }

    /// A peer's mark has arrived: the connection is there, and can be used the other way.
    pub(super) fn mark_received(&mut self, peer: PeerId, lane: Lane) {
        let own = self.core.meeting.address;
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        let had_arrived = std::mem::replace(&mut entry.link.marks(lane).has_arrived, true);
        if own > entry.address && !had_arrived && entry.link.is_rising {
            self.mark(peer, lane);
        }
        self.may_have_risen(peer);
    }

    /// A mark has gone to a peer, which is up once one has gone on each way.
    pub(super) fn mark_sent(&mut self, peer: PeerId, lane: Lane) {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        entry.link.marks(lane).is_due = false;
        self.may_have_risen(peer);
    }

    fn may_have_risen(&mut self, peer: PeerId) {
        let lanes = self.endpoint.lanes();
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        let is_through = |lane: &Lane| {
            let Marks { is_due, has_arrived } = *entry.link.marks(*lane);
            !is_due && has_arrived
        };
        if lanes.iter().all(is_through) {
            self.rise(peer);
        }
    }

    /// Logs the peers to which the provider has made no connection for so long.
    #[cold]
    pub(super) fn report_late(&mut self, now: Instant) {
        for _ in self.take_late(now) {
            log::warn!("{}", late(&self.provider.name, self.core.meeting.connect_timeout));
        }
    }

    /// The peers that have waited too long for the provider's connection. Each is named once.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<PeerId> {
        let late: Vec<_> = self.rising.extract_if(.., |(at, _)| *at <= now).collect();
        let is_rising = |peer: &PeerId| {
            let entry = self.core.meeting.peers.find(*peer);
            entry.is_some_and(|entry| entry.link.is_rising && entry.state == PeerState::Up)
        };
        late.into_iter().map(|(_, peer)| peer).filter(is_rising).collect()
    }
}

/// Why a peer isn't connected though it lives.
fn late(provider: &str, waited: Duration) -> String {
    format!(
        "libfabric's provider {provider} has made no connection to a peer for {} s. The peer's \
         process lives and has proved itself: it makes no progress, or strangers fill the queue of \
         the provider's port (see docs/devices.md)",
        waited.as_secs_f64()
    )
}
