//! The engine joins the protocol's state machine, the sending side and a device.

mod audit;
mod flush;
mod forget;
mod rma;

use std::hash::{Hash, Hasher};

use tagmatch_device::{
    Address, Buffer, BufferParts, Device, DeviceError, Event, EventSink, Incoming, LearnedChoice,
    PeerId, Polled, RawMemory, ReadError, ReadMode, ReadRequest, Registered, bugs,
};
use tagmatch_soft::Pattern;

use crate::config::EngineConfig;
use crate::core::Core;
use crate::counters::Counters;
#[cfg(doc)]
use crate::credit::CreditConfig;
use crate::credit::{CreditNow, PairCredit};
use crate::decisions::DecisionWatcher;
use crate::error::{Fault, PeerFault};
use crate::match_engine::MatchEngine;
use crate::observer::ListObserver;
use crate::offload::Offload;
use crate::peers::peer::{BacklogSend, Peer, PeerState};
use crate::requests::ends::{EndList, NoEnds};
use crate::requests::request::{
    MessageId, Posted, RequestId, Send, SendMode, Started, Status, WaitedEnd, refuse,
};
use crate::requests::table::{REQUESTS_MAX, Requests};
use crate::sending::Sending;
use crate::slices;
use crate::snapshot::{self, Snapshot};
use crate::todo::{Operation, Todo};

/// Events taken per call of [`MatchEngine::progress`], so that a flood of messages can't keep a
/// caller for ever.
pub(crate) const EVENTS_PER_PROGRESS: usize = 64;

/// The error number of a read for which there is no memory.
const ENOMEM: i32 = 12;

/// Polls in a row without an event after which [`MatchEngine::close`] takes the device for dead:
/// what it holds is lost then.
pub(crate) const IDLE_POLLS_MAX: u32 = 1 << 20;

/// Matching and protocol on one device. See the crate's page for the flows, and [`MatchEngine`] for
/// the calls.
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
        let caps = device.tags().map(|list| list.caps());
        let limits = device.limits();
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

    /// Whether messages of a peer that is down were dropped, to make room for others, before
    /// anybody received them: see [`CreditConfig::pool`].
    pub fn has_lost_messages(&self, peer: PeerId) -> bool {
        let known = self.core.state().peers.get(peer.index());
        known.is_some_and(|known| known.id == peer && known.lost_messages)
    }

    /// The messages so far that came past the NIC's list, and whose receive was in the list.
    pub fn past_list(&self) -> u64 {
        self.core.offload().map_or(0, Offload::past_list)
    }

    /// Where the credit is that peers are granted. Linear in the peers: for reports and tests.
    pub fn credit(&self) -> CreditNow {
        let is_down = |state: &PeerState| matches!(state, PeerState::Down(_));
        let state = self.core.state();
        let peers = state.peers.iter();
        state.pool.now(peers.map(|peer| (&peer.grant, is_down(&peer.state))))
    }

    /// The credit for messages to a peer and from it; `None` unless the peer is up. For tests.
    pub fn credit_with(&self, peer: PeerId) -> Option<PairCredit> {
        let known = self.core.state().peers.get(peer.index());
        let known = known.filter(|known| known.id == peer && known.is_connected())?;
        let granted = known.grant.outstanding();
        Some(PairCredit { granted, allowance: known.allowance.left() })
    }

    /// Sends that wait for their FIN.
    pub fn operations(&self) -> usize {
        self.core.state().operations.len()
    }

    /// Feeds all that later matching depends on to a hasher, so that states which differ in nothing
    /// else are the same: the lists in their order, requests, and what is known of the NIC's list.
    /// It leaves out the device, counters, credit (which decides what may be sent, not what
    /// matches), and sends. `name` makes of a NIC's handle what stays the same when it is used
    /// again.
    pub fn hash_state(&self, hasher: &mut impl Hasher, name: impl Fn(u32) -> usize) {
        let state = self.core.state();
        state.requests.hash_state(hasher, |handle, hasher| {
            let posted = state.posted.get(handle);
            posted.map(|(pattern, id)| (pattern.tag(), pattern.mask(), id)).hash(hasher);
        });
        state.unexpected.hash_state(hasher);
        if let Some(offload) = self.core.offload() {
            offload.hash_state(state, hasher, name);
        }
    }

    /// Feeds the unexpected messages alone to a hasher, oldest first.
    pub fn hash_unexpected(&self, hasher: &mut impl Hasher) {
        self.core.state().unexpected.hash_state(hasher);
    }
}

