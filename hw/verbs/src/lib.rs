//! The device for RDMA by libibverbs: reliable connected queue pairs (RC) on InfiniBand, RoCE and
//! soft-RoCE.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! # How it works
//! 1. **Addresses.** A worker's address names the port, its partition, the number and key of a
//!    datagram queue pair, and the worker's random name. Workers whose ports don't reach each other
//!    use another network ([`verbs_port`](tagmatch_device::verbs_port)).
//! 2. **Handshake.** A worker that connects sends datagrams to that queue pair and repeats them
//!    until it gets an answer. Each side creates one reliable queue pair for the other (`connect`).
//! 3. **Messages** are RDMA sends into one shared receive queue. A credit covers each message, so a
//!    receive buffer is always posted for it. An idle peer holds one credit (`credits`). A message
//!    that fits is carried inside its work request; a longer one is copied into a registered
//!    buffer. Either way its bytes are copied when [`Device::send`] returns. Few work requests are
//!    signalled.
//! 4. **Signals** are what the devices tell each other beside messages, credits for example. A
//!    signal is an RDMA write of zero bytes with immediate data.
//! 5. **Reads** are RDMA READs, split at the port's longest message. A buffer of the user's own
//!    memory is registered when it is exposed or read into, and unregistered when it is given back.
//!    So no peer reaches memory that the device has returned (except by [`VerbsConfig::linger`]),
//!    and no registration cache has to be invalidated. Memory from [`Device::allocate`] stays
//!    registered and is reused by the device (`region`): a peer that it was once exposed to can
//!    read it later, too. Memory that can't be registered, on either side, is read by messages
//!    through the devices' own buffers (`copying`), unless the NIC of the reader matches tags: it
//!    reads by itself.
//! 6. **Waiting.** One completion queue serves all queue pairs. The event descriptor covers its
//!    channel, a timer, the device's asynchronous events, messages to oneself, and the ends of
//!    processes of this machine.
//! 7. **Lost peers.** After [`VerbsConfig::keepalive`] without traffic, an RDMA write of zero bytes
//!    tests a connection. The peer's NIC acknowledges it without its CPU. When a queue pair fails,
//!    its peer goes down; other peers are not affected.
//!
//! # A NIC that matches tags
//! With [`TagMatching`] and a NIC that supports it, the NIC matches incoming messages against its
//! list ([`TagList`]) before they reach the receive queue. Messages must then begin with a
//! [header](tagmatch_device::tm) that the NIC understands. If either side's NIC matches tags, each
//! side has two queue pairs for the other. On the receiving queue pair, the NIC owns the send queue
//! and uses it for its own READs and FINs. Software sends everything on the other queue pair, which
//! receives only FINs. Each FIN lands in a small buffer that was posted before the rendezvous
//! request that it answers.
//!
//! # Trust
//! RDMA trusts the network: anyone who can send packets with the right queue pair number and
//! sequence number can inject data into a connection. Everything that a peer sends is checked all
//! the same. No peer can make this worker panic, block, or access memory that isn't exposed to it.
//! A peer that breaks a rule goes down; other peers are not affected. The NIC checks the key of a
//! READ request, but not who asks: all queue pairs are in one protection domain. So a peer that
//! learns or guesses the key and the address of memory that is exposed to another peer can read it.
//! NICs may give keys that are easy to guess. Memory is exposed from the rendezvous request to its
//! FIN, and as long as it stays registered ([`Device::register`]). Datagrams, which anyone can
//! send, are checked against the port and queue pair that they came from. Where the job has a
//! secret ([`VerbsConfig::secret`]), each datagram carries a proof that its sender knows it, and
//! nobody else gets a connection; messages carry no proof.
//!
//! # Memory order
//! This crate looks at nothing that a NIC writes before the completion queue has said so, and tells
//! a NIC of nothing but by a work request. So the barriers between a processor and a NIC are those
//! of the driver, in `ibv_poll_cq` and `ibv_post_send` (rdma-core's `udma_from_device_barrier` and
//! `udma_to_device_barrier`: on AArch64 `dmb` of the outer domain, where processors among each
//! other need the inner one). Memory that two processes share is the matter of `hw/shm`.
//!
//! # Messages to oneself
//! They go through a queue in memory, not through the NIC.
//!
//! # After fork
//! A worker belongs to the process that created it. A forked child may drop the worker, which frees
//! no object of the RDMA device, or call exec. Where the kernel doesn't copy registered pages at
//! fork(2) (`ibv_is_fork_initialized(3)`), this needs `RDMAV_FORK_SAFE=1`.
//!
//! # Not tested
//! No machine was available for these: InfiniBand and a ConnectX other than in software
//! (`lab/hca`, through the unmodified libmlx5), subnet managers, and RoCE version 1. The
//! differences are handled by the kernel and rdma-core; no code here depends on the NIC's model.
//!
//! # Decisions
//! - **Queue pairs.** One for each peer. Two where either side's NIC matches tags, because a NIC
//!   that matches owns the send queue of the pair on which its list receives: A.send → B.list and
//!   A.list ← B.send. What the NIC sends (READs, FINs) goes B.list → A.send. The address says whose
//!   NIC matches, so both sides know before they meet.
//! - **Meeting.** Both sides make the queue pair for the other before they ask for the connection
//!   (by datagrams, repeated). If both begin at once, each asks for the pair that the other has
//!   made already. There is nothing to choose, so no address has to win.
//! - **Buffers.** Every message that may arrive has a buffer in the shared receive queue: a credit
//!   of the device, beside the credits of the protocol. An idle peer has one buffer, a busy one's
//!   window doubles, and unused buffers are given back. So "receiver not ready" (RNR) is the
//!   exception. A buffer holds a payload of 8 KiB, since a queue's buffers are used in order,
//!   whatever a message's length: short and long ones can't be mixed. A send queue of fewer
//!   requests pays for that: it has 42, which with 188 bytes inline fill 16 KiB on a ConnectX. With
//!   64, an idle peer took 60 to 80 KiB on soft-RoCE; with 128 and buffers of 4 KiB it took 140. On
//!   soft-RoCE a message of 4 KiB takes 6.1 packets and 1.1 system calls (acknowledgements and
//!   announced credits included); by rendezvous it took 9.1 and 3.1. FINs of a peer's NIC arrive
//!   without a credit; each has a buffer of 64 bytes that was posted before the request that it
//!   answers.
//! - **Signals of the device** (announced credits, the leave signal) are RDMA writes of no bytes
//!   with immediate data. Where a NIC matches they are messages without a tag, because no
//!   documentation says what its queue makes of RDMA writes.
//! - **Registration.** A buffer of the user's own is registered while it is exposed, read into, or
//!   in the list. Its owner may free it the moment it is given back, and nothing in Rust tells a
//!   registration cache of that. So there is a pool instead of a cache: `Worker::buffer` gives out
//!   memory that the device has registered and owns, and a buffer that is dropped returns to the
//!   pool (`hw/verbs/src/region.rs`). Its keys live on from one operation to the next, so a peer
//!   that it was once exposed to can go on to read it, as with every registration cache. On
//!   soft-RoCE in an emulated guest, a 4 KiB rendezvous takes a fifth to a half of the time (the
//!   least of each) that it takes with a registration on either side.
//! - **The end.** A failed queue pair ends its peer, once. Messages that have arrived are still
//!   delivered. A last request is posted, and when it returns as flushed, all earlier ones have
//!   returned; only then are buffers released. A worker that leaves says so and waits until that is
//!   acknowledged. The NIC of a silent peer is probed by a write of no bytes.
//! - **Whose end has failed** (`failure`). What the device says of a queue pair, a queue or itself
//!   is a failure of this worker's end ([`DownReason::Failed`](tagmatch_device::DownReason)), never
//!   the death of the peer. A request that was flushed tells nothing, so the device's asynchronous
//!   events are looked at before it (`events`). A port with another LID or GID than the worker's
//!   address says makes no connection any more, since its datagrams come from another port.
//! - **Outages.** A NIC tells a dead process from a cable that was pulled by nothing: both are
//!   silence. By default a request is sent eight times in 8.6 s, as UCX does, so a connection
//!   survives an outage of 5 s and more, such as that of a switch that starts again, and a process
//!   of another machine that was killed is noticed after 9 s. [`VerbsConfig::ack_timeout`] and
//!   [`VerbsConfig::retry_count`] make both shorter or longer. The end of a process of this machine
//!   is told by the kernel, at once (`local_processes`).
//! - **Partitions.** The key is a part of the datagram queue pair's key, so the address has it
//!   without a byte more: a packet with another key is dropped in silence, and no datagram could
//!   tell.
//! - **Soft-RoCE**, as seen on Linux 6.1: `retry_cnt` 7 means for ever, so the default is 6. A link
//!   that is down fails every post, or makes the device forget its timer, so a request that takes
//!   longer than all retries ends its peer. A READ that the network repeats after its memory was
//!   unregistered ends the connection (`VerbsConfig::linger`). Within one machine, the IPv4 header
//!   before a datagram has no checksum. A FIN may be seen before the completion of the request that
//!   it answers.
//! - **A ConnectX**, as its driver's source has it: it needs 33 buffers before it receives, which
//!   are always there. The buffer that a failed completion names can't be trusted, so it isn't used
//!   again. A message has one or two completions. There is no tag matching on Ethernet ports. Of
//!   this, the buffers and the completions were seen with libmlx5 on a ConnectX in software.

