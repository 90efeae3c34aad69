//! RDMA through verbs: reliable queue pairs on InfiniBand, RoCE, and soft-RoCE.
//!
//! # How it works
//! 1. An address names the port, a queue pair for datagrams with its key, and this worker. Whoever
//!    connects greets that queue pair by datagrams, repeated until answered; both sides make one reliable
//!    queue pair for the other.
//! 2. Messages are RDMA sends into one shared receive queue. Each is covered by a credit, so that a
//!    buffer stands ready; an idle peer holds one. Devices talk to each other beside the
//!    messages by RDMA writes of no bytes with immediate data.
//! 3. Reads are RDMA READs, split at the port's longest message. A buffer is registered when it is
//!    exposed or read into, and unregistered when it is given back: nobody reaches memory that isn't the
//!    device's any more ([`VerbsConfig::linger`] aside), and there is no cache to invalidate.
//! 4. A short message is carried in its work request, a longer one is copied into a registered buffer;
//!    so its bytes are copied on return of [`Device::send`]. Few requests are signalled.
//! 5. One completion queue serves all; its channel, a timer and the device's asynchronous events are
//!    behind one descriptor to sleep on.
//! 6. A connection that was silent for [`VerbsConfig::keepalive`] is tried by a write of no bytes, which the
//!    peer's NIC answers. A queue pair's error is the peer's end, and nobody else's.
//!
//! # A NIC that matches tags
//! With [`TagMatching`] and a NIC that can, the receive queue has the NIC's list before it
//! ([`TagList`]), and messages must begin with a [header](tagmatch_device::tm) that the NIC knows. Then
//! each side has two queue pairs for the other, whoever's NIC it is: on the one that receives, the send
//! queue belongs to the NIC, for its READs and FINs. All that software sends goes out on the other, where
//! nothing but FINs comes in, each into a small buffer that was posted before the request that it answers.
//!
//! # Trust
//! RDMA trusts the network: whoever can send to a queue pair's number with the right sequence number can
//! write into it. What comes from a peer is checked all the same: no peer can make this one panic,
//! block, or touch memory that isn't exposed to it; one that breaks a rule goes down alone. Datagrams from
//! anyone are checked against their sender's port.
//!
//! # Messages to oneself
//! They don't pass the device: a queue in memory.
//!
//! # After fork
//! A worker belongs to the process that made it. A forked child may drop it, which frees nothing of the
//! device, or call exec. Kernels before 5.12 need `RDMAV_FORK_SAFE=1` for that.
//!
//! # Not tested
//! For want of such a machine: InfiniBand (LID routing, subnet managers), RoCE version 1, NICs other
//! than soft-RoCE. What differs there is the kernel's and rdma-core's; nothing here asks which NIC it is.

mod address;
mod alarm;
mod batch;
mod calls;
mod config;
mod connect;
mod context;
mod credits;
mod datagrams;
mod ending;
mod exposure;
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod info;
mod link;
mod list;
mod memory;
mod object;
mod oneself;
mod pause;
mod peer;
mod poll;
mod port;
mod queued;
mod read;
mod reads;
mod region;
mod sizes;
mod sleep;
mod wire;
mod wr_id;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use tagmatch_rdma_core_sys as sys;

pub use config::{Library, VerbsConfig};
pub use info::VerbsInfo;
pub use tagmatch_device::TagMatching;

use address::VerbsAddress;
use alarm::Alarm;
use batch::Batch;
use context::Context;
use datagrams::Datagrams;
use exposure::{Exposures, registration_hint};
use link::Outbox;
use list::List;
use memory::{Receives, SendBuffers};
use object::{Channel, Cq, Pd, Srq};
use oneself::Oneself;
use pause::Pause;
use peer::{Peer, PeerState};
use port::Port;
use queued::Queued;
use region::Pool;
use sizes::{FIN_BYTES, FINS_MAX, SPARE, Sizes};
use wr_id::{FIN, RECEIVE};

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, Event, EventDescriptor, Exposure, ExposureId, Limits,
    Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, TagList,
};
use tagmatch_os::random;

/// Most peers over the whole life of a device, those that went down included.
const PEERS_EVER_MAX: usize = 1 << 20;

/// The verbs device. See the [module](self) for how it works.
///
/// Has no threads: everything happens in the calls of [`Device`]. While it isn't polled, peers can
/// read what is exposed, and nothing else happens.
pub struct Verbs {
    config: VerbsConfig,
    own: VerbsAddress,
    address: Address,
    port: Port,
    device_name: String,

