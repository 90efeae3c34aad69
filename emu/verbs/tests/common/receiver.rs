//! The receiver: a tag-matching queue, as any program makes one.

use std::cell::Cell;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use tagmatch_emu::Settings;
use tagmatch_model::Fault;
use tagmatch_rdma_core_sys::{self as sys, Verbs};

use super::memory::Memory;
use super::sender::Sender;
use super::wire::{self, Path};

/// Bytes of memory for tagged buffers; behind them are the ordinary ones.
pub(crate) const TAGGED: usize = 1 << 24;
/// Bytes of each ordinary buffer.
pub(crate) const ORDINARY: usize = 8192;

/// What a queue is to be.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) tags: u32,
    pub(crate) operations: u32,
    pub(crate) receives: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { tags: 127, operations: 256, receives: 64 }
    }
}

/// A completion, as read from the extended queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) length: u32,
    pub(crate) immediate: u32,
    pub(crate) pair: u32,
    pub(crate) tag: u64,
    pub(crate) app_ctx: u32,
}

impl Found {
    /// Opcode, flags and `wr_id` of a completion that succeeded.
    #[track_caller]
    pub(crate) fn ok(&self) -> (u32, u32, u64) {
        assert_eq!(self.status, sys::IBV_WC_SUCCESS, "{self:?}");
        (self.opcode, self.flags, self.wr_id)
    }
}

/// A receiver.
pub(crate) struct Receiver {
    pub(crate) verbs: &'static Verbs,
    pub(crate) context: *mut sys::ibv_context,
    pub(crate) pd: *mut sys::ibv_pd,
    pub(crate) channel: *mut sys::ibv_comp_channel,
    pub(crate) cq: *mut sys::ibv_cq_ex,
    pub(crate) srq: *mut sys::ibv_srq,
    pub(crate) memory: Option<Memory>,
    posted: Cell<u64>,
    pairs: Vec<*mut sys::ibv_qp>,
}

impl Receiver {
    pub(crate) fn new(settings: Settings, shape: Shape) -> Self {
        let verbs = tagmatch_emu::verbs().unwrap();
        let context = wire::open();
        // SAFETY: objects are made of those that were made before them, and all are alive.
        unsafe {
            tagmatch_emu::enable(context, settings).unwrap();
            let pd = (verbs.ibv_alloc_pd)(context);
            let channel = (verbs.ibv_create_comp_channel)(context);
            let mut attr = sys::ibv_cq_init_attr_ex::zeroed();
            attr.cqe = 1024;
            attr.channel = channel;
            attr.wc_flags = sys::IBV_WC_STANDARD_FLAGS | sys::IBV_WC_EX_WITH_TM_INFO;
            let cq = sys::ibv_create_cq_ex(context, &raw mut attr);
            assert!(!cq.is_null());
            let mut attr = srq_attr(pd, cq, shape);
            let srq = sys::ibv_create_srq_ex(verbs, context, &raw mut attr);
            assert!(!srq.is_null(), "{}", std::io::Error::last_os_error());
            let length = TAGGED + ORDINARY * shape.receives as usize;
            let memory = Some(Memory::new(verbs, pd, length, sys::IBV_ACCESS_LOCAL_WRITE));
            let posted = Cell::new(0);
            let pairs = Vec::new();
            Receiver { verbs, context, pd, channel, cq, srq, memory, posted, pairs }
        }
    }

    /// One with 33 ordinary buffers.
    pub(crate) fn ready() -> Self {
        let receiver = Receiver::new(Settings::default(), Shape::default());
        receiver.post_ordinary(33);
        receiver
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().unwrap()
    }

    /// A queue pair whose send queue is the NIC's, connected to a new sender.
    pub(crate) fn connect(&mut self, path: Path) -> Sender {
        self.connect_with(path, 0)
    }