mod address;
mod audit;
mod batch;
mod calls;
mod choice;
mod config;
mod connect;
mod context;
mod copying;
mod credits;
mod datagrams;
mod ending;
mod event_fds;
mod events;
mod exposing;
mod exposure;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod handle_limiter;
#[cfg(test)]
mod hostile;
mod info;
mod link;
mod list;
mod local_processes;
mod memory;
mod object;
mod oneself;
mod partition;
mod peer;
mod poll;
mod port;
mod read;
mod reads;
mod region;
mod settings;
mod silence;
mod sizes;
mod sleep;
mod wire;
mod wr_id;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, Event, EventDescriptor, Exposure, ExposureId, Flush,
    InCall, IntegerMap, Join, Limits, Network, Outgoing, PeerId, PeerNumbers, RawMemory, ReadError,
    ReadMode, ReadRequest, Refused, Registered, TagList,
};
use tagmatch_os::random;
use tagmatch_rdma_core_sys as sys;
use tagmatch_secret::Secret;

pub use config::VerbsConfig;
pub use info::VerbsInfo;
pub use settings::{SETTINGS, Setting};
pub use tagmatch_device::TagMatching;
pub use tagmatch_rdma_core_sys::Library;

use address::VerbsAddress;
use batch::Batch;
use context::Context;
use datagrams::Datagrams;
use event_fds::EventFds;
use exposure::{Exposures, registration_error};
use failure::Impairment;
use handle_limiter::HandleLimiter;
use link::Outbox;
use list::List;
use local_processes::LocalProcesses;
use memory::{Receives, SendBuffers};
use object::{Channel, Cq, Pd, Srq};
use oneself::Oneself;
use peer::{Peer, PeerState, VerbsPeers};
use port::Port;
use region::{Pool, register};
use sizes::{FIN_BYTES, FINS_MAX, SPARE, Sizes};
use wr_id::{FIN, RECEIVE};