    // Queue pairs before the memory that they reach.
    peers: Vec<Peer>,
    datagrams: Datagrams,
    receives: Receives,
    fins: Receives,
    list: Option<List>,
    outbox: Outbox,
    exposures: Exposures,
    pool: Pool,
    oneself: Oneself,

    by_address: HashMap<Address, PeerId>,
    by_qp: HashMap<u32, PeerId>,
    connecting: Vec<PeerId>,
    up: Vec<PeerId>,
    ending: Vec<PeerId>,
    peers_max: usize,
    is_closed: bool,
    pause: Pause,

    /// Events to report before anything else.
    events: VecDeque<Queued>,
    batch: Batch,
    /// Peers whose reads or signals wait for places of their send queue.
    waiting: Vec<PeerId>,

    polls: u32,
    /// The next poll has more to do than to look at completions.
    needs_look: bool,
    last_look: Instant,
    last_sweep: Instant,
    alarm: Alarm,

    cq: Arc<Cq>,
    pd: Arc<Pd>,
    context: Arc<Context>,
}

/// What the NIC's list is to have, if there is to be one.
fn wanted_list(
    context: &Context,
    wanted: TagMatching,
) -> Result<Option<sys::ibv_tm_cap>, DeviceError> {
    if wanted == TagMatching::Off {
        return Ok(None);
    }
    let caps = context.tag_matching().map_err(DeviceError::system("ibv_query_device_ex", ""))?;
    match list::fit(&caps) {
        None if wanted == TagMatching::Required => Err(DeviceError::System {
            call: "ibv_query_device_ex",
            source: std::io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            hint: "; the device has no tag matching for reliable connections (tm_caps)",
        }),
        found => Ok(found),
    }
}

/// The completion queue, and the receive queue on it: with a list before it, or without.
fn make_queues(
    pd: &Arc<Pd>,
    channel: &Arc<Channel>,
    sizes: &Sizes,
    list: Option<&sys::ibv_tm_cap>,
) -> Result<(Arc<Cq>, Arc<Srq>), DeviceError> {
    let entries = sizes.completions;
    let (cq, srq) = match list {
        None => {
            let cq = Cq::new(channel.clone(), entries)
                .map_err(DeviceError::system("ibv_create_cq", ""))?;
            let srq = Srq::new(pd.clone(), sizes.receives)
                .map_err(DeviceError::system("ibv_create_srq", ""))?;
            (Arc::new(cq), srq)
        }
        Some(list) => {
            let cq = Cq::extended(channel.clone(), entries);
            let cq = Arc::new(cq.map_err(DeviceError::system("ibv_create_cq_ex", ""))?);
            let srq = Srq::tag_matching(pd.clone(), cq.clone(), sizes.receives, *list)
                .map_err(DeviceError::system("ibv_create_srq_ex", ""))?;
            (cq, srq)
        }
    };
    Ok((cq, Arc::new(srq)))
}

