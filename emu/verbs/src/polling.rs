//! How the program polls an extended completion queue: the functions that the queue points to.

use libc::{EINVAL, ENOENT};
use tagmatch_rdma_core_sys::{self as sys, ibv_cq_ex, ibv_wc_tm_info};

use crate::completions::Completions;
use crate::engine::Record;
use crate::registry;

/// Replaces the functions by which a queue is polled, as far as the program has asked for them.
///
/// # Safety
/// The queue was just made, on an emulated device.
pub(crate) unsafe fn take_over(raw: *mut ibv_cq_ex, flags: u64) {
    // SAFETY: the queue was just made, so only this function uses it.
    unsafe {
        let cq = &mut *raw;
        cq.start_poll = Some(start_poll);
        cq.next_poll = Some(next_poll);
        cq.end_poll = Some(end_poll);
        cq.read_opcode = Some(read_opcode);
        cq.read_vendor_err = Some(read_vendor_err);
        cq.read_wc_flags = Some(read_wc_flags);
        // A function stays null if the program hasn't asked for its field.
        cq.read_byte_len = cq.read_byte_len.and(Some(read_byte_len));
        cq.read_imm_data = cq.read_imm_data.and(Some(read_imm_data));
        cq.read_qp_num = cq.read_qp_num.and(Some(read_qp_num));
        cq.read_src_qp = cq.read_src_qp.and(Some(read_src_qp));
        cq.read_slid = cq.read_slid.and(Some(read_slid));
        cq.read_sl = cq.read_sl.and(Some(read_sl));
        cq.read_dlid_path_bits = cq.read_dlid_path_bits.and(Some(read_dlid_path_bits));
        if flags & sys::IBV_WC_EX_WITH_TM_INFO != 0 {
            cq.read_tm_info = Some(read_tm_info);
        }
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut sys::ibv_poll_cq_attr) -> i32 {
    // SAFETY: attributes, if there are any, are readable.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return EINVAL;
    }
    let start = |queue: &Completions| {
        queue.lock();
        // SAFETY: this thread has locked the queue, so nobody else touches the state.
        if unsafe { queue.advance() } {
            return 0;
        }
        queue.unlock();
        ENOENT
    };
    registry::with_completions(cq, start).unwrap_or(EINVAL)
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> i32 {
    // SAFETY: the program has called `start_poll` before, which has locked the queue.
    let next = |queue: &Completions| if unsafe { queue.advance() } { 0 } else { ENOENT };
    registry::with_completions(cq, next).unwrap_or(EINVAL)
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let _ = registry::with_completions(cq, Completions::unlock);
}

/// Reads from the completion at which polling stands.
fn current<T: Default>(cq: *mut ibv_cq_ex, read: impl FnOnce(&Record) -> T) -> T {
    // SAFETY: the program has called `start_poll` before, which has locked the queue.
    let read = |queue: &Completions| read(unsafe { queue.current() });
    registry::with_completions(cq, read).unwrap_or_default()
}

macro_rules! readers {
    ($($name:ident -> $type:ty: $field:ident;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            current(cq, |record| record.wc.$field.into())
        }
    )*};
}

readers! {
    read_opcode -> u32: opcode;
    read_vendor_err -> u32: vendor_err;
    read_wc_flags -> u32: wc_flags;
    read_byte_len -> u32: byte_len;
    read_imm_data -> u32: imm_data;
    read_qp_num -> u32: qp_num;
    read_src_qp -> u32: src_qp;
    read_slid -> u32: slid;
    read_sl -> u8: sl;
    read_dlid_path_bits -> u8: dlid_path_bits;
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    let (tag, priv_) = current(cq, |record| (record.tm_info.tag, record.tm_info.priv_));
    // SAFETY: there is room for it.
    unsafe { info.write(ibv_wc_tm_info { tag, priv_ }) };
}
