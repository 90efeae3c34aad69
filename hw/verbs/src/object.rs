//! The objects of libibverbs. Each is destroyed when it is dropped, and keeps the objects that it
//! was created from, so they are destroyed later.
//!
//! A forked child shares the descriptor through which the kernel is told to free objects. So in a
//! child, nothing is freed.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tagmatch_rdma_core_sys as sys;

use super::calls::{check, made, set_nonblocking};
use super::context::Context;
use super::wr_id::{DATAGRAM_RECEIVED, ENTRY, FIN, RECEIVE};

macro_rules! object {
    ($(#[$doc:meta])* $name:ident($raw:ident, $parent:ident: $parent_type:ty $(, $field:ident: $type:ty)*),
        freed by $free:ident) => {
        $(#[$doc])*
        pub(super) struct $name {
            raw: NonNull<sys::$raw>,
            $($field: $type,)*
            $parent: Arc<$parent_type>,
        }

        // SAFETY: libibverbs' objects aren't tied to a thread: its calls may come from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`; and the methods that take `&self` are safe to call from several
        // threads at once.
        unsafe impl Sync for $name {}

        impl $name {
            fn context(&self) -> &Context {
                self.$parent.context()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let context = self.context();
                if context.is_own_process() {
                    // SAFETY: the object was created by the matching call, and is freed once,
                    // before the objects that it was created from. An error means that the kernel
                    // keeps it until the device is closed.
                    unsafe { (context.verbs.$free)(self.raw.as_ptr()) };
                }
            }
        }
    };
}

object! {
    /// A protection domain.
    Pd(ibv_pd, context: Context), freed by ibv_dealloc_pd
}

impl Pd {
    pub(super) fn new(context: Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (context.verbs.ibv_alloc_pd)(context.raw()) })?;
        Ok(Pd { raw, context })
    }
}

object! {
    /// A completion channel, on which the completion queue reports events.
    Channel(ibv_comp_channel, context: Context), freed by ibv_destroy_comp_channel
}

impl Channel {
    pub(super) fn new(context: Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (context.verbs.ibv_create_comp_channel)(context.raw()) })?;
        let channel = Channel { raw, context };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

object! {
    /// A completion queue, which is an extended one if it also serves a tag-matching queue.
    Cq(ibv_cq, channel: Channel, extended: Option<NonNull<sys::ibv_cq_ex>>), freed by ibv_destroy_cq
}

impl Cq {
    /// Creates a queue with room for at least `entries`.
    pub(super) fn new(channel: Arc<Channel>, entries: u32) -> io::Result<Self> {
        let entries = i32::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
        let context = channel.context();
        let raw_channel = channel.raw.as_ptr();
        let create = context.verbs.ibv_create_cq;
        let vector = context.completion_vector();
        // SAFETY: context and channel are open, and the queue keeps the channel.
        let raw = made(unsafe { create(context.raw(), entries, null_mut(), raw_channel, vector) })?;
        Ok(Cq { raw, channel, extended: None })
    }

    /// Creates an extended queue, which can also serve a tag-matching queue.
    pub(super) fn extended(channel: Arc<Channel>, entries: u32) -> io::Result<Self> {
        let mut attr = sys::ibv_cq_init_attr_ex::zeroed();
        attr.cqe = entries;
        attr.channel = channel.raw.as_ptr();
        attr.comp_vector = channel.context().completion_vector().cast_unsigned();
        attr.wc_flags = sys::IBV_WC_STANDARD_FLAGS | sys::IBV_WC_EX_WITH_TM_INFO;
        // SAFETY: context and channel are open, and the queue keeps the channel.
        let raw = made(unsafe { sys::ibv_create_cq_ex(channel.context().raw(), &raw mut attr) })?;
        Ok(Cq { raw: raw.cast(), channel, extended: Some(raw) })
    }

