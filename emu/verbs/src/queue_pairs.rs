//! Queue pairs of an emulated device.

use std::sync::Arc;

use libc::EINVAL;
use tagmatch_rdma_core_sys as sys;

use crate::device::Device;
use crate::engine::{PairChange, REQUESTS_PER_PAIR, Wire};
use crate::error::failed;
use crate::registry::{self, EmulatedPair};

/// Makes a queue pair with `make`, which uses the same attributes.
///
/// # Safety
/// The attributes are valid for ibv_create_qp(3); `make` makes a queue pair on this device.
pub(crate) unsafe fn create(
    device: &Arc<Device>,
    attr: *mut sys::ibv_qp_init_attr,
    make: impl FnOnce() -> *mut sys::ibv_qp,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller keeps the promise of this function's Safety section; what the program must
    // not see changed is put back.
    unsafe {
        let asked = *attr;
        let tags = registry::tag_queue(asked.srq);
        let is_offloaded = tags.is_some() && asked.cap.max_send_wr == 0;
        if let Some(tags) = &tags {
            if asked.qp_type != sys::IBV_QPT_RC {
                return failed(EINVAL);
            }
            (*attr).recv_cq = tags.cq.raw();
            if is_offloaded {
                (*attr).send_cq = tags.cq.raw();
                (*attr).cap.max_send_wr = REQUESTS_PER_PAIR;
                (*attr).cap.max_send_sge = 1;
            }
        }
        let qp = make();
        (*attr).send_cq = asked.send_cq;
        (*attr).recv_cq = asked.recv_cq;
        if is_offloaded {
            (*attr).cap = asked.cap;
        }
        let Some(made) = qp.as_ref() else { return qp };
        let number = made.qp_num;
        if let Some(tags) = &tags {
            tags.with(|engine| {
                engine.wire_mut().pairs.insert(number, qp);
                engine.add_pair(number, is_offloaded);
            });
        } else if asked.qp_type != sys::IBV_QPT_RC {
            device.set_datagram(number, true);
        }
        let pair = EmulatedPair { device: device.clone(), number, is_offloaded, tags };
        registry::write().queue_pairs.insert(qp.addr(), pair);
        qp
    }
}

/// `ibv_modify_qp(3)` of a queue pair that is emulated.
///
/// # Safety
/// The contract of the manual page.
pub(crate) unsafe fn modify(
    pair: &EmulatedPair,
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: i32,
) -> i32 {
    // SAFETY: the arguments are the caller's, who keeps the contract; fields that the mask names
    // are set.
    unsafe {
        let answer = (pair.device.verbs.ibv_modify_qp)(qp, attr, mask);
        let Some(tags) = pair.tags.as_ref().filter(|_| answer == 0) else { return answer };
        let has = |bit: sys::ibv_qp_attr_mask| mask.cast_unsigned() & bit != 0;
        let attr = &*attr;
        let change = PairChange {
            state: has(sys::IBV_QP_STATE).then_some(attr.qp_state),
            mtu: has(sys::IBV_QP_PATH_MTU).then(|| 128 << attr.path_mtu.clamp(1, 5)),
            reads_max: has(sys::IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        };
        tags.with(|engine| engine.change_pair(pair.number, change));
        answer
    }
}

/// `ibv_destroy_qp(3)` of a queue pair that is emulated.
///
/// # Safety
/// The contract of the manual page.
pub(crate) unsafe fn destroy(pair: &EmulatedPair, qp: *mut sys::ibv_qp) -> i32 {
    // Removed first: once it is destroyed, a new queue pair may have the same address.
    let registered = registry::write().queue_pairs.remove(&qp.addr());
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    let destroy = || unsafe { (pair.device.verbs.ibv_destroy_qp)(qp) };
    let answer = match &pair.tags {
        Some(tags) => tags.with(|engine| {
            // A queue pair in error gives back the bounce buffer of a message that was under way.
            engine.wire_mut().break_pair(pair.number);
            engine.progress();
            let answer = destroy();
            if answer == 0 {
                engine.wire_mut().pairs.remove(&pair.number);
                engine.remove_pair(pair.number);
            }
            answer
        }),
        None => destroy(),
    };
    if answer == 0 {
        pair.device.set_datagram(pair.number, false);
    } else {
        registry::write().queue_pairs.extend(registered.map(|pair| (qp.addr(), pair)));
    }
    answer
}
