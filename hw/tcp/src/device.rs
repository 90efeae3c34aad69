//! The type [`Tcp`]: its parts, and the calls of [`Device`] that need one part alone.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tagmatch_device::slab::Slab;
use tagmatch_device::{
    AccessLimits, Address, Buffer, Device, DeviceError, DownReason, Event, EventDescriptor,
    Exposure, ExposureId, Flush, InCall, Join, Limits, Network, Outgoing, PeerId, PeerNumbers,
    PublishedRegion, Quota, ReadError, ReadMode, ReadRequest, Refused, RegionAccess, RegionPlace,
    WaitingPeers,
};
use tagmatch_os::event::{Epoll, Timer};
use tagmatch_os::process::Pid;
use tagmatch_os::random;
use tagmatch_os::tcp::TcpOptions;
use tagmatch_secret::Secret;

use super::address::TcpAddress;
use super::clock::{Clock, SleepTimer};
use super::config::TcpConfig;
use super::flush_wait::FlushWait;
use super::handshake::Listener;
use super::hosts::Host;
use super::inbox::ReceiveBuffer;
use super::leaving::Leaving;
use super::listeners::TcpListeners;
use super::numbers::Watched;
use super::peers::{PeerState, Peers};
use super::ready::ReadyList;
use super::refused_machines::RefusedMachines;
use super::send_half::{ACCESSES_MAX, Unsent};
use super::sources::SharedMemory;
use super::unsent::UNSENT_MIN;

/// Puts and gets of fewer bytes are messages: these are copied once more, and need fewer system
/// calls.
const ACCESS_BYTES_MIN: usize = 32 << 10;

/// The TCP device. See the [crate](crate) for how it works.
///
/// All work is done in the calls of [`Device`], on the caller's thread; the kernel sends and
/// receives meanwhile, as far as its buffers reach.
pub struct Tcp {
    pub(crate) config: TcpConfig,
    pub(crate) secret: Secret,
    own: TcpAddress,
    pub(crate) address: Address,
    pub(crate) owner: Pid,

    pub(crate) epoll: Epoll,
    pub(crate) timer: Timer,
    pub(crate) ready: ReadyList,
    pub(crate) listeners: TcpListeners,
    pub(crate) refused_machines: RefusedMachines,
    /// Connections that were accepted, and have not proved themselves.
    pub(crate) pending: Slab<Listener>,
    pub(crate) peers: Peers,
    /// The connections that each machine has made to this worker.
    pub(crate) hosts: Quota<Host>,
    /// Peers that have proved themselves and for which there is no descriptor.
    pub(crate) waiting: WaitingPeers,
    /// Connections that were disconnected, whose last bytes are on their way.
    pub(crate) leaving: Slab<Leaving>,

    pub(crate) memory: SharedMemory,
    pub(crate) inbox: ReceiveBuffer,
    /// Messages to oneself, header and payload in one run.
    pub(crate) own_messages: VecDeque<(Option<u32>, Vec<u8>)>,
    pub(crate) own_bytes: usize,
    /// The message to oneself that was reported last.
    pub(crate) own_current: Vec<u8>,
    pub(crate) events: VecDeque<Event<'static>>,

    /// Peers that may have sent data unacknowledged.
    pub(crate) busy: Vec<PeerId>,
    /// When these peers are to be looked at.
    pub(crate) busy_look_at: Duration,
    pub(crate) flush_wait: FlushWait,
    pub(crate) clock: Clock,
    /// The clock was last read after a long pause, and nothing was found late at that read.
    pub(crate) hears_first: bool,
    /// Polls so far.
    pub(crate) polls: u32,
    pub(crate) is_armed: bool,
    pub(crate) sleep_timer: SleepTimer,
    /// The timer has to be set again.
    pub(crate) is_timer_stale: bool,
}

impl Tcp {
    /// A new worker. Peers that get its address, and know the secret, can connect to it at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::Unsupported`]
    /// if there is no secret, or no network interface that the settings allow;
    /// [`DeviceError::System`] if the secret can't be used, an address or port can't be listened
    /// on, or the system has no descriptors left.
    pub fn new(config: TcpConfig) -> Result<Self, DeviceError> {
        config.check()?;
        let secret = config.find_secret()?;
        let epoll = Epoll::new().in_call("epoll_create1")?;
        let timer = Timer::new().in_call("timerfd_create")?;
        epoll.watch(timer.as_fd(), Watched::Timer.number()).in_call("epoll_ctl")?;
        let name = random().in_call("getrandom")?;
        let (listeners, own) = TcpListeners::open(&config, &epoll)?;
        let address = own.address(name)?;
        let mut tcp = Tcp {
            secret,
            own,
            address,
            owner: Pid::own(),
            epoll,
            timer,
            ready: ReadyList::default(),
            listeners,
            refused_machines: RefusedMachines::default(),
            pending: Slab::default(),
            peers: Peers::default(),
            hosts: Quota::new(config.host_peers_max),
            waiting: WaitingPeers::default(),
            leaving: Slab::default(),
            memory: SharedMemory::default(),
            inbox: ReceiveBuffer::new(config.message_max as usize),
            own_messages: VecDeque::new(),
            own_bytes: 0,
            own_current: Vec::new(),
            events: VecDeque::new(),
            busy: Vec::new(),
            busy_look_at: Duration::ZERO,
            flush_wait: FlushWait::No,
            clock: Clock::new(Instant::now()),
            hears_first: false,
            polls: 0,
            is_armed: false,
            sleep_timer: SleepTimer::default(),
            is_timer_stale: false,
            config,
        };
        let peer = tcp.peers.add(address, PeerState::Oneself)?;
        tcp.events.push_back(Event::PeerUp { peer, limits: tcp.limits() });
        Ok(tcp)
    }

