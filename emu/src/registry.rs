//! Which objects of libibverbs are emulated: its calls bring nothing but their pointers.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::completions::Completions;
use crate::device::Device;
use crate::tag_queue::TagQueue;

/// A queue pair of an emulated device.
#[derive(Clone)]
pub(crate) struct QueuePair {
    pub(crate) device: Arc<Device>,
    pub(crate) number: u32,
    /// The tag-matching queue that it receives from.
    pub(crate) tags: Option<Arc<TagQueue>>,
}

/// Objects by their addresses.
pub(crate) struct Registry {
    pub(crate) devices: BTreeMap<usize, Arc<Device>>,
    pub(crate) completions: BTreeMap<usize, Arc<Completions>>,
    pub(crate) tag_queues: BTreeMap<usize, Arc<TagQueue>>,
    pub(crate) queue_pairs: BTreeMap<usize, QueuePair>,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry {
    devices: BTreeMap::new(),
    completions: BTreeMap::new(),
    tag_queues: BTreeMap::new(),
    queue_pairs: BTreeMap::new(),
});

/// To look something up.
pub(crate) fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

/// To change something. Calls of libibverbs are not made meanwhile.
pub(crate) fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn device<T>(context: *mut T) -> Option<Arc<Device>> {
    read().devices.get(&context.addr()).cloned()
}

pub(crate) fn completions<T>(cq: *mut T) -> Option<Arc<Completions>> {
    read().completions.get(&cq.addr()).cloned()
}

pub(crate) fn tag_queue<T>(srq: *mut T) -> Option<Arc<TagQueue>> {
    read().tag_queues.get(&srq.addr()).cloned()
}

pub(crate) fn queue_pair<T>(qp: *mut T) -> Option<QueuePair> {
    read().queue_pairs.get(&qp.addr()).cloned()
}
