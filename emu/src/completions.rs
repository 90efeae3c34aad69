//! An extended completion queue: what the device reports, and what the tag-matching queues on it do.
//!
//! Of the device, completions are taken by `ibv_poll_cq`, which is right for extended queues too. (rxe's
//! own `next_poll` loses count at the end of the queue before rdma-core 55.)

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use libc::{EINVAL, ENOENT};
use tagmatch_rdma_core_sys::{self as sys, ibv_cq_ex, ibv_wc_tm_info};

use crate::bell::Bell;
use crate::device::Device;
use crate::engine::Record;
use crate::registry;
use crate::tag_queue::TagQueue;

/// An extended completion queue of an emulated device.
pub(crate) struct Completions {
    pub(crate) device: Arc<Device>,
    raw: *mut ibv_cq_ex,
    tag_queues: RwLock<Vec<Arc<TagQueue>>>,
    /// The program has asked for an event.
    is_armed: AtomicBool,
    /// Somebody is polling: from a `start_poll` that found something to its `end_poll`.
    is_polled: AtomicBool,
    place: UnsafeCell<Place>,
}

/// Where polling stands.
struct Place {
    current: Record,
    /// The device is asked first, next time.
    is_devices_turn: bool,
}

// SAFETY: the queue belongs to no thread.
unsafe impl Send for Completions {}
// SAFETY: `place` is touched by whoever has set `is_polled` alone.
unsafe impl Sync for Completions {}

/// What the program may ask of a completion.
pub(crate) const FLAGS: u64 = sys::IBV_WC_STANDARD_FLAGS | sys::IBV_WC_EX_WITH_TM_INFO;

impl Completions {
    /// Takes over polling of a queue, for what the program has asked of completions.
    ///
    /// # Safety
    /// The queue was just made on this device.
    pub(crate) unsafe fn take_over(device: Arc<Device>, raw: *mut ibv_cq_ex, flags: u64) -> Self {
        // SAFETY: the queue is ours alone, still.
        unsafe {
            let cq = &mut *raw;
            cq.start_poll = Some(start_poll);
            cq.next_poll = Some(next_poll);
            cq.end_poll = Some(end_poll);
            cq.read_opcode = Some(read_opcode);
            cq.read_vendor_err = Some(read_vendor_err);
            cq.read_wc_flags = Some(read_wc_flags);
            // Null where the program hasn't asked for it.
            cq.read_byte_len = cq.read_byte_len.and(Some(read_byte_len));
            cq.read_imm_data = cq.read_imm_data.and(Some(read_imm_data));
            cq.read_qp_num = cq.read_qp_num.and(Some(read_qp_num));
            cq.read_src_qp = cq.read_src_qp.and(Some(read_src_qp));
            cq.read_slid = cq.read_slid.and(Some(read_slid));
            cq.read_sl = cq.read_sl.and(Some(read_sl));
            cq.read_dlid_path_bits = cq.read_dlid_path_bits.and(Some(read_dlid_path_bits));
            if flags & sys::IBV_WC_EX_WITH_TM_INFO != 0 {
                cq.read_tm_info = Some(read_tm_info);
            }
        }
        let current = Record::plain(sys::ibv_wc::zeroed());
        Completions {
            device,
            raw,
            tag_queues: RwLock::default(),
            is_armed: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            place: UnsafeCell::new(Place { current, is_devices_turn: false }),
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

    /// Asks for an event at the next completion, of the device or of a tag-matching queue; gives an error
    /// number or 0.
    pub(crate) fn arm(&self, solicited_only: i32) -> i32 {
        let queues = self.tag_queues.read().unwrap_or_else(PoisonError::into_inner);
        self.is_armed.store(!queues.is_empty(), Ordering::SeqCst);
        // The bell is no solicited message: a program that waits for those alone gets more events.
        let solicited_only = if queues.is_empty() { solicited_only } else { 0 };
        // SAFETY: the queue is alive.
        let answer =
            unsafe { (self.device.original.req_notify_cq)(self.raw.cast(), solicited_only) };
        for queue in queues.iter() {
            queue.arm();
        }
        answer
    }

    /// Whether the program is to be told of a completion; once.
    pub(crate) fn take_armed(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed) && self.is_armed.swap(false, Ordering::SeqCst)
    }

    fn lock(&self) {
        while self.is_polled.swap(true, Ordering::Acquire) {
            while self.is_polled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
    }

    fn unlock(&self) {
        self.is_polled.store(false, Ordering::Release);
    }

    /// Moves on to the next completion; `false` if there is none.
    ///
    /// # Safety
    /// The caller has [locked](Self::lock) the queue.
    unsafe fn advance(&self) -> bool {
        // SAFETY: locked.
        let place = unsafe { &mut *self.place.get() };
        let is_devices_turn = place.is_devices_turn;
        place.is_devices_turn = !is_devices_turn;
        let next = if is_devices_turn {
            self.of_device().or_else(|| self.of_tag_queues())
        } else {
            self.of_tag_queues().or_else(|| self.of_device())
        };
        let Some(record) = next else { return false };
        place.current = record;
        // SAFETY: the queue is alive, and these fields are for whoever polls it.
        unsafe {
            (*self.raw).status = record.wc.status;
            (*self.raw).wr_id = record.wc.wr_id;
        }
        true
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
            if !Bell::is_its(&wc) {
                break;
            }
        }
        // rxe says so of connected queue pairs as well, which no hardware does.
        if wc.wc_flags & sys::IBV_WC_GRH != 0 && !self.device.is_datagram(wc.qp_num) {
            wc.wc_flags &= !sys::IBV_WC_GRH;
        }
        Some(Record::plain(wc))
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut sys::ibv_poll_cq_attr) -> i32 {
    // SAFETY: attributes, if there are any, are readable.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return EINVAL;
    }
    let start = |queue: &Completions| {
        queue.lock();
        // SAFETY: locked.
        if unsafe { queue.advance() } {
            return 0;
        }
        queue.unlock();
        ENOENT
    };
    registry::with_completions(cq, start).unwrap_or(EINVAL)
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> i32 {
    // SAFETY: locked by `start_poll`, which comes before.
    let next = |queue: &Completions| if unsafe { queue.advance() } { 0 } else { ENOENT };
    registry::with_completions(cq, next).unwrap_or(EINVAL)
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let _ = registry::with_completions(cq, Completions::unlock);
}

/// Reads from the completion at which polling stands.
fn current<T: Default>(cq: *mut ibv_cq_ex, read: impl FnOnce(&Record) -> T) -> T {
    // SAFETY: locked by `start_poll`, which comes before all reading.
    let read = |queue: &Completions| read(unsafe { &(*queue.place.get()).current });
    registry::with_completions(cq, read).unwrap_or_default()
}

macro_rules! readers {
    ($($name:ident -> $type:ty: $field:ident;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            current(cq, |record| record.wc.$field.into())
        }
    )*};
}

readers! {
    read_opcode -> u32: opcode;
    read_vendor_err -> u32: vendor_err;
    read_wc_flags -> u32: wc_flags;
    read_byte_len -> u32: byte_len;
    read_imm_data -> u32: imm_data;
    read_qp_num -> u32: qp_num;
    read_src_qp -> u32: src_qp;
    read_slid -> u32: slid;
    read_sl -> u8: sl;
    read_dlid_path_bits -> u8: dlid_path_bits;
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    let (tag, priv_) = current(cq, |record| (record.tm_info.tag, record.tm_info.priv_));
    // SAFETY: there is room for it.
    unsafe { info.write(ibv_wc_tm_info { tag, priv_ }) };
}
