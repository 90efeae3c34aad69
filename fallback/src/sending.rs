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

use tagmatch_device::{Buffer, Device, DeviceError, ExposureId, Outgoing, PeerId, Refused};
use tagmatch_soft::Tag;

use crate::config::EngineConfig;
use crate::core::Core;
use crate::credit::Amount;
use crate::error::Fault;
use crate::peer::{PeerState, Queued};
use crate::request::{SendMode, Status};
use crate::slices::{self, Scratch};
use crate::todo::{Operation, SendMemory, Todo};
use crate::wire::{AppCtx, Fragment, Opcode, Rendezvous, Tmh};
use tagmatch_device::slab::Key;

/// Most bytes of payload in a fragment. A shorter one costs more for each byte.
const FRAGMENT_BYTES_MAX: usize = 8192;
/// Fewest fragments of a message. The receiver takes one while the sender writes the next one.
const FRAGMENTS_MIN: usize = 3;

/// Why the head of a backlog was not sent, and what it waits for.
enum Blocked {
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
type Sent = Result<(), (Queued, Blocked)>;

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
    eager_max: usize,
    fragmented_max: usize,
    operations_max: u32,
    /// Peers whose queues wait for room on the way to them.
    pub(crate) waiting_for_room: Vec<PeerId>,
    /// Peers whose backlogs wait for an operation to end.
    waiting_for_place: Vec<PeerId>,
    /// Buffers that the device exposes, including those of operations that have ended and are not
    /// yet cleaned up.
    exposed: usize,
    scratch: Scratch,
}

