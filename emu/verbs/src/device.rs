//! An emulated device: an open context whose public function pointers have been replaced.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::sync::{PoisonError, RwLock};

use tagmatch_device::Outgoing;
use tagmatch_rdma_core_sys::{
    self as sys, Verbs, ibv_context, verbs_context, verbs_get_ctx_reaching,
};

use crate::error::EnableError;
use crate::regions::Regions;
use crate::settings::Settings;

type QueryDevice = unsafe extern "C" fn(
    *mut ibv_context,
    *const sys::ibv_query_device_ex_input,
    *mut sys::ibv_device_attr_ex,
    usize,
) -> i32;
type CreateCq =
    unsafe extern "C" fn(*mut ibv_context, *mut sys::ibv_cq_init_attr_ex) -> *mut sys::ibv_cq_ex;
type CreateSrq =
    unsafe extern "C" fn(*mut ibv_context, *mut sys::ibv_srq_init_attr_ex) -> *mut sys::ibv_srq;
type CreateQp =
    unsafe extern "C" fn(*mut ibv_context, *mut sys::ibv_qp_init_attr_ex) -> *mut sys::ibv_qp;
type PostRecv = unsafe extern "C" fn(
    *mut sys::ibv_srq,
    *mut sys::ibv_recv_wr,
    *mut *mut sys::ibv_recv_wr,
) -> i32;
type PostSend = unsafe extern "C" fn(
    *mut sys::ibv_qp,
    *mut sys::ibv_send_wr,
    *mut *mut sys::ibv_send_wr,
) -> i32;
type Notify = unsafe extern "C" fn(*mut sys::ibv_cq, i32) -> i32;

/// Bytes in the longest rendezvous request.
#[allow(clippy::cast_possible_truncation, reason = "64")]
const RENDEZVOUS_MAX: u32 = Outgoing::HEADER_MAX as u32;

/// The context's original pointers.
pub(crate) struct Original {
    pub(crate) query_device_ex: Option<QueryDevice>,
    pub(crate) create_cq_ex: CreateCq,
    pub(crate) create_srq_ex: Option<CreateSrq>,
    pub(crate) create_qp_ex: Option<CreateQp>,
    pub(crate) post_srq_recv: PostRecv,
    pub(crate) post_send: PostSend,
    pub(crate) req_notify_cq: Notify,
}

/// An emulated device.
pub(crate) struct Device {
    pub(crate) verbs: &'static Verbs,
    pub(crate) context: *mut ibv_context,
    pub(crate) original: Original,
    pub(crate) settings: Settings,
    pub(crate) regions: Regions,
    /// Bytes in the longest message of any of its ports.
    pub(crate) message_max: u32,
    /// The most receives of a shared receive queue.
    pub(crate) srq_receives_max: u32,
    /// The most scatter elements of a receive.
    pub(crate) srq_elements_max: u32,
    /// Numbers of datagram queue pairs, whose messages have a GRH.
    datagrams: RwLock<BTreeSet<u32>>,
}

// SAFETY: a context belongs to no thread.
unsafe impl Send for Device {}
// SAFETY: libibverbs' calls may come from any thread, several at once.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    /// The context is open, and nobody else uses it now.
    pub(crate) unsafe fn new(
        verbs: &'static Verbs,
        context: *mut ibv_context,
        settings: Settings,
    ) -> Result<Self, EnableError> {
        // SAFETY: the context is open.
        let (original, message_max, attr) = unsafe {
            let whole = verbs_get_ctx_reaching(context, offset_of!(verbs_context, post_srq_ops));
            let whole = whole.as_ref().ok_or(EnableError::NotExtended)?;
            let ops = &whole.context.ops;
            let original = Original {
                query_device_ex: whole.query_device_ex,
                create_cq_ex: whole.create_cq_ex.ok_or(EnableError::Lacks("create_cq_ex"))?,
                create_srq_ex: whole.create_srq_ex,
                create_qp_ex: whole.create_qp_ex,
                post_srq_recv: ops.post_srq_recv.ok_or(EnableError::Lacks("post_srq_recv"))?,
                post_send: ops.post_send.ok_or(EnableError::Lacks("post_send"))?,
                req_notify_cq: ops.req_notify_cq.ok_or(EnableError::Lacks("req_notify_cq"))?,
            };
            let mut attr = sys::ibv_device_attr::zeroed();
            if (verbs.ibv_query_device)(context, &raw mut attr) != 0 {
                return Err(EnableError::Lacks("query_device"));
            }
            let message_max = (1..=attr.phys_port_cnt).filter_map(|port| {
                let mut attr = sys::ibv_port_attr::zeroed();
                let answer = sys::ibv_query_port(verbs, context, port, &raw mut attr);
                (answer == 0).then_some(attr.max_msg_sz)
            });
            (original, message_max.min().unwrap_or(0), attr)
        };
        Ok(Device {
            verbs,
            context,
            original,
            settings,
            regions: Regions::default(),
            message_max,
            srq_receives_max: u32::try_from(attr.max_srq_wr).unwrap_or(0),
            srq_elements_max: u32::try_from(attr.max_srq_sge).unwrap_or(0),
            datagrams: RwLock::default(),
        })
    }

    /// The tag-matching capabilities that the emulated device reports.
    pub(crate) fn tm_caps(&self) -> sys::ibv_tm_caps {
        sys::ibv_tm_caps {
            max_rndv_hdr_size: RENDEZVOUS_MAX,
            max_num_tags: self.settings.tags,
            flags: sys::IBV_TM_CAP_RC,
            max_ops: self.settings.operations,
            max_sge: 1,
        }
    }

    /// Records that a datagram queue pair was made or destroyed.
    pub(crate) fn set_datagram(&self, number: u32, is_datagram: bool) {
        let mut datagrams = self.datagrams.write().unwrap_or_else(PoisonError::into_inner);
        if is_datagram {
            datagrams.insert(number);
        } else {
            datagrams.remove(&number);
        }
    }

    pub(crate) fn is_datagram(&self, number: u32) -> bool {
        self.datagrams.read().unwrap_or_else(PoisonError::into_inner).contains(&number)
    }
}