/// The verbs device. See the [module](self) for how it works.
///
/// It has no threads: all its work is done inside calls of [`Device`]. While the device isn't
/// polled, peers can still read exposed memory; nothing else happens.
pub struct Verbs {
    config: VerbsConfig,
    own: VerbsAddress,
    address: Address,
    port: Port,

    // Drop order: the queue pairs must be destroyed before the memory that they access.
    numbers: PeerNumbers,
    peers: VerbsPeers,
    datagrams: Datagrams,
    receives: Receives,
    fins: Receives,
    list: Option<List>,
    outbox: Outbox,
    exposures: Exposures,
    pool: Pool,
    oneself: Oneself,

    by_address: HashMap<Address, PeerId>,
    /// Peers by the numbers of this side's queue pairs, which the NIC gives out.
    by_qp: IntegerMap<u32, PeerId>,
    connecting: Vec<PeerId>,
    up: Vec<PeerId>,
    ending: Vec<PeerId>,
    peers_max: usize,
    is_closed: bool,
    impairment: Impairment,
    handle_limiter: HandleLimiter,
    local_processes: LocalProcesses,

    /// Events to report before new completions are handled.
    events: VecDeque<Event<'static>>,
    batch: Batch,
    /// Peers whose reads wait for room in the completion queue.
    waiting_to_read: Vec<PeerId>,
    /// Peers whose copied reads wait for memory, or for room in the completion queue.
    waiting_to_copy: Vec<PeerId>,
    /// Reads that were copied since memory couldn't be registered.
    unregistered: u64,

    polls: u32,
    /// The next poll runs [`Verbs::do_periodic_work`].
    needs_periodic_work: bool,
    last_periodic_work: Instant,
    last_sweep: Instant,
    event_fds: EventFds,

    cq: Arc<Cq>,
    pd: Arc<Pd>,
    context: Arc<Context>,
}

/// The list to create on the NIC: its size, or `None` for no list.
fn wanted_list(
    context: &Context,
    wanted: TagMatching,
) -> Result<Option<sys::ibv_tm_cap>, DeviceError> {
    if wanted == TagMatching::Off {
        return Ok(None);
    }
    let caps = context.tag_matching().in_call("ibv_query_device_ex")?;
    match list::fit(&caps) {
        None if wanted == TagMatching::Required => Err(DeviceError::System {
            call: "ibv_query_device_ex",
            source: std::io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            hint: "; the device has no tag matching for reliable connections (tm_caps)",
        }),
        found => Ok(found),
    }
}

