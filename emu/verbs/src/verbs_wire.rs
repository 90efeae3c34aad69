//! The engine's wire over verbs: queue pairs, bounce buffers and completions of the device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

use tagmatch_device::slab::Key;
use tagmatch_rdma_core_sys as sys;

use crate::bounce::Bounce;
use crate::device::Device;
use crate::engine::{Denied, NicRequest, Segment, Wire, WireEvent};
use crate::hidden_cq::HiddenCq;

/// The bit of a `wr_id` that marks a receive; the other bits are the number of the bounce buffer.
const RECEIVE: u64 = 1 << 63;
/// Completions taken at once.
const BATCH: i32 = 16;

/// Everything on the device that belongs to one tag-matching queue.
pub(crate) struct VerbsWire {
    pub(crate) device: Arc<Device>,
    pub(crate) cq: Arc<HiddenCq>,
    pub(crate) bounce: Bounce,
    /// The device's plain queue; the program sees the same object as its tag-matching queue.
    pub(crate) srq: *mut sys::ibv_srq,
    pub(crate) pd: *mut sys::ibv_pd,
    /// By number.
    pub(crate) pairs: BTreeMap<u32, *mut sys::ibv_qp>,
    polled: [sys::ibv_wc; BATCH as usize],
    ready: Range<usize>,
}

// SAFETY: libibverbs' objects belong to no thread.
unsafe impl Send for VerbsWire {}

impl VerbsWire {
    pub(crate) fn new(
        device: Arc<Device>,
        cq: Arc<HiddenCq>,
        bounce: Bounce,
        (srq, pd): (*mut sys::ibv_srq, *mut sys::ibv_pd),
    ) -> Self {
        let polled = [sys::ibv_wc::zeroed(); BATCH as usize];
        VerbsWire { device, cq, bounce, srq, pd, pairs: BTreeMap::new(), polled, ready: 0..0 }
    }

    fn event_of(wc: &sys::ibv_wc) -> WireEvent {
        let is_ok = wc.status == sys::IBV_WC_SUCCESS;
        if wc.wr_id & RECEIVE == 0 {
            return WireEvent::Done { token: wc.wr_id, is_ok };
        }
        let pair = wc.qp_num;
        let buffer = u32::try_from(wc.wr_id & !RECEIVE).unwrap_or(u32::MAX);
        if !is_ok || wc.opcode != sys::IBV_WC_RECV {
            return WireEvent::Failed { pair, buffer };
        }
        let has_immediate = wc.wc_flags & sys::IBV_WC_WITH_IMM != 0;
        let immediate = has_immediate.then_some(wc.imm_data);
        WireEvent::Arrived { pair, buffer, length: wc.byte_len, immediate }
    }
}

impl Wire for VerbsWire {
    fn poll(&mut self) -> Option<WireEvent> {
        if self.ready.is_empty() {
            // SAFETY: the queue is alive, and there is room for as many as said.
            let count = unsafe { sys::ibv_poll_cq(self.cq.raw(), BATCH, self.polled.as_mut_ptr()) };
            self.ready = 0..usize::try_from(count).unwrap_or(0);
        }
        Some(Self::event_of(&self.polled[self.ready.next()?]))
    }

    fn post(&mut self, buffer: u32) -> bool {
        let Some(mut sge) = self.bounce.message_segment(buffer) else { return false };
        let mut wr = sys::ibv_recv_wr {
            wr_id: RECEIVE | u64::from(buffer),
            next: null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: the queue is alive; the buffer is registered, and ours to give.
        unsafe { (self.device.original.post_srq_recv)(self.srq, &raw mut wr, &raw mut bad) == 0 }
    }

    fn bounce(&self, buffer: u32) -> &[u8] {
        // SAFETY: the engine asks for buffers that have come back.
        unsafe { self.bounce.message(buffer) }
    }

    fn scatter(&self, buffer: u32, range: Range<usize>, to: &[Segment]) -> Result<(), Denied> {
        // SAFETY: regions are what the program has registered, and keeps until it has ended that.
        unsafe { self.device.regions.scatter(self.pd.addr(), to, &self.bounce(buffer)[range]) }
    }

    fn begin(&mut self, pair: u32, token: u64, request: &NicRequest) -> bool {
        let Some(&qp) = self.pairs.get(&pair) else { return false };
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.wr_id = token;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        let mut sge = match *request {
            NicRequest::Read { address, rkey, into, .. } => {
                wr.opcode = sys::IBV_WR_RDMA_READ;
                wr.wr.rdma = sys::ibv_send_wr_rdma { remote_addr: address, rkey };
                sys::ibv_sge { addr: into.address, length: into.length, lkey: into.lkey }
            }
            NicRequest::Fin { ref headers, length, .. } => {
                wr.opcode = sys::IBV_WR_SEND;
                self.bounce.write_fin(Key::from_bits(token).index, &headers[..length])
            }
        };
        wr.sg_list = &raw mut sge;
        wr.num_sge = 1;
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive. The memory is ours, or the program's, which the device
        // checks by its key.
        unsafe { (self.device.original.post_send)(qp, &raw mut wr, &raw mut bad) == 0 }
    }

    fn break_pair(&mut self, pair: u32) {
        let Some(&qp) = self.pairs.get(&pair) else { return };
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_ERR;
        let state = sys::IBV_QP_STATE.cast_signed();
        // SAFETY: the queue pair is alive. One that can't be modified has failed already.
        unsafe { (self.device.verbs.ibv_modify_qp)(qp, &raw mut attr, state) };
    }
}
