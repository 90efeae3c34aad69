//! libfabric as the device uses it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tagmatch_device::matching::{
    Envelope, MatchingEvent, OperationError, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DeviceError, PeerId};
use tagmatch_fabric::handshake::{Layout, Meeting, MeetingConfig};
use tagmatch_fabric::settings::{check_times, find_secret};
use tagmatch_fabric::{Canceller, FabricCore, Operation as _, TagTransport};
use tagmatch_ofi_sys as sys;

use super::carrier::{Carrier, CqData, TagBits, Wire};
use super::config::{KIND, OfiConfig};
use super::endpoint::{Completion, Lane};
use super::info::OfiInfo;
use super::library;
use super::link::OfiLink;
use super::objects::Endpoint;
use super::operations::{EarlyReceives, Kind, OfiOperation, SpareMemories, WirePattern};
use super::provider::{self, Provider, Way};

/// Time between two polls of a sleeping thread where libfabric can't wake it.
const PERIOD: Duration = Duration::from_millis(1);
/// Time between two polls where libfabric's descriptor may miss an event (`cxi`).
const PERIOD_RACY: Duration = Duration::from_millis(20);

/// Reads of the queue without result after which a cancel is called late. Most providers answer
/// before the first one.
const CANCEL_ROUNDS: u32 = 64;

/// libfabric, below the device.
pub struct OfiTransport {
    pub(super) carrier: Carrier,
    pub(super) provider: Provider,
    /// Receives for which libfabric had no room, in order.
    pub(super) unposted: VecDeque<Key>,
    pub(super) early: EarlyReceives,
    /// Peers that are up, and have something waiting for room in libfabric.
    pub(super) blocked: Vec<PeerId>,
    /// Peers to which the provider has no connection yet, and when that is reported.
    pub(super) rising: Vec<(Instant, PeerId)>,
    /// The answer to the look that is under way.
    pub(super) answer: Option<(Key, Completion)>,
    // Dropped before the memory of the operations, which libfabric has.
    pub(super) endpoint: Endpoint,
    pub(super) core: FabricCore<OfiTransport>,
}

// SAFETY: the fields that are not `Send` are pointers to memory of this device, which libfabric
// uses only in calls of this device and in threads of a provider.
unsafe impl Send for OfiTransport {}

impl OfiTransport {
    /// Over an endpoint that is open. Its receives for packets are posted.
    pub(super) fn over(
        endpoint: Endpoint,
        provider: Provider,
        carrier: Carrier,
        meeting: Meeting<OfiLink>,
    ) -> Result<Self, DeviceError> {
        let descriptor = endpoint.descriptor().filter(|_| provider.wakes);
        let core = FabricCore::new(meeting, SpareMemories::new(provider.lent_piece()), descriptor)?;
        let mut transport = OfiTransport {
            carrier,
            provider,
            unposted: VecDeque::new(),
            early: EarlyReceives::default(),
            blocked: Vec::new(),
            rising: Vec::new(),
            answer: None,
            endpoint,
            core,
        };
        transport.post_controls();
        Ok(transport)
    }

    /// A receive of the message that a look has taken.
    fn with_room_for(&mut self, taken: Key) -> OfiOperation {
        let bits = self.core.operations.at(taken).map(|operation| operation.bits);
        self.with_room(bits.unwrap_or_default())
    }

    fn was_cancelled(&self, token: u64) -> bool {
        self.core.events.iter().any(|event| {
            matches!(event, MatchingEvent::Received { token: ended, result, .. }
                if *ended == token && *result == Err(OperationError::Cancelled))
        })
    }
}

impl TagTransport for OfiTransport {
    type Config = OfiConfig;
    type Info = OfiInfo;
    type Operation = OfiOperation;
    type Pattern = WirePattern;
    type Found = (Key, Completion);
    type Taken = Key;
    const NAME: &'static str = "Ofi";

