//! The engine over a device that matches by itself.
//!
//! The device matches and moves messages; this engine keeps the table of requests, turns the
//! device's errors into [`Fault`]s, and counts.

use tagmatch_device::matching::{
    CompleteWhen, Envelope, HeldId, MatchingDevice, MatchingEvent, OperationError, TagPattern,
    TagSend, Unfit,
};
use tagmatch_device::slab::Key;
use tagmatch_device::{
    Address, Buffer, BufferParts, Bug, DeviceError, DownReason, OrBug, PeerId, RawMemory,
    Registered, bugs,
};
use tagmatch_soft::{Pattern, Tag};

use crate::counters::Counters;
use crate::decisions::{Decision, DecisionWatcher, Decisions};
use crate::engine::{EVENTS_PER_PROGRESS, IDLE_POLLS_MAX};
use crate::error::{Fault, PeerFault};
use crate::flush::{FlushEngine, Flushing, PeerFlush, Unsent, WhyUnsent};
use crate::match_engine::MatchEngine;
use crate::peers::peer::FlushNote;
use crate::requests::ends::EndList;
use crate::requests::line::RequestPhase;
use crate::requests::request::{
    MessageId, Posted, RequestId, Send, SendMode, Started, Status, refuse,
};
use crate::requests::table::{REQUESTS_MAX, Requests};
use crate::rma_engine::RmaEngine;
use crate::slices::{self, Scratch};
use crate::snapshot::{ConnectionState, Excerpt, PeerSnapshot, Snapshot};

/// As [`IDLE_POLLS_MAX`], while the device says that it has work. The device bounds that time by
/// the clock, in seconds, so this bound is far beyond it however fast polls are.
const BUSY_POLLS_MAX: u32 = 1 << 26;

/// The most bytes of a message in several slices that are gathered in memory which is kept.
const GATHERED_MAX: usize = 8192;

/// Requests on a device that matches by itself. A message of several slices is gathered first; a
/// longer one into memory that is allocated for the send. For a receive into several slices, memory
/// for all their bytes is allocated when it is posted.
#[derive(Debug)]
pub struct Delegated<D: MatchingDevice + ?Sized> {
    device: Box<D>,
    requests: Requests,
    /// By peer: why it is down, if it is.
    down: Vec<Option<PeerFault>>,
    flush_notes: Vec<FlushNote>,
    /// Operations that failed because a peer went down. They are over once the device has said why
    /// it did.
    without_reason: Vec<(PeerId, RequestId, Buffer)>,
    counters: Counters,
    decisions: Decisions,
    /// Requests that are not over.
    under_way: usize,
    is_closing: bool,
    scratch: Scratch,
}

impl<D: MatchingDevice + ?Sized> Delegated<D> {
    /// An engine on a device.
    pub fn new(device: Box<D>) -> Self {
        Delegated {
            device,
            requests: Requests::new(),
            down: Vec::new(),
            flush_notes: Vec::new(),
            without_reason: Vec::new(),
            counters: Counters::default(),
            decisions: Decisions::default(),
            under_way: 0,
            is_closing: false,
            scratch: Scratch::default(),
        }
    }

    /// The device, for what it tells about itself.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to register memory and the like.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: MatchingDevice + ?Sized> RmaEngine for Delegated<D> {}

impl<D: MatchingDevice + ?Sized> MatchEngine for Delegated<D> {
    fn address(&self) -> Address {
        self.device.address()
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.device.peer_address(peer)
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        self.device.transports(peer)
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.device.register(memory)
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.device.connect(address)
    }

    fn peer_fault(&self, peer: PeerId) -> Option<PeerFault> {
        *self.down.get(peer.index())?
    }

    fn source_fault(&self, pattern: &Pattern) -> Option<Fault> {
        let peer = PeerId(pattern.source()?.0);
        Some(Fault::PeerDown { peer, fault: self.peer_fault(peer)? })
    }

    fn disconnect(&mut self, peer: PeerId) {
        if self.device.peer_address(peer).is_some() {
            self.set_down(peer, PeerFault::Disconnected);
            self.device.disconnect(peer);
        }
    }