    /// The options of each connection.
    pub(crate) fn options(&self) -> TcpOptions {
        TcpOptions {
            keep_alive: self.config.keep_alive,
            unsent_bytes_max: UNSENT_MIN,
            attempts_apart_max: self.config.acknowledge_timeout / 4,
        }
    }

    #[cold]
    fn send_to_oneself(&mut self, message: Outgoing<'_>) -> Result<(), Refused> {
        let bytes = [message.header, message.payload].concat();
        if self.own_bytes > 0 && self.own_bytes + bytes.len() > self.config.outbox_bytes as usize {
            return Err(Refused::Full);
        }
        // An empty message takes memory, too.
        self.own_bytes += bytes.len() + 1;
        self.own_messages.push_back((message.immediate, bytes));
        Ok(())
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp")
            .field("address", &self.address)
            .field("peers", &self.peers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if self.owner == Pid::own() {
            self.audit();
            self.leave_all();
            self.audit();
        }
    }
}

impl Device for Tcp {
    fn limits(&self) -> Limits {
        Limits { message_max: self.config.message_max as usize, fragmented_max: 0 }
    }

    fn address(&self) -> Address {
        self.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.start_connect(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.peers.address(peer)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.peers.state(peer) {
            Some(PeerState::Up(_) | PeerState::Oneself) => ReadMode::Copied,
            _ => ReadMode::Unknown,
        }
    }

    #[inline]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let header = message.header;
        let payload = message.payload;
        let is_too_long =
            |max: usize| header.len() > Outgoing::HEADER_MAX || header.len() + payload.len() > max;
        let connection = match self.peers.state_mut(peer) {
            Some(PeerState::Up(connection)) => connection,
            Some(PeerState::Oneself) if is_too_long(self.config.message_max as usize) => {
                return Err(Refused::TooLong);
            }
            Some(PeerState::Oneself) => return self.send_to_oneself(message),
            Some(PeerState::Connecting(_)) => return Err(Refused::NotUp),
            Some(PeerState::Down { .. }) | None => return Err(Refused::Down),
        };
        if is_too_long(connection.message_max) {
            return Err(Refused::TooLong);
        }
        if connection.is_broken {
            return Err(Refused::Down);
        }
        let out = &mut connection.out;
        let outbox_max = self.config.outbox_bytes as usize;
        let had_to_send = out.has_to_send();
        // A borrow of this field alone, so that `out` stays usable.
        let socket = connection.socket.as_fd();
        match out.send(socket, [header, payload], message.immediate, outbox_max) {
            Ok(()) => {}
            Err(Unsent::Full) => return Err(Refused::Full),
            Err(Unsent::Broken) => {
                connection.note_broken();
                return Err(Refused::Down);
            }
        }
        let has_begun = !had_to_send && connection.out.has_to_send();
        if connection.busy_since.is_none() {
            self.note_busy(peer);
        }
        if has_begun {
            self.watch_room(peer);
        }
        Ok(())
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        self.memory.exposures.expose(reader, buffer)
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        self.memory.exposures.withdraw(reader, id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.start_read(request)
    }

    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        self.memory.regions.publish(region)
    }

    fn unpublish(&mut self, key: u64) -> bool {
        self.memory.regions.unpublish(key);
        true
    }

    fn access_limits(&self, _: PeerId) -> AccessLimits {
        AccessLimits { at_once: ACCESSES_MAX, bytes_min: ACCESS_BYTES_MIN }
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        self.start_access(access)
    }

    fn note_one_sided(&mut self, peer: PeerId) {
        if let Some(connection) = self.peers.connection_mut(peer) {
            connection.out.note_one_sided();
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.next_event()
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        self.flush_peer(peer, mark)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.finish(peer, DownReason::Disconnected);
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        let is_leaving = self.leaving.iter().any(|leaving| leaving.peer == peer);
        !is_leaving && self.peers.forget(peer)
    }

    fn close(&mut self) {
        self.listeners.close(&self.epoll);
        self.drop_pending();
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.audit();
        self.fall_asleep(waiting_to_send)
    }

    #[inline]
    fn has_work(&self) -> bool {
        self.audit_timer();
        self.has_found_work() || (self.is_armed && self.is_timer_stale)
    }

    fn disarm(&mut self) {
        self.wake_up();
    }
}

impl Join for Tcp {
    fn network(&self) -> Network {
        Network::Tcp
    }

    fn section(&self, room: usize) -> Vec<u8> {
        self.own.section(room)
    }

    fn join(&mut self, address: Address, numbers: &PeerNumbers) {
        self.address = address;
        self.peers.join(address, numbers);
    }
}

impl EventDescriptor for Tcp {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