    /// A queue pair with a send queue of so many requests, connected to a new sender.
    pub(crate) fn connect_with(&mut self, path: Path, max_send_wr: u32) -> Sender {
        let mut attr = sys::ibv_qp_init_attr::zeroed();
        attr.send_cq = self.cq.cast();
        attr.recv_cq = self.cq.cast();
        attr.srq = self.srq;
        attr.qp_type = sys::IBV_QPT_RC;
        attr.cap.max_send_wr = max_send_wr;
        attr.cap.max_send_sge = max_send_wr.min(1);
        // SAFETY: all is alive.
        let (qp, number) = unsafe {
            let qp = (self.verbs.ibv_create_qp)(self.pd, &raw mut attr);
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            (qp, (*qp).qp_num)
        };
        assert_eq!(attr.cap.max_send_wr == 0, max_send_wr == 0);
        self.pairs.push(qp);
        let sender = Sender::new(number, path);
        wire::connect(self.verbs, qp, sender.number(), path);
        sender
    }

    pub(crate) fn pair(&self, index: usize) -> *mut sys::ibv_qp {
        self.pairs[index]
    }

    /// Destroys the queue pair that was made last.
    pub(crate) fn destroy_pair(&mut self) {
        let qp = self.pairs.pop().unwrap();
        // SAFETY: alive.
        unsafe { assert_eq!((self.verbs.ibv_destroy_qp)(qp), 0) };
    }

    /// Posts so many ordinary buffers; their `wr_id`s count from 1000.
    pub(crate) fn post_ordinary(&self, count: usize) {
        for _ in 0..count {
            let number = self.posted.replace(self.posted.get() + 1);
            let at = self.ordinary(number + 1000);
            let sge = self.memory().sge(at, ORDINARY);
            assert_eq!(self.post_receive(number + 1000, &mut [sge]), 0);
        }
    }

    /// Where an ordinary buffer is.
    pub(crate) fn ordinary(&self, wr_id: u64) -> usize {
        TAGGED + ORDINARY * ((wr_id - 1000) as usize % Shape::default().receives as usize)
    }

    pub(crate) fn post_receive(&self, wr_id: u64, parts: &mut [sys::ibv_sge]) -> i32 {
        let num_sge = parts.len() as i32;
        let sg_list = parts.as_mut_ptr();
        let mut wr = sys::ibv_recv_wr { wr_id, next: null_mut(), sg_list, num_sge };
        let mut bad = null_mut();
        // SAFETY: the queue is alive; the memory is ours.
        unsafe { sys::ibv_post_srq_recv(self.srq, &raw mut wr, &raw mut bad) }
    }

    /// Posts a list operation.
    pub(crate) fn operate(&self, op: &mut sys::ibv_ops_wr) -> i32 {
        let mut bad = null_mut();
        // SAFETY: the queue is alive; the memory is ours.
        let answer = unsafe { sys::ibv_post_srq_ops(self.srq, op, &raw mut bad) };
        assert_eq!(answer != 0, bad == &raw mut *op);
        answer
    }

    /// Adds an entry with all bits of a tag, for so many bytes at an offset, without a completion.
    pub(crate) fn add(&self, tag: u64, offset: usize, length: usize) -> u32 {
        let mut sge = self.memory().sge(offset, length);
        let mut op = add_request(tag, &mut sge);
        assert_eq!(self.operate(&mut op), 0);
        op.tm.handle
    }

    /// Deletes one, with a completion of that `wr_id`.
    pub(crate) fn delete(&self, handle: u32, wr_id: u64) -> i32 {
        let mut op = sys::ibv_ops_wr::zeroed();
        op.opcode = sys::IBV_WR_TAG_DEL;
        op.flags = sys::IBV_OPS_SIGNALED;
        op.wr_id = wr_id;
        op.tm.handle = handle;
        self.operate(&mut op)
    }

    /// Tells a count, with a completion of that `wr_id`.
    pub(crate) fn sync(&self, count: u32, wr_id: u64) {
        let mut op = sys::ibv_ops_wr::zeroed();
        op.opcode = sys::IBV_WR_TAG_SYNC;
        op.flags = sys::IBV_OPS_SIGNALED | sys::IBV_OPS_TM_SYNC;
        op.wr_id = wr_id;
        op.tm.unexpected_cnt = count;
        assert_eq!(self.operate(&mut op), 0);
    }

