//! libibverbs in this process: devices that are as a test says, and messages between their queue
//! pairs.
//!
//! Each test has its thread, and each thread its devices.

#![allow(unreachable_pub, dead_code, reason = "each test uses its share")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod calls;
mod traffic;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::net::Ipv6Addr;
use std::time::Duration;

use tagmatch_rdma_core_sys as sys;
use tagmatch_testkit::device;
use tagmatch_verbs::{Library, Verbs, VerbsConfig};

/// `IBV_TRANSPORT_IWARP`.
pub const IWARP: i32 = 1;

/// A device with one port.
#[derive(Clone)]
pub struct Card {
    pub name: &'static str,
    pub transport: i32,
    pub srqs_max: i32,
    pub vectors: i32,
    pub port: sys::ibv_port_attr,
    pub gids: Vec<sys::ibv_gid_entry>,
    /// Most bytes that a request has inline.
    pub inline_max: u32,
    /// Without keys, the port has no table of them, as some of RoCE.
    pub partition_keys: Vec<u16>,
}

fn gid_entry(address: Ipv6Addr, kind: sys::ibv_gid_type) -> sys::ibv_gid_entry {
    let mut entry = sys::ibv_gid_entry::zeroed();
    entry.gid = sys::ibv_gid { raw: address.octets() };
    entry.gid_type = kind;
    entry
}

impl Card {
    fn new(name: &'static str, link_layer: u8, gids: Vec<sys::ibv_gid_entry>) -> Self {
        let mut port = sys::ibv_port_attr::zeroed();
        port.state = sys::IBV_PORT_ACTIVE;
        port.active_mtu = sys::IBV_MTU_4096;
        port.gid_tbl_len = gids.len() as i32;
        port.max_msg_sz = 1 << 30;
        (port.active_width, port.active_speed) = (2, 128);
        port.link_layer = link_layer;
        Card {
            name,
            transport: 0,
            srqs_max: 16,
            vectors: 1,
            port,
            gids,
            inline_max: u32::MAX,
            partition_keys: Vec::new(),
        }
    }

    /// On InfiniBand, in the subnet with this prefix.
    pub fn infiniband(name: &'static str, lid: u16, subnet: u16) -> Self {
        let address = Ipv6Addr::new(0xfec0, 0, 0, subnet, 0, 0, 0, lid);
        let gids = vec![gid_entry(address, sys::IBV_GID_TYPE_IB)];
        let mut card = Card::new(name, sys::IBV_LINK_LAYER_INFINIBAND, gids);
        card.port.lid = lid;
        card
    }

    /// On Ethernet, with one GID of RoCE.
    pub fn roce(name: &'static str, address: &str, kind: sys::ibv_gid_type) -> Self {
        let gids = vec![gid_entry(address.parse().unwrap(), kind)];
        Card::new(name, sys::IBV_LINK_LAYER_ETHERNET, gids)
    }
}

#[derive(Default)]
struct World {
    cards: Vec<Card>,
    #[allow(clippy::vec_box, reason = "devices don't move")]
    devices: Vec<Box<sys::ibv_device>>,
    is_old: bool,
    contexts: Vec<*mut sys::ibv_context>,
    async_events: VecDeque<(*mut sys::ibv_context, sys::ibv_async_event)>,
    completions: HashMap<*mut sys::ibv_cq, VecDeque<sys::ibv_wc>>,
    calls: Calls,
    /// How long creating a handle takes.
    handle_delay: Duration,
    receives: HashMap<*mut sys::ibv_srq, VecDeque<(u64, sys::ibv_sge)>>,
    qps: HashMap<u32, Qp>,
    handles: HashMap<*mut sys::ibv_ah, sys::ibv_ah_attr>,
    last_number: u32,
    failure: Option<Failure>,
    /// No memory can be registered.
    lacks_memory: bool,
    /// Requests for peers wait until a test has them carried.
    is_slow: bool,
    under_way: VecDeque<traffic::Posted>,
    /// How often each call that may fail was made.
    counts: BTreeMap<&'static str, usize>,
}

