//! The queue pair for datagrams, by which devices send_request each other.

use std::io;
use std::sync::Arc;

use tagmatch_rdma_core_sys as sys;

use super::address::VerbsAddress;
use super::gid;
use super::memory::Slab;
use super::object::{Ah, Cq, Pd, Qp, QpShape};
use super::wire::{DATAGRAM, Datagram};
use super::wr_id::{DATAGRAM_RECEIVED, DATAGRAM_SENT};

/// Datagrams that may come before they are looked at. More are lost, and sent again.
const RECEIVES: u32 = 256;
/// Datagrams under way from us. More are not sent, and sent later.
const SENDS: u32 = 64;
/// What stands before each datagram received.
const HEADER: usize = 40;

/// Completions that datagrams may bring at a time.
pub(super) const COMPLETIONS: u32 = RECEIVES + SENDS;

/// The queue pair for datagrams.
pub(super) struct Datagrams {
    // Before the memory.
    qp: Qp,
    incoming: Slab,
    outgoing: Slab,
    free: Vec<u32>,
    /// Where those under way go to: kept so long.
    under_way: Vec<Option<Arc<Ah>>>,
    qkey: u32,
}

impl Datagrams {
    pub(super) fn new(pd: &Arc<Pd>, cq: &Arc<Cq>, port: u8, qkey: u32) -> io::Result<Self> {
        let shape = QpShape {
            kind: sys::IBV_QPT_UD,
            max_send_wr: SENDS,
            max_recv_wr: RECEIVES,
            max_send_sge: 1,
            inline_max: 0,
        };
        let qp = Qp::new(pd.clone(), cq.clone(), None, &shape)?;
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_INIT;
        attr.port_num = port;
        attr.qkey = qkey;
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_QKEY;
        qp.modify(&mut attr, mask)?;
        attr.qp_state = sys::IBV_QPS_RTR;
        qp.modify(&mut attr, sys::IBV_QP_STATE)?;
        attr.qp_state = sys::IBV_QPS_RTS;
        qp.modify(&mut attr, sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN)?;
        let datagrams = Datagrams {
            qp,
            incoming: Slab::new(pd, HEADER + DATAGRAM, RECEIVES)?,
            outgoing: Slab::new(pd, DATAGRAM, SENDS)?,
            free: (0..SENDS).rev().collect(),
            under_way: (0..SENDS).map(|_| None).collect(),
            qkey,
        };
        for at in 0..RECEIVES {
            datagrams.post(at)?;
        }
        Ok(datagrams)
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.qp.number()
    }

    pub(super) fn qkey(&self) -> u32 {
        self.qkey
    }

    fn post(&self, at: u32) -> io::Result<()> {
        let part = self.incoming.part(at, HEADER + DATAGRAM);
        // SAFETY: registered memory, not looked at until its completion, freed after the queue pair.
        unsafe { self.qp.post_recv(DATAGRAM_RECEIVED | u64::from(at), part) }
    }

    /// Sends a datagram, or doesn't: it may get lost anyway.
    pub(super) fn send(&mut self, to: &VerbsAddress, ah: Arc<Ah>, datagram: &Datagram) {
        let Some(at) = self.free.pop() else { return };
        let bytes = datagram.emit();
        let start = self.outgoing.start(at);
        // SAFETY: the buffer is as long as any datagram, and nobody's else.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.wr_id = DATAGRAM_SENT | u64::from(at);
        wr.opcode = sys::IBV_WR_SEND;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        wr.wr.ud =
            sys::ibv_send_wr_ud { ah: ah.raw(), remote_qpn: to.qp_num, remote_qkey: to.qkey };
        let part = self.outgoing.part(at, bytes.len());
        // SAFETY: registered memory, left alone until the request has ended; so is the handle.
        if unsafe { self.qp.post_send(&mut wr, &mut [part]) }.is_ok() {
            self.under_way[at as usize] = Some(ah);
        } else {
            self.free.push(at);
        }
    }

    /// A datagram was sent.
    pub(super) fn sent(&mut self, wr_id: u64) {
        if let Ok(at) = u32::try_from(wr_id & !DATAGRAM_SENT)
            && let Some(slot) = self.under_way.get_mut(at as usize)
            && slot.take().is_some()
        {
            self.free.push(at);
        }
    }

    /// A datagram came. Gives it if it is one of ours, and comes from the queue pair and the port that it
    /// says: anyone may write anything into it.
    pub(super) fn received(&mut self, completion: &sys::ibv_wc) -> Option<Datagram> {
        let at = u32::try_from(completion.wr_id & !DATAGRAM_RECEIVED)
            .ok()
            .filter(|at| *at < RECEIVES)?;
        let datagram =
            (completion.status == sys::IBV_WC_SUCCESS).then(|| self.read(at, completion)).flatten();
        // If it can't be posted again there is one fewer.
        let _ = self.post(at);
        datagram
    }

    fn read(&self, at: u32, completion: &sys::ibv_wc) -> Option<Datagram> {
        let mut bytes = [0; HEADER + DATAGRAM];
        // SAFETY: the buffer has so many bytes, and the device has done with it.
        unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(self.incoming.start(at), bytes.len());
        }
        let length = (completion.byte_len as usize).checked_sub(HEADER)?;
        let datagram = Datagram::parse(bytes[HEADER..].get(..length)?)?;
        let header: &[u8; HEADER] = bytes[..HEADER].try_into().ok()?;
        let from = &datagram.from;
        let is_from_port = if from.link_layer == sys::IBV_LINK_LAYER_ETHERNET {
            gid::is_from(header, from.gid)
        } else {
            completion.slid == from.lid
        };
        (is_from_port && completion.src_qp == from.qp_num).then_some(datagram)
    }
}
