//! Shared memory: the device for workers on one machine.
//!
//! | module | what it is |
//! |---|---|
//! | `config` | settings |
//! | `name` | what is in an address |
//! | `hello` | the greeting of the handshake, as bytes |
//! | `connect` | the handshake: from an address, or a stranger's greeting, to a connection |
//! | `ring` | one direction of a connection |
//! | `bell` | how silent rings are told from busy ones |
//! | `inboxes` | which rings a poll looks at |
//! | `lane` | a peer and its connection |
//! | `guests` | how many connections a process has made to this worker |
//! | `progress` | what `poll` does |
//! | `reads` | reading a peer's memory, directly |
//! | `copied` | reading it through the rings |
//! | `sleep` | waiting for something to do |
//! | `sync` | the atomics of shared memory, for this machine or for the model checker |
//! | `info` | what this machine allows, and why not |
//! | `os` | system calls |
//!
//! # How two workers meet
//! 1. Each listens on an abstract socket with a random name, which its address gives. Nothing has a
//!    name in a file system, so nothing is left behind when a process is killed.
//! 2. Both sides ask the kernel for the other's user before anything else: the connecting side right
//!    after connect(2), the listening side right after accept(2). A connection of another user is
//!    closed; nothing is sent on it, and nothing received.
//! 3. The connecting side sends a greeting with the memory of the ring that it will read from and its
//!    bell; the other side answers in kind. Both check that the memory can't shrink, before they map it.
//!    Anything else that was sent is closed by another thread, since close(2) may block. From then on
//!    the kernel refuses descriptors on this connection (`SO_PASSRIGHTS`, Linux 6.16 or later).
//! 4. If both began at once, the connection that the smaller address began counts.
//! 5. The sockets stay open. They carry a byte to wake a sleeper, and another one to say that the sender
//!    leaves in order. The end of a socket says that the worker was closed; a pidfd says that its
//!    process ended.
//!
//! # Trust
//! Peers are processes of the same user. None of them can make this one panic, or touch memory that
//! isn't the device's; a peer that breaks a rule goes down, and nobody else does. Since
//! the bell is shared by all peers, one of them can delay the messages of others by what it writes
//! there, up to a second while we sleep; it can't stop or change them. A peer may claim the address
//! of another process of the same user only if the kernel can't tell them apart (different pid
//! namespaces). One process can bring a bounded number of peers ([`ShmConfig::process_peers_max`]).
//!
//! A process of any user can connect and send descriptors that block the threads which close them. While 16 threads
//! are blocked, this worker accepts no connection; connections that stand, and those that it begins, go on.
//!
//! With direct reads, a peer can block this process: the kernel reads the peer's memory in a call of this
//! thread, in the handshake and for each large message, and waits for a page that the peer withholds
//! (userfaultfd(2), a mapped file of FUSE). Only a signal that kills ends that wait. With
//! [`ReadPolicy::Copied`] no peer's memory is read, and no peer can block this process.
//!
//! # After fork
//! A worker belongs to the process that made it. In a forked child it must not be used: both would
//! read and write the same rings. The child may drop it or call exec.
//!
//! # Limits
//! Both workers need to be in the same network namespace (abstract sockets are), and of the same
//! user. In a user namespace in which that user has no number, it can't be told from others that have
//! none, and no connection is made. Peers that are down leave some 150 bytes behind each, since numbers are never reused.
//!
//! # Not tested
//! For want of such a machine: Yama's scopes, seccomp filters that forbid process_vm_readv or
//! membarrier, kernels before 6.5 (no `SO_PEERPIDFD`) and before 5.3 (no pidfd), huge-page memfds,
//! and processors other than x86-64. What decides on them is tested with made-up answers, or
//! switched off by settings ([`ReadPolicy::Copied`], [`ShmConfig::membarrier`]).

pub(crate) mod bell;
mod config;
mod connect;
mod copied;
mod exposure;
#[doc(hidden)]
pub mod fuzzing;
mod guests;
pub(crate) mod hello;
mod inboxes;
mod info;
mod lane;
#[cfg(all(loom, test))]
mod model;
pub(crate) mod name;
mod progress;
mod reads;
pub(crate) mod ring;
mod sleep;
pub(crate) mod sync;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