/// What was asked of the library since the devices were installed.
#[derive(Default)]
pub struct Calls {
    /// The accesses of all regions that were registered, and their bytes.
    pub accesses: Vec<u32>,
    pub registered_bytes: usize,
    /// Regions that are registered no more.
    pub unregistered: usize,
    /// Handles that were created.
    pub handles: usize,
    /// The vectors of the completion queues.
    pub vectors: Vec<i32>,
    /// The inline bytes of each queue pair that was asked for.
    pub inline_sizes: Vec<u32>,
    /// The attributes of each change of a queue pair, and which of them it sets.
    pub changes: Vec<(sys::ibv_qp_attr, u32)>,
}

/// A call of the library that fails.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub call: &'static str,
    /// Its number among the calls of this name, from 0.
    pub number: usize,
    pub errno: i32,
}

struct Qp {
    raw: *mut sys::ibv_qp,
    dest: u32,
    /// How requests end in the error state.
    failure: sys::ibv_wc_status,
    receives: VecDeque<(u64, sys::ibv_sge)>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    /// How many objects exist.
    static OBJECTS: Cell<usize> = const { Cell::new(0) };
}

fn with<T>(call: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(call)
}

impl World {
    fn card_of(&mut self, context: *mut sys::ibv_context) -> &mut Card {
        // SAFETY: contexts are freed when they are closed, and not used any more.
        let device = unsafe { (*context).device };
        let at = self.devices.iter().position(|known| std::ptr::eq(&**known, device)).unwrap();
        &mut self.cards[at]
    }

    fn context_of(&mut self, name: &str) -> *mut sys::ibv_context {
        let contexts = self.contexts.clone();
        contexts.into_iter().find(|context| self.card_of(*context).name == name).unwrap()
    }
}

/// This thread's devices from now on.
pub fn install(cards: &[Card]) {
    with(|world| {
        assert!(world.contexts.is_empty(), "a device is open");
        world.devices.clear();
        for card in cards {
            let mut device = Box::new(sys::ibv_device::zeroed());
            device.transport_type = card.transport;
            let name = CString::new(card.name).unwrap();
            for (to, from) in device.name.iter_mut().zip(name.as_bytes_with_nul()) {
                *to = *from as libc::c_char;
            }
            world.devices.push(device);
        }
        world.cards = cards.to_vec();
        world.calls = Calls::default();
        world.failure = None;
        world.lacks_memory = false;
        world.counts.clear();
    });
}

/// A call fails.
pub fn fail(failure: Option<Failure>) {
    with(|world| world.failure = failure);
}

/// From now on, no memory can be registered (`ENOMEM`), or it can be again.
pub fn run_out_of_memory(lacks_memory: bool) {
    with(|world| world.lacks_memory = lacks_memory);
}

/// From now on, what is posted for peers waits for [`carry_one`], or does no more.
pub fn slow_down(is_slow: bool) {
    with(|world| world.is_slow = is_slow);
}

/// A slow network carries the oldest request of the queue pair that `choose` picks, which gets a
/// number of queue pairs, and gives the place of one. `false`: there is no request.
pub fn carry_one(choose: impl FnOnce(usize) -> usize) -> bool {
    traffic::carry_one(choose)
}

/// How often each call that may fail was made since the devices were installed.
pub fn counts() -> BTreeMap<&'static str, usize> {
    with(|world| world.counts.clone())
}

/// How many objects of the library exist.
pub fn objects() -> usize {
    OBJECTS.get()
}

/// This thread has one device, unless it has some.
pub fn install_one() {
    if with(|world| world.cards.is_empty()) {
        install(&[Card::infiniband("a", 1, 0)]);
    }
}

/// libibverbs is that of rdma-core before version 32.
pub fn is_old() {
    with(|world| world.is_old = true);
}

/// Changes a card.
pub fn change(name: &str, change: impl FnOnce(&mut Card)) {
    with(|world| change(world.cards.iter_mut().find(|card| card.name == name).unwrap()));
}

/// Looks at what was asked of the library.
pub fn calls<T>(look: impl FnOnce(&mut Calls) -> T) -> T {
    with(|world| look(&mut world.calls))
}

/// Lets the creation of a handle take so long, as for a host that doesn't answer.
pub fn let_handles_wait(delay: Duration) {
    with(|world| world.handle_delay = delay);
}

/// What an asynchronous event is about.
#[derive(Clone, Copy)]
pub enum About {
    Port,
    CompletionQueue,
    /// The first or the second one.
    ReceiveQueue(usize),
    /// The queue pairs for peers.
    QueuePairs,
    /// The queue pair for datagrams.
    Datagrams,
}

