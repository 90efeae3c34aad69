//! Backlogs: sends that wait for room, for credit or for a place, first in, first out.

use std::collections::HashSet;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, Device, ExposureId, Outgoing, PeerId, Refused};

use super::Sending;
use crate::credit::Amount;
use crate::error::{Fault, PeerFault};
use crate::peers::peer::{BacklogSend, PeerState};
use crate::requests::request::SendMode;
use crate::rma::RmaTurn;
use crate::slices;
use crate::state::ProtocolState;
use crate::todo::{Operation, SendMemory, Todo};

/// Why the head of a backlog was not sent, and what it waits for.
pub(super) enum WhyQueued {
    /// The device has no room for messages to the peer. The send waits until it has.
    Room,
    /// All places for operations, or for exposed buffers, are taken. The send waits until one is
    /// free.
    Place,
    /// The peer's credit is used up. The send waits for its next credit message.
    Credit,
    /// The peer is going down. The send ends once the device has said so.
    Down,
}

/// The outcome of an attempt to send the head of a backlog.
pub(super) type SendOutcome = Result<(), (BacklogSend, WhyQueued)>;

impl From<Refused> for WhyQueued {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => WhyQueued::Room,
            // `TooLong` can't be, for `eager_max` is at most what the peer has announced.
            Refused::NotUp | Refused::Down | Refused::TooLong => WhyQueued::Down,
        }
    }
}

/// The head of the backlog waits for credit. It is counted once, however often it is tried.
fn count_credit_stall(state: &mut ProtocolState, id: PeerId) {
    let peer = state.peer_mut(id);
    let stalled = Some(peer.sends_gone);
    let before = std::mem::replace(&mut peer.credit_stalled, stalled);
    state.counters.credit_stalls += u64::from(before != stalled);
}

