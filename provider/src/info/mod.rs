//! `fi_getinfo`: what a program asks for, and what it gets: fi_getinfo(3).

use std::ffi::{CString, c_char};

use tagmatch_ofi_sys as sys;

use crate::errno::{Errno, Result};
use crate::settings::Settings;
use crate::state::Opened;

/// The provider's version.
pub(crate) const VERSION: u32 = sys::FI_VERSION(0, 1);
/// The longest message that is injected, in bytes.
pub(crate) const INJECT_MAX: usize = 4096;
/// Most pieces of memory of one message.
pub(crate) const PARTS_MAX: usize = 16;

/// What the endpoint is opened with.
///
/// # Safety
/// `info` and its parts are what fi_getinfo(3) gave, maybe changed.
pub(crate) unsafe fn opened(settings: &Settings, info: *mut sys::fi_info) -> Result<Opened> {
    // SAFETY: the caller's promise.
    unsafe {
        let info = info.as_ref().ok_or(Errno::INVALID)?;
        Ok(Opened {
            caps: info.caps,
            // Where the tag names the sender, a comparison of the sender's address is one too many:
            // it would keep the receive from a NIC, which compares tags only.
            directed: info.caps & sys::FI_DIRECTED_RECV != 0 && !settings.tags_name_source(),
            source: info.caps & sys::FI_SOURCE != 0,
            send_flags: info.tx_attr.as_ref().map_or(0, |transmit| transmit.op_flags),
            receive_flags: info.rx_attr.as_ref().map_or(0, |receive| receive.op_flags),
        })
    }
}

/// Whether several threads may call at the same time.
///
/// # Safety
/// As for [`opened`].
pub(crate) unsafe fn is_shared(info: *mut sys::fi_info) -> Result<bool> {
    // SAFETY: the caller's promise.
    let domain = unsafe { (*info).domain_attr.as_ref() };
    Ok(domain.is_none_or(|domain| domain.threading != sys::FI_THREAD_DOMAIN))
}

const CAPS: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_MULTI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_LOCAL_COMM
    | sys::FI_REMOTE_COMM
    | sys::FI_SOURCE;

/// Memory of zeros that libfabric frees.
fn allocate<T>(size: usize) -> Result<*mut T> {
    // SAFETY: the call has no pointers.
    let memory = unsafe { libc::calloc(1, size) };
    if memory.is_null() { Err(Errno::NO_MEMORY) } else { Ok(memory.cast()) }
}

/// # Safety
/// As fi_getinfo(3) asks.
pub(crate) unsafe fn getinfo(
    settings: &Settings,
    version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> Result<()> {
    // SAFETY: the caller's promise; memory of `calloc` is large enough, and zeros are valid.
    unsafe {
        let hints = hints.as_ref();
        let domain_hints = hints.and_then(|hints| hints.domain_attr.as_ref());
        if let Some(hints) = hints {
            let is_rdm = |endpoint: &sys::fi_ep_attr| {
                [sys::FI_EP_UNSPEC, sys::FI_EP_RDM].contains(&endpoint.r#type)
            };
            let is_ordered =
                |transmit: &sys::fi_tx_attr| transmit.msg_order & !sys::FI_ORDER_SAS == 0;
            if !hints.ep_attr.as_ref().is_none_or(is_rdm)
                || !hints.tx_attr.as_ref().is_none_or(is_ordered)
                || hints.caps & !CAPS != 0
                || domain_hints.is_some_and(|d| d.data_progress == sys::FI_PROGRESS_AUTO)
            {
                return Err(Errno::NO_DATA);
            }
        }
        let mut caps = hints.map_or(0, |hints| hints.caps);
        if caps == 0 {
            caps = CAPS;
            if settings.tags_name_source() {
                caps &= !sys::FI_DIRECTED_RECV;
            }
        }
        caps |= sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
        if caps & (sys::FI_SEND | sys::FI_RECV) == 0 {
            caps |= sys::FI_SEND | sys::FI_RECV;
        }
        let place: *mut sys::fi_info = allocate(size_of::<sys::fi_info>())?;
        let info = &mut *place;
        info.caps = caps;
        info.addr_format = 1 << 31 | 7;
        info.tx_attr = allocate(size_of::<sys::fi_tx_attr>())?;
        info.rx_attr = allocate(size_of::<sys::fi_rx_attr>())?;
        info.ep_attr = allocate(size_of::<sys::fi_ep_attr>())?;
        info.domain_attr = allocate(size_of::<sys::fi_domain_attr_2>())?;
        info.fabric_attr = allocate(size_of::<sys::fi_fabric_attr>())?;
        let transmit = &mut *info.tx_attr;
        transmit.caps = caps & !sys::FI_RECV;
        transmit.inject_size = INJECT_MAX;
        transmit.size = 1 << 16;
        transmit.iov_limit = PARTS_MAX;
        transmit.msg_order = sys::FI_ORDER_SAS;
        let asked = hints.and_then(|hints| hints.tx_attr.as_ref());
        transmit.op_flags = asked.map_or(0, |asked| asked.op_flags);
        let receive = &mut *info.rx_attr;
        receive.caps = caps & !sys::FI_SEND;
        receive.size = 1 << 16;
        receive.iov_limit = PARTS_MAX;
        receive.msg_order = sys::FI_ORDER_SAS;
        let asked = hints.and_then(|hints| hints.rx_attr.as_ref());
        receive.op_flags = asked.map_or(0, |asked| asked.op_flags);
        let endpoint = &mut *info.ep_attr;
        endpoint.r#type = sys::FI_EP_RDM;
        endpoint.protocol = 1 << 31 | 7;
        endpoint.protocol_version = 1;
        endpoint.max_msg_size = usize::MAX >> 1;
        endpoint.mem_tag_format = 0x5555_5555_5555_5555;
        endpoint.tx_ctx_cnt = 1;
        endpoint.rx_ctx_cnt = 1;
        let domain = &mut *info.domain_attr;
        let name = CString::new(settings.device_name()).map_err(|_| Errno::NO_DATA)?;
        domain.name = libc::strdup(name.as_ptr());
        domain.threading = sys::FI_THREAD_SAFE;
        domain.control_progress = sys::FI_PROGRESS_MANUAL;
        domain.data_progress = sys::FI_PROGRESS_MANUAL;
        domain.resource_mgmt = sys::FI_RM_ENABLED;
        domain.av_type = sys::FI_AV_TABLE;
        domain.mr_key_size = 8;
        domain.cq_data_size = 4;
        domain.cq_cnt = 1 << 16;
        domain.ep_cnt = 1 << 16;
        domain.tx_ctx_cnt = 1 << 16;
        domain.rx_ctx_cnt = 1 << 16;
        domain.max_ep_tx_ctx = 1;
        domain.max_ep_rx_ctx = 1;
        domain.cntr_cnt = 1 << 16;
        domain.mr_iov_limit = 1;
        domain.mr_cnt = 1 << 16;
        domain.caps = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
        if let Some(asked) = domain_hints {
            if asked.threading != sys::FI_THREAD_UNSPEC {
                domain.threading = asked.threading;
            }
            if asked.av_type != sys::FI_AV_UNSPEC {
                domain.av_type = asked.av_type;
            }
        }
        let fabric = &mut *info.fabric_attr;
        fabric.name = libc::strdup(c"tagmatch".as_ptr());
        fabric.api_version = version;
        fabric.prov_version = VERSION;
        *found = place;
    }
    Ok(())
}
