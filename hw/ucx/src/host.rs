//! What the handshake asks of this device, and how peers end.

use std::time::Instant;

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{DownReason, PeerId};
use tagmatch_fabric::handshake::{Hello, Meeting, MeetingHost, Refusal, Sent, break_with, hear};
use tagmatch_fabric::{Canceller, TagTransport};
use tagmatch_ucx_sys as sys;

use super::UcxTransport;
use super::link::UcxLink;
use super::operations::{RequestKind, UcxOperation};

impl MeetingHost for UcxTransport {
    type Link = UcxLink;

    fn meeting(&self) -> &Meeting<UcxLink> {
        &self.core.meeting
    }

    fn meeting_mut(&mut self) -> &mut Meeting<UcxLink> {
        &mut self.core.meeting
    }

    fn adopt(&mut self, peer: PeerId, hello: &Hello) -> Result<(), Refusal> {
        let fault = self.ends.fault();
        let endpoint = self.worker.connect(&hello.worker, Some(&fault));
        let endpoint = endpoint.map_err(|_| Refusal::NoTransport)?;
        if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
            entry.link.endpoint = Some(endpoint);
            entry.link.fault = Some(fault);
        }
        Ok(())
    }

    fn launch_waiting(&mut self, peer: PeerId) {
        while let Some(entry) = self.core.meeting.peers.find_mut(peer)
            && let Some(key) = entry.link.waiting.pop_front()
        {
            let way = entry.link.endpoint.map(|endpoint| (endpoint, entry.our_number));
            let started = way.map(|way| self.start(way, key));
            match started.unwrap_or(sys::Started::Failed(sys::UCS_ERR_NOT_CONNECTED)) {
                sys::Started::Request(_) => {}
                sys::Started::Complete => self.end(key, sys::UCS_OK),
                sys::Started::Failed(status) => self.end(key, status),
            }
        }
    }

    fn tell(&mut self, event: MatchingEvent) {
        self.core.events.push_back(event);
    }

    /// Whether UCX holds no message that was sent to the peer. Asked right before the endpoint is
    /// closed by force: UCX 1.13 over TCP frees a connection when the peer closes it, and goes on
    /// to write to the freed memory if writes were under way.
    fn is_drained(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return true };
        if entry.link.draining.is_some_and(|request| !self.worker.has_ended(request)) {
            return false;
        }
        let Some(endpoint) = entry.link.endpoint else { return true };
        entry.link.draining = None;
        match self.worker.flush(endpoint) {
            sys::Started::Request(request) => entry.link.draining = Some(request),
            sys::Started::Complete if entry.sent == Sent::Unflushed => entry.sent = Sent::Flushed,
            // The endpoint has failed: UCX sends nothing on it any more.
            sys::Started::Complete | sys::Started::Failed(_) => {}
        }
        entry.link.draining.is_none()
    }

    fn cut_off(&mut self, peer: PeerId) {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        let endpoint = entry.link.endpoint.take();
        let waiting = std::mem::take(&mut entry.link.waiting);
        self.closing.extend(entry.link.draining.take());
        for key in waiting {
            self.end(key, sys::UCS_ERR_CANCELED);
        }
        let is_its = |operation: &UcxOperation| {
            operation.kind == RequestKind::Receive && operation.peer == Some(peer)
        };
        for key in self.core.operations.keys(is_its) {
            self.cancel_by(key, Canceller::PeersEnd);
        }
        // The endpoint to oneself has no error handling; messages that were sent there are
        // discarded instead.
        if peer != PeerId::ONESELF
            && let Some(endpoint) = endpoint
        {
            self.closing.extend(self.worker.disconnect(endpoint));
        }
    }

    fn is_let_go(&mut self, peer: PeerId) -> bool {
        if peer == PeerId::ONESELF {
            self.discard_own();
        }
        let entry = self.core.meeting.peers.find(peer);
        entry.is_some_and(|entry| entry.live == 0) && self.ends.is_empty()
    }
}

impl UcxTransport {
    /// Discards messages that were sent to oneself, so that their sends end.
    fn discard_own(&mut self) {
        let own = self.core.meeting.peers.find(PeerId::ONESELF).and_then(|entry| entry.its_number);
        let Ok(wire) = self.carrier.pattern(0, 0, own) else { return };
        while let Some(found) = self.worker.probe(wire, true) {
            self.discard(found.message);
        }
    }

    /// Handles endpoints that have failed.
    #[cold]
    pub(super) fn take_faults(&mut self) {
        self.ends.has_fault.set(false);
        for peer in self.core.meeting.peers.ids() {
            let Some(entry) = self.core.meeting.peers.find(peer) else { continue };
            let fault = entry.link.fault.as_ref();
            if fault.is_some_and(|fault| fault.has_failed.replace(false)) {
                // UCX may notice the peer's end before the device has read from the socket that the
                // peer leaves.
                if let Some(id) = entry.connection() {
                    hear(self, id, Instant::now());
                }
                break_with(self, peer, DownReason::Gone);
            }
        }
    }
}
