//! Messages without a tag: fi_msg(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;

use super::entry::enter;
use super::handle::with_endpoint;
use super::transfer::{self, Incoming, Outgoing, Pieces};
use crate::errno::Errno;
use crate::state::{Pattern, UNTAGGED};

/// The functions for messages without a tag.
pub(crate) static MSG: sys::fi_ops_msg = sys::fi_ops_msg {
    size: size_of::<sys::fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// Flags that a call to receive may have.
const RECEIVE_FLAGS: u64 = sys::FI_MORE | sys::FI_COMPLETION | sys::FI_MULTI_RECV;

/// Posts a receive, or a multi-receive buffer.
///
/// # Safety
/// As fi_recv(3) asks.
#[inline]
unsafe fn post(
    endpoint: *mut sys::fid_ep,
    pieces: Pieces,
    source: u64,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    let pattern = Pattern::untagged(source);
    let incoming = Incoming { pieces, pattern, context, kind: sys::FI_MSG, flags };
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_msg(3).
    enter(|| unsafe {
        with_endpoint(endpoint, |endpoint, sinks| {
            let flags = flags.unwrap_or(endpoint.opened.receive_flags);
            if flags & sys::FI_MULTI_RECV != 0 {
                incoming.post_multi(endpoint, sinks)
            } else {
                incoming.post(endpoint, sinks)
            }
        })
    })
}

unsafe extern "C" fn recv(
    endpoint: *mut sys::fid_ep,
    start: *mut c_void,
    length: usize,
    _region: *mut c_void,
    source: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    unsafe { post(endpoint, Pieces::One(start, length), source, context, None) }
}

unsafe extern "C" fn recvv(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    source: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    unsafe { post(endpoint, Pieces::Several(parts, count), source, context, None) }
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives a message, or null.
    match unsafe { message.as_ref() } {
        None => enter(|| Err(Errno::INVALID)),
        Some(_) if flags & !RECEIVE_FLAGS != 0 => enter(|| Err(Errno::BAD_FLAGS)),
        Some(message) => {
            let pieces = Pieces::Several(message.msg_iov, message.iov_count);
            // SAFETY: as the caller promises.
            unsafe { post(endpoint, pieces, message.addr, message.context, Some(flags)) }
        }
    }
}

/// # Safety
/// As fi_send(3) asks.
#[inline]
unsafe fn transmit(endpoint: *mut sys::fid_ep, message: Outgoing) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_msg(3).
    enter(|| unsafe { transfer::send(endpoint, message) })
}

unsafe extern "C" fn send(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    destination: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind, tag) = (Pieces::One(start, length), sys::FI_MSG, UNTAGGED);
    let message = Outgoing { pieces, destination, tag, data: None, context, kind, flags: None };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, message) }
}

unsafe extern "C" fn sendv(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    destination: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind, tag) = (Pieces::Several(parts, count), sys::FI_MSG, UNTAGGED);
    let message = Outgoing { pieces, destination, tag, data: None, context, kind, flags: None };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, message) }
}

unsafe extern "C" fn sendmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives a message, or null.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return enter(|| Err(Errno::INVALID));
    };
    let outgoing = Outgoing {
        pieces: Pieces::Several(message.msg_iov, message.iov_count),
        destination: message.addr,
        tag: UNTAGGED,
        data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
        context: message.context,
        kind: sys::FI_MSG,
        flags: Some(flags),
    };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, outgoing) }
}

unsafe extern "C" fn inject(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    destination: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and `length` bytes.
    enter(|| unsafe { transfer::inject(endpoint, start, length, destination, UNTAGGED, None) })
}

unsafe extern "C" fn senddata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    data: u64,
    destination: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind, tag) = (Pieces::One(start, length), sys::FI_MSG, UNTAGGED);
    let message =
        Outgoing { pieces, destination, tag, data: Some(data), context, kind, flags: None };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, message) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and `length` bytes.
    enter(|| unsafe {
        transfer::inject(endpoint, start, length, destination, UNTAGGED, Some(data))
    })
}