impl<D: Device> MatchEngine for Engine<D> {
    fn address(&self) -> Address {
        self.device.address()
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.device.peer_address(peer)
    }

    fn allocate(&mut self, length: usize) -> Buffer {
        self.device.allocate(length).unwrap_or_else(|| Buffer::zeroed(length))
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.device.register(memory)
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let peer = self.device.connect(address)?;
        self.core.state_mut().peer_mut(peer);
        Ok(peer)
    }

    fn peer_fault(&self, peer: PeerId) -> Option<PeerFault> {
        self.core.state().fault(peer)
    }

    fn source_fault(&self, pattern: &Pattern) -> Option<Fault> {
        self.core.state().fault_of(PeerId(pattern.source()?.0))
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        self.device.read_mode(peer)
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        self.device.learned(peer)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.break_with(peer, PeerFault::Disconnected);
        self.settle();
    }

    fn close(&mut self) {
        // What is left on the lists then stays there, as far as the observer knows.
        self.core.state_mut().observer.0 = None;
        // An armed device may have work, such as a timer to set, that no poll does.
        self.device.disarm();
        self.device.close();
        // Twice: events that were waiting may name further peers.
        for _ in 0..2 {
            for index in 0..self.core.state().peers.len() {
                let peer = self.core.state().peers[index].id;
                self.break_with(peer, PeerFault::Disconnected);
            }
            self.drain();
        }
        // What the NIC holds comes back with its answers.
        self.core.close_posted();
        self.settle();
        self.drain();
    }

    fn audit(&self, is_closed: bool) -> Vec<String> {
        self.audit_books(is_closed)
    }

    fn has_unsent(&mut self) -> bool {
        let waits = |peer: &Peer| !peer.backlog.is_empty() || !peer.controls.is_empty();
        let is_unread = |operation: &Operation| {
            operation.is_unread() && operation.status.source != PeerId::ONESELF
        };
        let state = self.core.state();
        let is_waiting = state.peers.iter().skip(1).any(waits);
        is_waiting || state.operations.iter().any(is_unread) || state.rma.has_unsent()
    }

    fn watch_decisions(&mut self, watcher: DecisionWatcher) {
        self.core.state_mut().decisions.0 = Some(watcher);
    }

    fn observe(&mut self, observer: Box<dyn ListObserver>) -> bool {
        self.core.observe(observer);
        true
    }

    fn counters(&self) -> Counters {
        let state = self.core.state();
        let mut counters = state.counters;
        counters.not_offloaded.off += counters.posted - counters.not_offloaded.total();
        counters.posted_now = state.posted.len() as u64;
        counters.unexpected_now = state.unexpected.listed() as u64;
        counters.unexpected_bytes_now = state.unexpected.bytes();
        counters.sent_beyond = self.device.sent_beyond();
        counters.unregistered = self.device.unregistered();
        counters.direct_remote = state.rma.direct;
        counters.bugs = bugs();
        counters
    }

    fn snapshot(&self, most: usize) -> Snapshot {
        let shot = snapshot::of(&self.device, &self.core, &self.sending, most);
        Snapshot { counters: self.counters(), ..shot }
    }

    fn credit_waits(&self) -> Vec<(PeerId, u64)> {
        self.sending.credit_waits(self.core.state())
    }