    fn close(&mut self) {
        self.is_closing = true;
        self.device.close();
        let mut idle = 0;
        loop {
            let has_come = self.progress() > 0;
            let has_work = self.device.has_work();
            idle = if has_come { 0 } else { idle + 1 };
            let is_over = !has_come && self.under_way == 0 && !has_work;
            if is_over || idle >= if has_work { BUSY_POLLS_MAX } else { IDLE_POLLS_MAX } {
                break;
            }
        }
        for (peer, request, buffer) in std::mem::take(&mut self.without_reason) {
            let fault = Fault::PeerDown { peer, fault: PeerFault::Gone };
            self.complete(request, Err(fault), buffer);
        }
        for request in self.requests.under_way() {
            self.complete(request, Err(Fault::Closed), Buffer::default());
        }
        self.counters.posted_now = 0;
    }

    fn audit(&self, is_closed: bool) -> Vec<String> {
        let under_way = self.requests.under_way();
        let phase = |request: &RequestId| self.requests.get(*request).map(|line| line.phase);
        let posted = under_way.iter().filter(|of| phase(of) == Some(RequestPhase::Posted)).count();
        let ended = self.without_reason.iter().filter(|(_, request, _)| phase(request).is_some());
        let books = [
            ("requests under way", self.under_way as u64, under_way.len()),
            ("posted receives", self.counters.posted_now, posted),
            ("operations of a peer that ends", self.without_reason.len() as u64, ended.count()),
        ];
        let wrong = books
            .iter()
            .filter(|(_, counted, found)| *counted != *found as u64 || is_closed && *counted > 0);
        let wrong = wrong.map(|(what, counted, found)| {
            format!("{counted} {what} are counted, {found} are found")
        });
        wrong.collect()
    }

    fn has_unsent(&mut self) -> bool {
        self.device.has_unsent()
    }

    fn watch_decisions(&mut self, watcher: DecisionWatcher) {
        self.decisions.0 = Some(watcher);
    }

    fn snapshot(&self, most: usize) -> Snapshot {
        let known = (0..).map(PeerId).map_while(|peer| {
            let address = self.device.peer_address(peer)?;
            let is_up = self.flush_notes.get(peer.index()).is_some_and(|note| note.is_up);
            let connection = match self.peer_fault(peer) {
                Some(fault) => ConnectionState::Down(fault),
                None if is_up => ConnectionState::Up,
                None => ConnectionState::Connecting,
            };
            Some(PeerSnapshot::new(peer, Some(address), connection))
        });
        Snapshot {
            peers: Excerpt::of(known, most),
            delegated: self.under_way,
            counters: self.counters(),
            ..Snapshot::default()
        }
    }

    fn counters(&self) -> Counters {
        let unexpected_now = self.device.unexpected_now().unwrap_or_default();
        Counters { unexpected_now, bugs: bugs(), ..self.counters }
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn requests_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }

