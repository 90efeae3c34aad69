//! The engine: the protocol's state machine and a device, joined.

use tagmatch_hw::{
    Address, Buffer, Device, DeviceError, ExposureId, Outgoing, PeerId, ReadMode,
    ReadRequest, Refused,
};
use tagmatch_soft::{Pattern, Tag};

use crate::core::{Core, Operation, REQUESTS_MAX, SendMemory, Todo, failed, token_of_key};
use crate::counters::Counters;
use crate::credit::{Amount, CreditConfig};
use crate::error::{Fault, PeerFault};
use crate::peer::{PeerState, Queued};
use crate::request::{
    Completion, MessageId, Request, RequestId, SendMode, Started, State, Status,
};
use crate::wire::{AppCtx, Opcode, Rendezvous, Tmh};

/// Whether a synchronous message without payload is a rendezvous of length zero. Its use is unproven
/// on hardware; switched off, it is an eager message that wants a FIN, which means the same where
/// software matches.
const ZERO_LENGTH_RENDEZVOUS: bool = false;

/// Events taken per call of [`Engine::progress`], so that a flood can't keep a caller for ever.
const EVENTS_PER_PROGRESS: usize = 64;

/// Settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The largest payload, in bytes, that is sent at once; larger ones are read by the receiver. The
    /// receiver's announced bound holds as well.
    pub eager_max: usize,
    /// Bounds of unexpected memory.
    pub credit: CreditConfig,
    /// Seed of the hashes: from outside, and secret, or peers can choose tags against it.
    pub seed: u64,
}

/// Matching and protocol on one device. See the crate's page for the flows.
///
/// Not thread-safe by itself. No call blocks. Results come from [`Engine::progress`] and
/// [`Engine::take`].
#[derive(Debug)]
pub struct Engine<D: Device> {
    device: D,
    core: Core,
    eager_max: usize,
    /// Peers whose queues wait for room on the way to them.
    waiting_for_room: Vec<PeerId>,
}

/// Why the head of a backlog did not go out.
enum Blocked {
    /// No room on the way, in the device's tables or in ours; or the peer is going down, which its
    /// event will say.
    Room,
    Credit,
}

impl<D: Device> Engine<D> {
    /// An engine on a device.
    pub fn new(device: D, config: &EngineConfig) -> Self {
        let core = Core::new(config);
        Engine { device, core, eager_max: config.eager_max, waiting_for_room: Vec::new() }
    }

