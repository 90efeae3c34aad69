//! UCX as the device uses it: sends, receives, looks for messages, and how peers end.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use tagmatch_device::matching::{
    CompleteWhen, Envelope, MatchingEvent, OperationError, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DeviceError, DownReason, PeerId, RawMemory, Registered};
use tagmatch_fabric::handshake::{Layout, Meeting, MeetingConfig, PeerState, Sent, break_with};
use tagmatch_fabric::settings::find_secret;
use tagmatch_fabric::{Canceller, FabricCore, TagTransport, report_up};
use tagmatch_ucx_sys as sys;

use super::carrier::TagCodec;
use super::config::{KIND, UcxConfig};
use super::info::{UcxInfo, transports};
use super::library::{load, open};
use super::link::UcxLink;
use super::operations::{Ends, RequestKind, UcxOperation};
use super::worker::{Found, PeerEndpoint, Worker};

/// Time between two polls of a sleeping thread where UCX can't wake it.
const PERIOD: Duration = Duration::from_millis(1);

/// UCX, below the device.
pub struct UcxTransport {
    pub(super) core: FabricCore<UcxTransport>,
    pub(super) carrier: TagCodec,
    pub(super) ends: Rc<Ends>,
    /// Requests of UCX without an operation: endpoints that are being closed.
    pub(super) closing: Vec<*mut c_void>,
    /// Dropped by hand, once no operation is under way.
    pub(super) worker: ManuallyDrop<Worker>,
}

// SAFETY: the fields that are not `Send` are pointers into UCX's worker, which allows one caller at
// a time from any thread, and counted references that nothing outside of this transport has.
unsafe impl Send for UcxTransport {}

impl UcxTransport {
    /// The endpoint of a peer that can be sent to at once, and the number that the peer gave this
    /// worker.
    #[inline]
    fn way_to(&self, peer: PeerId) -> Option<(PeerEndpoint, u64)> {
        let entry = self.core.meeting.peers.find(peer)?;
        let is_open = matches!(entry.state, PeerState::Up) && entry.link.waiting.is_empty();
        entry.link.endpoint.filter(|_| is_open).map(|endpoint| (endpoint, entry.our_number))
    }

    /// Passes a send to UCX.
    #[inline]
    pub(super) fn start(
        &mut self,
        (endpoint, number): (PeerEndpoint, u64),
        key: Key,
    ) -> sys::Started {
        let Some((operation, context)) = self.core.operations.with_context(key) else {
            return sys::Started::Failed(sys::UCS_ERR_CANCELED);
        };
        context.renew();
        let wire = self.carrier.send(operation.tag, operation.immediate, number);
        self.worker.send(endpoint, wire, operation, context)
    }

    /// Ends an operation that UCX doesn't have.
    pub(super) fn end(&mut self, key: Key, status: sys::ucs_status_t) {
        if let Some((_, context)) = self.core.operations.with_context(key) {
            context.end(status);
        }
    }

    /// Frees the request of an operation that has ended, and takes back its slot and its buffer.
    #[inline]
    fn retire(&mut self, key: Key) -> Option<(u64, Buffer)> {
        if let Some((_, context)) = self.core.operations.with_context(key) {
            self.worker.free(context);
        }
        self.core.retire(key)
    }

    /// Asks UCX to cancel the receive of an operation.
    pub(super) fn cancel_by(&mut self, key: Key, by: Canceller) {
        if let Some((operation, context)) = self.core.operations.with_context(key) {
            self.worker.cancel(operation, context, by);
        }
    }

    /// The envelope of a message from its tag on the wire; `None` if no peer has the source number.
    #[inline]
    fn envelope_of(&self, wire: u64, length: usize) -> Option<Envelope> {
        let carried = self.carrier.read(wire);
        let source = self.core.meeting.peers.of_number(carried.number)?;
        let tag = carried.tag;
        let immediate = carried.immediate;
        Some(Envelope { source, tag, length: length as u64, immediate })
    }

