//! Devices, paths and messages.

use std::ffi::CStr;

use tagmatch_device::tm::{Opcode, Rvh, Tmh};
use tagmatch_rdma_core_sys::{self as sys, Verbs};

/// Opens the device without emulation.
pub(crate) fn open() -> *mut sys::ibv_context {
    open_with(Verbs::get().unwrap())
}

/// Opens the device that `RXE_DEVICE` names, else the first.
pub(crate) fn open_with(verbs: &Verbs) -> *mut sys::ibv_context {
    let wanted = std::env::var("RXE_DEVICE").ok();
    let mut count = 0;
    // SAFETY: the list is freed after one of its devices was opened.
    unsafe {
        let list = (verbs.ibv_get_device_list)(&raw mut count);
        assert!(!list.is_null() && count > 0, "no RDMA device: run this with ci/rxe");
        let devices = std::slice::from_raw_parts(list, count as usize);
        let is_wanted = |device: &&*mut sys::ibv_device| {
            let name = CStr::from_ptr((verbs.ibv_get_device_name)(**device)).to_string_lossy();
            wanted.as_ref().is_none_or(|wanted| *wanted == *name)
        };
        let device = *devices.iter().find(is_wanted).expect("no such device");
        let context = (verbs.ibv_open_device)(device);
        assert!(!context.is_null());
        (verbs.ibv_free_device_list)(list);
        context
    }
}

/// The address of port 1: row and GID of RoCE v2 over IPv4.
fn gid(context: *mut sys::ibv_context) -> (u8, sys::ibv_gid) {
    let verbs = Verbs::get().unwrap();
    for row in 0..=255 {
        let mut entry = sys::ibv_gid_entry::zeroed();
        // SAFETY: the context is open.
        unsafe {
            let answer = sys::ibv_query_gid_ex(verbs, context, 1, row, &raw mut entry);
            let is_v4 = entry.gid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            if answer == 0 && entry.gid_type == sys::IBV_GID_TYPE_ROCE_V2 && is_v4 {
                return (row as u8, entry.gid);
            }
        }
    }
    panic!("port 1 has no IPv4 address");
}

/// How two queue pairs are connected.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) mtu: sys::ibv_mtu,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
}

impl Default for Path {
    fn default() -> Self {
        Path { mtu: sys::IBV_MTU_1024, rnr_retry: 7, max_rd_atomic: 1 }
    }
}

/// Brings a queue pair up to RTS, towards the one of that number on the same device.
pub(crate) fn connect(verbs: &Verbs, qp: *mut sys::ibv_qp, to: u32, path: Path) {
    // SAFETY: the queue pair is alive.
    let modify = |attr: &mut sys::ibv_qp_attr, mask: u32| unsafe {
        assert_eq!((verbs.ibv_modify_qp)(qp, attr, mask.cast_signed()), 0);
    };
    // SAFETY: alive.
    let (row, gid) = gid(unsafe { (*qp).context });
    let mut attr = sys::ibv_qp_attr::zeroed();
    attr.qp_state = sys::IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_READ;
    let ways = sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
    modify(&mut attr, sys::IBV_QP_STATE | ways);
    attr.qp_state = sys::IBV_QPS_RTR;
    attr.path_mtu = path.mtu;
    attr.dest_qp_num = to;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = row;
    attr.ah_attr.grh.hop_limit = 8;
    let ways = sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN | sys::IBV_QP_RQ_PSN;
    let limits = sys::IBV_QP_MAX_DEST_RD_ATOMIC | sys::IBV_QP_MIN_RNR_TIMER;
    modify(&mut attr, sys::IBV_QP_STATE | ways | limits);
    attr.qp_state = sys::IBV_QPS_RTS;
    attr.timeout = 14;
    // To rxe, 7 is for ever.
    attr.retry_cnt = 2;
    attr.rnr_retry = path.rnr_retry;
    attr.max_rd_atomic = path.max_rd_atomic;
    let ways = sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY;
    let limits = sys::IBV_QP_SQ_PSN | sys::IBV_QP_MAX_QP_RD_ATOMIC;
    modify(&mut attr, sys::IBV_QP_STATE | ways | limits);
}

/// An eager message.
pub(crate) fn eager(tag: u64, app_ctx: u32, payload: &[u8]) -> Vec<u8> {
    [&Tmh { opcode: Opcode::Eager, app_ctx, tag }.emit()[..], payload].concat()
}

/// A rendezvous request, without anything of ours.
pub(crate) fn rendezvous(tag: u64, app_ctx: u32, va: u64, rkey: u32, len: u32) -> Vec<u8> {
    let tmh = Tmh { opcode: Opcode::Rendezvous, app_ctx, tag };
    [tmh.emit(), Rvh { va, rkey, len }.emit()].concat()
}

/// A message that the NIC doesn't look at.
pub(crate) fn no_tag(rest: &[u8]) -> Vec<u8> {
    [&[Opcode::NoTag as u8], rest].concat()
}