    /// The device, for what it tells about itself.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to arm it and the like.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Connects lazily; see [`Device::connect`].
    pub fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let peer = self.device.connect(address)?;
        self.core.peer_mut(peer);
        Ok(peer)
    }

    /// Why a peer is down, if it is.
    pub fn peer_fault(&self, peer: PeerId) -> Option<PeerFault> {
        match self.core.peers.get(peer.index())?.state {
            PeerState::Down(fault) => Some(fault),
            _ => None,
        }
    }

    /// How messages are read from a peer.
    pub fn read_mode(&self, peer: PeerId) -> ReadMode {
        self.device.read_mode(peer)
    }

    /// Breaks with a peer: everything that depends on it ends with an error.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.break_with(peer, PeerFault::Disconnected);
        self.settle();
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.core.counters;
        counters.posted_now = self.core.posted.len() as u64;
        counters.unexpected_now = self.core.unexpected.len() as u64;
        counters
    }

    /// Requests that the engine knows, results not yet taken included.
    pub fn requests(&self) -> usize {
        self.core.requests.len()
    }

    /// Receives a message into `buffer`: the oldest waiting one that matches, else the first that
    /// comes. The buffer's length is the most that is received.
    #[inline]
    pub fn receive(&mut self, pattern: Pattern, buffer: Buffer) -> Started {
        let started = self.core.receive(pattern, buffer);
        self.settle_started(started)
    }

    /// The envelope of the oldest waiting message that matches. Makes no progress by itself.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Status> {
        self.core.probe(pattern)
    }

    /// Takes that message: nobody else finds it any more. It must be received or discarded.
    pub fn matched_probe(&mut self, pattern: &Pattern) -> Option<(MessageId, Status)> {
        self.core.matched_probe(pattern)
    }

    /// Receives a message that [`Engine::matched_probe`] took.
    pub fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Started {
        let started = self.core.receive_message(message, buffer);
        self.settle_started(started)
    }

    /// Drops a message that [`Engine::matched_probe`] took; its sender completes. `false` if there
    /// is no such message.
    pub fn discard_message(&mut self, message: MessageId) -> bool {
        let found = self.core.discard_message(message);
        self.settle();
        found
    }

    /// Sends a message. Messages to one peer are matched in the order of these calls.
    #[inline]
    pub fn send(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: Buffer,
        mode: SendMode,
    ) -> Started {
        if mode == SendMode::Standard && self.send_at_once(peer, tag, immediate, &buffer) {
            let length = buffer.len() as u64;
            let status = Status { source: peer, tag, length, truncated: false, immediate };
            return Started::Done(Completion { result: Ok(status), buffer });
        }
        self.send_queued(peer, tag, immediate, buffer, mode)
    }

    /// Sends a copy of `payload`, whose owner may use it again at once. Always succeeds unless the
    /// peer is down; what can't go out at once is copied and waits.
    #[inline]
    pub fn inject(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<(), Fault> {
        if self.send_at_once(peer, tag, immediate, payload) {
            return Ok(());
        }
        let buffer = Buffer::from(payload.to_vec());
        match self.send_queued(peer, tag, immediate, buffer, SendMode::Standard) {
            Started::Done(Completion { result, .. }) => result.map(|_| ()),
            Started::Pending(request) => {
                self.detach(request);
                Ok(())
            }
        }
    }

    /// The short way: eager, in credit, nothing before it, room on the way.
    #[inline]
    fn send_at_once(&mut self, id: PeerId, tag: Tag, immediate: Option<u32>, payload: &[u8]) -> bool {
        let Some(peer) = self.core.peers.get_mut(id.index()) else { return false };
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

    #[cold]
    fn send_queued(
        &mut self,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: Buffer,
        mode: SendMode,
    ) -> Started {
        match self.core.peers.get(id.index()).map(|peer| &peer.state) {
            None => return failed(Fault::NoSuchPeer { peer: id }, buffer),
            Some(PeerState::Down(_)) => return failed(self.core.down(id), buffer),
            Some(_) => {}
        }
        let Ok(request) = self.core.requests.insert(Request::new(State::Sending), REQUESTS_MAX)
        else {
            return failed(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        let peer = self.core.peer_mut(id);
        peer.backlog.push_back(Queued { request, mode, tag, immediate, buffer });
        if peer.backlog.len() == 1 && !peer.waits_for_room {
            self.flush(id);
        }
        self.settle_started(Started::Pending(RequestId(request)))
    }

    /// Takes the events that are there, at most 64 per call; returns how many.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let mut events = 0;
        while events < EVENTS_PER_PROGRESS {
            let Some(event) = self.device.poll() else { break };
            self.core.take_event(event);
            events += 1;
            if !self.core.todo.is_empty() {
                self.settle();
            }
        }
        if !self.waiting_for_room.is_empty() {
            self.retry();
        }
        events
    }

    #[cold]
    fn retry(&mut self) {
        for peer in std::mem::take(&mut self.waiting_for_room) {
            self.core.peer_mut(peer).waits_for_room = false;
            self.flush(peer);
        }
        self.settle();
    }

    /// The result of a request that is over; the request is gone then. `None` while it is under
    /// way, and for a stale name.
    #[inline]
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        match self.core.requests.get_mut(request.0)?.state {
            State::Done(_) => match self.core.requests.remove(request.0)?.state {
                State::Done(completion) => Some(completion),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a request is over and its result still here.
    pub fn is_done(&self, request: RequestId) -> bool {
        let state = self.core.requests.get(request.0).map(|request| &request.state);
        matches!(state, Some(State::Done(_)))
    }

    /// Asks to cancel a receive. Its completion tells the outcome: [`Fault::Cancelled`], or the
    /// message that was faster. Sends can't be cancelled (as in MPI-4, where that is deprecated).
    pub fn cancel(&mut self, request: RequestId) {
        let Some(entry) = self.core.requests.get_mut(request.0) else { return };
        match &mut entry.state {
            State::Posted { handle, buffer } => {
                let (handle, buffer) = (*handle, std::mem::take(buffer));
                if self.core.posted.cancel(handle).is_ok() {
                    self.core.counters.cancelled += 1;
                    self.core.complete(request.0, Err(Fault::Cancelled), buffer);
                }
            }
            _ => self.core.counters.cancelled_late += 1,
        }
    }

    /// Lets go of a request: a posted receive is cancelled, anything else goes on to its end by
    /// itself and its buffer is freed there.
    pub fn detach(&mut self, request: RequestId) {
        let Some(entry) = self.core.requests.get_mut(request.0) else { return };
        entry.detached = true;
        match &entry.state {
            State::Done(_) => drop(self.core.requests.remove(request.0)),
            State::Posted { .. } => self.cancel(request),
            _ => {}
        }
    }

    /// Asks that the request be named by [`Engine::take_woken`] when it is over. `false` if it is
    /// over already.
    pub fn watch(&mut self, request: RequestId) -> bool {
        match self.core.requests.get_mut(request.0) {
            Some(Request { state: State::Done(_), .. }) | None => false,
            Some(request) => {
                request.interest = true;
                true
            }
        }
    }

    /// Watched requests that are over since the last call.
    pub fn take_woken(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.core.woken)
    }

    /// Whether [`Engine::take_woken`] has anything to say.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.core.woken.is_empty()
    }

    /// Makes the device's descriptor readable at the next event. `false`: there is something to do
    /// already, call [`Engine::progress`] first.
    pub fn arm(&mut self) -> bool {
        self.device.arm(&self.waiting_for_room)
    }

    /// Ends what [`Engine::arm`] began.
    pub fn disarm(&mut self) {
        self.device.disarm();
    }

    /// Gives the result along if settling ended the operation already.
    #[inline]
    fn settle_started(&mut self, started: Started) -> Started {
        if !self.core.todo.is_empty() {
            self.settle();
        }
        match started {
            Started::Pending(request) => match self.take(request) {
                Some(completion) => Started::Done(completion),
                None => started,
            },
            done => done,
        }
    }

    /// Does what the state machine asked for.
    fn settle(&mut self) {
        while let Some(todo) = self.core.todo.pop() {
            match todo {
                Todo::Control(peer, bytes) => self.control(peer, bytes),
                Todo::Read { request, peer, span, buffer } => {
                    let token = token_of_key(request);
                    let read = ReadRequest { peer, remote: span, into: buffer, token };
                    if let Err((buffer, error)) = self.device.read(read) {
                        self.core.read_done(token, buffer, Err(error));
                    }
                }
                Todo::Finish(operation, result) => self.finish(operation, result),
                Todo::Flush(peer) => self.flush(peer),
                Todo::Break(peer, error) => self.break_with(peer, PeerFault::Protocol(error)),
            }
        }
    }

    fn control(&mut self, id: PeerId, bytes: [u8; 16]) {
        let peer = self.core.peer_mut(id);
        match peer.state {
            PeerState::Down(_) => {}
            _ if !peer.controls.is_empty() => peer.controls.push_back(bytes),
            _ => {
                let message = Outgoing { header: &bytes, payload: &[], immediate: None };
                if self.device.send(id, message) == Err(Refused::Full) {
                    peer.controls.push_back(bytes);
                    self.wait_for_room(id);
                }
            }
        }
    }

    fn finish(&mut self, operation: Operation, result: Result<(), Fault>) {
        let Operation { request, status, memory } = operation;
        let buffer = match memory {
            SendMemory::Exposed(id) => self.device.withdraw(id).unwrap_or_default(),
            SendMemory::Sent(buffer) => buffer,
        };
        self.core.complete(request, result.map(|()| status), buffer);
        // A place in the table of operations is free.
        if !self.core.peer_mut(status.source).backlog.is_empty() {
            self.core.todo.push(Todo::Flush(status.source));
        }
    }

    fn break_with(&mut self, peer: PeerId, fault: PeerFault) {
        if self.core.peers.get(peer.index()).is_some_and(|p| !matches!(p.state, PeerState::Down(_)))
        {
            // Reads come back from the device before its own word that the peer is down.
            self.core.peer_mut(peer).state = PeerState::Down(fault);
            self.core.counters.peer_faults += u64::from(fault != PeerFault::Disconnected);
            self.device.disconnect(peer);
        }
    }

    fn wait_for_room(&mut self, id: PeerId) {
        let peer = self.core.peer_mut(id);
        if !std::mem::replace(&mut peer.waits_for_room, true) {
            self.waiting_for_room.push(id);
            self.core.counters.room_stalls += 1;
        }
    }

    /// Sends what waits for a peer, until it has to wait again.
    fn flush(&mut self, id: PeerId) {
        if self.core.peer_mut(id).state != PeerState::Up {
            return;
        }
        while let Some(bytes) = self.core.peer_mut(id).controls.front() {
            let message = Outgoing { header: bytes, payload: &[], immediate: None };
            if self.device.send(id, message) == Err(Refused::Full) {
                return self.wait_for_room(id);
            }
            self.core.peer_mut(id).controls.pop_front();
        }
        while let Some(head) = self.core.peer_mut(id).backlog.pop_front() {
            if let Err((head, blocked)) = self.send_head(id, head) {
                self.core.peer_mut(id).backlog.push_front(head);
                match blocked {
                    Blocked::Room => self.wait_for_room(id),
                    Blocked::Credit => self.core.counters.credit_stalls += 1,
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
        let asks_for_match = send.mode == SendMode::Synchronous
            && (length > 0 || ZERO_LENGTH_RENDEZVOUS);
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
                    return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Room));
                }
            }
        } else {
            None
        };
        let app_ctx =
            operation.map_or(AppCtx::default(), |k| AppCtx::new(k.index, k.generation).with_ack());
        let header = Tmh { opcode: Opcode::Eager, app_ctx, tag }.emit();
        let message = Outgoing { header: &header, payload: &buffer, immediate };
        if self.device.send(id, message).is_err() {
            operation.map(|key| self.core.operations.remove(key));
            return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Room));
        }
        self.core.peer_mut(id).allowance.spend(cost);
        self.core.counters.eager_sent += 1;
        match operation.and_then(|key| self.core.operations.get_mut(key)) {
            Some(operation) => operation.memory = SendMemory::Sent(buffer),
            None => self.core.complete(request, Ok(status), buffer),
        }
        Ok(())
    }

    fn send_rendezvous(&mut self, id: PeerId, send: Queued) -> Result<(), (Queued, Blocked)> {
        let Queued { request, mode, tag, immediate, buffer } = send;
        let length = buffer.len() as u64;
        let status = Status { source: id, tag, length, truncated: false, immediate };
        let exposure = match self.device.expose(buffer) {
            Ok(exposure) => exposure,
            Err((buffer, DeviceError::Exhausted { .. })) => {
                return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Room));
            }
            Err((buffer, _)) => {
                self.core.complete(request, Err(Fault::NotExposed { peer: id }), buffer);
                return Ok(());
            }
        };
        let memory = SendMemory::Exposed(exposure.id);
        let Some(key) = self.begin(Operation { request, status, memory }) else {
            let buffer = self.take_back(exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Room));
        };
        let app_ctx = AppCtx::new(key.index, key.generation);
        let header = Rendezvous { app_ctx, tag, span: exposure.span, immediate }.emit();
        let message = Outgoing { header: &header, payload: &[], immediate: None };
        if self.device.send(id, message).is_err() {
            self.core.operations.remove(key);
            let buffer = self.take_back(exposure.id);
            return Err((Queued { request, mode, tag, immediate, buffer }, Blocked::Room));
        }
        self.core.peer_mut(id).allowance.spend(Amount::RENDEZVOUS);
        self.core.counters.rendezvous_sent += 1;
        Ok(())
    }

    fn begin(&mut self, operation: Operation) -> Option<crate::slab::Key> {
        self.core.operations.insert(operation, AppCtx::OPERATIONS_MAX).ok()
    }

    fn take_back(&mut self, id: ExposureId) -> Buffer {
        self.device.withdraw(id).unwrap_or_default()
    }
}