impl Verbs {
    /// A new worker's device, which can be reached at once by those who get its address.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::System`] if there is no
    /// libibverbs, no such device or no active port on it, or if it, or the limit on locked memory, doesn't
    /// allow the queues.
    pub fn new(config: VerbsConfig) -> Result<Self, DeviceError> {
        config.check()?;
        let context = Arc::new(Context::open(&config)?);
        let attr = context.attributes().map_err(DeviceError::system("ibv_query_device", ""))?;
        let port = Port::open(&context, &attr, &config)?;
        let list = wanted_list(&context, config.tag_matching)?;
        let sizes = Sizes::fit(&config, &attr, list.as_ref())?;
        let pd =
            Arc::new(Pd::new(context.clone()).map_err(DeviceError::system("ibv_alloc_pd", ""))?);
        let channel = Channel::new(context.clone())
            .map_err(DeviceError::system("ibv_create_comp_channel", ""))?;
        let channel = Arc::new(channel);
        let (cq, srq) = make_queues(&pd, &channel, &sizes, list.as_ref())?;
        let list = list.map(|list| List::new(srq.clone(), pd.clone(), &list, port.read_max));
        let message_max = config.message_max as usize;
        let registered = |source| {
            let hint = registration_hint(&source);
            DeviceError::System { call: "ibv_reg_mr", source, hint }
        };
        let mut receives = Receives::new(pd.clone(), srq, RECEIVE, message_max, sizes.receives);
        receives.need(SPARE).map_err(registered)?;
        let fin_srq =
            Srq::new(pd.clone(), FINS_MAX).map_err(DeviceError::system("ibv_create_srq", ""))?;
        let fins = Receives::new(pd.clone(), Arc::new(fin_srq), FIN, FIN_BYTES, FINS_MAX);
        let buffers =
            SendBuffers::new(&pd, message_max, config.send_buffers).map_err(registered)?;
        let qkey = u32::from_le_bytes(random().map_err(DeviceError::system("getrandom", ""))?)
            & !(1 << 31);
        let datagrams = Datagrams::new(&pd, &cq, port.number, qkey)
            .map_err(DeviceError::system("make a queue pair for datagrams", ""))?;
        let own = VerbsAddress {
            link_layer: port.link_layer,
            lid: port.lid,
            gid: port.gid.gid,
            qp_num: datagrams.qp_num(),
            qkey: datagrams.qkey(),
            instance: random().map_err(DeviceError::system("getrandom", ""))?,
            matches_tags: list.is_some(),
        };
        let now = Instant::now();
        let mut verbs = Verbs {
            own,
            address: own.address()?,
            port,
            device_name: context.name().to_owned(),
            peers: Vec::new(),
            datagrams,
            receives,
            fins,
            list,
            outbox: Outbox { buffers, under_way: 0, under_way_max: sizes.sends },
            exposures: Exposures::default(),
            pool: Pool::new(pd.clone(), config.idle_memory_max),
            oneself: Oneself::default(),
            by_address: HashMap::new(),
            by_qp: HashMap::new(),
            connecting: Vec::new(),
            up: Vec::new(),
            ending: Vec::new(),
            peers_max: sizes.peers_max as usize,
            is_closed: false,
            pause: Pause::default(),
            events: VecDeque::new(),
            batch: Batch::default(),
            waiting: Vec::new(),
            polls: 0,
            needs_look: true,
            last_look: now,
            last_sweep: now,
            alarm: Alarm::new(&context, &channel)?,
            cq,
            pd,
            context,
            config,
        };
        verbs.add_peer(verbs.address, PeerState::Oneself)?;
        let up = Queued::Up(PeerId::ONESELF, verbs.limits());
        verbs.events.push_back(up);
        Ok(verbs)
    }

    /// Looks at the RDMA devices of this machine.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_verbs as verbs; }
    /// use tagmatch::verbs::{Verbs, VerbsConfig};
    /// println!("{}", Verbs::probe(&VerbsConfig::default()));
    /// ```
    pub fn probe(config: &VerbsConfig) -> VerbsInfo {
        VerbsInfo::probe(config)
    }

    fn add_peer(&mut self, address: Address, state: PeerState) -> Result<PeerId, DeviceError> {
        let limit = PEERS_EVER_MAX;
        let none_left =
            DeviceError::Exhausted { what: "peer, those that went down included", limit };
        let number = u32::try_from(self.peers.len()).ok();
        let number = number.filter(|number| (*number as usize) < limit);
        let peer = PeerId(number.ok_or(none_left)?);
        self.peers.push(Peer { address, state });
        self.by_address.insert(address, peer);
        Ok(peer)
    }

    /// Peers that have a queue pair.
    fn peers(&self) -> usize {
        self.connecting.len() + self.up.len() + self.ending.len()
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verbs")
            .field("device", &self.device_name)
            .field("address", &self.address)
            .field("peers", &self.peers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        if self.context.is_own_process() {
            self.say_goodbye();
        }
    }
}

impl Device for Verbs {
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
        Some(self.peers.get(peer.index())?.address)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.peers.get(peer.index()).map(|entry| &entry.state) {
            Some(PeerState::Up(_) | PeerState::Ending(_) | PeerState::Oneself) => ReadMode::Direct,
            _ => ReadMode::Unknown,
        }
    }

    #[inline]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        self.send_message(peer, message)
    }

    fn allocate(&mut self, length: usize) -> Buffer {
        // What fits into one message is copied through buffers of the device.
        let is_carried = length + Outgoing::HEADER_MAX <= self.config.message_max as usize;
        let registered = if is_carried { None } else { self.pool.allocate(length).ok() };
        registered.unwrap_or_else(|| Buffer::zeroed(length))
    }

    fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        self.exposures.expose(&self.pd, buffer)
    }

    fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        self.exposures.withdraw(id, !self.config.linger.is_zero())
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.start_read(request)
    }

    #[inline]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.next_event()
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        self.list.as_mut().map(|list| list as &mut dyn TagList)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.part_from(peer);
    }

    fn close(&mut self) {
        self.is_closed = true;
    }

    fn arm(&mut self, _waiting_to_send: &[PeerId]) -> bool {
        self.fall_asleep()
    }

    fn has_work(&self) -> bool {
        self.has_news()
    }

    fn disarm(&mut self) {
        self.wake_up();
    }
}

impl EventDescriptor for Verbs {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }
}
