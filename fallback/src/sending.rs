//! Sending: at once where the way is clear, else in order behind what waits already.
//!
//! ```text
//!            eager, in credit, nothing before it, room
//! send --------------------------------------------------> on its way, complete
//!   \
//!    +--> backlog of the peer --head--> eager        --> complete, or waits for its FIN
//!               ^                  \--> rendezvous   --> waits for its FIN
//!               +---- no room: at the next progress; no credit: when a credit message comes
//! ```

use tagmatch_device::{Buffer, Device, DeviceError, ExposureId, Outgoing, PeerId, Refused};
use tagmatch_soft::Tag;

use crate::core::{Operation, SendMemory, failed};
use crate::credit::Amount;
use crate::engine::Engine;
use crate::error::Fault;
use crate::peer::{PeerState, Queued};
use crate::request::{SendMode, Started, Status};
use crate::requests::REQUESTS_MAX;
use crate::wire::{AppCtx, Opcode, Rendezvous, Tmh};

/// Whether a synchronous message without payload is a rendezvous of length zero. Its use is unproven
/// on hardware; switched off, it is an eager message that wants a FIN, which means the same where
/// software matches.
const ZERO_LENGTH_RENDEZVOUS: bool = false;

/// Why the head of a backlog did not go out, and what it waits for.
enum Blocked {
    /// The way is full: for the device to have room.
    Room,
    /// All places for operations, or for exposed buffers, are taken: for one to end.
    Place,
    /// For the peer's credit message.
    Credit,
    /// The peer is going down: for the device to say so, which ends the send.
    Down,
}

impl From<Refused> for Blocked {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Blocked::Room,
            // Too long for what the peer announced can't be: `eager_max` is what it announced.
            Refused::NotUp | Refused::Down | Refused::TooLong => Blocked::Down,
        }
    }
}

impl<D: Device> Engine<D> {
    /// The short way: eager, in credit, nothing before it, room on the way. `false`: nothing was done, and
    /// [`Engine::send_queued`] or [`Engine::inject_queued`] is to be asked.
    #[inline(always)]
    pub fn send_at_once(
        &mut self,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> bool {
        let Some(peer) = self.core.peers.get_mut(id.index()) else {
            return false;
        };
        let cost = Amount::eager(payload.len());
        let fits = payload.len() <= self.eager_max.min(peer.eager_max);
        if !fits || !peer.is_open() || !peer.allowance.covers(cost) {
            return false;
        }
        let header = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx::default(), tag }.emit();
        let sent = self.device.send(id, Outgoing { header: &header, payload, immediate }).is_ok();
        if sent {
            peer.allowance.spend(cost);
            self.core.counters.eager_sent += 1;
        }
        sent
    }

    /// Sends what can't go by [`Engine::send_at_once`]: behind what waits for the peer, and at once if nothing
    /// does and there is room.
    #[cold]
    pub fn send_queued(
        &mut self,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: Buffer,
        mode: SendMode,
    ) -> Started {
        match self.core.peers.get(id.index()).map(|peer| &peer.state) {
            None => return failed(Fault::NoSuchPeer { peer: id }, buffer).into(),
            Some(PeerState::Down(_)) => return failed(self.core.down(id), buffer).into(),
            Some(_) => {}
        }
        let Some(request) = self.core.requests.begin() else {
            return failed(Fault::TooMany { limit: REQUESTS_MAX }, buffer).into();
        };
        let peer = self.core.peer_mut(id);
        peer.backlog.push_back(Queued { request, mode, tag, immediate, buffer });
        if peer.backlog.len() == 1 && !peer.waits_for_room {
            self.flush(id);
        }
        if !self.core.todo.is_empty() {
            self.settle();
        }
        Started::Pending(request)
    }

    /// The same, of a copy of `payload`, whose owner may use it again at once.
    #[cold]
    pub fn inject_queued(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let buffer = Buffer::from(payload.to_vec());
        match self.send_queued(peer, tag, immediate, buffer, SendMode::Standard) {
            Started::Sent(_) => Ok(()),
            Started::Refused(refused) => Err(refused.fault),
            Started::Pending(request) => {
                self.detach(request);
                Ok(())
            }
        }
    }

    pub(crate) fn wait_for_room(&mut self, id: PeerId) {
        let peer = self.core.peer_mut(id);
        if !std::mem::replace(&mut peer.waits_for_room, true) {
            self.waiting_for_room.push(id);
            self.core.counters.room_stalls += 1;
        }
    }