    fn open(config: OfiConfig) -> Result<Self, DeviceError> {
        check_times(config.connect_timeout, config.keepalive)?;
        let secret = find_secret(config.secret.as_ref())?;
        let libfabric = library::load()?;
        let (endpoint, provider, carrier, oneself) = provider::open(libfabric, &config)?;
        let way = Way {
            carriage: carrier.fingerprint(),
            provider: &provider.name,
            names: endpoint.names(),
        };
        let layout = Layout {
            used: config.used,
            source: config.source,
            own_source: None,
            number_max: carrier.number_max(),
        };
        let meeting = MeetingConfig {
            kind: &KIND,
            layout,
            worker: way.emit(),
            secret: secret.as_ref(),
            listen: &config.listen,
            connect_timeout: config.connect_timeout,
            keepalive: config.keepalive,
        };
        let side = if endpoint.has_side() { endpoint.insert(endpoint.names()[1]) } else { None };
        let side = side.unwrap_or(oneself);
        let link = OfiLink { address: Some(oneself), side, ..OfiLink::default() };
        OfiTransport::over(endpoint, provider, carrier, Meeting::open(meeting, link)?)
    }

    fn probe(config: &OfiConfig) -> OfiInfo {
        OfiInfo::probe(config)
    }

    fn core(&self) -> &FabricCore<Self> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut FabricCore<Self> {
        &mut self.core
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        let entry = self.core.meeting.peers.find(peer);
        let is_reached = entry.is_some_and(|peer| peer.link.address.is_some());
        let name = || format!("{}/{}", self.provider.name, self.provider.domain);
        is_reached.then(name).into_iter().collect()
    }

    #[inline]
    fn check_send(&self, message: &TagSend) -> Result<(), Unfit> {
        self.check_message(message.tag, message.buffer.len())
    }

