//! The engine joins the protocol's state machine, the sending side and a device.

use std::hash::{Hash, Hasher};

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, Event, PeerId, ReadError, ReadMode, ReadRequest,
};
use tagmatch_soft::{Pattern, Tag};

use crate::config::EngineConfig;
use crate::core::Core;
use crate::counters::Counters;
#[cfg(doc)]
use crate::credit::CreditConfig;
use crate::credit::CreditNow;
use crate::ends::{EndList, NoEnds};
use crate::error::{Fault, PeerFault};
use crate::forget;
use crate::observer::ListObserver;
use crate::offload::{self, Offload};
use crate::peer::{Peer, PeerState, Queued};
use crate::request::{MessageId, Posted, RequestId, SendMode, Started, Status};
use crate::requests::Requests;
use crate::sending::Sending;
use crate::slices;
use crate::todo::{Operation, Todo};

/// Events taken per call of [`Engine::progress`], so that a flood of messages can't keep a caller
/// for ever.
pub(crate) const EVENTS_PER_PROGRESS: usize = 64;

/// The error number of a read for which there is no memory.
const ENOMEM: i32 = 12;

/// Polls in a row without an event after which [`Engine::close`] takes the device for dead: what it
/// holds is lost then.
pub(crate) const IDLE_POLLS_MAX: u32 = 1 << 20;

/// Matching and protocol on one device. See the crate's page for the flows.
///
/// Not thread-safe by itself. No call blocks. Results come from [`Engine::progress`] and
/// [`Requests::take`].
#[derive(Clone, Debug)]
pub struct Engine<D: Device> {
    pub(crate) device: D,
    pub(crate) core: Core,
    sending: Sending,
}

impl<D: Device> Engine<D> {
    /// An engine on a device.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range.
    pub fn new(mut device: D, config: &EngineConfig) -> Result<Self, DeviceError> {
        config.check()?;
        let (caps, limits) = (device.tags().map(|list| list.caps()), device.limits());
        let offload = caps.map(|caps| Box::new(Offload::new(caps, limits, config)));
        Ok(Engine { device, core: Core::new(config, offload), sending: Sending::new(config) })
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
        self.core.receiver.peer_mut(peer);
        Ok(peer)
    }

    /// Why a peer is down, if it is.
    pub fn peer_fault(&self, peer: PeerId) -> Option<PeerFault> {
        self.core.receiver.fault(peer)
    }

    /// Why no further message of the peer that a pattern names will come, if none will.
    pub fn source_fault(&self, pattern: &Pattern) -> Option<Fault> {
        self.core.receiver.fault_of(PeerId(pattern.source()?.0))
    }

