//! The emulated objects of libibverbs by their addresses, since a call names an object by its
//! pointer only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tagmatch_rdma_core_sys as sys;

use crate::completions::Completions;
use crate::device::Device;
use crate::tag_queue::TagQueue;

/// A queue pair of an emulated device.
#[derive(Clone)]
pub(crate) struct EmulatedPair {
    pub(crate) device: Arc<Device>,
    pub(crate) number: u32,
    /// The NIC uses its send queue, not the program.
    pub(crate) is_offloaded: bool,
    /// The tag-matching queue that it receives from.
    pub(crate) tags: Option<Arc<TagQueue>>,
}

/// Objects by their addresses.
pub(crate) struct Registry {
    pub(crate) devices: BTreeMap<usize, Arc<Device>>,
    pub(crate) completions: BTreeMap<usize, Arc<Completions>>,
    pub(crate) tag_queues: BTreeMap<usize, Arc<TagQueue>>,
    pub(crate) queue_pairs: BTreeMap<usize, EmulatedPair>,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry {
    devices: BTreeMap::new(),
    completions: BTreeMap::new(),
    tag_queues: BTreeMap::new(),
    queue_pairs: BTreeMap::new(),
});

/// How many times a completion queue was removed.
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// A completion queue with its address, and the number of removals at which both belonged together.
type Last = (usize, u64, Arc<Completions>);

thread_local! {
    /// The completion queue that this thread has polled last.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

/// The registry, to be changed. No call of libibverbs may be made while it is held.
pub(crate) fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn device(context: *mut sys::ibv_context) -> Option<Arc<Device>> {
    read().devices.get(&context.addr()).cloned()
}

pub(crate) fn tag_queue(srq: *mut sys::ibv_srq) -> Option<Arc<TagQueue>> {
    read().tag_queues.get(&srq.addr()).cloned()
}

pub(crate) fn queue_pair(qp: *mut sys::ibv_qp) -> Option<EmulatedPair> {
    read().queue_pairs.get(&qp.addr()).cloned()
}

/// The device of a queue pair on which the program may send.
pub(crate) fn device_to_send_on(qp: *mut sys::ibv_qp) -> Option<Arc<Device>> {
    let registry = read();
    match registry.queue_pairs.get(&qp.addr()) {
        Some(pair) => (!pair.is_offloaded).then(|| pair.device.clone()),
        None => {
            // SAFETY: the program posts to it: it is alive.
            let context = unsafe { (*qp).context };
            registry.devices.get(&context.addr()).cloned()
        }
    }
}

pub(crate) fn completions(cq: *mut sys::ibv_cq) -> Option<Arc<Completions>> {
    completions_at(cq.addr())
}

pub(crate) fn completions_at(address: usize) -> Option<Arc<Completions>> {
    read().completions.get(&address).cloned()
}

/// Removes a completion queue.
pub(crate) fn take_completions(cq: *mut sys::ibv_cq) -> Option<Arc<Completions>> {
    let taken = write().completions.remove(&cq.addr());
    REMOVALS.fetch_add(1, Ordering::Release);
    taken
}

/// Calls `act` with an extended completion queue, quickly if the same thread used the same queue
/// last. `None` if the queue isn't emulated.
pub(crate) fn with_completions<T>(
    cq: *mut sys::ibv_cq_ex,
    act: impl FnOnce(&Completions) -> T,
) -> Option<T> {
    let removals = REMOVALS.load(Ordering::Acquire);
    let mut act = Some(act);
    // A thread that is ending may have no thread-local storage any more.
    let quick = LAST.try_with(|last| {
        let last = last.try_borrow().ok()?;
        let (of, at, queue) = last.as_ref()?;
        let is_same = *of == cq.addr() && *at == removals;
        is_same.then(|| act.take().map(|act| act(queue))).flatten()
    });
    if let Ok(Some(result)) = quick {
        return Some(result);
    }
    let queue = completions(cq.cast())?;
    let result = act.take().map(|act| act(&queue));
    let _ = LAST.try_with(|last| {
        let mut last = last.try_borrow_mut().ok()?;
        last.replace((cq.addr(), removals, queue))
    });
    result
}

/// Removes a device with all its objects, and returns the tag-matching queues that were left.
pub(crate) fn take_device(context: *mut sys::ibv_context) -> Vec<Arc<TagQueue>> {
    let mut registry = write();
    let Some(device) = registry.devices.remove(&context.addr()) else { return Vec::new() };
    let is_of = |other: &Arc<Device>| Arc::ptr_eq(other, &device);
    registry.queue_pairs.retain(|_, pair| !is_of(&pair.device));
    registry.completions.retain(|_, queue| !is_of(&queue.device));
    REMOVALS.fetch_add(1, Ordering::Release);
    let mut left = Vec::new();
    registry.tag_queues.retain(|_, queue| {
        let stays = !is_of(&queue.device);
        if !stays {
            left.push(queue.clone());
        }
        stays
    });
    left
}
