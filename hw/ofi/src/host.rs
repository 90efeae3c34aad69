//! What the handshake asks of this device.

use std::time::{Duration, Instant};

use tagmatch_device::PeerId;
use tagmatch_device::matching::MatchingEvent;
use tagmatch_fabric::handshake::{Hello, Meeting, MeetingHost, Refusal, Sent};

use super::OfiTransport;
use super::endpoint::Lane;
use super::link::OfiLink;
use super::operations::{Kind, OfiOperation};
use super::provider::Way;

/// How long libfabric may take to end the operations that depend on a peer which has ended.
const LET_GO_MAX: Duration = Duration::from_millis(200);

impl MeetingHost for OfiTransport {
    type Link = OfiLink;

    fn meeting(&self) -> &Meeting<OfiLink> {
        &self.core.meeting
    }

    fn meeting_mut(&mut self) -> &mut Meeting<OfiLink> {
        &mut self.core.meeting
    }

    fn adopt(&mut self, peer: PeerId, hello: &Hello) -> Result<(), Refusal> {
        let way = Way::parse(&hello.worker).ok_or(Refusal::Invalid)?;
        if way.provider != self.provider.name {
            return Err(Refusal::NoTransport);
        }
        if way.carriage != self.carrier.fingerprint() {
            return Err(Refusal::Layout);
        }
        let [name, side] = way.names;
        if !self.endpoint.is_name(name) || self.endpoint.has_side() != self.endpoint.is_name(side) {
            return Err(Refusal::Invalid);
        }
        let address = self.endpoint.insert(name).ok_or(Refusal::NoTransport)?;
        let side = if self.endpoint.has_side() {
            self.endpoint.insert(side).ok_or(Refusal::NoTransport)?
        } else {
            address
        };
        if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
            (entry.link.address, entry.link.side) = (Some(address), side);
            self.post_early();
        }
        Ok(())
    }

    fn launch_waiting(&mut self, peer: PeerId) {
        if !self.launch_those_waiting(peer) && !self.blocked.contains(&peer) {
            self.blocked.push(peer);
        }
    }

    /// That a peer is up is told, and messages go to it, once the provider has its connections to
    /// it, which both ends have to poll for: marks have gone both ways then. The end with the
    /// smaller address sends its mark first, so that there is one connection: two at once are one
    /// too many for `tcp`, which begins anew.
    fn tell(&mut self, event: MatchingEvent) {
        match event {
            MatchingEvent::PeerUp { peer } => {
                let own = self.core.meeting.address;
                let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
                entry.link.is_rising = true;
                self.rising.push((Instant::now() + self.core.meeting.connect_timeout, peer));
                let lanes = self.endpoint.lanes();
                for lane in lanes {
                    entry.link.marks(*lane).is_due = true;
                }
                let is_first = own < entry.address;
                for lane in lanes {
                    let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
                    if is_first || entry.link.marks(*lane).has_arrived {
                        self.mark(peer, *lane);
                    }
                }
            }
            other => self.core.events.push_back(other),
        }
    }

    fn is_drained(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.core.meeting.peers.find(peer) else { return true };
        if peer == PeerId::ONESELF || entry.sent == Sent::Nothing {
            return true;
        }
        if !entry.link.waiting.is_empty() || self.core.sends_of(peer) > 0 {
            return false;
        }
        let is_asked =
            self.core.meeting.peers.find(peer).is_some_and(|entry| entry.link.mark.is_some());
        let is_flushed =
            self.core.meeting.peers.find(peer).is_some_and(|e| e.sent == Sent::Flushed);
        if !is_flushed && !is_asked {
            self.mark(peer, Lane::Messages);
        }
        is_flushed
    }

    fn cut_off(&mut self, peer: PeerId) {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        entry.link.until = Some(Instant::now() + LET_GO_MAX);
        let waiting = std::mem::take(&mut entry.link.waiting);
        self.blocked.retain(|blocked| *blocked != peer);
        for key in waiting {
            match self.core.operations.at(key).map(|operation| (operation.kind, operation.parent)) {
                Some((Kind::Send, _)) => self.end_lost(key),
                Some((Kind::PieceOut, parent)) => {
                    self.core.operations.remove(key);
                    self.piece_gone(parent, true);
                }
                _ => drop(self.core.operations.remove(key)),
            }
        }
        self.cancel_pieces(peer);
        self.end_writes(peer);
        let depends = |operation: &OfiOperation| operation.peer == Some(peer) && !operation.is_told;
        for key in self.core.operations.keys(depends) {
            let Some(operation) = self.core.operations.at(key) else { continue };
            if let Some(long) = &mut operation.long {
                long.is_broken = true;
            }
            match operation.kind {
                Kind::Send | Kind::Receive if operation.long.is_some() && !operation.is_held() => {
                    self.end_lost(key);
                }
                Kind::Send if !operation.is_held() => self.end_lost(key),
                Kind::Receive => self.cancel_with_peer(key),
                // Nobody waits for the end of a packet.
                Kind::ControlOut => operation.is_told = true,
                _ => {}
            }
        }
    }

    /// libfabric has a moment to end what it has. What it keeps then stays in the table until the
    /// device is dropped, and is reported without its buffer; memory that is only lent is waited
    /// for.
    fn is_let_go(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.core.meeting.peers.find(peer) else { return true };
        if entry.live > 0 && entry.link.until.is_none_or(|until| until <= Instant::now()) {
            let is_stuck = |operation: &OfiOperation| {
                let depends = matches!(operation.kind, Kind::Send | Kind::Receive)
                    && operation.peer == Some(peer)
                    && !operation.is_told;
                depends && (!operation.lends() || operation.buffer.is_vec())
            };
            for key in self.core.operations.keys(is_stuck) {
                self.end_lost(key);
            }
        }
        self.core.meeting.peers.find(peer).is_none_or(|entry| entry.live == 0)
    }
}
