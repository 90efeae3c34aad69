//! Events on the program's channel for completions of the NIC, which the device doesn't know.
//!
//! A completion channel reports only completions that the device puts into the queue. So the
//! trigger is a queue pair in error whose completions go to the program's queue: a request that is
//! posted to it is flushed at once, and causes the event. The trigger's completions are removed
//! before the program sees them.

use std::io;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tagmatch_rdma_core_sys as sys;

use crate::device::Device;
use crate::error::made;

/// The `wr_id` of the trigger's completions: "tagmbell" in ASCII.
const MARK: u64 = 0x7461_676d_6265_6c6c;

/// Whether the program has asked for an event at the next completion (`ibv_req_notify_cq(3)`).
#[derive(Default)]
pub(crate) struct EventRequest(AtomicBool);

impl EventRequest {
    pub(crate) fn set(&self, is_asked: bool) {
        self.0.store(is_asked, Ordering::SeqCst);
    }

    /// Whether the program is to be told of a completion; `true` once per request.
    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::SeqCst)
    }
}

/// Causes events on the channel of one completion queue.
pub(crate) struct EventTrigger {
    device: Arc<Device>,
    qp: *mut sys::ibv_qp,
}

// SAFETY: libibverbs' objects belong to no thread.
unsafe impl Send for EventTrigger {}
// SAFETY: libibverbs' calls may come from several threads at once.
unsafe impl Sync for EventTrigger {}

impl EventTrigger {
    /// # Safety
    /// Queue and domain are alive, of this device, and outlive the trigger.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        pd: *mut sys::ibv_pd,
        cq: *mut sys::ibv_cq,
    ) -> io::Result<Self> {
        let mut attr = sys::ibv_qp_init_attr::zeroed();
        attr.send_cq = cq;
        attr.recv_cq = cq;
        attr.qp_type = sys::IBV_QPT_RC;
        attr.sq_sig_all = 1;
        attr.cap.max_send_wr = 4;
        attr.cap.max_send_sge = 1;
        // SAFETY: the caller keeps the promise of this function's Safety section.
        let qp = made(unsafe { (device.verbs.ibv_create_qp)(pd, &raw mut attr) })?.as_ptr();
        let trigger = EventTrigger { device: device.clone(), qp };
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_INIT;
        attr.port_num = 1;
        let ways = sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        trigger.modify(&mut attr, sys::IBV_QP_STATE | ways)?;
        attr.qp_state = sys::IBV_QPS_ERR;
        trigger.modify(&mut attr, sys::IBV_QP_STATE)?;
        Ok(trigger)
    }

    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair is alive.
        match unsafe { (self.device.verbs.ibv_modify_qp)(self.qp, attr, mask.cast_signed()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Causes an event, if the program has asked for one.
    pub(crate) fn pull(&self) {
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.wr_id = MARK;
        wr.opcode = sys::IBV_WR_SEND;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive; nothing is sent.
        unsafe { (self.device.original.post_send)(self.qp, &raw mut wr, &raw mut bad) };
    }

    /// Whether a completion is a trigger's.
    pub(crate) fn is_its(wc: &sys::ibv_wc) -> bool {
        wc.wr_id == MARK && wc.status == sys::IBV_WC_WR_FLUSH_ERR
    }
}

impl Drop for EventTrigger {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { (self.device.verbs.ibv_destroy_qp)(self.qp) };
    }
}