    #[inline]
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        self.send_message(message)
    }

    #[inline]
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        self.check_message(tag, payload.len())?;
        Ok(self.inject_now(peer, tag, immediate, payload))
    }

    #[inline]
    fn wire_pattern(&self, pattern: TagPattern) -> Result<WirePattern, Unfit> {
        let TagPattern { tag, mask, source } = pattern;
        let named = source.map(|peer| self.core.meeting.peers.find(peer).ok_or(Unfit::NoSuchPeer));
        let named = named.transpose()?;
        let bits = self.carrier.pattern(tag, mask, source.map(|peer| peer.0.into()))?;
        let from = match named {
            Some(peer) if self.carrier.data == CqData::Sender => peer.link.address,
            _ => Some(sys::FI_ADDR_UNSPEC),
        };
        Ok(WirePattern { from, bits })
    }

    #[inline]
    fn receive_operation(
        &mut self,
        source: Option<PeerId>,
        wire: WirePattern,
        buffer: Buffer,
        token: u64,
    ) -> OfiOperation {
        let with_room = self.with_room(wire.bits);
        OfiOperation { kind: Kind::Receive, token, peer: source, buffer, ..with_room }
    }

    #[inline]
    fn post(&mut self, key: Key, _: WirePattern) -> Result<(), Unfit> {
        self.post_or_wait(key);
        Ok(())
    }

    /// A provider that answers later has an end to report then: cancelled, or a message.
    fn cancel(&mut self, key: Key) -> bool {
        let Some((operation, context)) = self.core.operations.with_context(key) else {
            return false;
        };
        let token = operation.token;
        if operation.long.is_some() || operation.canceller != Canceller::Nobody {
            return operation.canceller == Canceller::Caller && self.was_cancelled(token);
        }
        operation.canceller = Canceller::Caller;
        if operation.is_begun {
            self.endpoint.cancel(Lane::Messages, context);
            let mut rounds = 0;
            while rounds < CANCEL_ROUNDS && self.core.operations.at(key).is_some() {
                rounds = if self.progress() { 0 } else { rounds + 1 };
            }
        } else {
            self.take_unposted(key);
            self.core.end_receive(key, Err(OperationError::Cancelled));
        }
        self.was_cancelled(token)
    }

    fn may_look(&mut self, takes: bool) -> Result<bool, Unfit> {
        if !self.provider.finds {
            return Err(NO_LOOKS);
        }
        if takes && !self.provider.takes {
            return Err(NO_TAKING);
        }
        self.post_waiting();
        Ok(self.unposted.is_empty() && !self.early.has_any)
    }

    fn look(&mut self, wire: WirePattern, _may_take: bool) -> Option<(Key, Completion)> {
        if self.provider.finds { self.ask(wire, false) } else { None }
    }

    fn envelope(&self, (_, found): &(Key, Completion)) -> Option<Envelope> {
        let label = self.carrier.read(Wire { tag: found.tag, data: found.data });
        let source = self.source_of(label.number)?;
        let length = label.length.map_or(found.length as u64, u64::from);
        Some(Envelope { source, tag: label.tag, length, immediate: label.immediate })
    }

    fn take(&mut self, wire: WirePattern, found: (Key, Completion)) -> Option<Key> {
        // The same message: nothing was received between the two.
        let exactly = WirePattern { bits: TagBits { tag: found.1.tag, ignored: 0 }, ..wire };
        self.leave(found);
        self.ask(exactly, true).map(|(key, _)| key)
    }

    fn leave(&mut self, (key, _): (Key, Completion)) {
        self.core.operations.remove(key);
    }

    fn receive_taken(
        &mut self,
        taken: Key,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        let with_room = self.with_room_for(taken);
        let Some(operation) = self.core.operations.at(taken) else {
            return Err((buffer, Unfit::NoSuchMessage));
        };
        let kind = Kind::Receive;
        *operation = OfiOperation { kind, token, buffer, is_claimed: true, ..with_room };
        self.core.tokens.insert(token, taken);
        self.post_or_wait(taken);
        Ok(())
    }

    /// Some providers refuse `FI_DISCARD`, so none is asked for it.
    fn discard(&mut self, taken: Key) {
        let mut with_room = self.with_room_for(taken);
        if with_room.own.is_empty() {
            // What doesn't fit is cut off by the provider.
            with_room.own = vec![0; 1];
        }
        if let Some(operation) = self.core.operations.at(taken) {
            *operation = OfiOperation { kind: Kind::Discard, is_claimed: true, ..with_room };
            self.post_or_wait(taken);
        }
    }

    fn has_risen(&mut self, peer: PeerId) -> bool {
        self.rise(peer)
    }

    #[inline]
    fn advance(&mut self) -> bool {
        self.progress()
    }

    #[inline]
    fn waits(&self) -> bool {
        !self.blocked.is_empty() || !self.unposted.is_empty()
    }

    fn tend(&mut self, is_due: bool) {
        if is_due && !self.rising.is_empty() {
            self.report_late(Instant::now());
        }
        self.post_waiting();
        self.launch_blocked();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.descriptor().filter(|_| self.provider.wakes)
    }

    fn arm(&mut self) -> bool {
        self.endpoint.arm()
    }

    fn next_due(&self) -> Option<Instant> {
        self.rising.iter().map(|(late_at, _)| *late_at).min()
    }

    fn sleep_max(&self) -> Option<Duration> {
        match (self.provider.wakes, self.provider.wakes_late) {
            (false, _) => Some(PERIOD),
            (true, is_racy) => is_racy.then_some(PERIOD_RACY),
        }
    }

    /// The library stores such a message during any call, also during the read of the answer to a
    /// look, and no completion tells of it (fi_cq(3)).
    fn reports_messages(&self) -> bool {
        false
    }

    /// Receivers may wait for packets.
    fn holds_packets(&self) -> bool {
        let is_packet = |packet: &OfiOperation| packet.kind == Kind::ControlOut && !packet.is_told;
        self.core.operations.iter().any(is_packet)
    }

    fn audit(&self) -> Vec<String> {
        self.audit_books()
    }

    fn is_own_process(&self) -> bool {
        self.endpoint.is_own_process()
    }

    /// libfabric ends what is left when the endpoint is closed.
    fn is_over(&self) -> bool {
        let is_callers = |operation: &OfiOperation| operation.is_send() || operation.is_receive();
        !self.core.operations.iter().any(is_callers)
    }

    fn shut(&mut self, _is_over: bool) -> bool {
        self.endpoint.close()
    }
}

const NO_LOOKS: Unfit = Unfit::NotCarried(
    "this provider doesn't find messages that wait (FI_PEEK); post a receive, or use another provider",
);
const NO_TAKING: Unfit = Unfit::NotCarried(
    "this provider doesn't take messages that wait (FI_CLAIM); probe and receive, or use another \
     provider",
);
