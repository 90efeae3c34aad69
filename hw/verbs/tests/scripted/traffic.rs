//! Requests: each is carried out when it is posted, or if the network is slow, when a test says so.

use std::ptr::with_exposed_provenance_mut;

use tagmatch_rdma_core_sys as sys;

use super::calls::strike;
use super::{Qp, World, with};

/// Bytes before a datagram.
const HEADER: usize = 40;

pub(super) unsafe extern "C" fn poll_cq(
    cq: *mut sys::ibv_cq,
    room: i32,
    completions: *mut sys::ibv_wc,
) -> i32 {
    if strike("ibv_poll_cq").is_some() {
        return -1;
    }
    with(|world| {
        let queue = world.completions.get_mut(&cq).unwrap();
        let count = queue.len().min(room as usize);
        for (at, completion) in queue.drain(..count).enumerate() {
            // SAFETY: there is room for so many.
            unsafe { completions.add(at).write(completion) };
        }
        count as i32
    })
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    _: *mut *mut sys::ibv_recv_wr,
) -> i32 {
    if let Some(errno) = strike("ibv_post_srq_recv") {
        return errno;
    }
    // SAFETY: the caller's; this crate posts one at a time, of one part.
    let posted = unsafe { ((*wr).wr_id, *(*wr).sg_list) };
    with(|world| world.receives.get_mut(&srq).unwrap().push_back(posted));
    0
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_recv_wr,
    _: *mut *mut sys::ibv_recv_wr,
) -> i32 {
    if let Some(errno) = strike("ibv_post_recv") {
        return errno;
    }
    // SAFETY: as for `post_srq_recv`.
    let (number, posted) = unsafe { ((*qp).qp_num, ((*wr).wr_id, *(*wr).sg_list)) };
    with(|world| world.qps.get_mut(&number).unwrap().receives.push_back(posted));
    0
}

/// A request of a queue pair for a peer, which a slow network has not carried yet.
pub(super) struct Posted {
    /// The queue pair that sends it.
    pub(super) from: u32,
    wr: sys::ibv_send_wr,
    /// The memory that the request names. It stays as it is until the request has completed.
    parts: Vec<sys::ibv_sge>,
    /// The bytes that the request carries itself.
    inline: Option<Vec<u8>>,
}

pub(super) unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    _: *mut *mut sys::ibv_send_wr,
) -> i32 {
    if let Some(errno) = strike("ibv_post_send") {
        return errno;
    }
    // SAFETY: the caller's, and so is the memory that the parts name.
    unsafe {
        let wr = *wr;
        let parts = match wr.num_sge {
            0 => Vec::new(),
            count => std::slice::from_raw_parts(wr.sg_list, count as usize).to_vec(),
        };
        let is_inline = wr.send_flags & sys::IBV_SEND_INLINE != 0;
        let inline = is_inline.then(|| gather(&parts));
        let posted = Posted { from: (*qp).qp_num, wr, parts, inline };
        let is_late = (*qp).qp_type == sys::IBV_QPT_RC && with(|world| world.is_slow);
        if is_late {
            with(|world| world.under_way.push_back(posted));
        } else {
            carry_out(&mut *qp, &posted);
        }
    }
    0
}

/// See [`carry_one`](super::carry_one).
pub(super) fn carry_one(choose: impl FnOnce(usize) -> usize) -> bool {
    let found = with(|world| {
        let mut senders: Vec<u32> = world.under_way.iter().map(|posted| posted.from).collect();
        senders.sort_unstable();
        senders.dedup();
        if senders.is_empty() {
            return None;
        }
        let from = senders[choose(senders.len())];
        let at = world.under_way.iter().position(|posted| posted.from == from)?;
        Some((world.under_way.remove(at)?, world.qps[&from].raw))
    });
    // SAFETY: the queue pair exists: its requests leave the list when it is destroyed. The memory
    // of a request stays until the request has completed.
    found.is_some_and(|(posted, qp)| unsafe {
        carry_out(&mut *qp, &posted);
        true
    })
}

/// The bytes of memory that a request names.
///
/// # Safety
/// The memory is there.
unsafe fn gather(parts: &[sys::ibv_sge]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        let start = with_exposed_provenance_mut::<u8>(part.addr as usize);
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, part.length as usize) });
    }
    bytes
}

