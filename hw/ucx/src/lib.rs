//! UCX: its own tag matching, on whatever network it reaches.
//!
//! # How it works
//! 1. libucp is loaded when the first device is made, 1.13 or later. A device is one UCX worker; matching,
//!    unexpected messages and large ones are UCX's.
//! 2. An address names a socket for the handshake, on this machine by random bytes and for others by TCP:
//!    a worker address of UCX doesn't fit into an [`Address`]. It also holds a random secret. Over the socket both
//!    prove to each other that they know the secret, and then tell each other their worker addresses, how they
//!    carry tags, and by which number the one knows the other.
//! 3. That connection stays open. It ends when the peer's process does, however that ends, so that a
//!    death is noticed at once; keep-alives notice that of a machine. UCX's own notice counts too.
//! 4. A message's tag on the wire carries the application's tag, the sender's number in the layout's source
//!    field, and immediate data above the layout; see [`UcxConfig`].
//! 5. A peer's end: what it sent is taken in while it still comes, or if we end it, what we sent is let out
//!    (for a bounded time); receives that name it are cancelled, its endpoint is closed by force, which
//!    ends the sends; then its end is reported.
//!    A worker that leaves says so over the connection first, and its end is no fault then.
//! 6. A device that goes ends all its peers in that way and lets UCX progress until nothing is under way. If
//!    something stays under way, it is leaked with the worker, for UCX may still write there.
//!
//! # What UCX doesn't give
//! - [`CompleteWhen::Delivered`](tagmatch_device::matching::CompleteWhen): UCX acknowledges a synchronous send when
//!   it matches, before it copies, and further fragments of an eager one may be under way still; where a
//!   rendezvous copies, its sender is done when it has sent. So it is refused.
//! - Bytes of a message that doesn't fit: of a truncated receive only the length is told, the buffer's
//!   contents are unspecified.
//! - A rendezvous whose sender died is still found by a probe; its receive ends with the peer's end.
//! - The offload of matching to a ConnectX together with peers' errors: [`UcxConfig::hw_tags`].
//!
//! # Trust
//! UCX trusts its peers, and so does this device once they are connected: UCX parses what they send, and ends the
//! process if a worker address is none. So a peer is looked at before anything of it is given to UCX:
//! - On this machine, the kernel must say that the other process is of the same user, before a byte is sent or
//!   received.
//! - Everywhere, a peer must prove that it knows the secret of the address that was connected to. The secret has 128
//!   bits, is not in the name of the socket, and is never sent in clear. Whoever reads or changes the handshake on its
//!   way over TCP learns no secret and can only end the connection. **An address is therefore to be
//!   handed to peers alone.**
//!
//! What remains is UCX's:
//! - A peer that has proved itself can end this process by a worker address, or a message, that UCX can't read.
//! - Messages over TCP are neither encrypted nor signed: whoever is on their way can read and change them.
//! - The transport `tcp` of UCX 1.13 ends the process now and then when a peer goes while both connect
//!   (an assertion in `tcp_ep.c`).
//! - The transport `tcp` listens on ports of its own, on each interface, and takes whoever reaches one, loopback and
//!   so every user of this machine included; a few wrong bytes end the process (seen with UCX 1.13). Where there are
//!   strangers, leave `tcp` out of [`UcxConfig::transports`], or keep them from it by `UCX_NET_DEVICES` and a
//!   firewall.
//!
//! # Signals, log, memory
//! UCX's signal handlers are put back at once ([`tagmatch_ucx_sys::signals`]); its log goes to the `log`
//! crate under the target `ucx`, except for what it has to say while it is being loaded.
//!
//! # After fork
//! A device belongs to the process that made it. A forked child may drop it, which does nothing, or exec.

mod address;
mod alarm;
mod carrier;
mod config;
mod connect;
mod connection;
mod ending;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod held;
mod hello;
mod info;
mod library;
mod listeners;
mod log;
mod messages;
mod operations;
mod peers;
mod progress;
mod proof;
mod sleep;
mod tokens;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;

pub use config::UcxConfig;
pub use info::UcxInfo;

use address::UcxAddress;
use alarm::Alarm;
use carrier::Carrier;
use connection::Connection;
use held::HeldMessages;
use library::{load, open};
use listeners::Listeners;
use operations::Operations;
use peers::{PeerState, Peers};
use tokens::Tokens;
use worker::Worker;

use tagmatch_device::matching::{
    Envelope, HeldId, MatchingDevice, MatchingEvent, TagPattern, TagSend, Unfit,
};
use tagmatch_device::{Address, Buffer, DeviceError, EventDescriptor, PeerId};
use tagmatch_os::random;

