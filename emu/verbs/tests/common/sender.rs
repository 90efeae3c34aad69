//! A sender: plain verbs, a context of its own.

use std::cell::Cell;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use tagmatch_rdma_core_sys::{self as sys, Verbs};

use super::memory::Memory;
use super::wire::{self, Path};

/// Bytes for messages, and for what is read from it.
const LENGTH: usize = 1 << 25;
/// Where a rendezvous finds its bytes.
pub(crate) const SOURCE: usize = 1 << 20;
/// Receives that are posted, for FINs.
const RECEIVES: usize = 64;

/// A sender.
pub(crate) struct Sender {
    verbs: &'static Verbs,
    context: *mut sys::ibv_context,
    pd: *mut sys::ibv_pd,
    cq: *mut sys::ibv_cq,
    qp: *mut sys::ibv_qp,
    memory: Option<Memory>,
    sent: Cell<usize>,
}

impl Sender {
    pub(super) fn new(peer: u32, path: Path) -> Self {
        let verbs = Verbs::get().unwrap();
        let context = wire::open();
        // SAFETY: objects are made of those that were made before them, and all are alive.
        unsafe {
            let pd = (verbs.ibv_alloc_pd)(context);
            let cq = (verbs.ibv_create_cq)(context, 1024, null_mut(), null_mut(), 0);
            let mut attr = sys::ibv_qp_init_attr::zeroed();
            attr.send_cq = cq;
            attr.recv_cq = cq;
            attr.qp_type = sys::IBV_QPT_RC;
            attr.cap.max_send_wr = 64;
            attr.cap.max_recv_wr = RECEIVES as u32;
            attr.cap.max_send_sge = 1;
            attr.cap.max_recv_sge = 1;
            let qp = (verbs.ibv_create_qp)(pd, &raw mut attr);
            assert!(!qp.is_null());
            let access = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_READ;
            let memory = Some(Memory::new(verbs, pd, LENGTH, access));
            let sender = Sender { verbs, context, pd, cq, qp, memory, sent: Cell::new(0) };
            wire::connect(verbs, qp, peer, path);
            for place in 0..RECEIVES {
                sender.post_receive(place);
            }
            sender
        }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: alive.
        unsafe { (*self.qp).qp_num }
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().unwrap()
    }

    fn post_receive(&self, place: usize) {
        let mut sge = self.memory().sge(place * 64, 64);
        let sg_list = &raw mut sge;
        let mut wr =
            sys::ibv_recv_wr { wr_id: place as u64, next: null_mut(), sg_list, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive.
        unsafe { assert_eq!(sys::ibv_post_recv(self.qp, &raw mut wr, &raw mut bad), 0) };
    }

    /// Sends a message, which completes with an opcode of `IBV_WC_SEND`.
    pub(crate) fn send(&self, message: &[u8]) {
        self.send_with(message, None);
    }

    pub(crate) fn send_with(&self, message: &[u8], immediate: Option<u32>) {
        // Eight places of 64 KiB: no more messages are under way.
        let place = (8 + self.sent.replace(self.sent.get() + 1) % 8) << 16;
        self.memory().write(place, message);
        let mut sge = self.memory().sge(place, message.len());
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.sg_list = &raw mut sge;
        wr.num_sge = 1;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        wr.opcode = sys::IBV_WR_SEND;
        if let Some(immediate) = immediate {
            wr.opcode = sys::IBV_WR_SEND_WITH_IMM;
            wr.imm_data = immediate;
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive.
        unsafe { assert_eq!(sys::ibv_post_send(self.qp, &raw mut wr, &raw mut bad), 0) };
    }

    /// The next completion, if there is one now.
    pub(crate) fn poll(&self) -> Option<sys::ibv_wc> {
        let mut wc = sys::ibv_wc::zeroed();
        // SAFETY: the queue is alive.
        let count = unsafe { sys::ibv_poll_cq(self.cq, 1, &raw mut wc) };
        (count == 1).then_some(wc)
    }

    #[track_caller]
    pub(crate) fn next(&self) -> sys::ibv_wc {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(Instant::now() < end, "no completion came");
        }
    }

    /// Sends a message and waits until it is there.
    #[track_caller]
    pub(crate) fn sent(&self, message: &[u8]) {
        self.send(message);
        let wc = self.next();
        assert_eq!((wc.status, wc.opcode), (sys::IBV_WC_SUCCESS, sys::IBV_WC_SEND));
    }

    /// Waits for a FIN, maybe behind the completion of the request; gives it.
    #[track_caller]
    pub(crate) fn fin(&self) -> Vec<u8> {
        loop {
            let wc = self.next();
            assert_eq!(wc.status, sys::IBV_WC_SUCCESS);
            if wc.opcode == sys::IBV_WC_RECV {
                let place = wc.wr_id as usize;
                let fin = self.memory().read(place * 64, wc.byte_len as usize);
                self.post_receive(place);
                return fin;
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: in the order in which they need each other.
        unsafe {
            (self.verbs.ibv_destroy_qp)(self.qp);
            (self.verbs.ibv_destroy_cq)(self.cq);
            self.memory = None;
            (self.verbs.ibv_dealloc_pd)(self.pd);
            (self.verbs.ibv_close_device)(self.context);
        }
    }
}