impl Sending {
    /// Puts a send at the end of its peer's backlog, and sends it if nothing waits before it and
    /// there is room.
    pub(crate) fn queue<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        send: BacklogSend,
    ) {
        let id = send.message.peer;
        let peer = state.peer_mut(id);
        peer.backlog.push_back(send);
        peer.sends_queued += 1;
        if peer.backlog.len() == 1 && !peer.waits_for_room {
            self.flush(state, device, id);
        }
    }

    /// Sends a control message, behind those that wait.
    pub(crate) fn control<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        id: PeerId,
        bytes: [u8; 16],
    ) {
        let peer = state.peer_mut(id);
        match peer.state {
            PeerState::Down(_) => {}
            _ if !peer.controls.is_empty() => peer.controls.push_back(bytes),
            _ => {
                let message = Outgoing { header: &bytes, payload: &[], immediate: None };
                if device.send(id, message) == Err(Refused::Full) {
                    peer.controls.push_back(bytes);
                    self.wait_for_room(state, id);
                }
            }
        }
    }

    /// Ends an operation: its buffer goes back to its owner, and sends that wait for a place are
    /// tried again.
    pub(crate) fn finish<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        operation: Operation,
        result: Result<(), Fault>,
    ) {
        let Operation { request, status, memory } = operation;
        let buffer = match memory {
            SendMemory::Exposed(id) => self.take_back(device, status.source, id),
            SendMemory::Sent(buffer) => buffer,
        };
        state.requests.complete(request, result.map(|()| status), slices::of_owner(buffer));
        state.todo.extend(self.waiting_for_place.drain(..).map(Todo::Flush));
    }

    /// Tries again to send to the peers for whose messages the device had no room.
    pub(crate) fn retry<D: Device>(&mut self, state: &mut ProtocolState, device: &mut D) {
        self.has_more = false;
        for id in std::mem::take(&mut self.waiting_for_room) {
            state.peer_mut(id).waits_for_room = false;
            self.flush(state, device, id);
            let peer = state.peer_mut(id);
            peer.is_stalled &= peer.waits_for_room;
        }
    }

    /// Peers were forgotten.
    pub(crate) fn forget(&mut self, forgotten: &HashSet<PeerId>) {
        self.waiting_for_place.retain(|peer| !forgotten.contains(peer));
    }

    /// The peers to which the oldest waiting send waits for credit, and for each the number of
    /// sends that have left its backlog so far. Linear in the peers.
    pub(crate) fn credit_waits(&self, state: &ProtocolState) -> Vec<(PeerId, u64)> {
        let waits = state.peers.iter().filter(|peer| {
            // A send may also wait for control messages, for room, or for a place for an operation.
            let is_first = peer.is_connected() && peer.controls.is_empty() && !peer.waits_for_room;
            is_first && !peer.backlog.is_empty() && !self.waiting_for_place.contains(&peer.id)
        });
        waits.map(|peer| (peer.id, peer.sends_gone)).collect()
    }

    fn wait_for_room(&mut self, state: &mut ProtocolState, id: PeerId) {
        let was_stalled = std::mem::replace(&mut state.peer_mut(id).is_stalled, true);
        state.counters.room_stalls += u64::from(!was_stalled);
        self.try_again(state, id);
    }

    /// Has the peer flushed again by the next progress.
    fn try_again(&mut self, state: &mut ProtocolState, id: PeerId) {
        if !std::mem::replace(&mut state.peer_mut(id).waits_for_room, true) {
            self.waiting_for_room.push(id);
        }
    }

    /// Sends what waits for a peer until something has to wait again: messages, and one-sided
    /// operations with their answers. Either goes first every other time.
    pub(crate) fn flush<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        id: PeerId,
    ) {
        if state.peer_mut(id).state != PeerState::Up {
            return;
        }
        self.rma_goes_first = !self.rma_goes_first;
        if self.rma_goes_first {
            self.flush_rma(state, device, id);
        }
        self.flush_messages(state, device, id);
        if !self.rma_goes_first {
            self.flush_rma(state, device, id);
        }
    }

    fn flush_rma<D: Device>(&mut self, state: &mut ProtocolState, device: &mut D, id: PeerId) {
        let ProtocolState { rma, peers, .. } = state;
        match rma.send(&peers[id.index()], device) {
            RmaTurn::Over => {}
            RmaTurn::More => {
                self.has_more = true;
                state.peer_mut(id).is_stalled = false;
                self.try_again(state, id);
            }
            RmaTurn::NoRoom => self.wait_for_room(state, id),
            RmaTurn::TooShort => {
                let what = "it takes no messages of 64 bytes, which one-sided operations need";
                state.todo.push(Todo::Break(id, PeerFault::Device { what }));
            }
        }
    }

    /// Sends the waiting messages of a peer, until one has to wait again.
    fn flush_messages<D: Device>(&mut self, state: &mut ProtocolState, device: &mut D, id: PeerId) {
        let peer = state.peer_mut(id);
        let had_controls = !peer.controls.is_empty();
        while let Some(bytes) = peer.controls.front() {
            let message = Outgoing { header: bytes, payload: &[], immediate: None };
            if device.send(id, message) == Err(Refused::Full) {
                return self.wait_for_room(state, id);
            }
            peer.controls.pop_front();
        }
        if had_controls {
            // A peer is granted no credit while control messages wait for it.
            state.grant_credit(id);
        }
        // Control messages go first: the companion of a rendezvous that was just sent may be one of
        // them.
        while state.peer_mut(id).controls.is_empty()
            && let Some(head) = state.peer_mut(id).backlog.pop_front()
        {
            if let Err((head, blocked)) = self.send_head(state, device, head) {
                state.peer_mut(id).backlog.push_front(head);
                match blocked {
                    WhyQueued::Room => self.wait_for_room(state, id),
                    WhyQueued::Place if self.waiting_for_place.contains(&id) => {}
                    WhyQueued::Place => self.waiting_for_place.push(id),
                    WhyQueued::Credit => count_credit_stall(state, id),
                    WhyQueued::Down => {}
                }
                return;
            }
            state.peer_mut(id).sends_gone += 1;
        }
    }

    /// Sends one message, eager or as a rendezvous request, as its size, its mode and the credit
    /// allow.
    fn send_head<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        send: BacklogSend,
    ) -> SendOutcome {
        let peer = state.peer_mut(send.message.peer);
        let length = send.message.payload.total_len();
        let eager = Amount::eager(length);
        let small = length <= self.eager_max.min(peer.eager_max);
        // A synchronous message without payload is an eager message that wants a FIN. It could be a
        // rendezvous of length zero, which no hardware was seen to support, and which means the
        // same.
        // The device chooses between fragments and a read, and learns from what it has chosen.
        let has_choice = !small
            && send.mode == SendMode::Standard
            && length <= self.fragmented_max.min(peer.fragmented_max);
        let is_fragmented = has_choice && device.sends_fragments(send.message.peer, length);
        let asks_for_match = send.mode == SendMode::Synchronous && length > 0;
        if small && !asks_for_match && peer.allowance.covers(eager) {
            return self.send_eager(state, device, send, eager);
        }
        let id = send.message.peer;
        if send.sent > 0 || is_fragmented && peer.allowance.covers(eager) {
            self.send_fragments(state, device, send, eager)?;
            device.note_sent(id, length);
            return Ok(());
        }
        if length == 0 || !peer.allowance.covers(Amount::RENDEZVOUS) {
            return Err((send, WhyQueued::Credit));
        }
        let is_turned = (small || is_fragmented) && !asks_for_match;
        state.counters.eager_turned += u64::from(is_turned);
        self.send_rendezvous(state, device, send)?;
        if has_choice {
            device.note_sent(id, length);
        }
        Ok(())
    }

    pub(super) fn begin(&self, state: &mut ProtocolState, operation: Operation) -> Option<Key> {
        state.operations.insert(operation, self.operations_max).ok()
    }

    pub(super) fn take_back<D: Device>(
        &mut self,
        device: &mut D,
        reader: PeerId,
        id: ExposureId,
    ) -> Buffer {
        self.exposed -= 1;
        device.withdraw(reader, id).unwrap_or_default()
    }
}