    /// The next completion, if there is one now.
    pub(crate) fn poll(&self) -> Option<Found> {
        let mut attr = sys::ibv_poll_cq_attr::zeroed();
        // SAFETY: the queue is alive; fields are read between start and end.
        unsafe {
            match sys::ibv_start_poll(self.cq, &raw mut attr) {
                libc::ENOENT => return None,
                answer => assert_eq!(answer, 0),
            }
            let info = sys::ibv_wc_read_tm_info(self.cq);
            let found = Found {
                wr_id: (*self.cq).wr_id,
                status: (*self.cq).status,
                opcode: sys::ibv_wc_read_opcode(self.cq),
                flags: sys::ibv_wc_read_wc_flags(self.cq),
                length: sys::ibv_wc_read_byte_len(self.cq),
                immediate: sys::ibv_wc_read_imm_data(self.cq),
                pair: sys::ibv_wc_read_qp_num(self.cq),
                tag: info.tag,
                app_ctx: info.priv_,
            };
            sys::ibv_end_poll(self.cq);
            Some(found)
        }
    }

    /// The next completion.
    #[track_caller]
    pub(crate) fn next(&self) -> Found {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = self.poll() {
                return found;
            }
            assert!(Instant::now() < end, "no completion came");
        }
    }

    /// Whether an event comes on the channel within so many milliseconds.
    pub(crate) fn wait_event(&self, timeout_ms: i32) -> bool {
        // SAFETY: the channel is alive; an event is taken only if one is there.
        unsafe {
            let fd = (*self.channel).fd;
            let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            if libc::poll(&raw mut entry, 1, timeout_ms) != 1 {
                return false;
            }
            let mut cq = null_mut();
            let mut cq_context = null_mut();
            let take = self.verbs.ibv_get_cq_event;
            assert_eq!(take(self.channel, &raw mut cq, &raw mut cq_context), 0);
            assert_eq!(cq, self.cq.cast());
            (self.verbs.ibv_ack_cq_events)(cq, 1);
            true
        }
    }

    /// Asks for an event.
    pub(crate) fn arm(&self) {
        // SAFETY: the queue is alive.
        unsafe { assert_eq!(sys::ibv_req_notify_cq(self.cq.cast(), 0), 0) };
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        tagmatch_emu::faults(self.srq)
    }
}

/// An addition of one buffer, for all bits of a tag, whose `recv_wr_id` is the tag.
pub(crate) fn add_request(tag: u64, sge: &mut sys::ibv_sge) -> sys::ibv_ops_wr {
    let mut op = sys::ibv_ops_wr::zeroed();
    op.opcode = sys::IBV_WR_TAG_ADD;
    op.tm.add.recv_wr_id = tag;
    op.tm.add.sg_list = sge;
    op.tm.add.num_sge = 1;
    op.tm.add.tag = tag;
    op.tm.add.mask = u64::MAX;
    op
}

/// Attributes of a tag-matching queue.
pub(crate) fn srq_attr(
    pd: *mut sys::ibv_pd,
    cq: *mut sys::ibv_cq_ex,
    shape: Shape,
) -> sys::ibv_srq_init_attr_ex {
    let mut attr = sys::ibv_srq_init_attr_ex::zeroed();
    attr.comp_mask = sys::IBV_SRQ_INIT_ATTR_TYPE
        | sys::IBV_SRQ_INIT_ATTR_PD
        | sys::IBV_SRQ_INIT_ATTR_CQ
        | sys::IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = sys::IBV_SRQT_TM;
    attr.pd = pd;
    attr.cq = cq.cast();
    attr.attr.max_wr = shape.receives;
    attr.attr.max_sge = 2;
    attr.tm_cap = sys::ibv_tm_cap { max_num_tags: shape.tags, max_ops: shape.operations };
    attr
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: in the order in which they need each other.
        unsafe {
            while !self.pairs.is_empty() {
                assert_eq!((self.verbs.ibv_destroy_srq)(self.srq), libc::EBUSY);
                self.destroy_pair();
            }
            assert_eq!((self.verbs.ibv_destroy_cq)(self.cq.cast()), libc::EBUSY);
            assert_eq!((self.verbs.ibv_destroy_srq)(self.srq), 0);
            assert_eq!((self.verbs.ibv_destroy_cq)(self.cq.cast()), 0);
            assert_eq!((self.verbs.ibv_destroy_comp_channel)(self.channel), 0);
            self.memory = None;
            assert_eq!((self.verbs.ibv_dealloc_pd)(self.pd), 0);
            assert_eq!((self.verbs.ibv_close_device)(self.context), 0);
        }
    }
}