pub use config::{ReadPolicy, ShmConfig};
pub use info::ShmInfo;

use bell::Bell;
use connect::Stranger;
use copied::Copied;
use exposure::Exposures;
use guests::Guests;
use hello::Nonce;
use inboxes::Inboxes;
use lane::{Lane, Link, Stage};
use name::ShmName;
use progress::Queued;
use reads::DirectRead;
use ring::{Consumer, Geometry, Producer, PushError, Ring};
use tagmatch_os::event::{Epoll, Timer};
use tagmatch_os::memory::{Mapping, SealedMemory};
use tagmatch_os::peer_socket::Listener;
use tagmatch_os::{process, socket};

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, DownReason, Event, EventDescriptor, Exposure, ExposureId,
    Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused,
};
use tagmatch_os::sleep::EventFd;

/// Most peers over the whole life of a device, those that went down included.
const PEERS_EVER_MAX: usize = 1 << 20;

/// What an event of the epoll descriptor is about: the kind in the upper half, a number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Listener,
    Timer,
    Stranger(u32),
    Socket(PeerId),
    Process(PeerId),
    Oneself,
}

impl Watched {
    fn number(self) -> u64 {
        let (kind, number) = match self {
            Watched::Listener => (0, 0),
            Watched::Timer => (1, 0),
            Watched::Stranger(id) => (2, id),
            Watched::Socket(peer) => (3, peer.0),
            Watched::Process(peer) => (4, peer.0),
            Watched::Oneself => (5, 0),
        };
        kind << 32 | u64::from(number)
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the lower half")]
    fn from_number(number: u64) -> Option<Self> {
        let low = number as u32;
        Some(match number >> 32 {
            0 => Watched::Listener,
            1 => Watched::Timer,
            2 => Watched::Stranger(low),
            3 => Watched::Socket(PeerId(low)),
            4 => Watched::Process(PeerId(low)),
            5 => Watched::Oneself,
            _ => return None,
        })
    }
}

/// The shared-memory device. See the [module](self) for how it works.
///
/// Everything happens in the calls of [`Device`], but for closing what an unknown process has sent: that
/// may block, and a thread is made for it. A worker that polls only now and
/// then notices connections and deaths the later; one with nothing to do sleeps on
/// [`Device::event_descriptor`].
pub struct Shm {
    config: ShmConfig,
    geometry: Geometry,
    name: ShmName,
    address: Address,
    listener: Listener,
    epoll: Epoll,
    timer: Timer,
    /// Wakes us when one thread sends to oneself while another sleeps.
    eventfd: Arc<EventFd>,
    bell_memory: SealedMemory,
    bell: Arc<Bell>,
    /// Boxed: peers know where it lies.
    nonce: Box<Nonce>,
    hears_barriers: bool,
    makes_barriers: bool,

    lanes: Vec<Lane>,
    by_address: HashMap<Address, PeerId>,
    guests: Guests,
    inboxes: Inboxes,
    exposures: Exposures,

    /// Events to report before anything else.
    events: VecDeque<Queued>,
    direct_reads: VecDeque<DirectRead>,
    /// Peers with copied reads to push on, either way.
    copying: Vec<PeerId>,
    /// Peers whose last messages are being delivered, and where their ring stood then.
    draining: Vec<(PeerId, u32)>,
    connecting: Vec<PeerId>,
    /// One of them can't be asked yet, so that we try again.
    is_asking: bool,
    strangers: Vec<Stranger>,
    stranger_ids: u32,
    /// When to look at the listener again, after it could not be served.
    listener_muted_until: Option<Instant>,