/// Makes the device tell an asynchronous event.
pub fn raise(name: &str, event_type: sys::ibv_event_type, about: About) {
    with(|world| {
        let context = world.context_of(name);
        // SAFETY: the objects exist until they are destroyed, and then leave the maps.
        let elements: Vec<sys::ibv_async_event_element> = unsafe {
            match about {
                About::Port => vec![sys::ibv_async_event_element { port_num: 1 }],
                About::CompletionQueue => {
                    let cqs = world.completions.keys().copied();
                    let own = cqs.filter(|cq| (**cq).context == context);
                    own.map(|cq| sys::ibv_async_event_element { cq }).collect()
                }
                About::ReceiveQueue(number) => {
                    let srqs = world.receives.keys().copied();
                    let mut own: Vec<_> = srqs.filter(|srq| (**srq).context == context).collect();
                    own.sort_by_key(|srq| (**srq).handle);
                    vec![sys::ibv_async_event_element { srq: own[number] }]
                }
                About::QueuePairs | About::Datagrams => {
                    let is_datagrams = matches!(about, About::Datagrams);
                    let kind = if is_datagrams { sys::IBV_QPT_UD } else { sys::IBV_QPT_RC };
                    let qps = world.qps.values().map(|qp| qp.raw);
                    let own = qps.filter(|qp| (**qp).context == context && (**qp).qp_type == kind);
                    own.map(|qp| sys::ibv_async_event_element { qp }).collect()
                }
            }
        };
        for element in elements {
            world.async_events.push_back((context, sys::ibv_async_event { element, event_type }));
        }
    });
}

/// Adds a completion that no request of the worker has.
pub fn complete(name: &str, wr_id: u64, qp_num: u32, status: sys::ibv_wc_status) {
    with(|world| {
        let context = world.context_of(name);
        // SAFETY: as in `raise`.
        let queue =
            world.completions.iter_mut().find(|(cq, _)| unsafe { (***cq).context } == context);
        let completion = sys::ibv_wc { wr_id, qp_num, status, ..sys::ibv_wc::zeroed() };
        queue.unwrap().1.push_back(completion);
    });
}

/// Ends a receive of a queue pair for a peer with this status.
pub fn fail_receive(name: &str, status: sys::ibv_wc_status) {
    with(|world| {
        let context = world.context_of(name);
        let is_own = |qp: &&sys::ibv_qp| qp.context == context && qp.qp_type == sys::IBV_QPT_RC;
        // SAFETY: as in `raise`.
        let qp = world.qps.values().map(|qp| unsafe { &*qp.raw }).find(is_own).unwrap();
        let (wr_id, _) = world.receives.get_mut(&qp.srq).unwrap().pop_front().unwrap();
        let qp_num = qp.qp_num;
        let completion = sys::ibv_wc { wr_id, qp_num, status, ..sys::ibv_wc::zeroed() };
        world.completions.get_mut(&qp.recv_cq).unwrap().push_back(completion);
    });
}

/// Puts the queue pairs for peers into error: what is posted from now on fails with this status.
pub fn break_queue_pairs(name: &str, status: sys::ibv_wc_status) {
    with(|world| {
        let context = world.context_of(name);
        for qp in world.qps.values_mut() {
            qp.failure = status;
            // SAFETY: as in `raise`.
            unsafe {
                if (*qp.raw).context == context && (*qp.raw).qp_type == sys::IBV_QPT_RC {
                    (*qp.raw).state = sys::IBV_QPS_ERR;
                }
            }
        }
    });
}

/// The settings that use this library, and a device by its name.
pub fn config(device: &str) -> VerbsConfig {
    let device = (!device.is_empty()).then(|| device.to_owned());
    VerbsConfig::default().device(device).library(SCRIPTED)
}

/// A worker on a device of this thread, which has told of itself.
pub fn up(device: &str) -> Verbs {
    device::up(Verbs::new(config(device)).unwrap())
}

fn table() -> Result<&'static sys::Verbs, &'static sys::LoadError> {
    Ok(if with(|world| world.is_old) { &calls::OLD } else { &calls::NEW })
}

// SAFETY: the functions do what the manual pages say, as far as this crate uses them.
const SCRIPTED: Library = unsafe { Library::new(table) };