    /// Whether messages of a peer that is down were dropped, to make room for others, before
    /// anybody received them: see [`CreditConfig::pool`].
    pub fn has_lost_messages(&self, peer: PeerId) -> bool {
        let known = self.core.receiver.peers.get(peer.index());
        known.is_some_and(|known| known.id == peer && known.lost_messages)
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

    /// Breaks with all peers and ends everything that is under way: nothing is left on any list,
    /// and every buffer is back in its request.
    pub fn close(&mut self) {
        // What is left on the lists then stays there, as far as the observer knows.
        self.core.receiver.observer.0 = None;
        self.device.close();
        // Twice: events that were waiting may name further peers.
        for _ in 0..2 {
            for index in 0..self.core.receiver.peers.len() {
                let peer = self.core.receiver.peers[index].id;
                self.break_with(peer, PeerFault::Disconnected);
            }
            self.drain();
        }
        // What the NIC holds comes back with its answers.
        self.core.close_posted();
        self.settle();
        self.drain();
    }

    /// Whether other workers would miss something if this engine were closed now: messages that
    /// wait for credit or room, buffers that a peer has yet to read, answers that wait for room.
    /// Looks at all peers and operations.
    ///
    /// Messages that the device has taken count as sent: it delivers them, also if it is closed.
    /// Messages to oneself, and acknowledgements that are to come, don't count.
    pub fn has_unsent(&self) -> bool {
        let waits = |peer: &Peer| !peer.backlog.is_empty() || !peer.controls.is_empty();
        let is_unread = |operation: &Operation| {
            operation.is_unread() && operation.status.source != PeerId::ONESELF
        };
        self.core.receiver.peers.iter().skip(1).any(waits) || self.core.operations.any(is_unread)
    }

    /// Takes all events that come without another worker's doing.
    fn drain(&mut self) {
        let mut idle = 0;
        while idle < IDLE_POLLS_MAX {
            match self.progress() {
                0 if !self.device.has_work() => return,
                0 => idle += 1,
                _ => idle = 0,
            }
        }
    }

    /// Has `observer` told of each change of the matching lists from now on. It is told first of
    /// what is on them. Messages and posted receives then leave the short way, which costs an engine
    /// without a NIC's list some 20 ns a message.
    pub fn observe(&mut self, observer: Box<dyn ListObserver>) {
        self.core.observe(observer);
    }

    /// The messages so far that came past the NIC's list, and whose receive was in the list.
    pub fn past_list(&self) -> u64 {
        self.core.offload.as_ref().map_or(0, |offload| offload.past_list())
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let rx = &self.core.receiver;
        let mut counters = rx.counters;
        counters.not_offloaded.off += counters.posted - counters.not_offloaded.total();
        counters.posted_now = rx.posted.len() as u64;
        counters.unexpected_now = rx.unexpected.listed() as u64;
        counters.unexpected_bytes_now = rx.unexpected.bytes();
        counters.sent_beyond = self.device.sent_beyond();
        counters
    }

    /// Where the credit is that peers are granted. Linear in the peers: for reports and tests.
    pub fn credit(&self) -> CreditNow {
        let is_down = |state: &PeerState| matches!(state, PeerState::Down(_));
        let peers = self.core.receiver.peers.iter();
        self.core.receiver.pool.now(peers.map(|peer| (&peer.grant, is_down(&peer.state))))
    }

    /// The peers to which sends wait for credit now, each with the number of sends that have left its
    /// backlog so far: as long as it is the same, the same send waits. Linear in the peers.
    pub fn credit_waits(&self) -> Vec<(PeerId, u64)> {
        self.sending.credit_waits(&self.core)
    }

    /// The requests of this engine.
    #[inline(always)]
    pub fn requests(&self) -> &Requests {
        &self.core.receiver.requests
    }

    /// The requests of this engine, to have results taken.
    #[inline(always)]
    pub fn requests_mut(&mut self) -> &mut Requests {
        &mut self.core.receiver.requests
    }

    /// Sends that wait for their FIN.
    pub fn operations(&self) -> usize {
        self.core.operations.len()
    }

    /// Receives a message into `buffer`: the oldest waiting one that matches, else the first that
    /// comes. The buffer's length is the most that is received.
    #[inline(always)]
    pub fn receive(&mut self, pattern: &Pattern, buffer: Buffer) -> Posted {
        self.receive_with(pattern, buffer, false, None)
    }

    /// As [`Engine::receive`]. `is_sole`: the caller promises that of all peers only the source
    /// that the pattern names sends messages whose tags the pattern accepts. So a NIC's list, which
    /// compares tags alone, may have the receive. If it gives the receive a message of another
    /// peer, that is found before the receive completes: it fails with [`Fault::WrongSender`], the
    /// message is lost, and a sender that waits for its delivery is told so.
    ///
    /// With a `context`, its end comes in the completion queue: see [`Requests::queue`].
    #[inline(always)]
    pub fn receive_with(
        &mut self,
        pattern: &Pattern,
        buffer: Buffer,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        let posted = self.core.receive(pattern, buffer, is_sole, context);
        if !self.core.receiver.todo.is_empty() {
            self.settle();
        }
        posted
    }

    /// The envelope of the oldest waiting message that matches. Makes no progress by itself.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Status> {
        let found = self.core.receiver.unexpected.probe(pattern);
        let message = found.map(|(message, _)| message);
        self.core.receiver.observer.tell(|observer| observer.probed(message, pattern));
        found.map(|(_, status)| status)
    }

    /// Takes that message: nobody else finds it any more. It must be received or discarded.
    pub fn matched_probe(&mut self, pattern: &Pattern) -> Option<(MessageId, Status)> {
        let found = self.core.receiver.unexpected.matched_probe(pattern);
        let message = found.map(|(key, _)| key.index);
        self.core.receiver.observer.tell(|observer| observer.held(message, pattern));
        found.map(|(key, status)| (MessageId(key), status))
    }

    /// Receives a message that [`Engine::matched_probe`] took.
    pub fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Posted {
        let posted = self.core.receive_message(message, buffer);
        self.settle();
        posted
    }

    /// Drops a message that [`Engine::matched_probe`] took; its sender completes. `false` if there
    /// is no such message.
    pub fn discard_message(&mut self, message: MessageId) -> bool {
        let found = self.core.discard_message(message);
        self.settle();
        found
    }

    /// The short way of a send: eager, not empty, in credit, nothing before it, room on the way.
    /// `false`: nothing was done, and [`Engine::send_queued`] is to be asked.
    #[inline(always)]
    pub fn send_at_once(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: &Buffer,
    ) -> bool {
        // A buffer of several slices looks empty.
        !buffer.is_empty() && self.inject_at_once(peer, tag, immediate, buffer)
    }