    /// Polls so far.
    polls: u32,
    /// Polls in a row that found nothing.
    idle_polls: u32,
    /// The next poll has more to do than to look at rings.
    needs_attention: bool,
    last_look: Instant,
    is_armed: bool,
    is_timer_set: bool,
}

impl Shm {
    /// A new worker, which can be reached at once by those who get its address.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::System`] if the
    /// system has no descriptors or memory left, or lacks memfd_create(2).
    pub fn new(config: ShmConfig) -> Result<Self, DeviceError> {
        let geometry = config.check()?;
        let name = ShmName::create().map_err(DeviceError::system("getrandom", ""))?;
        let listener = socket::listen(name.socket_name().as_bytes(), 4096)
            .map(Listener::new)
            .map_err(DeviceError::system("listen on an abstract socket", ""))?;
        let bell_memory = SealedMemory::new(c"tagmatch-bell", bell::LENGTH_BYTES)
            .map_err(DeviceError::system("memfd_create", ""))?;
        let mapping = bell_memory.map().map_err(DeviceError::system("mmap", ""))?;
        let bell = Arc::new(
            Bell::new(mapping)
                .ok_or(DeviceError::BadBuffer { why: "a page is too small for a bell" })?,
        );
        let epoll = Epoll::new().map_err(DeviceError::system("epoll_create1", ""))?;
        let timer = Timer::new().map_err(DeviceError::system("timerfd_create", ""))?;
        let eventfd = Arc::new(EventFd::new().map_err(DeviceError::system("eventfd", ""))?);
        let watch = |fd, what: Watched| epoll.watch(fd, what.number());
        watch(listener.as_fd(), Watched::Listener).map_err(DeviceError::system("epoll_ctl", ""))?;
        watch(timer.as_fd(), Watched::Timer).map_err(DeviceError::system("epoll_ctl", ""))?;
        watch(eventfd.as_fd(), Watched::Oneself).map_err(DeviceError::system("epoll_ctl", ""))?;
        let hears_barriers = config.membarrier && process::register_for_barriers().is_ok();
        let makes_barriers = config.membarrier && process::barrier_everywhere().is_ok();
        if config.allow_readers && config.read != ReadPolicy::Copied {
            // Fails where there is no Yama, and then isn't needed.
            let _ = process::allow_readers();
        }
        // One more for messages to oneself.
        let inboxes = Inboxes::new(bell.clone(), config.peers_max + 1, makes_barriers);
        let mut shm = Shm {
            geometry,
            address: name.address()?,
            name,
            listener,
            epoll,
            timer,
            eventfd,
            bell_memory,
            bell,
            nonce: Box::new(Nonce(
                tagmatch_os::random().map_err(DeviceError::system("getrandom", ""))?,
            )),
            hears_barriers,
            makes_barriers,
            lanes: Vec::new(),
            by_address: HashMap::new(),
            guests: Guests::new(config.process_peers_max),
            inboxes,
            exposures: Exposures::default(),
            events: VecDeque::new(),
            direct_reads: VecDeque::new(),
            copying: Vec::new(),
            draining: Vec::new(),
            connecting: Vec::new(),
            is_asking: false,
            strangers: Vec::new(),
            stranger_ids: 0,
            listener_muted_until: None,
            polls: 0,
            idle_polls: 0,
            needs_attention: true,
            last_look: Instant::now(),
            is_armed: false,
            is_timer_set: false,
            config,
        };
        shm.connect_oneself()?;
        Ok(shm)
    }

    /// Looks at what this machine allows, without making a worker. Registers the process for
    /// membarrier(2), which is harmless.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_shm as shm; }
    /// use tagmatch::shm::{Shm, ShmConfig};
    /// println!("{}", Shm::probe(&ShmConfig::default()));
    /// ```
    pub fn probe(config: &ShmConfig) -> ShmInfo {
        ShmInfo::probe(config)
    }