    /// The event for the end of an operation, if there is one. The event that its peer is up may
    /// come first.
    #[inline]
    fn event_of(&mut self, index: u32) -> Option<MatchingEvent> {
        let key = self.core.operations.key_at(index)?;
        let (operation, context) = self.core.operations.with_context(key)?;
        let kind = operation.kind;
        let peer = operation.peer;
        let canceller = operation.canceller;
        let status = context.status.get();
        let wire = context.tag.get();
        let length = context.length.get();
        let (token, mut buffer) = self.retire(key)?;
        match kind {
            RequestKind::Discard => None,
            RequestKind::Send => {
                let result = match (status, peer) {
                    (sys::UCS_OK, _) => Ok(()),
                    (_, Some(peer)) => Err(self.lost(peer)),
                    (status, None) => Err(OperationError::Failed { status: status.into() }),
                };
                Some(MatchingEvent::Sent { token, buffer, result })
            }
            RequestKind::Receive => {
                self.core.forget_token(token, key);
                let is_cancelled =
                    canceller == Canceller::Caller && status == sys::UCS_ERR_CANCELED;
                let result = if is_cancelled {
                    Err(OperationError::Cancelled)
                } else {
                    received(status, self.envelope_of(wire, length), peer, &mut buffer)
                };
                let source = result.as_ref().ok().map(|envelope| envelope.source);
                let received = MatchingEvent::Received { token, buffer, result };
                if source.is_some_and(|source| report_up(self, source)) {
                    self.core.events.push_back(received);
                    return self.core.events.pop_front();
                }
                Some(received)
            }
        }
    }

    /// A send has ended without success, since its peer has ended.
    #[cold]
    fn lost(&mut self, peer: PeerId) -> OperationError {
        if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
            entry.lost += 1;
        }
        OperationError::PeerDown(peer)
    }
}

/// How a receive ends that may have named its source. `envelope`: that of its message, if a peer
/// has sent it.
#[inline]
fn received(
    status: sys::ucs_status_t,
    envelope: Option<Envelope>,
    named: Option<PeerId>,
    buffer: &mut Buffer,
) -> Result<Envelope, OperationError> {
    match (status, envelope) {
        (sys::UCS_OK, Some(envelope)) => Ok(envelope),
        (sys::UCS_ERR_MESSAGE_TRUNCATED, Some(envelope)) => {
            // UCX may have written none of the bytes, and they may not have been initialised.
            buffer.room().unwrap_or_default().zero();
            Ok(envelope)
        }
        (sys::UCS_OK | sys::UCS_ERR_MESSAGE_TRUNCATED, None) => {
            Err(OperationError::Failed { status: sys::UCS_ERR_INVALID_ADDR.into() })
        }
        // The peer's end has cancelled the receive, or the receive had matched a message whose
        // sender ended before all bytes had come.
        (
            sys::UCS_ERR_CANCELED
            | sys::UCS_ERR_CONNECTION_RESET
            | sys::UCS_ERR_ENDPOINT_TIMEOUT
            | sys::UCS_ERR_NOT_CONNECTED
            | sys::UCS_ERR_UNREACHABLE,
            envelope,
        ) => match named.or(envelope.map(|envelope| envelope.source)) {
            Some(peer) => Err(OperationError::PeerDown(peer)),
            None => Err(OperationError::Failed { status: status.into() }),
        },
        (status, _) => Err(OperationError::Failed { status: status.into() }),
    }
}

impl TagTransport for UcxTransport {
    type Config = UcxConfig;
    type Info = UcxInfo;
    type Operation = UcxOperation;
    type Pattern = (u64, u64);
    type Found = Found;
    type Taken = sys::ucp_tag_message_h;
    const NAME: &'static str = "Ucx";

    fn open(config: UcxConfig) -> Result<Self, DeviceError> {
        let carrier = config.check()?;
        let secret = find_secret(config.secret.as_ref())?;
        let (worker, endpoint) = open(load()?, &config, &carrier)?;
        let layout = Layout {
            used: carrier.used,
            source: carrier.source,
            own_source: carrier.own_source,
            number_max: carrier.number_max(),
        };
        let meeting = MeetingConfig {
            kind: &KIND,
            layout,
            worker: worker.address().to_vec(),
            secret: secret.as_ref(),
            listen: &config.listen,
            connect_timeout: config.connect_timeout,
            keepalive: config.keepalive,
        };
        let link = UcxLink { endpoint: Some(endpoint), ..UcxLink::default() };
        let ends = Ends::new();
        let meeting = Meeting::open(meeting, link)?;
        let core = FabricCore::new(meeting, Rc::clone(&ends), worker.descriptor())?;
        let worker = ManuallyDrop::new(worker);
        Ok(UcxTransport { core, carrier, ends, closing: Vec::new(), worker })
    }