    #[inline(always)]
    fn requests(&self) -> &Requests {
        &self.core.state().requests
    }

    #[inline(always)]
    fn requests_mut(&mut self) -> &mut Requests {
        &mut self.core.state_mut().requests
    }

    #[inline(always)]
    fn receive_parts(
        &mut self,
        pattern: &Pattern,
        buffer: BufferParts,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        let posted = self.core.receive(pattern, buffer, is_sole, context);
        if !self.core.state().todo.is_empty() {
            self.settle();
        }
        posted
    }

    fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Fault> {
        let state = self.core.state_mut();
        let found = state.unexpected.probe(pattern);
        let message = found.map(|(message, _)| message);
        state.observer.tell(|observer| observer.probed(message, pattern));
        Ok(found.map(|(_, status)| status))
    }

    fn matched_probe(&mut self, pattern: &Pattern) -> Result<Option<(MessageId, Status)>, Fault> {
        let state = self.core.state_mut();
        let found = state.unexpected.matched_probe(pattern);
        let message = found.map(|(key, _)| key.index);
        state.observer.tell(|observer| observer.held(message, pattern));
        Ok(found.map(|(key, status)| (MessageId(key), status)))
    }

    fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Posted {
        let posted = self.core.receive_message(message, buffer);
        self.settle();
        posted
    }

    fn discard_message(&mut self, message: MessageId) -> bool {
        let found = self.core.discard_message(message);
        self.settle();
        found
    }

    #[inline(always)]
    fn inject_at_once(&mut self, message: Send<&[u8]>) -> bool {
        let Engine { device, core, sending } = self;
        sending.at_once(core.state_mut(), device, message)
    }

    #[cold]
    fn send_queued(&mut self, message: Send<Buffer>, mode: SendMode) -> Started {
        let Engine { device, core, sending } = self;
        let state = core.state_mut();
        if mode == SendMode::Standard
            && message.payload.is_empty()
            && sending.gathered_at_once(state, device, &message)
        {
            return Started::Sent(message.payload);
        }
        let fault = match state.fault_of(message.peer) {
            Some(fault) => fault,
            None => match state.requests.begin() {
                Some(request) => {
                    sending.queue(state, device, BacklogSend { request, message, mode, sent: 0 });
                    self.settle();
                    return Started::Pending(request);
                }
                None => Fault::TooMany { limit: REQUESTS_MAX },
            },
        };
        refuse(fault, message.payload).into()
    }

    #[cold]
    fn inject_queued(&mut self, message: Send<&[u8]>, copies_max: u64) -> Result<bool, Fault> {
        let is_taken = self.inject_copy(message, copies_max)?;
        match self.core.state().fault_of(message.peer) {
            Some(fault) if !is_taken => Err(fault),
            _ => Ok(is_taken),
        }
    }

    #[inline]
    fn progress(&mut self) -> usize {
        self.progress_while(&mut NoEnds, |_| true)
    }