/// The UCX device. See the [module](self) for how it works.
///
/// Has no threads of its own; UCX may have one for connections that are being made.
pub struct Ucx {
    config: UcxConfig,
    carrier: Carrier,
    own: UcxAddress,
    address: Address,

    peers: Peers,
    listeners: Listeners,
    connections: HashMap<u32, Connection>,
    connection_ids: u32,
    /// Number of pending connections: accepted, and not yet proven.
    pending: usize,

    tokens: Tokens,
    held: HeldMessages,
    events: VecDeque<MatchingEvent>,
    /// Requests of UCX that no operation has: endpoints that are being closed.
    closing: Vec<*mut std::ffi::c_void>,
    is_closed: bool,
    polls: u32,
    alarm: Alarm,

    // Dropped in this order, by hand, once nothing is under way.
    worker: ManuallyDrop<Worker>,
    operations: ManuallyDrop<Operations>,
}

// SAFETY: what isn't `Send` by itself are pointers into UCX's worker, made for one caller at a time from
// whatever thread, and into the tables of this device.
unsafe impl Send for Ucx {}

impl Ucx {
    /// A new worker's device, which can be reached at once by those who get its address.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::System`] if there is no
    /// UCX (its words name the package to install), or if it can't do with the settings;
    /// [`DeviceError::Unsupported`] if matching in the NIC is required and isn't to be had.
    pub fn new(config: UcxConfig) -> Result<Self, DeviceError> {
        let carrier = config.check()?;
        let ucp = load()?;
        let (worker, endpoint) = open(ucp, &config, &carrier)?;
        let name = random().map_err(DeviceError::system("getrandom", ""))?;
        let secret = random().map_err(DeviceError::system("getrandom", ""))?;
        let mut own = UcxAddress { name, secret, port: 0, hosts: Vec::new() };
        let listeners = Listeners::open(&mut own, &config)?;
        let alarm = Alarm::new(&listeners, worker.descriptor())?;
        let address = own.address()?;
        let mut ucx = Ucx {
            peers: Peers::new(carrier.number_max(), carrier.own_source().is_some()),
            carrier,
            own,
            address,
            listeners,
            connections: HashMap::new(),
            connection_ids: 0,
            pending: 0,
            tokens: Tokens::default(),
            held: HeldMessages::default(),
            events: VecDeque::new(),
            closing: Vec::new(),
            is_closed: false,
            polls: 0,
            alarm,
            worker: ManuallyDrop::new(worker),
            operations: ManuallyDrop::new(Operations::new()),
            config,
        };
        ucx.peers.add(address);
        let oneself = PeerId::ONESELF;
        if let Some(own_source) = carrier.own_source() {
            ucx.peers.claim(oneself, own_source);
        }
        if let Some(peer) = ucx.peers.find_mut(oneself) {
            peer.endpoint = Some(endpoint);
        }
        ucx.peers.set_state(oneself, PeerState::Up);
        ucx.events.push_back(MatchingEvent::PeerUp { peer: oneself });
        Ok(ucx)
    }

    /// Looks at UCX on this machine.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_ucx as ucx; }
    /// use tagmatch::ucx::{Ucx, UcxConfig};
    /// println!("{}", Ucx::probe(&UcxConfig::default()));
    /// ```
    pub fn probe(config: &UcxConfig) -> UcxInfo {
        UcxInfo::probe(config)
    }

    /// The transports that messages to a peer take, as UCX names them; empty while it isn't up.
    pub fn transports(&self, peer: PeerId) -> Vec<String> {
        let endpoint = self.peers.find(peer).and_then(|peer| peer.endpoint);
        let text = endpoint.map(|endpoint| self.worker.endpoint_text(endpoint));
        info::transports(&text.unwrap_or_default())
    }
}

impl fmt::Debug for Ucx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ucx")
            .field("address", &self.address)
            .field("under_way", &self.operations.live())
            .finish_non_exhaustive()
    }
}

impl MatchingDevice for Ucx {
    fn address(&self) -> Address {
        self.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.alarm.work_begun();
        self.start_connect(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.peers.find(peer).map(|peer| peer.address)
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
    ) -> Result<(), Unfit> {
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
        Ok(found.map(|(found, envelope)| (self.held.hold(found), envelope)))
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
        let Some(found) = self.held.release(message) else { return false };
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
            self.break_with(peer, tagmatch_device::DownReason::Disconnected);
        }
    }

    fn close(&mut self) {
        self.alarm.work_begun();
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
}

impl EventDescriptor for Ucx {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }
}