/// Creates the completion queue and the shared receive queue, with the NIC's list if there is one.
fn make_queues(
    pd: &Arc<Pd>,
    channel: &Arc<Channel>,
    sizes: &Sizes,
    list: Option<&sys::ibv_tm_cap>,
) -> Result<(Arc<Cq>, Arc<Srq>), DeviceError> {
    let entries = sizes.completions;
    let (cq, srq) = match list {
        None => {
            let cq = Cq::new(channel.clone(), entries).in_call("ibv_create_cq")?;
            let srq = Srq::new(pd.clone(), sizes.receives).in_call("ibv_create_srq")?;
            (Arc::new(cq), srq)
        }
        Some(list) => {
            let cq = Cq::extended(channel.clone(), entries);
            let cq = Arc::new(cq.in_call("ibv_create_cq_ex")?);
            let srq = Srq::tag_matching(pd.clone(), cq.clone(), sizes.receives, *list)
                .in_call("ibv_create_srq_ex")?;
            (cq, srq)
        }
    };
    Ok((cq, Arc::new(srq)))
}

impl Verbs {
    /// Creates the device of a new worker. Peers that have its address can connect at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range. [`DeviceError::System`] if the
    /// job's secret can't be read, there is no libibverbs, no device of that name or no active port
    /// on it, or if the device or the limit on locked memory doesn't allow the queues.
    pub fn new(config: VerbsConfig) -> Result<Self, DeviceError> {
        let config = settings::resolve(config)?;
        let secret = Secret::or_from_environment(config.secret.as_ref());
        let secret = secret.in_call("reading the job's secret")?;
        let context = Arc::new(choice::open(&config)?.context);
        let attr = context.attributes().in_call("ibv_query_device")?;
        let port = Port::open(&context, &attr, &config)?;
        let list = wanted_list(&context, config.tag_matching)?;
        let sizes = Sizes::fit(&config, &attr, list.as_ref())?;
        let pd = Arc::new(Pd::new(context.clone()).in_call("ibv_alloc_pd")?);
        let channel = Channel::new(context.clone()).in_call("ibv_create_comp_channel")?;
        let channel = Arc::new(channel);
        let (cq, srq) = make_queues(&pd, &channel, &sizes, list.as_ref())?;
        let list = list.map(|list| List::new(srq.clone(), pd.clone(), &list, port.read_max));
        // Each buffer begins at a cache line.
        let buffer = (config.message_max as usize).next_multiple_of(64);
        let mut receives = Receives::new(pd.clone(), srq, RECEIVE, buffer, sizes.receives);
        receives.need(SPARE).map_err(registration_error)?;
        let fin_srq = Srq::new(pd.clone(), FINS_MAX).in_call("ibv_create_srq")?;
        let fins = Receives::new(pd.clone(), Arc::new(fin_srq), FIN, FIN_BYTES, FINS_MAX);
        let buffers = SendBuffers::new(pd.clone(), buffer, config.send_buffers);
        let [random_byte] = random().in_call("getrandom")?;
        let qkey = address::qkey(port.partition.key, random_byte);
        let datagrams = Datagrams::new(&pd, &cq, &port, qkey, secret)
            .in_call("make a queue pair for datagrams")?;
        let own = VerbsAddress {
            link_layer: port.link_layer,
            lid: port.lid,
            gid: port.gid.gid,
            roce: port.gid.network,
            qp_num: datagrams.qp_num(),
            qkey,
            name: random().in_call("getrandom")?,
            matches_tags: list.is_some(),
        };
        let local_processes = LocalProcesses::new().in_call("epoll_create1")?;
        let now = Instant::now();
        let mut verbs = Verbs {
            own,
            address: own.address()?,
            port,
            numbers: PeerNumbers::default(),
            peers: VerbsPeers::default(),
            datagrams,
            receives,
            fins,
            list,
            outbox: Outbox { buffers, under_way: 0, under_way_max: sizes.sends },
            exposures: Exposures::default(),
            pool: Pool::new(pd.clone(), config.idle_memory_max),
            oneself: Oneself::default(),
            by_address: HashMap::new(),
            by_qp: IntegerMap::default(),
            connecting: Vec::new(),
            up: Vec::new(),
            ending: Vec::new(),
            peers_max: sizes.peers_max as usize,
            is_closed: false,
            impairment: Impairment::default(),
            handle_limiter: HandleLimiter::default(),
            events: VecDeque::new(),
            batch: Batch::default(),
            waiting_to_read: Vec::new(),
            waiting_to_copy: Vec::new(),
            unregistered: 0,
            polls: 0,
            needs_periodic_work: true,
            last_periodic_work: now,
            last_sweep: now,
            event_fds: EventFds::new(&context, &channel, &local_processes)?,
            local_processes,
            cq,
            pd,
            context,
            config,
        };
        verbs.add_peer(verbs.address, PeerState::Oneself)?;
        let up = Event::PeerUp { peer: PeerId::ONESELF, limits: verbs.limits() };
        verbs.events.push_back(up);
        Ok(verbs)
    }