    /// As [`Engine::send_at_once`], of a slice, which may be empty. `false`: nothing was done, and
    /// [`Engine::inject_queued`] is to be asked.
    #[inline(always)]
    pub fn inject_at_once(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> bool {
        let Engine { device, core, sending } = self;
        sending.at_once(core, device, peer, tag, immediate, payload)
    }

    /// Sends what can't go by [`Engine::send_at_once`]: behind what waits for the peer, and at once
    /// if nothing does and there is room.
    #[cold]
    pub fn send_queued(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: Buffer,
        mode: SendMode,
    ) -> Started {
        let Engine { device, core, sending } = self;
        if mode == SendMode::Standard
            && buffer.is_empty()
            && sending.gathered_at_once(core, device, peer, tag, immediate, &buffer)
        {
            return Started::Sent(buffer);
        }
        match core.begin_send(peer, buffer) {
            Ok((request, buffer)) => {
                let send = Queued { request, mode, tag, immediate, buffer, sent: 0 };
                sending.queue(core, device, peer, send);
                self.settle();
                Started::Pending(request)
            }
            Err(refused) => Started::Refused(refused),
        }
    }

    /// As [`Engine::send_queued`], of a copy of `payload`, whose owner may use it again at once.
    /// `Ok(false)`: it was not taken, since the copies that wait, of messages to whatever peer,
    /// would take more than `copies_max` bytes with it. One copy may always wait.
    #[cold]
    pub fn inject_queued(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
        copies_max: u64,
    ) -> Result<bool, Fault> {
        if !self.core.receiver.requests.allow_copy(payload.len(), copies_max) {
            return self.core.receiver.fault_of(peer).map_or(Ok(false), Err);
        }
        let buffer = Buffer::from(payload.to_vec());
        match self.send_queued(peer, tag, immediate, buffer, SendMode::Standard) {
            Started::Sent(_) => {}
            Started::Refused(refused) => return Err(refused.fault),
            Started::Pending(request) => {
                self.core.receiver.requests.detach_copy(request, payload.len());
            }
        }
        Ok(true)
    }

    /// Sends a message. Messages to one peer are matched in the order of these calls.
    #[inline(always)]
    pub fn send(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: Buffer,
        mode: SendMode,
    ) -> Started {
        if mode == SendMode::Standard && self.send_at_once(peer, tag, immediate, &buffer) {
            return Started::Sent(buffer);
        }
        self.send_queued(peer, tag, immediate, buffer, mode)
    }

    /// Sends a copy of `payload`, whose owner may use it again at once. Always succeeds unless the
    /// peer is down; what can't go out at once is copied and waits.
    #[inline(always)]
    pub fn inject(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<(), Fault> {
        if self.inject_at_once(peer, tag, immediate, payload) {
            return Ok(());
        }
        self.inject_queued(peer, tag, immediate, payload, u64::MAX).map(drop)
    }

    /// Takes the events that are there, at most 64 per call; returns how many.
    #[inline]
    pub fn progress(&mut self) -> usize {
        self.progress_into(&mut NoEnds)
    }

    /// As [`Engine::progress`], then [`Requests::take_ends`]; but a message of a queued receive
    /// ends up in the list straight away, if no earlier end waits.
    #[inline]
    pub fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        if self.requests_mut().has_ends() {
            self.requests_mut().take_ends(ends);
        }
        let events = self.progress_into(ends);
        if self.requests_mut().has_ends() {
            self.requests_mut().take_ends(ends);
        }
        events
    }

    #[inline(always)]
    fn progress_into(&mut self, ends: &mut impl EndList) -> usize {
        let mut events = 0;
        while events < EVENTS_PER_PROGRESS && self.take_event(ends) {
            events += 1;
        }
        if !self.sending.waiting_for_room.is_empty() {
            self.retry();
        }
        events
    }

    /// Takes events until a request is over or there are none left, at most 64; gives how many
    /// events that were, and whether the request is over.
    #[inline(always)]
    pub fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        let mut events = 0;
        let mut is_over = self.core.receiver.requests.is_over(request);
        while !is_over && events < EVENTS_PER_PROGRESS && self.take_event(&mut NoEnds) {
            events += 1;
            is_over = self.core.receiver.requests.is_over(request);
        }
        // Also when the request is over: one that always is must not keep others from going out.
        if !self.sending.waiting_for_room.is_empty() {
            self.retry();
            is_over = self.core.receiver.requests.is_over(request);
        }
        (events, is_over)
    }