/// The payload of each fragment but the last, for a message of `length` bytes to a peer that takes
/// messages of up to `eager_max` bytes. All fragments are about equally long.
fn fragment_bytes(length: usize, eager_max: usize) -> usize {
    // A fragment has a longer header than an eager message.
    let longest = eager_max.saturating_sub(Fragment::BYTES).clamp(1, FRAGMENT_BYTES_MAX);
    let count = length.div_ceil(longest).max(FRAGMENTS_MIN);
    length.div_ceil(count).next_multiple_of(64).min(longest)
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

    /// See [`Engine::send_at_once`](crate::Engine::send_at_once).
    #[inline(always)]
    pub(crate) fn at_once<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> bool {
        let rx = &mut core.receiver;
        let Some(peer) = rx.peers.get_mut(id.index()) else { return false };
        let cost = Amount::eager(payload.len());
        let fits = payload.len() <= self.eager_max.min(peer.eager_max);
        if !fits || !peer.is_open_for(id) || !peer.allowance.covers(cost) {
            return false;
        }
        let header = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx::default(), tag }.emit();
        let sent = device.send(id, Outgoing { header: &header, payload, immediate }).is_ok();
        if sent {
            peer.allowance.spend(cost);
            rx.counters.eager_sent += 1;
        }
        sent
    }

    /// [`Sending::at_once`] for an empty message, or for several slices.
    #[inline(never)]
    pub(crate) fn gathered_at_once<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: &Buffer,
    ) -> bool {
        if buffer.total_len() > self.eager_max {
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let payload = scratch.bytes(buffer);
        let is_sent = self.at_once(core, device, id, tag, immediate, payload);
        self.scratch = scratch;
        is_sent
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
        let peer = core.receiver.peer_mut(id);
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
        let peer = core.receiver.peer_mut(id);
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
        let rx = &mut core.receiver;
        rx.requests.complete(request, result.map(|()| status), slices::of_owner(buffer));
        rx.todo.extend(self.waiting_for_place.drain(..).map(Todo::Flush));
    }

    /// Tries again to send to the peers for whose messages the device had no room.
    pub(crate) fn retry<D: Device>(&mut self, core: &mut Core, device: &mut D) {
        for peer in std::mem::take(&mut self.waiting_for_room) {
            core.receiver.peer_mut(peer).waits_for_room = false;
            self.flush(core, device, peer);
        }
    }

    /// Peers were forgotten.
    pub(crate) fn forget(&mut self, forgotten: &HashSet<PeerId>) {
        self.waiting_for_place.retain(|peer| !forgotten.contains(peer));
    }

    /// The peers to which the oldest waiting send waits for credit, and for each the number of sends
    /// that have left its backlog so far. Linear in the peers.
    pub(crate) fn credit_waits(&self, core: &Core) -> Vec<(PeerId, u64)> {
        let waits = core.receiver.peers.iter().filter(|peer| {
            // What else a send may wait for: control messages, room, or a place for an operation.
            let is_first = peer.is_connected() && peer.controls.is_empty() && !peer.waits_for_room;
            is_first && !peer.backlog.is_empty() && !self.waiting_for_place.contains(&peer.id)
        });
        waits.map(|peer| (peer.id, peer.sends_gone)).collect()
    }

    fn wait_for_room(&mut self, core: &mut Core, id: PeerId) {
        let rx = &mut core.receiver;
        if !std::mem::replace(&mut rx.peer_mut(id).waits_for_room, true) {
            self.waiting_for_room.push(id);
            rx.counters.room_stalls += 1;
        }
    }

    /// Sends the waiting messages of a peer, until one has to wait again.
    pub(crate) fn flush<D: Device>(&mut self, core: &mut Core, device: &mut D, id: PeerId) {
        let peer = core.receiver.peer_mut(id);
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
            core.receiver.grant_credit(id);
        }
        // Control messages go first: the companion of a rendezvous that was just sent may be one of
        // them.
        while core.receiver.peer_mut(id).controls.is_empty()
            && let Some(head) = core.receiver.peer_mut(id).backlog.pop_front()
        {
            if let Err((head, blocked)) = self.send_head(core, device, id, head) {
                core.receiver.peer_mut(id).backlog.push_front(head);
                match blocked {
                    Blocked::Room => self.wait_for_room(core, id),
                    Blocked::Place if self.waiting_for_place.contains(&id) => {}
                    Blocked::Place => self.waiting_for_place.push(id),
                    Blocked::Credit => core.receiver.counters.credit_stalls += 1,
                    Blocked::Down => {}
                }
                return;
            }
            core.receiver.peer_mut(id).sends_gone += 1;
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
        let peer = core.receiver.peer_mut(id);
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
        core.receiver.counters.eager_turned += u64::from(is_turned);
        self.send_rendezvous(core, device, id, send)
    }

    fn send_eager<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        send: Queued,
        cost: Amount,
    ) -> Sent {
        let Queued { request, mode, tag, immediate, buffer, sent } = send;
        let length = buffer.total_len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let acknowledged = mode != SendMode::Standard;
        let operation = if acknowledged {
            let memory = SendMemory::Sent(Buffer::default());
            match self.begin(core, Operation { request, status, memory }) {
                Some(key) => Some(key),
                None => {
                    return Err((
                        Queued { request, mode, tag, immediate, buffer, sent },
                        Blocked::Place,
                    ));
                }
            }
        } else {
            None
        };
        let app_ctx =
            operation.map_or(AppCtx::default(), |k| AppCtx::new(k.index, k.generation).with_ack());
        let header = Tmh { opcode: Opcode::Eager, app_ctx, tag }.emit();
        let payload = self.scratch.bytes(&buffer);
        let message = Outgoing { header: &header, payload, immediate };
        if let Err(refused) = device.send(id, message) {
            operation.map(|key| core.operations.remove(key));
            return Err((Queued { request, mode, tag, immediate, buffer, sent }, refused.into()));
        }
        core.receiver.peer_mut(id).allowance.spend(cost);
        core.receiver.counters.eager_sent += 1;
        match operation.and_then(|key| core.operations.get_mut(key)) {
            Some(operation) => operation.memory = SendMemory::Sent(buffer),
            None => {
                core.receiver.requests.complete(request, Ok(status), slices::of_owner(buffer));
            }
        }
        Ok(())
    }

    /// Sends the fragments of a message that are left, as far as there is room. The first one is
    /// charged for the whole message.
    fn send_fragments<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        mut send: Queued,
        cost: Amount,
    ) -> Sent {
        let payload = self.scratch.bytes(&send.buffer);
        let peer = core.receiver.peer_mut(id);
        let part_max = fragment_bytes(payload.len(), peer.eager_max);
        while send.sent < payload.len() {
            let end = payload.len().min(send.sent + part_max);
            let (length, offset) = (payload.len() as u64, send.sent as u64);
            let (fragment, immediate) = match offset {
                0 => (Fragment::First { tag: send.tag, length }, send.immediate),
                _ => (Fragment::Next { offset }, None),
            };
            let header = fragment.emit();
            let part = &payload[send.sent..end];
            let message = Outgoing { header: &header, payload: part, immediate };
            if let Err(refused) = device.send(id, message) {
                return Err((send, refused.into()));
            }
            if send.sent == 0 {
                peer.allowance.spend(cost);
            }
            send.sent = end;
        }
        let Queued { request, tag, immediate, buffer, .. } = send;
        let length = buffer.total_len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let rx = &mut core.receiver;
        rx.counters.eager_sent += 1;
        rx.counters.fragmented_sent += 1;
        rx.requests.complete(request, Ok(status), slices::of_owner(buffer));
        Ok(())
    }

    fn send_rendezvous<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        send: Queued,
    ) -> Sent {
        let Queued { request, mode, tag, immediate, buffer, sent } = send;
        let length = buffer.total_len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let buffer = match slices::to_expose(device, buffer) {
            Ok(buffer) => buffer,
            Err(buffer) => {
                let fault = slices::no_memory(&buffer);
                core.receiver.requests.complete(request, Err(fault), buffer);
                return Ok(());
            }
        };
        let exposure = match device.expose(id, buffer) {
            Ok(exposure) => exposure,
            Err((buffer, DeviceError::Exhausted { .. })) if self.exposed > 0 => {
                return Err((
                    Queued { request, mode, tag, immediate, buffer, sent },
                    Blocked::Place,
                ));
            }
            Err((buffer, _)) => {
                core.receiver.requests.complete(
                    request,
                    Err(Fault::NotExposed { peer: id }),
                    slices::of_owner(buffer),
                );
                return Ok(());
            }
        };
        self.exposed += 1;
        let memory = SendMemory::Exposed(exposure.id);
        let Some(key) = self.begin(core, Operation { request, status, memory }) else {
            let buffer = self.take_back(device, id, exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer, sent }, Blocked::Place));
        };
        let app_ctx = AppCtx::new(key.index, key.generation);
        let rendezvous = Rendezvous::new(app_ctx, tag, exposure.span, immediate);
        let header = rendezvous.emit();
        let message = Outgoing { header: &header, payload: &[], immediate: None };
        if let Err(refused) = device.send(id, message) {
            core.operations.remove(key);
            let buffer = self.take_back(device, id, exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer, sent }, refused.into()));
        }
        core.receiver.peer_mut(id).allowance.spend(Amount::RENDEZVOUS);
        core.receiver.counters.rendezvous_sent += 1;
        for companion in rendezvous.companions() {
            self.control(core, device, id, companion);
        }
        Ok(())
    }

    fn begin(&self, core: &mut Core, operation: Operation) -> Option<Key> {
        core.operations.insert(operation, self.operations_max).ok()
    }

    fn take_back<D: Device>(&mut self, device: &mut D, reader: PeerId, id: ExposureId) -> Buffer {
        self.exposed -= 1;
        device.withdraw(reader, id).unwrap_or_default()
    }
}