    /// Sends what waits for a peer, until it has to wait again.
    pub(crate) fn flush(&mut self, id: PeerId) {
        if self.core.peer_mut(id).state != PeerState::Up {
            return;
        }
        let had_controls = !self.core.peer_mut(id).controls.is_empty();
        while let Some(bytes) = self.core.peer_mut(id).controls.front() {
            let message = Outgoing { header: bytes, payload: &[], immediate: None };
            if self.device.send(id, message) == Err(Refused::Full) {
                return self.wait_for_room(id);
            }
            self.core.peer_mut(id).controls.pop_front();
        }
        if had_controls {
            // Held back while there were any.
            self.core.grant_credit(id);
        }
        // Controls go first: a rendezvous that was sent here may have left its companion among them.
        while self.core.peer_mut(id).controls.is_empty()
            && let Some(head) = self.core.peer_mut(id).backlog.pop_front()
        {
            if let Err((head, blocked)) = self.send_head(id, head) {
                self.core.peer_mut(id).backlog.push_front(head);
                match blocked {
                    Blocked::Room => self.wait_for_room(id),
                    Blocked::Place if self.waiting_for_place.contains(&id) => {}
                    Blocked::Place => self.waiting_for_place.push(id),
                    Blocked::Credit => self.core.counters.credit_stalls += 1,
                    Blocked::Down => {}
                }
                return;
            }
        }
    }

    /// Sends one message by the way that its size, its mode and the credits allow.
    fn send_head(&mut self, id: PeerId, send: Queued) -> Result<(), (Queued, Blocked)> {
        let peer = self.core.peer_mut(id);
        let length = send.buffer.len();
        let eager = Amount::eager(length);
        let small = length <= self.eager_max.min(peer.eager_max);
        let asks_for_match =
            send.mode == SendMode::Synchronous && (length > 0 || ZERO_LENGTH_RENDEZVOUS);
        if small && !asks_for_match && peer.allowance.covers(eager) {
            return self.send_eager(id, send, eager);
        }
        if length == 0 || !peer.allowance.covers(Amount::RENDEZVOUS) {
            return Err((send, Blocked::Credit));
        }
        self.core.counters.eager_turned += u64::from(small && !asks_for_match);
        self.send_rendezvous(id, send)
    }

    fn send_eager(
        &mut self,
        id: PeerId,
        send: Queued,
        cost: Amount,
    ) -> Result<(), (Queued, Blocked)> {
        let Queued { request, mode, tag, immediate, buffer } = send;
        let length = buffer.len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let acknowledged = mode != SendMode::Standard;
        let operation = if acknowledged {
            let memory = SendMemory::Sent(Buffer::default());
            match self.begin(Operation { request, status, memory }) {
                Some(key) => Some(key),
                None => {
                    return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Place));
                }
            }
        } else {
            None
        };
        let app_ctx =
            operation.map_or(AppCtx::default(), |k| AppCtx::new(k.index, k.generation).with_ack());
        let header = Tmh { opcode: Opcode::Eager, app_ctx, tag }.emit();
        let message = Outgoing { header: &header, payload: &buffer, immediate };
        if let Err(refused) = self.device.send(id, message) {
            operation.map(|key| self.core.operations.remove(key));
            return Err((Queued { request, mode, tag, immediate, buffer }, refused.into()));
        }
        self.core.peer_mut(id).allowance.spend(cost);
        self.core.counters.eager_sent += 1;
        match operation.and_then(|key| self.core.operations.get_mut(key)) {
            Some(operation) => operation.memory = SendMemory::Sent(buffer),
            None => self.core.requests.complete(request, Ok(status), buffer),
        }
        Ok(())
    }

    fn send_rendezvous(&mut self, id: PeerId, send: Queued) -> Result<(), (Queued, Blocked)> {
        let Queued { request, mode, tag, immediate, buffer } = send;
        let length = buffer.len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let exposure = match self.device.expose(buffer) {
            Ok(exposure) => exposure,
            Err((buffer, DeviceError::Exhausted { .. })) if self.exposed > 0 => {
                return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Place));
            }
            Err((buffer, _)) => {
                self.core.requests.complete(request, Err(Fault::NotExposed { peer: id }), buffer);
                return Ok(());
            }
        };
        self.exposed += 1;
        let memory = SendMemory::Exposed(exposure.id);
        let Some(key) = self.begin(Operation { request, status, memory }) else {
            let buffer = self.take_back(exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Place));
        };
        let app_ctx = AppCtx::new(key.index, key.generation);
        let rendezvous = Rendezvous::new(app_ctx, tag, exposure.span, immediate);
        let header = rendezvous.emit();
        let message = Outgoing { header: &header, payload: &[], immediate: None };
        if let Err(refused) = self.device.send(id, message) {
            self.core.operations.remove(key);
            let buffer = self.take_back(exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer }, refused.into()));
        }
        self.core.peer_mut(id).allowance.spend(Amount::RENDEZVOUS);
        self.core.counters.rendezvous_sent += 1;
        for companion in rendezvous.companions() {
            self.control(id, companion);
        }
        Ok(())
    }

    fn begin(&mut self, operation: Operation) -> Option<crate::slab::Key> {
        self.core.operations.insert(operation, self.operations_max).ok()
    }

    pub(crate) fn take_back(&mut self, id: ExposureId) -> Buffer {
        self.exposed -= 1;
        self.device.withdraw(id).unwrap_or_default()
    }
}