    /// Takes the next event and does what follows from it; `false` if there is none.
    #[inline(always)]
    fn take_event(&mut self, ends: &mut impl EndList) -> bool {
        let event = self.device.poll();
        // By reference: moving it would cost more than most of what is done with it. A message owns
        // nothing, nor does none: it is forgotten, so that no destructor is looked for.
        match &event {
            Some(Event::Message(incoming)) => {
                self.core.message(incoming, ends);
                std::mem::forget(event);
            }
            Some(_) => {
                self.core.take_rare(event);
                if self.core.receiver.departed.are_many() {
                    self.forget_departed();
                }
            }
            None => {
                std::mem::forget(event);
                return false;
            }
        }
        if !self.core.receiver.todo.is_empty() {
            self.settle();
        }
        true
    }

    /// Forgets peers that went down long ago, and of which nothing is left.
    #[cold]
    #[inline(never)]
    fn forget_departed(&mut self) {
        self.settle();
        let Engine { device, core, sending } = self;
        let forgotten = forget::forget(core, device);
        sending.forget(&forgotten);
    }

    #[cold]
    fn retry(&mut self) {
        self.sending.retry(&mut self.core, &mut self.device);
        self.settle();
    }

    /// Asks to cancel a receive. Its completion tells the outcome: [`Fault::Cancelled`], or the
    /// message that was faster. Sends can't be cancelled (as in MPI-4, where that is deprecated).
    pub fn cancel(&mut self, request: RequestId) {
        self.core.cancel(request);
        self.settle();
    }

    /// Lets go of a request: a posted receive is cancelled, anything else goes on to its end by
    /// itself and its buffer is freed there.
    pub fn detach(&mut self, request: RequestId) {
        if self.core.receiver.requests.detach(request) {
            self.cancel(request);
        }
    }

    /// Makes the device's descriptor readable at the next event. `false`: there is something to do
    /// already, call [`Engine::progress`] first.
    pub fn arm(&mut self) -> bool {
        self.device.arm(&self.sending.waiting_for_room)
    }

    /// Whether there is something to do that an armed descriptor does not tell of, since a call
    /// began it that made no progress.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.sending.waiting_for_room.is_empty() || self.device.has_work()
    }

    /// Ends what [`Engine::arm`] began.
    pub fn disarm(&mut self) {
        self.device.disarm();
    }

    /// Does what the state machine asked for.
    #[inline(never)]
    fn settle(&mut self) {
        while let Some(todo) = self.core.receiver.todo.pop() {
            let Engine { device, core, sending } = self;
            match todo {
                Todo::Control(peer, bytes) => sending.control(core, device, peer, bytes),
                Todo::Read { request, peer, span, buffer } => {
                    let token = request.token();
                    let read = |into| ReadRequest { peer, remote: span, into, token };
                    let started = slices::to_read_into(device, buffer, span.length)
                        .map_err(|buffer| (buffer, ReadError::Failed { errno: ENOMEM }))
                        .and_then(|into| device.read(read(into)));
                    if let Err((buffer, error)) = started {
                        core.read_done(token, buffer, Err(error));
                    }
                }
                Todo::Finish(operation, result) => sending.finish(core, device, operation, result),
                Todo::Flush(peer) => sending.flush(core, device, peer),
                Todo::Offload => {
                    if let (Some(offload), Some(list)) = (&mut core.offload, device.tags()) {
                        offload::carry_out(offload, &mut core.receiver, list);
                    }
                }
                Todo::Break(peer, error) => self.break_with(peer, PeerFault::Protocol(error)),
                Todo::TellDown(peer, fault) => core.receiver.requests.peer_down(peer, fault),
            }
        }
    }

    fn break_with(&mut self, peer: PeerId, fault: PeerFault) {
        if self.core.receiver.fault_of(peer).is_none() {
            // Reads come back from the device before its own word that the peer is down.
            self.core.receiver.peer_mut(peer).state = PeerState::Down(fault);
            self.core.receiver.counters.peer_faults += u64::from(fault.is_counted());
            self.device.disconnect(peer);
        }
    }

    /// Feeds all that later matching depends on to a hasher, so that states which differ in nothing
    /// else are the same: the lists in their order, requests, and what is known of the NIC's list.
    /// It leaves out the device, counters, credit (which decides what may be sent, not what
    /// matches), and sends. `name` makes of a NIC's handle what stays the same when it is used
    /// again.
    pub fn hash_state(&self, state: &mut impl Hasher, name: impl Fn(u32) -> usize) {
        let rx = &self.core.receiver;
        rx.requests.hash_state(state, |handle, state| {
            let posted = rx.posted.get(handle);
            posted.map(|(pattern, id)| (pattern.tag(), pattern.mask(), id)).hash(state);
        });
        rx.unexpected.hash_state(state);
        if let Some(offload) = &self.core.offload {
            offload.hash_state(rx, state, name);
        }
    }

    /// Feeds the unexpected messages alone to a hasher, oldest first.
    pub fn hash_unexpected(&self, state: &mut impl Hasher) {
        self.core.receiver.unexpected.hash_state(state);
    }
}