    /// Examines the RDMA devices of this machine.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_verbs as verbs; }
    /// use tagmatch::verbs::{VerbsConfig, VerbsInfo};
    /// println!("{}", VerbsInfo::probe(&VerbsConfig::default()));
    /// ```
    pub fn probe(config: &VerbsConfig) -> VerbsInfo {
        VerbsInfo::probe(config)
    }

    fn add_peer(&mut self, address: Address, state: PeerState) -> Result<PeerId, DeviceError> {
        let peer = match self.by_address.get(&address) {
            Some(unmet) => *unmet,
            None => self.numbers.give()?,
        };
        self.peers.add(Peer { id: peer, address: Some(address), state, lost: 0 });
        self.by_address.insert(address, peer);
        Ok(peer)
    }

    /// A peer of this device. Its index may be that of an earlier peer of another device.
    fn known(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer).filter(|known| known.id == peer)
    }

    /// The peer with an address, of which the user has heard or is to hear.
    fn met(&self, address: &Address) -> Option<PeerId> {
        let peer = *self.by_address.get(address)?;
        let known = self.peers.get(peer)?;
        (!matches!(known.state, PeerState::Unmet)).then_some(peer)
    }

    /// The number of peers that have a queue pair now.
    fn peers(&self) -> usize {
        self.connecting.len() + self.up.len() + self.ending.len()
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verbs")
            .field("device", &self.context.name)
            .field("address", &self.address)
            .field("peers", &self.peers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        if self.context.is_own_process() {
            self.audit();
            self.leave_all();
            self.audit();
        }
    }
}

impl Device for Verbs {
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
        self.known(peer)?.address
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.known(peer).map(|known| &known.state) {
            Some(PeerState::Up(_) | PeerState::Ending(_) | PeerState::Oneself) => ReadMode::Direct,
            _ => ReadMode::Unknown,
        }
    }

    #[inline]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        self.send_message(peer, message)
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        // A buffer that fits into one message needs no registration: its bytes are copied through
        // the device's own buffers.
        let is_carried = length + Outgoing::HEADER_MAX <= self.config.message_max as usize;
        let is_registered = !is_carried && self.keep_own_memory().is_ok();
        let registered = if is_registered { self.pool.allocate(length).ok() } else { None };
        registered.or_else(|| Buffer::try_zeroed(length))
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        let kept = self.keep_own_memory();
        kept.and_then(|()| register(&self.pd, memory)).map_err(registration_error)
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        self.expose_to(reader, buffer)
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        self.withdraw_from(reader, id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.start_read(request)
    }

    #[inline]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.next_event()
    }

    fn unregistered(&self) -> u64 {
        self.unregistered
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        // A list whose device is lost answers by itself, at the next poll.
        self.needs_periodic_work |= self.list.as_ref().is_some_and(List::is_lost);
        self.list.as_mut().map(|list| list as &mut dyn TagList)
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        self.flush_peer(peer, mark)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.leave_peer(peer);
    }

    fn close(&mut self) {
        self.is_closed = true;
    }

    fn arm(&mut self, _waiting_to_send: &[PeerId]) -> bool {
        self.audit();
        self.fall_asleep()
    }

    fn has_work(&self) -> bool {
        self.has_pending_work()
    }

    fn disarm(&mut self) {
        self.disarm_events();
    }
}

impl Join for Verbs {
    fn network(&self) -> Network {
        Network::Verbs
    }

    fn section(&self, _: usize) -> Vec<u8> {
        self.own.section().to_vec()
    }

    fn join(&mut self, address: Address, numbers: &PeerNumbers) {
        if let Ok(own) = VerbsAddress::parse(&address) {
            self.own = own;
        }
        self.address = address;
        self.numbers = numbers.clone();
        self.by_address = HashMap::from([(address, PeerId::ONESELF)]);
        if let Some(oneself) = self.peers.get_mut(PeerId::ONESELF) {
            oneself.address = Some(address);
        }
    }
}

impl EventDescriptor for Verbs {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.event_fds.as_fd()
    }
}