    #[inline]
    fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        if self.requests_mut().has_ends() {
            self.requests_mut().take_ends(ends);
        }
        let events = if ends.has_room() {
            self.progress_while(ends, EndList::has_room)
        } else {
            self.progress()
        };
        if self.requests_mut().has_ends() {
            self.requests_mut().take_ends(ends);
        }
        events
    }

    #[inline(always)]
    fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        let mut events = 0;
        let mut is_over = self.requests().is_over(request);
        while !is_over && events < EVENTS_PER_PROGRESS && self.take_event(&mut NoEnds) {
            events += 1;
            is_over = self.requests().is_over(request);
        }
        // Also when the request is over: one that always is must not keep others from going out.
        if !self.sending.waiting_for_room().is_empty() {
            self.retry();
            is_over = self.requests().is_over(request);
        }
        (events, is_over)
    }

    #[inline(always)]
    fn progress_to_end(&mut self, request: RequestId) -> WaitedEnd {
        let mut events = 0;
        loop {
            // One look at the request after each event.
            let end = self.requests().waited_end(request);
            if end != WaitedEnd::UnderWay {
                // One that always finds its request over must not keep others from going out.
                if !self.sending.waiting_for_room().is_empty() {
                    self.retry();
                }
                return end;
            }
            if events == EVENTS_PER_PROGRESS || !self.take_event(&mut NoEnds) {
                break;
            }
            events += 1;
        }
        if self.sending.waiting_for_room().is_empty() {
            return WaitedEnd::UnderWay;
        }
        self.retry();
        self.requests().waited_end(request)
    }

    fn cancel(&mut self, request: RequestId) {
        self.core.cancel(request);
        self.settle();
    }

    fn arm(&mut self) -> bool {
        !self.sending.has_more() && self.device.arm(self.sending.waiting_for_room())
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.sending.waiting_for_room().is_empty() || self.device.has_work()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}

/// Takes events of the device for the protocol. `ends`: see [`MatchEngine::take_ends`].
struct CoreEvents<'a, E> {
    core: &'a mut Core,
    ends: &'a mut E,
}

impl<E: EndList> EventSink for CoreEvents<'_, E> {
    #[inline(always)]
    fn message(self, incoming: Incoming<'_>) {
        self.core.message(&incoming, self.ends);
    }

    #[inline(always)]
    fn event(self, event: Event<'_>) {
        self.core.event(event, self.ends);
    }
}

impl<D: Device> Engine<D> {
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

    #[inline(always)]
    fn progress_while<E: EndList>(&mut self, ends: &mut E, goes_on: impl Fn(&E) -> bool) -> usize {
        let mut events = 0;
        while events < EVENTS_PER_PROGRESS && goes_on(ends) && self.take_event(ends) {
            events += 1;
        }
        if !self.sending.waiting_for_room().is_empty() {
            self.retry();
        }
        events
    }

    /// Takes the next event and does what follows from it; `false` if there is none.
    #[inline(always)]
    fn take_event(&mut self, ends: &mut impl EndList) -> bool {
        let Engine { device, core, .. } = self;
        match device.poll_into(CoreEvents { core, ends }) {
            Polled::Nothing => return false,
            Polled::Message => {}
            Polled::Event => {
                if self.core.state().departed.are_many() {
                    self.forget_departed();
                }
            }
        }
        if !self.core.state().todo.is_empty() {
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
        self.sending.retry(self.core.state_mut(), &mut self.device);
        self.settle();
    }

    /// Does what the state machine asked for.
    #[inline(never)]
    fn settle(&mut self) {
        while let Some(todo) = self.core.state_mut().todo.pop() {
            let Engine { device, core, sending } = self;
            match todo {
                Todo::Control(peer, bytes) => {
                    sending.control(core.state_mut(), device, peer, bytes)
                }
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
                Todo::Finish(operation, result) => {
                    sending.finish(core.state_mut(), device, operation, result);
                }
                Todo::Flush(peer) => sending.flush(core.state_mut(), device, peer),
                Todo::Offload => {
                    if let Some(list) = device.tags() {
                        core.carry_out(list);
                    }
                }
                Todo::Break(peer, fault) => self.break_with(peer, fault),
                Todo::TellDown(peer, fault) => core.state_mut().requests.peer_down(peer, fault),
            }
        }
    }

    fn break_with(&mut self, peer: PeerId, fault: PeerFault) {
        let state = self.core.state_mut();
        if state.fault_of(peer).is_none() {
            // Reads come back from the device before its own word that the peer is down.
            state.peer_mut(peer).state = PeerState::Down(fault);
            // Receives that name the peer are posted until then.
            state.posted.forget_latest();
            state.counters.peer_faults += u64::from(fault.is_counted());
            self.device.disconnect(peer);
        }
    }
}
