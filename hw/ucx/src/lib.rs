//! The UCX device: UCX matches tags by itself, over any network that it supports.
//!
//! # How it works
//! 1. libucp is loaded when the first device is made, 1.13 or later. A device is one UCX worker.
//!    UCX does the matching, keeps unexpected messages and transfers large ones.
//! 2. Peers meet over a socket of ours ([`tagmatch_fabric::handshake`]), which an [`Address`] names.
//!    They exchange their worker addresses, the way in which they encode tags, and the number by which
//!    each knows the other.
//! 3. This connection stays open, and its end is the peer's. An error of UCX's endpoint counts as
//!    well.
//! 4. A message's tag on the wire carries the application's tag, the sender's number in the
//!    layout's source field, and immediate data above the layout; see [`UcxConfig`].
//! 5. When a peer ends, its last messages are still received, for a bounded time; when this worker
//!    disconnects a peer, the messages that it has sent still go out, for a bounded time. Then
//!    receives that name the peer are cancelled, the endpoint is closed by force, which ends the
//!    sends, and the peer is reported as down. A worker that leaves in order says so over the
//!    connection first; then its end is no fault.
//! 6. A device that is dropped ends all its peers in this way, and makes progress until no
//!    operation is under way. Operations that stay under way are leaked together with the worker,
//!    since UCX may still write to their buffers.
//! 7. Memory of the caller's own is registered once with UCX's context (`ucp_mem_map`), and
//!    operations on its parts pass the handle. The context outlives the worker for that. A
//!    registration that ends on another thread is unmapped by the worker's thread.
//!
//! # What UCX doesn't give
//! - [`CompleteWhen::Delivered`](tagmatch_device::matching::CompleteWhen): UCX acknowledges a
//!   synchronous send when it matches, before it copies, while further fragments of an eager
//!   message may be under way. The sender of a rendezvous that copies is done when it has sent. So
//!   sends that ask for delivery are refused.
//! - The first bytes of a message that doesn't fit: a truncated receive has the length only, and
//!   zeros in its buffer.
//! - Forgetting a rendezvous whose sender died: a probe still finds it; its receive ends when the
//!   peer's end is reported.
//! - Matching in a ConnectX together with error handling of peers: see [`UcxConfig::hw_tags`].
//!
//! # Trust
//! UCX trusts its peers, so this device has to trust them, too, once they are connected: UCX parses
//! their messages, and ends the process if a worker address is malformed. So each peer is checked
//! before UCX gets anything from it:
//! - On this machine, the kernel confirms that the other process belongs to the same user, before a
//!   byte is sent or received.
//! - Everywhere, a peer must prove that it knows the secret of the address that was connected to,
//!   and the job's secret where there is one ([`UcxConfig::secret`]).
//!   The secret has 128 bits, is not in the name of the socket, and is never sent in clear. An
//!   attacker that reads or changes the handshake on its way over TCP learns no secret and can only
//!   end the connection. **An address is therefore to be handed to peers alone.**
//!
//! Risks that remain, because they are UCX's:
//! - A peer that has proved itself can end this process by a worker address, or a message, that UCX
//!   can't read.
//! - Messages over TCP are neither encrypted nor signed: a machine on their way can read and change
//!   them.
//! - The transport `tcp` of UCX 1.13 ends the process now and then when a peer goes while both
//!   connect (an assertion in `tcp_ep.c`).
//! - The transport `tcp` listens on ports of its own, on each interface including loopback, and
//!   accepts every connection, also of other users of this machine; a few wrong bytes end the
//!   process (seen with UCX 1.13). Where others can reach these ports, leave `tcp` out of
//!   [`UcxConfig::transports`], or restrict it by `UCX_NET_DEVICES` and a firewall.
//!
//! # Signals, log, memory
//! UCX installs signal handlers when it is loaded; the program's handlers are restored at once
//! ([`tagmatch_ucx_sys::Ucp::load`]). UCX's log goes to the `log` crate under the target `ucx`,
//! except for lines that UCX writes while it is being loaded.
//!
//! # After fork
//! A device belongs to the process that made it. A forked child may drop it, which does nothing, or
//! exec.
//!
//! # Decisions
//! - **64 bits for everything.** UCX's tag is all that travels beside the payload. The sender's
//!   number goes into the source field of the layout. The receiver gives it out, so it is small and
//!   can be trusted; or it is the runtime's own rank (`own_source`), if its tags have that already.
//!   Immediate data goes above the layout. What has no place is refused at the call
//!   (`Fault::NotCarried`), with what to do about it; nothing is approximated.
//! - **Facts on every path.** Receives never complete at once, because UCX 1.13 leaves their facts
//!   unset then. An operation that a peer's end has ended is reported once the device has said why
//!   it ended.
//! - **Not counted.** UCX doesn't tell whether a receive was matched by a NIC, on its posted list
//!   or among the unexpected messages. So `Counters::by_device` counts them all, and nothing is
//!   guessed. tagperf sees that messages wait by probing for the last one, which no other
//!   overtakes.
//! - **One list of tests.** `tests/api/` runs over each device. What UCX can't do is one enum in
//!   `hw/device/src/ability.rs`, each with its reason, and `ci/test ucx` checks that it is no more
//!   than docs/devices.md says.

mod carrier;
mod config;
mod ending;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod info;
mod library;
mod link;
mod log;
mod messages;
mod operations;
mod progress;
mod registration;
mod sleep;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;

pub use config::UcxConfig;
pub use info::UcxInfo;

use carrier::Carrier;
use config::KIND;
use library::{load, open};
use link::UcxLink;
use operations::{Index, Operations};
use worker::{Found, Worker};