    /// Takes as many completions as there are and as fit. Returns how many it took. `tags` gets tag
    /// and context of each message that the NIC's list has matched.
    #[inline]
    pub(super) fn poll(
        &self,
        completions: &mut [sys::ibv_wc],
        tags: &mut [sys::ibv_wc_tm_info],
    ) -> io::Result<usize> {
        if let Some(cq) = self.extended {
            return self.poll_extended(cq, completions, tags);
        }
        let room = i32::try_from(completions.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue exists, and there is room for so many completions.
        let count = unsafe { sys::ibv_poll_cq(self.raw.as_ptr(), room, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::EIO))
    }

    /// Starts and ends a poll for each completion: every provider implements that correctly.
    fn poll_extended(
        &self,
        cq: NonNull<sys::ibv_cq_ex>,
        completions: &mut [sys::ibv_wc],
        tags: &mut [sys::ibv_wc_tm_info],
    ) -> io::Result<usize> {
        let cq = cq.as_ptr();
        let mut attr = sys::ibv_poll_cq_attr::zeroed();
        let mut count = 0;
        for (wc, tag) in completions.iter_mut().zip(tags) {
            // SAFETY: the queue exists, `self` is its only user, and the fields are read from the
            // completion that ibv_start_poll has selected.
            unsafe {
                match sys::ibv_start_poll(cq, &raw mut attr) {
                    0 => {}
                    libc::ENOENT => break,
                    errno => return Err(io::Error::from_raw_os_error(errno)),
                }
                *wc = sys::ibv_wc::zeroed();
                (wc.wr_id, wc.status) = ((*cq).wr_id, (*cq).status);
                // Each field costs a call, so only those are read that this kind of completion has.
                if wc.status != sys::IBV_WC_SUCCESS {
                    wc.qp_num = sys::ibv_wc_read_qp_num(cq);
                }
                if wc.wr_id & (RECEIVE | FIN | ENTRY | DATAGRAM_RECEIVED) != 0 {
                    wc.opcode = sys::ibv_wc_read_opcode(cq);
                    wc.byte_len = sys::ibv_wc_read_byte_len(cq);
                    wc.qp_num = sys::ibv_wc_read_qp_num(cq);
                    wc.wc_flags = sys::ibv_wc_read_wc_flags(cq);
                }
                if wc.wr_id & (RECEIVE | ENTRY) != 0 {
                    wc.imm_data = sys::ibv_wc_read_imm_data(cq);
                }
                if wc.wr_id & DATAGRAM_RECEIVED != 0 {
                    wc.src_qp = sys::ibv_wc_read_src_qp(cq);
                    wc.slid = u16::try_from(sys::ibv_wc_read_slid(cq)).unwrap_or(0);
                }
                if wc.wr_id & ENTRY != 0 {
                    *tag = sys::ibv_wc_read_tm_info(cq);
                }
                sys::ibv_end_poll(cq);
            }
            count += 1;
        }
        Ok(count)
    }

    /// Asks for an event at the next completion.
    pub(super) fn request_event(&self) -> io::Result<()> {
        // SAFETY: the queue exists.
        check(unsafe { sys::ibv_req_notify_cq(self.raw.as_ptr(), 0) })
    }

    /// Takes and acknowledges the events that wait on the channel.
    pub(super) fn take_events(&self) {
        let verbs = self.channel.context().verbs;
        let (mut cq, mut context): (*mut sys::ibv_cq, *mut c_void) = (null_mut(), null_mut());
        // SAFETY: the channel exists and its descriptor doesn't block; each event is acknowledged
        // to the queue that it names.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.channel.raw.as_ptr(), &raw mut cq, &raw mut context)
                == 0
            {
                (verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }
}

object! {
    /// A shared receive queue.
    Srq(ibv_srq, pd: Pd, _cq: Option<Arc<Cq>>), freed by ibv_destroy_srq
}

impl Srq {
    pub(super) fn new(pd: Arc<Pd>, max_wr: u32) -> io::Result<Self> {
        let mut attr = sys::ibv_srq_init_attr::zeroed();
        attr.attr.max_wr = max_wr;
        attr.attr.max_sge = 1;
        // SAFETY: the protection domain exists.
        let raw =
            made(unsafe { (pd.context().verbs.ibv_create_srq)(pd.raw.as_ptr(), &raw mut attr) })?;
        Ok(Srq { raw, pd, _cq: None })
    }

    /// Creates a tag-matching queue: the NIC matches messages against a list of tagged buffers
    /// before they reach the queue.
    pub(super) fn tag_matching(
        pd: Arc<Pd>,
        cq: Arc<Cq>,
        max_wr: u32,
        list: sys::ibv_tm_cap,
    ) -> io::Result<Self> {
        let mut attr = sys::ibv_srq_init_attr_ex::zeroed();
        attr.attr.max_wr = max_wr;
        attr.attr.max_sge = 1;
        attr.comp_mask = sys::IBV_SRQ_INIT_ATTR_TYPE
            | sys::IBV_SRQ_INIT_ATTR_PD
            | sys::IBV_SRQ_INIT_ATTR_CQ
            | sys::IBV_SRQ_INIT_ATTR_TM;
        attr.srq_type = sys::IBV_SRQT_TM;
        attr.pd = pd.raw.as_ptr();
        attr.cq = cq.raw.as_ptr();
        attr.tm_cap = list;
        let context = pd.context();
        // SAFETY: domain and completion queue exist, and the queue keeps them.
        let raw =
            made(unsafe { sys::ibv_create_srq_ex(context.verbs, context.raw(), &raw mut attr) })?;
        Ok(Srq { raw, pd, _cq: Some(cq) })
    }

    /// Whether it is the queue that an asynchronous event names.
    pub(super) fn is(&self, raw: *mut sys::ibv_srq) -> bool {
        self.raw.as_ptr() == raw
    }

    /// Posts an operation on the list of a tag-matching queue. The call writes its results into
    /// `operation`.
    ///
    /// # Safety
    /// The buffer of an addition must be registered, and neither read nor written, until its
    /// message has arrived, the entry is deleted, or this queue and all queue pairs on it are
    /// destroyed.
    pub(super) unsafe fn post_operation(&self, operation: &mut sys::ibv_ops_wr) -> io::Result<()> {
        operation.next = null_mut();
        let mut bad = null_mut();
        // SAFETY: the operation is valid during the call; the memory is the caller's promise.
        check(unsafe { sys::ibv_post_srq_ops(self.raw.as_ptr(), operation, &raw mut bad) })
    }

    /// Posts one receive.
    ///
    /// # Safety
    /// The memory must be registered with `lkey` for local writing, and neither read nor written
    /// until the receive completes, or until this queue and all queue pairs on it are destroyed.
    #[inline]
    pub(super) unsafe fn post(&self, wr_id: u64, mut sge: sys::ibv_sge) -> io::Result<()> {
        let mut wr =
            sys::ibv_recv_wr { wr_id, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: request and list are valid during the call; the memory is the caller's promise.
        check(unsafe { sys::ibv_post_srq_recv(self.raw.as_ptr(), &raw mut wr, &raw mut bad) })
    }
}

object! {
    /// An address handle: the destination of datagrams.
    Ah(ibv_ah, pd: Pd), freed by ibv_destroy_ah
}

impl Ah {
    /// Blocks on RoCE while the kernel asks the network for the hardware address: up to a second.
    pub(super) fn new(pd: Arc<Pd>, mut attr: sys::ibv_ah_attr) -> io::Result<Self> {
        // SAFETY: the protection domain exists.
        let raw =
            made(unsafe { (pd.context().verbs.ibv_create_ah)(pd.raw.as_ptr(), &raw mut attr) })?;
        Ok(Ah { raw, pd })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_ah {
        self.raw.as_ptr()
    }
}

object! {
    /// A memory region: memory that the device may access.
    Mr(ibv_mr, pd: Pd), freed by ibv_dereg_mr
}

impl Mr {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory must stay allocated until the region is dropped, unless `access` only allows
    /// reading, since its pages stay locked. Accesses by others that `access` allows must not
    /// conflict with accesses by this process.
    pub(super) unsafe fn new(
        pd: Arc<Pd>,
        start: *mut u8,
        length: usize,
        access: sys::ibv_access_flags,
    ) -> io::Result<Self> {
        let verbs = pd.context().verbs;
        // SAFETY: the domain exists; the memory is the caller's promise.
        let raw =
            made(unsafe { sys::ibv_reg_mr(verbs, pd.raw.as_ptr(), start.cast(), length, access) })?;
        Ok(Mr { raw, pd })
    }

    /// Whether it is registered with this protection domain.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region exists, and its keys don't change.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region exists, and its keys don't change.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

object! {
    /// A queue pair.
    Qp(ibv_qp, pd: Pd, inline_max: u32, _queues: (Arc<Cq>, Option<Arc<Srq>>)),
    freed by ibv_destroy_qp
}

/// The type and the sizes of a queue pair.
pub(super) struct QpShape {
    pub(super) kind: sys::ibv_qp_type,
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) inline_max: u32,
}

/// The largest request below `refused` that `create` grants, and what it gave for it; `least` is
/// what it gave for a request of 0. There are at most 32 requests.
fn most_granted<T>(least: T, refused: u32, create: impl Fn(u32) -> io::Result<T>) -> (u32, T) {
    let mut granted = (0, least);
    let mut refused = refused;
    while refused - granted.0 > 1 {
        let middle = granted.0 + (refused - granted.0) / 2;
        match create(middle) {
            Ok(given) => granted = (middle, given),
            Err(_) => refused = middle,
        }
    }
    granted
}

impl Qp {
    /// Creates a queue pair that reports all completions to `cq`. No query tells how many inline
    /// bytes a device allows: if it refuses `inline_max`, the queue pair has as many as it allows.
    pub(super) fn new(
        pd: Arc<Pd>,
        cq: Arc<Cq>,
        srq: Option<Arc<Srq>>,
        shape: &QpShape,
    ) -> io::Result<Self> {
        let create = |inline_max| {
            let mut attr = sys::ibv_qp_init_attr::zeroed();
            attr.send_cq = cq.raw.as_ptr();
            attr.recv_cq = cq.raw.as_ptr();
            attr.srq = srq.as_ref().map_or(null_mut(), |srq| srq.raw.as_ptr());
            attr.qp_type = shape.kind;
            attr.cap = sys::ibv_qp_cap {
                max_send_wr: shape.max_send_wr,
                max_recv_wr: shape.max_recv_wr,
                max_send_sge: shape.max_send_sge,
                max_recv_sge: 1,
                max_inline_data: inline_max,
            };
            // SAFETY: domain and queues exist, and the queue pair keeps them.
            let raw = unsafe { (pd.context().verbs.ibv_create_qp)(pd.raw.as_ptr(), &raw mut attr) };
            let inline_max = attr.cap.max_inline_data;
            let pd = pd.clone();
            let queues = (cq.clone(), srq.clone());
            made(raw).map(|raw| Qp { raw, pd, inline_max, _queues: queues })
        };
        let limit = &pd.context().inline_max;
        let wanted = shape.inline_max.min(limit.load(Relaxed));
        create(wanted).or_else(|error| {
            if wanted == 0 {
                return Err(error);
            }
            // Something else is wrong if the device refuses a queue pair without inline bytes.
            let best = most_granted(create(0)?, wanted, create);
            limit.store(best.0, Relaxed);
            Ok(best.1)
        })
    }

    /// Most bytes that a send request can carry inline.
    pub(super) fn inline_max(&self) -> usize {
        self.inline_max as usize
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists, and its number doesn't change.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    pub(super) fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> io::Result<()> {
        let modify = self.context().verbs.ibv_modify_qp;
        // SAFETY: the queue pair exists.
        check(unsafe { modify(self.raw.as_ptr(), attr, mask.cast_signed()) })
    }

    /// Moves to the error state: requests under way complete as flushed, and nothing arrives any
    /// more.
    pub(super) fn fail(&self) {
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_ERR;
        // A queue pair that can't be modified is in the error state already.
        let _ = self.modify(&mut attr, sys::IBV_QP_STATE);
    }

    /// Posts a send request for the given parts of memory.
    ///
    /// # Safety
    /// Memory that isn't carried inline must be registered with the given keys. Until the request
    /// has completed or the queue pair is destroyed, it must not be written, nor read if the
    /// request writes it.
    #[inline]
    pub(super) unsafe fn post_send(
        &self,
        wr: &mut sys::ibv_send_wr,
        parts: &mut [sys::ibv_sge],
    ) -> io::Result<()> {
        wr.next = null_mut();
        wr.sg_list = parts.as_mut_ptr();
        wr.num_sge = i32::try_from(parts.len()).unwrap_or(0);
        let mut bad = null_mut();
        // SAFETY: request and list are valid during the call; the memory is the caller's promise.
        check(unsafe { sys::ibv_post_send(self.raw.as_ptr(), wr, &raw mut bad) })
    }

    /// Posts a receive to a queue pair that has its own receive queue.
    ///
    /// # Safety
    /// As for [`Srq::post`].
    pub(super) unsafe fn post_recv(&self, wr_id: u64, mut sge: sys::ibv_sge) -> io::Result<()> {
        let mut wr =
            sys::ibv_recv_wr { wr_id, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: request and list are valid during the call; the memory is the caller's promise.
        check(unsafe { sys::ibv_post_recv(self.raw.as_ptr(), &raw mut wr, &raw mut bad) })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn as_many_inline_bytes_as_a_device_allows_are_found_in_few_requests() {
        for limit in [0, 1, 48, 64, 96, 101, 187] {
            let requests = Cell::new(0);
            let create = |wanted| {
                requests.set(requests.get() + 1);
                (wanted <= limit).then_some(wanted).ok_or(io::ErrorKind::InvalidInput.into())
            };
            assert_eq!(most_granted(0, 188, create), (limit, limit));
            assert!(requests.get() <= 8, "{requests:?}");
        }
    }
}