    /// Messages to oneself go through a ring like any other, in memory that nobody else sees.
    fn connect_oneself(&mut self) -> Result<(), DeviceError> {
        let none_left = DeviceError::Exhausted { what: "ring", limit: bell::BITS };
        let mapping = Mapping::private(self.geometry.length_bytes())
            .map_err(DeviceError::system("mmap", ""))?;
        let (Some(ring), Some(bit)) = (Ring::new(mapping, self.geometry), self.inboxes.reserve())
        else {
            return Err(none_left);
        };
        let ring = Arc::new(ring);
        let consumer = Consumer::new(ring.clone(), self.config.message_max);
        self.inboxes.insert(bit, consumer, PeerId::ONESELF);
        let link = Link {
            producer: Producer::new(ring),
            message_max: self.config.message_max,
            is_fenced: false,
            bell: self.bell.clone(),
            bell_bit: bit,
            inbox: bit,
            socket: None,
            eventfd: Some(self.eventfd.clone()),
            process: None,
            guest: None,
            read_mode: ReadMode::Direct,
            copied: Copied::default(),
        };
        self.add_lane(self.address, Stage::Up(Box::new(link)))?;
        let up = Queued::Up(PeerId::ONESELF, self.limits());
        self.events.push_back(up);
        Ok(())
    }

    fn add_lane(&mut self, address: Address, stage: Stage) -> Result<PeerId, DeviceError> {
        let limit = PEERS_EVER_MAX;
        let none_left =
            DeviceError::Exhausted { what: "peer, those that went down included", limit };
        let number = u32::try_from(self.lanes.len()).ok();
        let number = number.filter(|number| (*number as usize) < limit);
        let peer = PeerId(number.ok_or(none_left)?);
        self.lanes.push(Lane { address, stage });
        self.by_address.insert(address, peer);
        Ok(peer)
    }

    fn link_mut(&mut self, peer: PeerId) -> Option<&mut Link> {
        self.lanes.get_mut(peer.index())?.link_mut()
    }
}

impl fmt::Debug for Shm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shm")
            .field("address", &self.address)
            .field("peers", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        if !self.name.is_own_process() {
            return;
        }
        // Before any buffer is let go of: a peer that has read one looks whether we have hung up.
        self.listener.shut_down();
        for lane in &self.lanes {
            if let Stage::Up(link) | Stage::Draining(link, _) = &lane.stage
                && let Some(socket) = &link.socket
            {
                socket::send_bye(socket);
                socket.shut_down();
            }
        }
    }
}

impl Device for Shm {
    fn limits(&self) -> Limits {
        Limits { message_max: self.config.message_max as usize }
    }

    fn address(&self) -> Address {
        self.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.start_connect(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        Some(self.lanes.get(peer.index())?.address)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.lanes.get(peer.index()).map(|lane| &lane.stage) {
            Some(Stage::Up(link) | Stage::Draining(link, _)) => link.read_mode,
            _ => ReadMode::Unknown,
        }
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let Some(lane) = self.lanes.get_mut(peer.index()) else {
            return Err(Refused::Down);
        };
        let link = match &mut lane.stage {
            Stage::Up(link) => link,
            Stage::Connecting(_) => return Err(Refused::NotUp),
            Stage::Draining(..) | Stage::Down => return Err(Refused::Down),
        };
        let (header, payload) = (message.header, message.payload);
        let room = (link.message_max as usize).saturating_sub(header.len());
        if header.len() > Outgoing::HEADER_MAX || payload.len() > room {
            return Err(Refused::TooLong);
        }
        match link.send(header, payload, message.immediate) {
            Ok(()) => Ok(()),
            Err(PushError::Full) => Err(Refused::Full),
            Err(PushError::Broken(what)) => {
                self.finish(peer, DownReason::Misbehaved { what });
                Err(Refused::Down)
            }
        }
    }

    fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        self.exposures.expose(buffer)
    }

    fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        self.exposures.withdraw(id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.start_read(request)
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.next_event()
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.finish(peer, DownReason::Disconnected);
    }

    fn close(&mut self) {
        self.epoll.forget(self.listener.as_fd());
        self.listener.shut_down();
        self.send_strangers_away();
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.fall_asleep(waiting_to_send)
    }

    #[inline]
    fn has_work(&self) -> bool {
        Shm::has_work(self) || !self.draining.is_empty() || !self.connecting.is_empty()
    }

    fn disarm(&mut self) {
        self.wake_up();
    }
}

impl EventDescriptor for Shm {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