use tagmatch_device::matching::{
    Envelope, HeldId, MatchingDevice, MatchingEvent, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{
    Address, Buffer, DeviceError, EventDescriptor, Flush, IntegerMap, PeerId, RawMemory, Registered,
};
use tagmatch_fabric::handshake::{
    Alarm, Layout, Meeting, MeetingConfig, break_with, start_connect,
};

/// The UCX device. See the [module](self) for how it works.
///
/// Has no threads of its own; UCX may have one for connections that are being made.
pub struct Ucx {
    carrier: Carrier,
    meeting: Meeting<UcxLink>,

    /// Posted receives by their tokens.
    tokens: IntegerMap<u64, Index>,
    /// Messages that matched probes took, until they are received or dropped.
    held: Slab<Found>,
    events: VecDeque<MatchingEvent>,
    /// Requests of UCX without an operation: endpoints that are being closed.
    closing: Vec<*mut std::ffi::c_void>,
    polls: u32,
    alarm: Alarm,

    // Dropped by hand, in this order, once no operation is under way.
    worker: ManuallyDrop<Worker>,
    operations: ManuallyDrop<Operations>,
}

// SAFETY: the fields that are not `Send` are pointers into UCX's worker, which allows one caller at
// a time from any thread, and pointers into the tables of this device.
unsafe impl Send for Ucx {}

impl Ucx {
    /// A new device. Peers that get its address can reach it at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::System`] if UCX
    /// is not installed (the text names the package), or refuses the settings, or if the job's
    /// secret can't be read;
    /// [`DeviceError::Unsupported`] if matching in the NIC is required and not possible, or off and
    /// switched on by a variable in the settings.
    pub fn new(config: UcxConfig) -> Result<Self, DeviceError> {
        let carrier = config.check()?;
        let secret = config.find_secret()?;
        let ucp = load()?;
        let (worker, endpoint) = open(ucp, &config, &carrier)?;
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
        let meeting =
            Meeting::open(meeting, UcxLink { endpoint: Some(endpoint), ..UcxLink::default() })?;
        let alarm = Alarm::new(&meeting, worker.descriptor())?;
        let mut ucx = Ucx {
            carrier,
            meeting,
            tokens: IntegerMap::default(),
            held: Slab::default(),
            events: VecDeque::new(),
            closing: Vec::new(),
            polls: 0,
            alarm,
            worker: ManuallyDrop::new(worker),
            operations: ManuallyDrop::new(Operations::new()),
        };
        ucx.events.push_back(MatchingEvent::PeerUp { peer: PeerId::ONESELF });
        Ok(ucx)
    }

    /// Finds out what UCX can use on this machine.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_ucx as ucx; }
    /// use tagmatch::ucx::{Ucx, UcxConfig};
    /// println!("{}", Ucx::probe(&UcxConfig::default()));
    /// ```
    pub fn probe(config: &UcxConfig) -> UcxInfo {
        UcxInfo::probe(config)
    }
}

impl fmt::Debug for Ucx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ucx")
            .field("address", &self.meeting.address)
            .field("under_way", &self.operations.live)
            .finish_non_exhaustive()
    }
}

impl MatchingDevice for Ucx {
    fn address(&self) -> Address {
        self.meeting.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.alarm.work_begun();
        start_connect(self, address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.meeting.peers.find(peer).map(|peer| peer.address)
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        let endpoint = self.meeting.peers.find(peer).and_then(|peer| peer.link.endpoint);
        let text = endpoint.map(|endpoint| self.worker.endpoint_text(endpoint));
        info::transports(&text.unwrap_or_default())
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.worker.register(memory)
    }

    #[inline]
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        self.alarm.work_begun();
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
        self.alarm.work_begun();
        self.inject_message(peer, tag, immediate, payload)
    }

    #[inline]
    fn receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.alarm.work_begun();
        self.post_receive(pattern, buffer, token)
    }

    fn cancel(&mut self, token: u64) -> bool {
        self.cancel_receive(token)
    }

    fn probe(&mut self, pattern: TagPattern) -> Result<Option<Envelope>, Unfit> {
        Ok(self.look_for(pattern, false)?.map(|(_, envelope)| envelope))
    }

    fn matched_probe(&mut self, pattern: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit> {
        let found = self.look_for(pattern, true)?;
        // The table can't be full: it has room for 2^32 messages.
        Ok(found.and_then(|(found, envelope)| {
            let key = self.held.insert(found, u32::MAX).ok()?;
            Some((HeldId(key.to_bits()), envelope))
        }))
    }

    fn receive_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.alarm.work_begun();
        self.take_held(message, buffer, token)
    }

    fn discard_held(&mut self, message: HeldId) -> bool {
        self.alarm.work_begun();
        let Some(found) = self.held.remove(Key::from_bits(message.0)) else { return false };
        self.discard(found);
        true
    }

    #[inline]
    fn poll(&mut self) -> Option<MatchingEvent> {
        self.next_event()
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.alarm.work_begun();
        if peer != PeerId::ONESELF {
            break_with(self, peer, tagmatch_device::DownReason::Disconnected);
        }
    }

    fn close(&mut self) {
        // Whoever closes it polls it from now on.
        self.alarm.disarm();
        self.close_all();
    }

    fn arm(&mut self) -> bool {
        self.fall_asleep()
    }

    fn disarm(&mut self) {
        self.alarm.disarm();
    }

    fn has_work(&self) -> bool {
        self.is_busy()
    }

    fn has_unsent(&mut self) -> bool {
        self.holds_messages()
    }

    fn flush(&mut self, peer: PeerId) -> Flush {
        self.flush_peer(peer)
    }

    fn unexpected_now(&self) -> Option<u64> {
        None
    }
}

impl EventDescriptor for Ucx {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }
}
