//! The sending side. A message goes out at once if no other message to its peer waits; otherwise it
//! waits behind the others, in order.
//!
//! ```text
//!            eager, in credit, nothing before it, room
//! send --------------------------------------------------> on its way, complete
//!   \
//!    +--> backlog of the peer --head--> eager        --> complete, or waits for its FIN
//!               ^                 |\--> fragments    --> complete after the last one
//!               |                  \--> rendezvous   --> waits for its FIN
//!               +---- no room: at the next progress; no credit: when a credit message comes
//! ```

use std::collections::HashSet;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, Device, ExposureId, Outgoing, PeerId, Refused};

use crate::config::EngineConfig;
use crate::core::Core;
use crate::credit::Amount;
use crate::error::Fault;
use crate::peers::peer::{PeerState, Queued};
use crate::requests::request::SendMode;
use crate::slices::{self, Scratch};
use crate::todo::{Operation, SendMemory, Todo};

/// Why the head of a backlog was not sent, and what it waits for.
pub(super) enum Blocked {
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
pub(super) type Sent = Result<(), (Queued, Blocked)>;

impl From<Refused> for Blocked {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Blocked::Room,
            // `TooLong` can't be, for `eager_max` is at most what the peer has announced.
            Refused::NotUp | Refused::Down | Refused::TooLong => Blocked::Down,
        }
    }
}

/// The state of the sending side.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(super) eager_max: usize,
    fragmented_max: usize,
    pub(super) operations_max: u32,
    /// Peers whose queues wait for room on the way to them.
    pub(crate) waiting_for_room: Vec<PeerId>,
    /// Peers whose backlogs wait for an operation to end.
    waiting_for_place: Vec<PeerId>,
    /// Buffers that the device exposes, including those of operations that have ended and are not
    /// yet cleaned up.
    pub(super) exposed: usize,
    pub(super) scratch: Scratch,
}