/// # Safety
/// The memory that the request names is there.
unsafe fn carry_out(qp: &mut sys::ibv_qp, posted: &Posted) {
    let Posted { wr, parts, inline, .. } = posted;
    let was_failed = qp.state == sys::IBV_QPS_ERR;
    let is_unheard =
        !was_failed && qp.qp_type == sys::IBV_QPT_RC && !with(|world| world.is_heard(qp));
    if is_unheard {
        qp.state = sys::IBV_QPS_ERR;
    }
    let qp = &*qp;
    let is_failed = was_failed || is_unheard;
    // SAFETY: the form of the union is that of the queue pair; the memory is the caller's promise.
    unsafe {
        if wr.opcode == sys::IBV_WR_RDMA_READ && !is_failed {
            let mut from = with_exposed_provenance_mut::<u8>(wr.wr.rdma.remote_addr as usize);
            for part in parts {
                let to = with_exposed_provenance_mut::<u8>(part.addr as usize);
                from.copy_to(to, part.length as usize);
                from = from.add(part.length as usize);
            }
        }
        // Its receiver learns nothing of it.
        let is_silent = [sys::IBV_WR_RDMA_WRITE, sys::IBV_WR_RDMA_READ].contains(&wr.opcode);
        let bytes = inline.clone().unwrap_or_else(|| gather(parts));
        with(|world| {
            if !is_failed && qp.qp_type == sys::IBV_QPT_UD {
                let header = world.header(qp, wr.wr.ud.ah);
                let bytes = [&header[..], &bytes].concat();
                let number = wr.wr.ud.remote_qpn;
                let arrived = sys::ibv_wc { opcode: sys::IBV_WC_RECV, ..sys::ibv_wc::zeroed() };
                world.deliver(qp, number, &bytes, arrived);
            } else if !is_failed && !is_silent {
                let mut arrived = sys::ibv_wc { opcode: sys::IBV_WC_RECV, ..sys::ibv_wc::zeroed() };
                if wr.opcode == sys::IBV_WR_RDMA_WRITE_WITH_IMM {
                    arrived.opcode = sys::IBV_WC_RECV_RDMA_WITH_IMM;
                }
                if wr.opcode != sys::IBV_WR_SEND {
                    (arrived.imm_data, arrived.wc_flags) = (wr.imm_data, sys::IBV_WC_WITH_IMM);
                }
                let to = world.qps[&qp.qp_num].dest;
                world.deliver(qp, to, &bytes, arrived);
            }
            if is_failed || wr.send_flags & sys::IBV_SEND_SIGNALED != 0 {
                let mut completion = sys::ibv_wc::zeroed();
                (completion.wr_id, completion.qp_num) = (wr.wr_id, qp.qp_num);
                if was_failed {
                    completion.status = world.qps[&qp.qp_num].failure;
                } else if is_unheard {
                    completion.status = sys::IBV_WC_RETRY_EXC_ERR;
                }
                world.completions.get_mut(&qp.send_cq).unwrap().push_back(completion);
            }
        });
    }
}

impl World {
    /// Whether the queue pair to which this one is connected acknowledges what arrives.
    fn is_heard(&self, qp: &sys::ibv_qp) -> bool {
        let dest = self.qps.get(&self.qps[&qp.qp_num].dest);
        // SAFETY: the queue pair leaves the map when it is destroyed.
        dest.is_some_and(|dest| unsafe { (*dest.raw).state } != sys::IBV_QPS_ERR)
    }

    /// What stands before a datagram: a header of IPv4 for version 2 of RoCE with such an address,
    /// otherwise one of IPv6, whose form the header of InfiniBand has.
    fn header(&mut self, qp: &sys::ibv_qp, ah: *mut sys::ibv_ah) -> [u8; HEADER] {
        let index = self.handles[&ah].grh.sgid_index;
        let entry = self.card_of(qp.context).gids[usize::from(index)];
        // SAFETY: every form of the union is plain bytes.
        let gid = unsafe { entry.gid.raw };
        let mut header = [0; HEADER];
        let is_ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        if entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2 && is_ipv4 {
            (header[20], header[29]) = (0x45, 17);
            header[32..36].copy_from_slice(&gid[12..]);
        } else {
            header[0] = 0x60;
            header[8..24].copy_from_slice(&gid);
        }
        header
    }

    /// Puts a message into a buffer of the queue pair with this number. The completion holds the
    /// operation and the immediate so far.
    fn deliver(&mut self, from: &sys::ibv_qp, to: u32, bytes: &[u8], completion: sys::ibv_wc) {
        let slid = self.card_of(from.context).port.lid;
        let Some(Qp { raw, receives, .. }) = self.qps.get_mut(&to) else { return };
        // SAFETY: the queue pair leaves the map when it is destroyed.
        let to = unsafe { &**raw };
        let receives = self.receives.get_mut(&to.srq).unwrap_or(receives);
        let Some((wr_id, part)) = receives.pop_front() else {
            assert!(!self.is_slow || to.qp_type == sys::IBV_QPT_UD, "no buffer for a message");
            return;
        };
        assert!(bytes.len() <= part.length as usize);
        let start = with_exposed_provenance_mut::<u8>(part.addr as usize);
        // SAFETY: the buffer is posted, so it is ours until its completion is taken.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let qp_num = to.qp_num;
        let src_qp = from.qp_num;
        let byte_len = bytes.len() as u32;
        let completion = sys::ibv_wc { wr_id, qp_num, src_qp, byte_len, slid, ..completion };
        self.completions.get_mut(&to.recv_cq).unwrap().push_back(completion);
    }
}
