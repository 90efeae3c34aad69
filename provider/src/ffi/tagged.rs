//! Tagged messages: fi_tagged(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;

use super::entry::enter;
use super::handle::with_endpoint;
use super::transfer::{self, Incoming, Outgoing, Pieces};
use crate::errno::{Errno, Result};
use crate::state::{Pattern, UNTAGGED};

/// The functions for tagged messages.
pub(crate) static TAGGED: sys::fi_ops_tagged = sys::fi_ops_tagged {
    size: size_of::<sys::fi_ops_tagged>(),
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
const RECEIVE_FLAGS: u64 =
    sys::FI_MORE | sys::FI_COMPLETION | sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD;

/// A caller's tag, which has 63 bits (`mem_tag_format`).
#[inline]
fn checked(tag: u64) -> Result<u64> {
    if tag & UNTAGGED == 0 { Ok(tag) } else { Err(Errno::INVALID) }
}

/// The tagged messages that a receive takes. Bits that are set in `ignore` don't count.
#[inline]
fn pattern(tag: u64, ignore: u64, source: u64) -> Result<Pattern> {
    Ok(Pattern { tag: checked(tag & !(ignore & UNTAGGED))?, mask: !ignore | UNTAGGED, source })
}

/// # Safety
/// As fi_trecv(3) asks.
#[inline]
unsafe fn post(endpoint: *mut sys::fid_ep, incoming: Incoming) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    enter(|| unsafe { with_endpoint(endpoint, |endpoint, sinks| incoming.post(endpoint, sinks)) })
}

unsafe extern "C" fn recv(
    endpoint: *mut sys::fid_ep,
    start: *mut c_void,
    length: usize,
    _region: *mut c_void,
    source: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let pieces = Pieces::One(start, length);
    match pattern(tag, ignore, source) {
        // SAFETY: as the caller promises.
        Ok(pattern) => unsafe {
            let incoming = Incoming { pieces, pattern, context, kind: sys::FI_TAGGED, flags: None };
            post(endpoint, incoming)
        },
        Err(errno) => enter(|| Err(errno)),
    }
}

unsafe extern "C" fn recvv(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    source: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let pieces = Pieces::Several(parts, count);
    match pattern(tag, ignore, source) {
        // SAFETY: as the caller promises.
        Ok(pattern) => unsafe {
            let incoming = Incoming { pieces, pattern, context, kind: sys::FI_TAGGED, flags: None };
            post(endpoint, incoming)
        },
        Err(errno) => enter(|| Err(errno)),
    }
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    enter(|| {
        // SAFETY: the caller gives a message, or null.
        let message = unsafe { message.as_ref() }.ok_or(Errno::INVALID)?;
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let wants = flags & (sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD);
        if wants == sys::FI_DISCARD {
            return Err(Errno::BAD_FLAGS);
        }
        // The receive of a claimed message is found by its context alone: programs give other tags.
        let claims = wants & sys::FI_PEEK == 0 && wants != 0;
        let pattern = match claims {
            true => Pattern::untagged(sys::FI_ADDR_UNSPEC),
            false => pattern(message.tag, message.ignore, message.addr)?,
        };
        let incoming = Incoming {
            pieces: Pieces::Several(message.msg_iov, message.iov_count),
            pattern,
            context: message.context,
            kind: sys::FI_TAGGED,
            flags: Some(flags),
        };
        // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
        unsafe {
            with_endpoint(endpoint, |endpoint, sinks| {
                if wants & sys::FI_PEEK != 0 {
                    incoming.peek(endpoint, sinks)
                } else if claims {
                    incoming.claim(endpoint, sinks)
                } else {
                    incoming.post(endpoint, sinks)
                }
            })
        }
    })
}

/// # Safety
/// As fi_tsend(3) asks.
#[inline]
unsafe fn transmit(endpoint: *mut sys::fid_ep, message: Outgoing) -> isize {
    enter(|| {
        checked(message.tag)?;
        // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
        unsafe { transfer::send(endpoint, message) }
    })
}

unsafe extern "C" fn send(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    destination: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind) = (Pieces::One(start, length), sys::FI_TAGGED);
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind) = (Pieces::Several(parts, count), sys::FI_TAGGED);
    let message = Outgoing { pieces, destination, tag, data: None, context, kind, flags: None };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, message) }
}

unsafe extern "C" fn sendmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives a message, or null.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return enter(|| Err(Errno::INVALID));
    };
    let outgoing = Outgoing {
        pieces: Pieces::Several(message.msg_iov, message.iov_count),
        destination: message.addr,
        tag: message.tag,
        data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
        context: message.context,
        kind: sys::FI_TAGGED,
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
    tag: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and `length` bytes.
    enter(|| unsafe { transfer::inject(endpoint, start, length, destination, checked(tag)?, None) })
}

unsafe extern "C" fn senddata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    data: u64,
    destination: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (pieces, kind, data) = (Pieces::One(start, length), sys::FI_TAGGED, Some(data));
    let message = Outgoing { pieces, destination, tag, data, context, kind, flags: None };
    // SAFETY: as the caller promises.
    unsafe { transmit(endpoint, message) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and `length` bytes.
    enter(|| unsafe {
        transfer::inject(endpoint, start, length, destination, checked(tag)?, Some(data))
    })
}