    fn receive_parts(
        &mut self,
        pattern: &Pattern,
        buffer: BufferParts,
        _is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        let buffer = buffer.into_buffer();
        let Some(vacant) = self.requests.vacant() else {
            return refuse(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        let buffer = slices::room(buffer)?;
        let pattern = of_device(pattern);
        match self.device.receive(pattern, buffer, vacant.name().token()) {
            Ok(()) => {
                let request = vacant.begin_receive(false);
                self.counters.posted_now += 1;
                if let Some(context) = context {
                    self.requests.queue(request, context);
                }
                Ok(self.pending(request))
            }
            Err((buffer, unfit)) => {
                refuse(self.fault(unfit, pattern.source), slices::of_owner(buffer))
            }
        }
    }

    fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Fault> {
        let pattern = of_device(pattern);
        let found = self.device.probe(pattern);
        let found = found.map_err(|unfit| self.fault(unfit, pattern.source))?;
        Ok(found.map(|envelope| status(&envelope, u64::MAX)))
    }

    fn matched_probe(&mut self, pattern: &Pattern) -> Result<Option<(MessageId, Status)>, Fault> {
        let pattern = of_device(pattern);
        let found = self.device.matched_probe(pattern);
        let found = found.map_err(|unfit| self.fault(unfit, pattern.source))?;
        Ok(found.map(|(HeldId(id), envelope)| {
            (MessageId(Key::from_bits(id)), status(&envelope, u64::MAX))
        }))
    }

    fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Posted {
        let Some(vacant) = self.requests.vacant() else {
            return refuse(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        let held = HeldId(message.0.to_bits());
        let buffer = slices::room(buffer)?;
        match self.device.receive_held(held, buffer, vacant.name().token()) {
            Ok(()) => {
                let request = vacant.begin_receive(true);
                self.counters.unexpected += 1;
                Ok(self.pending(request))
            }
            Err((buffer, unfit)) => refuse(self.fault(unfit, None), slices::of_owner(buffer)),
        }
    }

    fn discard_message(&mut self, message: MessageId) -> bool {
        let found = self.device.discard_held(HeldId(message.0.to_bits()));
        self.counters.discarded += u64::from(found);
        found
    }

    fn send_queued(&mut self, message: Send<Buffer>, mode: SendMode) -> Started {
        if mode == SendMode::Standard && self.gathered_at_once(&message) {
            return Started::Sent(message.payload);
        }
        let status = message.status();
        let Send { peer, tag, immediate, payload } = message;
        let Some(vacant) = self.requests.vacant() else {
            return refuse(Fault::TooMany { limit: REQUESTS_MAX }, payload).into();
        };
        let buffer = match slices::packed(payload) {
            Ok(buffer) => buffer,
            Err(buffer) => return refuse(slices::no_memory(&buffer), buffer).into(),
        };
        let complete_when = match mode {
            SendMode::Standard => CompleteWhen::Reusable,
            SendMode::Synchronous => CompleteWhen::Matched,
            SendMode::Delivered => CompleteWhen::Delivered,
        };
        let token = vacant.name().token();
        let send = TagSend { peer, tag: tag.0, immediate, buffer, complete_when, token };
        let started = match self.device.send(send) {
            Ok(Some(buffer)) => Started::Sent(slices::of_owner(buffer)),
            Ok(None) => {
                let request = vacant.begin_send(&status);
                Started::Pending(self.pending(request))
            }
            Err((buffer, unfit)) => {
                let buffer = slices::of_owner(buffer);
                return refuse(self.fault(unfit, Some(peer)), buffer).into();
            }
        };
        self.counters.sent_by_device += 1;
        started
    }

    fn inject_queued(&mut self, message: Send<&[u8]>, copies_max: u64) -> Result<bool, Fault> {
        let Send { peer, tag, immediate, payload } = message;
        let is_sent = self.device.inject(peer, tag.0, immediate, payload);
        if is_sent.map_err(|unfit| self.fault(unfit, Some(peer)))? {
            self.counters.sent_by_device += 1;
            return Ok(true);
        }
        self.inject_copy(message, copies_max)
    }

    fn progress(&mut self) -> usize {
        let mut events = 0;
        while events < EVENTS_PER_PROGRESS && self.take_event() {
            events += 1;
        }
        events
    }

    fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        let events = self.progress();
        self.requests.take_ends(ends);
        events
    }

    fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        let mut events = 0;
        let mut is_over = self.requests.is_over(request);
        while !is_over && events < EVENTS_PER_PROGRESS && self.take_event() {
            events += 1;
            is_over = self.requests.is_over(request);
        }
        (events, is_over)
    }

    fn cancel(&mut self, request: RequestId) {
        let Some(line) = self.requests.get(request) else { return };
        let is_posted = line.phase == RequestPhase::Posted;
        if !is_posted || !self.device.cancel(request.token()) {
            self.counters.cancelled_late += 1;
        }
    }

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn await_messages(&mut self, is_awaited: bool) {
        self.device.await_messages(is_awaited);
    }

    #[inline]
    fn has_work(&self) -> bool {
        self.device.has_work()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}

impl<D: MatchingDevice + ?Sized> Delegated<D> {
    /// Sends a short message of several slices as a copy, if that can be done at once.
    fn gathered_at_once(&mut self, message: &Send<Buffer>) -> bool {
        let Send { peer, tag, immediate, payload: buffer } = message;
        if buffer.slices().is_none() || buffer.total_len() > GATHERED_MAX {
            return false;
        }
        let payload = self.scratch.bytes(buffer);
        // If the message is refused, the send that follows says why.
        let is_sent = self.device.inject(*peer, tag.0, *immediate, payload) == Ok(true);
        self.counters.sent_by_device += u64::from(is_sent);
        is_sent
    }

    #[inline]
    fn pending(&mut self, request: RequestId) -> RequestId {
        self.under_way += 1;
        request
    }

    /// Takes the next event and does what follows from it; `false` if there is none.
    #[inline]
    fn take_event(&mut self) -> bool {
        match self.device.poll() {
            Some(MatchingEvent::Received { token, buffer, result }) => {
                self.received(RequestId::from_token(token), buffer, result);
            }
            Some(MatchingEvent::Sent { token, buffer, result }) => {
                self.sent(RequestId::from_token(token), buffer, result);
            }
            Some(MatchingEvent::PeerUp { peer }) => {
                self.flush_note(peer).is_up = true;
                if self.peer_fault(peer).is_none() {
                    self.requests.peer_up(peer);
                    self.decisions.tell(Decision::PeerUp(peer));
                }
            }
            Some(MatchingEvent::PeerDown { peer, reason }) => self.peer_down(peer, reason),
            None => return false,
        }
        true
    }

    fn received(
        &mut self,
        request: RequestId,
        mut buffer: Buffer,
        result: Result<Envelope, OperationError>,
    ) {
        let line = match self.requests.get(request).or_bug("an operation ends once") {
            Ok(line) => line,
            // A message that no request has got is lost.
            Err(bug) => {
                if let Ok(envelope) = result {
                    self.break_with(envelope.source, bug);
                }
                return;
            }
        };
        let was_posted = line.phase == RequestPhase::Posted;
        self.counters.posted_now -= u64::from(was_posted);
        match result {
            Ok(envelope) => {
                let status = status(&envelope, buffer.len() as u64);
                self.counters.by_device += u64::from(was_posted);
                self.counters.truncated += u64::from(status.truncated);
                buffer.unpack(usize::try_from(status.length).unwrap_or(usize::MAX));
                self.complete(request, Ok(status), buffer);
            }
            Err(error) => self.end(request, buffer, error),
        }
    }

    fn sent(&mut self, request: RequestId, buffer: Buffer, result: Result<(), OperationError>) {
        let line = self.requests.get(request).or_bug("an operation ends once");
        let Ok(line) = line else { return };
        match result {
            Ok(()) => {
                let status = line.status();
                self.complete(request, Ok(status), slices::of_owner(buffer));
            }
            Err(error) => self.end(request, buffer, error),
        }
    }

    /// Ends an operation without success.
    #[cold]
    fn end(&mut self, request: RequestId, buffer: Buffer, error: OperationError) {
        let buffer = slices::of_owner(buffer);
        let fault = match error {
            OperationError::Cancelled if self.is_closing => Fault::Closed,
            OperationError::Cancelled => {
                self.counters.cancelled += 1;
                Fault::Cancelled
            }
            OperationError::Failed { status } => Fault::DeviceFailed { status },
            OperationError::PeerDown(peer) => match self.peer_fault(peer) {
                Some(fault) => Fault::PeerDown { peer, fault },
                None => return self.without_reason.push((peer, request, buffer)),
            },
        };
        self.complete(request, Err(fault), buffer);
    }

    #[inline]
    fn complete(&mut self, request: RequestId, result: Result<Status, Fault>, buffer: Buffer) {
        self.under_way -= 1;
        self.requests.complete(request, result, buffer);
    }

    #[cold]
    fn peer_down(&mut self, peer: PeerId, reason: DownReason) {
        let fault = self.set_down(peer, reason.into());
        let ended = self.without_reason.extract_if(.., |(of, ..)| *of == peer);
        for (_, request, buffer) in ended.collect::<Vec<_>>() {
            self.complete(request, Err(Fault::PeerDown { peer, fault }), buffer);
        }
        self.requests.peer_down(peer, fault);
        self.decisions.tell(Decision::PeerDown(peer, fault));
    }

    /// By peer, made when it is first asked for.
    fn flush_note(&mut self, peer: PeerId) -> &mut FlushNote {
        if peer.index() >= self.flush_notes.len() {
            self.flush_notes.resize(peer.index() + 1, FlushNote::default());
        }
        &mut self.flush_notes[peer.index()]
    }

    /// The first reason stays, and is returned.
    fn set_down(&mut self, peer: PeerId, fault: PeerFault) -> PeerFault {
        if peer.index() >= self.down.len() {
            self.down.resize(peer.index() + 1, None);
        }
        *self.down[peer.index()].get_or_insert_with(|| {
            self.counters.peer_faults += u64::from(fault.is_counted());
            fault
        })
    }

    #[cold]
    fn break_with(&mut self, peer: PeerId, bug: Bug) {
        self.set_down(peer, PeerFault::Bug(bug));
        self.device.disconnect(peer);
    }

    /// Why an operation with `peer` was not taken.
    #[cold]
    fn fault(&self, unfit: Unfit, peer: Option<PeerId>) -> Fault {
        let peer = peer.unwrap_or(PeerId::ONESELF);
        match unfit {
            Unfit::Down => {
                let fault = self.peer_fault(peer).unwrap_or(PeerFault::Gone);
                Fault::PeerDown { peer, fault }
            }
            Unfit::NoSuchPeer => Fault::NoSuchPeer { peer },
            Unfit::NoSuchMessage => Fault::NoSuchMessage,
            Unfit::ReadOnly => Fault::ReadOnlyBuffer,
            Unfit::NotCarried(why) => Fault::NotCarried { why },
            Unfit::Exhausted => Fault::DeviceFull,
        }
    }
}

impl<D: MatchingDevice + ?Sized> FlushEngine for Delegated<D> {
    fn begin_flush(&mut self) -> Flushing {
        let begin = |peer| PeerFlush { peer, sends_gone: 0, operations: None, mark: None };
        Flushing { peers: self.others().into_iter().map(begin).collect() }
    }

    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool {
        flushing.peers.retain(|flush| self.device.flush(flush.peer).pending() > 0);
        flushing.peers.is_empty()
    }

    fn unsent(&mut self) -> Vec<Unsent> {
        let unsent = self.others().into_iter().map(|peer| {
            let why = match self.peer_fault(peer) {
                Some(fault) => WhyUnsent::Down(fault),
                None if self.flush_note(peer).is_up => WhyUnsent::NotTaken,
                None => WhyUnsent::NotConnected,
            };
            Unsent { peer, messages: self.device.flush(peer).pending(), why }
        });
        unsent.filter(|unsent| unsent.messages > 0).collect()
    }

    fn take_lost(&mut self) -> Vec<Unsent> {
        let lost = self.others().into_iter().filter_map(|peer| {
            let fault = self.peer_fault(peer)?;
            let messages = self.device.flush(peer).lost();
            let is_news = messages > 0
                && !std::mem::replace(&mut self.flush_note(peer).is_loss_reported, true);
            is_news.then_some(Unsent { peer, messages, why: WhyUnsent::Down(fault) })
        });
        lost.collect()
    }
}

impl<D: MatchingDevice + ?Sized> Delegated<D> {
    fn others(&self) -> Vec<PeerId> {
        let is_known = |peer: &PeerId| self.device.peer_address(*peer).is_some();
        (1..).map(PeerId).take_while(is_known).collect()
    }
}

fn of_device(pattern: &Pattern) -> TagPattern {
    let source = pattern.source().map(|source| PeerId(source.0));
    TagPattern { tag: pattern.tag().0, mask: pattern.mask().0, source }
}

/// The envelope of a message for which there are `room` bytes.
fn status(envelope: &Envelope, room: u64) -> Status {
    let Envelope { source, tag, length, immediate } = *envelope;
    Status { source, tag: Tag(tag), length, truncated: length > room, immediate }
}
