//! The datagram queue pair (UD), which carries the handshake.

use std::io;
use std::sync::Arc;

use tagmatch_rdma_core_sys as sys;
use tagmatch_secret::Secret;

use super::address::VerbsAddress;
use super::gid;
use super::memory::{SendBuffers, Slab};
use super::object::{Ah, Cq, Pd, Qp, QpShape};
use super::port::Port;
use super::wire::{DATAGRAM, Datagram};
use super::wr_id::{DATAGRAM_RECEIVED, DATAGRAM_SENT};

/// Datagrams that can wait to be handled. The NIC drops more of them; their senders repeat them.
const RECEIVES: u32 = 256;
/// Most datagrams under way from us. Further ones are dropped and repeated later.
const SENDS: u32 = 64;
/// Bytes before each received datagram: the packet's global routing header or IP header.
const HEADER: usize = 40;

/// Most completions that datagrams can have waiting at a time.
pub(super) const COMPLETIONS: u32 = RECEIVES + SENDS;

/// The datagram queue pair and its buffers.
pub(super) struct Datagrams {
    // Drop order: the queue pair is destroyed before the memory that it accesses.
    qp: Qp,
    incoming: Slab,
    outgoing: SendBuffers,
    /// The address handle of each datagram under way, kept until the datagram was sent.
    under_way: Vec<Option<Arc<Ah>>>,
    /// The job's secret, if there is one.
    secret: Option<Secret>,
}

/// A datagram that has come.
pub(super) struct Received {
    pub(super) datagram: Datagram,
    /// Whether its sender knows the job's secret, or knows of none if there is none.
    pub(super) is_proven: bool,
}

impl Datagrams {
    pub(super) fn new(
        pd: &Arc<Pd>,
        cq: &Arc<Cq>,
        port: &Port,
        qkey: u32,
        secret: Option<Secret>,
    ) -> io::Result<Self> {
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
        attr.port_num = port.number;
        attr.pkey_index = port.partition.index;
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
            outgoing: SendBuffers::new(pd.clone(), DATAGRAM, SENDS),
            under_way: (0..SENDS).map(|_| None).collect(),
            secret,
        };
        for at in 0..RECEIVES {
            datagrams.post(at)?;
        }
        Ok(datagrams)
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.qp.number()
    }

    fn post(&self, at: u32) -> io::Result<()> {
        let part = self.incoming.part(at, HEADER + DATAGRAM);
        // SAFETY: the memory is registered, not accessed until the request completes, and freed
        // after the queue pair.
        unsafe { self.qp.post_recv(DATAGRAM_RECEIVED | u64::from(at), part) }
    }

    /// Sends a datagram. Drops it if there is no room, as the network may.
    pub(super) fn send(&mut self, to: &VerbsAddress, ah: Arc<Ah>, datagram: &Datagram) {
        let bytes = datagram.emit(self.secret.as_ref());
        let Some((at, part)) = self.outgoing.fill(&bytes, &[]) else { return };
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.wr_id = DATAGRAM_SENT | u64::from(at);
        wr.opcode = sys::IBV_WR_SEND;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        wr.wr.ud =
            sys::ibv_send_wr_ud { ah: ah.raw(), remote_qpn: to.qp_num, remote_qkey: to.qkey };
        // SAFETY: the memory is registered, and both it and the address handle are kept until the
        // request completes.
        if unsafe { self.qp.post_send(&mut wr, &mut [part]) }.is_ok() {
            self.under_way[at as usize] = Some(ah);
        } else {
            self.outgoing.give_back(at);
        }
    }

    /// Frees the buffer of a datagram that was sent.
    pub(super) fn sent(&mut self, wr_id: u64) {
        if let Ok(at) = u32::try_from(wr_id & !DATAGRAM_SENT)
            && let Some(slot) = self.under_way.get_mut(at as usize)
            && slot.take().is_some()
        {
            self.outgoing.give_back(at);
        }
    }

    /// Returns a received datagram if it has our format and was sent from the port and queue pair
    /// that it names. Anyone can write anything into a datagram.
    pub(super) fn received(&mut self, completion: &sys::ibv_wc) -> Option<Received> {
        let at = u32::try_from(completion.wr_id & !DATAGRAM_RECEIVED)
            .ok()
            .filter(|at| *at < RECEIVES)?;
        let received =
            (completion.status == sys::IBV_WC_SUCCESS).then(|| self.read(at, completion)).flatten();
        // If this fails, there is one receive buffer fewer.
        let _ = self.post(at);
        received
    }

    fn read(&self, at: u32, completion: &sys::ibv_wc) -> Option<Received> {
        let mut bytes = [0; HEADER + DATAGRAM];
        // SAFETY: the buffer has this many bytes, and the device has completed it.
        unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(self.incoming.start(at), bytes.len());
        }
        let length = (completion.byte_len as usize).checked_sub(HEADER)?;
        let content = bytes[HEADER..].get(..length)?;
        let datagram = Datagram::parse(content)?;
        let header: &[u8; HEADER] = bytes[..HEADER].try_into().ok()?;
        let from = VerbsAddress::parse(&datagram.from).ok()?;
        let is_from_port = if from.link_layer == sys::IBV_LINK_LAYER_ETHERNET {
            gid::is_from(header, from.gid, from.roce.is_version_1)
        } else {
            completion.slid == from.lid
        };
        (is_from_port && completion.src_qp == from.qp_num).then(|| Received {
            datagram,
            is_proven: Datagram::is_proven(content, self.secret.as_ref()),
        })
    }
}