    fn probe(config: &UcxConfig) -> UcxInfo {
        UcxInfo::probe(config)
    }

    fn core(&self) -> &FabricCore<Self> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut FabricCore<Self> {
        &mut self.core
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        let endpoint = self.core.meeting.peers.find(peer).and_then(|peer| peer.link.endpoint);
        let text = endpoint.map(|endpoint| self.worker.endpoint_text(endpoint));
        transports(&text.unwrap_or_default())
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.worker.register(memory)
    }

    #[inline]
    fn check_send(&self, message: &TagSend) -> Result<(), Unfit> {
        if message.complete_when == CompleteWhen::Delivered {
            return Err(NOT_DELIVERED);
        }
        self.carrier.check_send(message.tag, message.immediate)
    }

    #[inline]
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        let TagSend { peer, tag, immediate, buffer, complete_when, token } = message;
        let operation = UcxOperation {
            tag,
            immediate,
            is_synchronous: complete_when == CompleteWhen::Matched,
            ..UcxOperation::new(RequestKind::Send, Some(peer), token, buffer)
        };
        let key = self.core.enter_send(peer, operation)?;
        let Some(way) = self.way_to(peer) else {
            if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
                entry.link.waiting.push_back(key);
            }
            return Ok(None);
        };
        match self.start(way, key) {
            sys::Started::Request(_) => Ok(None),
            sys::Started::Complete => Ok(self.retire(key).map(|(_, buffer)| buffer)),
            sys::Started::Failed(sys::UCS_ERR_NO_MEMORY) => {
                let ended = self.retire(key);
                Err((ended.map(|(_, buffer)| buffer).unwrap_or_default(), Unfit::Exhausted))
            }
            sys::Started::Failed(status) => {
                self.end(key, status);
                break_with(self, peer, DownReason::Gone);
                Ok(None)
            }
        }
    }

    #[inline]
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        self.carrier.check_send(tag, immediate)?;
        let Some((endpoint, number)) = self.way_to(peer) else { return Ok(false) };
        if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
            entry.sent = Sent::Unflushed;
        }
        let wire = self.carrier.send(tag, immediate, number);
        Ok(self.worker.inject(endpoint, wire, payload))
    }

    #[inline]
    fn wire_pattern(&self, pattern: TagPattern) -> Result<(u64, u64), Unfit> {
        let number = match pattern.source {
            None => None,
            Some(peer) => {
                let peer = self.core.meeting.peers.find(peer).ok_or(Unfit::NoSuchPeer)?;
                Some(peer.its_number.ok_or(NOT_NUMBERED)?)
            }
        };
        self.carrier.pattern(pattern.tag, pattern.mask, number)
    }

    #[inline]
    fn receive_operation(
        &mut self,
        source: Option<PeerId>,
        _: (u64, u64),
        buffer: Buffer,
        token: u64,
    ) -> UcxOperation {
        UcxOperation::new(RequestKind::Receive, source, token, buffer)
    }

    #[inline]
    fn post(&mut self, key: Key, wire: (u64, u64)) -> Result<(), Unfit> {
        let operation = self.core.operations.with_context(key);
        let Some((operation, context)) = operation else { return Ok(()) };
        context.renew();
        match self.worker.receive(operation, context, wire) {
            sys::Started::Failed(_) => Err(Unfit::Exhausted),
            _ => Ok(()),
        }
    }

    fn cancel(&mut self, key: Key) -> bool {
        self.cancel_by(key, Canceller::Caller);
        self.core.operations.with_context(key).is_some_and(|(operation, context)| {
            context.has_ended.get()
                && operation.canceller == Canceller::Caller
                && context.status.get() == sys::UCS_ERR_CANCELED
        })
    }

    #[inline]
    fn look(&mut self, wire: (u64, u64), may_take: bool) -> Option<Found> {
        self.worker.probe(wire, may_take)
    }

    #[inline]
    fn envelope(&self, found: &Found) -> Option<Envelope> {
        self.envelope_of(found.tag, found.length)
    }

    #[inline]
    fn take(&mut self, wire: (u64, u64), found: Found) -> Option<sys::ucp_tag_message_h> {
        // A second probe finds the same message: UCX made no progress between the two.
        let found = if found.is_taken { Some(found) } else { self.worker.probe(wire, true) };
        found.map(|found| found.message)
    }

    fn receive_taken(
        &mut self,
        taken: sys::ucp_tag_message_h,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        let operation = UcxOperation::new(RequestKind::Receive, None, token, buffer);
        let entered = self.core.operations.enter(operation);
        let key = entered.map_err(|buffer| (buffer, Unfit::Exhausted))?;
        let Some((operation, context)) = self.core.operations.with_context(key) else {
            return Ok(());
        };
        context.renew();
        if let sys::Started::Failed(_) = self.worker.receive_taken(operation, context, taken) {
            let ended = self.retire(key);
            return Err((ended.map(|(_, buffer)| buffer).unwrap_or_default(), Unfit::Exhausted));
        }
        self.core.tokens.insert(token, key);
        Ok(())
    }

    fn discard(&mut self, taken: sys::ucp_tag_message_h) {
        let operation = UcxOperation::new(RequestKind::Discard, None, 0, Buffer::default());
        let Ok(key) = self.core.operations.enter(operation) else { return };
        let Some((operation, context)) = self.core.operations.with_context(key) else { return };
        context.renew();
        if let sys::Started::Failed(_) = self.worker.receive_taken(operation, context, taken) {
            self.retire(key);
        }
    }

    #[inline]
    fn advance(&mut self) -> bool {
        self.worker.progress()
    }

    #[inline]
    fn next_end(&mut self) -> Option<MatchingEvent> {
        while let Some(index) = self.ends.next().map(|context| context.index) {
            if let Some(event) = self.event_of(index) {
                return Some(event);
            }
        }
        None
    }

    #[inline]
    fn has_ends(&self) -> bool {
        !self.ends.is_empty() || self.ends.has_fault.get()
    }

    #[inline]
    fn waits(&self) -> bool {
        !self.closing.is_empty()
    }

    fn tend(&mut self, _is_due: bool) {
        if self.ends.has_fault.get() {
            self.take_faults();
        }
        let worker = &self.worker;
        self.closing.retain(|request| !worker.has_ended(*request));
    }

    fn sweep(&mut self) {
        self.worker.unmap_ended();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.worker.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.worker.arm()
    }

    fn sleep_max(&self) -> Option<Duration> {
        self.worker.descriptor().is_none().then_some(PERIOD)
    }

    /// Sends wait only for a peer that is not up yet, and nothing is left of one that was cut off.
    /// UCX's requests are those of operations, of endpoints that are closed, and of flushes.
    fn audit(&self) -> Vec<String> {
        let links = self.core.meeting.peers.ids().filter_map(|id| self.core.meeting.peers.find(id));
        let flushes = links.filter(|peer| peer.link.draining.is_some()).count();
        let requests = self.worker.requests();
        let known = self.core.operations.len() + self.closing.len() + flushes;
        let kept = (requests > known)
            .then(|| format!("UCX has {requests} requests, of which {known} are known"));
        let wrong = self.core.meeting.peers.ids().filter_map(|id| {
            let peer = self.core.meeting.peers.find(id)?;
            let UcxLink { endpoint, draining, waiting, .. } = &peer.link;
            let waiting = waiting.len();
            let is_cut_off = matches!(peer.state, PeerState::Ending { .. } | PeerState::Down);
            let has_way = endpoint.is_some() || draining.is_some();
            let may_wait = matches!(peer.state, PeerState::Connecting | PeerState::Unconfirmed);
            let is_right = (waiting == 0 || may_wait) && !(is_cut_off && has_way);
            (!is_right).then(|| format!("{id:?} is {:?}: {waiting} sends wait", peer.state))
        });
        wrong.chain(kept).collect()
    }

    fn is_own_process(&self) -> bool {
        self.worker.is_own_process()
    }

    fn is_over(&self) -> bool {
        self.core.operations.is_empty() && self.closing.is_empty()
    }

    /// UCX may still read or write the memory of operations under way: the worker is leaked then.
    fn shut(&mut self, is_over: bool) -> bool {
        if is_over {
            // SAFETY: dropped once, here; nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.worker) };
        }
        is_over
    }
}

const NOT_DELIVERED: Unfit = Unfit::NotCarried(
    "UCX tells when a message is matched, not when it is in its receiver's buffer; ask for Matched",
);
const NOT_NUMBERED: Unfit = Unfit::NotCarried(
    "with UcxConfig::own_source a peer can be named once it is up, when its number is known; wait for that",
);

#[cfg(test)]
mod hostile;
