//! What the handshake asks of this device.

use tagmatch_device::PeerId;
use tagmatch_device::matching::MatchingEvent;
use tagmatch_fabric::handshake::{Hello, Meeting, MeetingHost, Refusal};
use tagmatch_ucx_sys as sys;

use super::Ucx;
use super::link::UcxLink;
use super::operations::{Canceller, Kind};

impl MeetingHost for Ucx {
    type Link = UcxLink;

    fn meeting(&self) -> &Meeting<UcxLink> {
        &self.meeting
    }

    fn meeting_mut(&mut self) -> &mut Meeting<UcxLink> {
        &mut self.meeting
    }

    fn adopt(&mut self, peer: PeerId, hello: &Hello) -> Result<(), Refusal> {
        let fault = self.operations.fault();
        let endpoint =
            self.worker.connect(&hello.worker, Some(fault)).map_err(|_| Refusal::NoTransport)?;
        if let Some(entry) = self.meeting.peers.find_mut(peer) {
            entry.link.endpoint = Some(endpoint);
            entry.link.fault = Some(fault);
        }
        Ok(())
    }

    fn launch_waiting(&mut self, peer: PeerId) {
        self.launch_those_waiting(peer);
    }

    fn tell(&mut self, event: MatchingEvent) {
        self.events.push_back(event);
    }

    fn is_drained(&mut self, peer: PeerId) -> bool {
        self.drain(peer)
    }

    fn cut_off(&mut self, peer: PeerId) {
        let Some(entry) = self.meeting.peers.find_mut(peer) else { return };
        let endpoint = entry.link.endpoint.take();
        let waiting = std::mem::take(&mut entry.link.waiting);
        self.closing.extend(entry.link.draining.take());
        for index in waiting {
            self.operations.at(index).end(sys::UCS_ERR_CANCELED);
        }
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive && operation.peer.get() == Some(peer) {
                self.worker.cancel(operation, Canceller::PeersEnd);
            }
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
        let is_over = self.meeting.peers.find(peer).is_some_and(|entry| entry.live == 0);
        is_over && !self.operations.has_ends()
    }
}
