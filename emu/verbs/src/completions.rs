//! An extended completion queue: completions of the device, and of the tag-matching queues that
//! report to it.
//!
//! The device's completions are taken by `ibv_poll_cq(3)`, which extended queues allow. (Before
//! rdma-core 55, rxe's own `next_poll` loses count at the end of the queue.)

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tagmatch_rdma_core_sys::{self as sys, ibv_cq_ex};

use crate::device::Device;
use crate::engine::Record;
use crate::event_trigger::{EventRequest, EventTrigger};
use crate::tag_queue::TagQueue;

/// An extended completion queue of an emulated device.
pub(crate) struct Completions {
    pub(crate) device: Arc<Device>,
    raw: *mut ibv_cq_ex,
    tag_queues: RwLock<Vec<Arc<TagQueue>>>,
    event_request: Arc<EventRequest>,
    /// A thread is polling: it is between a `start_poll` that found a completion and its
    /// `end_poll`.
    is_polled: AtomicBool,
    polling: UnsafeCell<PollState>,
}

/// The state of polling.
struct PollState {
    current: Record,
    /// The next poll asks the device first, then the tag-matching queues.
    is_devices_turn: bool,
}

// SAFETY: the queue belongs to no thread.
unsafe impl Send for Completions {}
// SAFETY: only the thread that has set `is_polled` touches `polling`.
unsafe impl Sync for Completions {}

/// The fields that the program may ask for in completions.
pub(crate) const FLAGS: u64 = sys::IBV_WC_STANDARD_FLAGS | sys::IBV_WC_EX_WITH_TM_INFO;

impl Completions {
    pub(crate) fn new(device: Arc<Device>, raw: *mut ibv_cq_ex) -> Self {
        let current = Record::plain(sys::ibv_wc::zeroed());
        Completions {
            device,
            raw,
            tag_queues: RwLock::default(),
            event_request: Arc::default(),
            is_polled: AtomicBool::new(false),
            polling: UnsafeCell::new(PollState { current, is_devices_turn: false }),
        }
    }

    pub(crate) fn attach(&self, queue: Arc<TagQueue>) {
        self.tag_queues.write().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    pub(crate) fn detach(&self, queue: &Arc<TagQueue>) {
        let mut queues = self.tag_queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Whether tag-matching queues report here.
    pub(crate) fn is_used(&self) -> bool {
        !self.tag_queues.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Asks for an event at the next completion, of the device or of a tag-matching queue; gives an
    /// error number or 0.
    pub(crate) fn arm(&self, solicited_only: i32) -> i32 {
        let queues = self.tag_queues.read().unwrap_or_else(PoisonError::into_inner);
        self.event_request.set(!queues.is_empty());
        // The trigger's completion is not a solicited message, so an event has to be asked for at
        // any completion. A program that waits for solicited messages only gets more events.
        let solicited_only = if queues.is_empty() { solicited_only } else { 0 };
        // SAFETY: the queue is alive.
        let answer =
            unsafe { (self.device.original.req_notify_cq)(self.raw.cast(), solicited_only) };
        for queue in queues.iter() {
            queue.arm();
        }
        answer
    }

    /// The program's request for an event, which the tag-matching queues answer, too.
    pub(crate) fn event_request(&self) -> Arc<EventRequest> {
        self.event_request.clone()
    }

    pub(crate) fn lock(&self) {
        while self.is_polled.swap(true, Ordering::Acquire) {
            while self.is_polled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
    }

    pub(crate) fn unlock(&self) {
        self.is_polled.store(false, Ordering::Release);
    }

    /// Moves on to the next completion; `false` if there is none.
    ///
    /// # Safety
    /// The caller has [locked](Self::lock) the queue.
    pub(crate) unsafe fn advance(&self) -> bool {
        // SAFETY: this thread has locked the queue, so nobody else touches the state.
        let polling = unsafe { &mut *self.polling.get() };
        let is_devices_turn = polling.is_devices_turn;
        polling.is_devices_turn = !is_devices_turn;
        let next = if is_devices_turn {
            self.of_device().or_else(|| self.of_tag_queues())
        } else {
            self.of_tag_queues().or_else(|| self.of_device())
        };
        let Some(record) = next else { return false };
        polling.current = record;
        // SAFETY: the queue is alive, and these fields are for whoever polls it.
        unsafe {
            (*self.raw).status = record.wc.status;
            (*self.raw).wr_id = record.wc.wr_id;
        }
        true
    }

    /// The completion at which polling stands.
    ///
    /// # Safety
    /// The caller has [locked](Self::lock) the queue, and [advanced](Self::advance) it.
    pub(crate) unsafe fn current(&self) -> &Record {
        // SAFETY: this thread has locked the queue, so nobody else touches the state.
        unsafe { &(*self.polling.get()).current }
    }

    fn of_tag_queues(&self) -> Option<Record> {
        let queues = self.tag_queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().find_map(|queue| queue.poll())
    }

    fn of_device(&self) -> Option<Record> {
        let mut wc = sys::ibv_wc::zeroed();
        loop {
            // SAFETY: the queue is alive, and there is room for one.
            if unsafe { sys::ibv_poll_cq(self.raw.cast(), 1, &raw mut wc) } != 1 {
                return None;
            }
            if !EventTrigger::is_its(&wc) {
                break;
            }
        }
        // rxe sets this flag for connected queue pairs, too, which no hardware does.
        if wc.wc_flags & sys::IBV_WC_GRH != 0 && !self.device.is_datagram(wc.qp_num) {
            wc.wc_flags &= !sys::IBV_WC_GRH;
        }
        Some(Record::plain(wc))
    }
}