impl Sending {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Sending {
            eager_max: config.eager_max,
            fragmented_max: config.fragmented_max,
            operations_max: config.operations_max,
            waiting_for_room: Vec::new(),
            waiting_for_place: Vec::new(),
            exposed: 0,
            scratch: Scratch::default(),
        }
    }

    /// Puts a send at the end of its peer's backlog, and sends it if nothing waits before it and
    /// there is room.
    pub(crate) fn queue<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        send: Queued,
    ) {
        let peer = core.state.peer_mut(id);
        peer.backlog.push_back(send);
        if peer.backlog.len() == 1 && !peer.waits_for_room {
            self.flush(core, device, id);
        }
    }

    /// Sends a control message, behind those that wait.
    pub(crate) fn control<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        bytes: [u8; 16],
    ) {
        let peer = core.state.peer_mut(id);
        match peer.state {
            PeerState::Down(_) => {}
            _ if !peer.controls.is_empty() => peer.controls.push_back(bytes),
            _ => {
                let message = Outgoing { header: &bytes, payload: &[], immediate: None };
                if device.send(id, message) == Err(Refused::Full) {
                    peer.controls.push_back(bytes);
                    self.wait_for_room(core, id);
                }
            }
        }
    }

    /// Ends an operation: its buffer goes back to its owner, and sends that wait for a place are
    /// tried again.
    pub(crate) fn finish<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        operation: Operation,
        result: Result<(), Fault>,
    ) {
        let Operation { request, status, memory } = operation;
        let buffer = match memory {
            SendMemory::Exposed(id) => self.take_back(device, status.source, id),
            SendMemory::Sent(buffer) => buffer,
        };
        let state = &mut core.state;
        state.requests.complete(request, result.map(|()| status), slices::of_owner(buffer));
        state.todo.extend(self.waiting_for_place.drain(..).map(Todo::Flush));
    }

    /// Tries again to send to the peers for whose messages the device had no room.
    pub(crate) fn retry<D: Device>(&mut self, core: &mut Core, device: &mut D) {
        for peer in std::mem::take(&mut self.waiting_for_room) {
            core.state.peer_mut(peer).waits_for_room = false;
            self.flush(core, device, peer);
        }
    }

    /// Peers were forgotten.
    pub(crate) fn forget(&mut self, forgotten: &HashSet<PeerId>) {
        self.waiting_for_place.retain(|peer| !forgotten.contains(peer));
    }

    /// The peers to which the oldest waiting send waits for credit, and for each the number of
    /// sends that have left its backlog so far. Linear in the peers.
    pub(crate) fn credit_waits(&self, core: &Core) -> Vec<(PeerId, u64)> {
        let waits = core.state.peers.iter().filter(|peer| {
            // A send may also wait for control messages, for room, or for a place for an operation.
            let is_first = peer.is_connected() && peer.controls.is_empty() && !peer.waits_for_room;
            is_first && !peer.backlog.is_empty() && !self.waiting_for_place.contains(&peer.id)
        });
        waits.map(|peer| (peer.id, peer.sends_gone)).collect()
    }

    fn wait_for_room(&mut self, core: &mut Core, id: PeerId) {
        let state = &mut core.state;
        if !std::mem::replace(&mut state.peer_mut(id).waits_for_room, true) {
            self.waiting_for_room.push(id);
            state.counters.room_stalls += 1;
        }
    }

    /// Sends the waiting messages of a peer, until one has to wait again.
    pub(crate) fn flush<D: Device>(&mut self, core: &mut Core, device: &mut D, id: PeerId) {
        let peer = core.state.peer_mut(id);
        if peer.state != PeerState::Up {
            return;
        }
        let had_controls = !peer.controls.is_empty();
        while let Some(bytes) = peer.controls.front() {
            let message = Outgoing { header: bytes, payload: &[], immediate: None };
            if device.send(id, message) == Err(Refused::Full) {
                return self.wait_for_room(core, id);
            }
            peer.controls.pop_front();
        }
        if had_controls {
            // A peer is granted no credit while control messages wait for it.
            core.state.grant_credit(id);
        }
        // Control messages go first: the companion of a rendezvous that was just sent may be one of
        // them.
        while core.state.peer_mut(id).controls.is_empty()
            && let Some(head) = core.state.peer_mut(id).backlog.pop_front()
        {
            if let Err((head, blocked)) = self.send_head(core, device, id, head) {
                core.state.peer_mut(id).backlog.push_front(head);
                match blocked {
                    Blocked::Room => self.wait_for_room(core, id),
                    Blocked::Place if self.waiting_for_place.contains(&id) => {}
                    Blocked::Place => self.waiting_for_place.push(id),
                    Blocked::Credit => core.state.counters.credit_stalls += 1,
                    Blocked::Down => {}
                }
                return;
            }
            core.state.peer_mut(id).sends_gone += 1;
        }
    }

    /// Sends one message, eager or as a rendezvous request, as its size, its mode and the credit
    /// allow.
    fn send_head<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        send: Queued,
    ) -> Sent {
        let peer = core.state.peer_mut(id);
        let length = send.buffer.total_len();
        let eager = Amount::eager(length);
        let small = length <= self.eager_max.min(peer.eager_max);
        // A synchronous message without payload is an eager message that wants a FIN. It could be a
        // rendezvous of length zero, which no hardware was seen to support, and which means the
        // same.
        let is_fragmented = send.mode == SendMode::Standard
            && length <= self.fragmented_max.min(peer.fragmented_max);
        let asks_for_match = send.mode == SendMode::Synchronous && length > 0;
        if small && !asks_for_match && peer.allowance.covers(eager) {
            return self.send_eager(core, device, id, send, eager);
        }
        if send.sent > 0 || !small && is_fragmented && peer.allowance.covers(eager) {
            return self.send_fragments(core, device, id, send, eager);
        }
        if length == 0 || !peer.allowance.covers(Amount::RENDEZVOUS) {
            return Err((send, Blocked::Credit));
        }
        let is_turned = (small || is_fragmented) && !asks_for_match;
        core.state.counters.eager_turned += u64::from(is_turned);
        self.send_rendezvous(core, device, id, send)
    }

    pub(super) fn begin(&self, core: &mut Core, operation: Operation) -> Option<Key> {
        core.operations.insert(operation, self.operations_max).ok()
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
