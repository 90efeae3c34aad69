//! The functions for tagged messages: fi_tagged(3). There are none for others.

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter};
use tagmatch_ofi_sys::stub::Stub;

use super::object::EndpointObject;
use super::offer::{RECEIVE_FLAGS, SEND_FLAGS};
use crate::endpoint::{Endpoint, Incoming, Outgoing};
use crate::memory::Memory;

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

pub(crate) static MSG: sys::fi_ops_msg = sys::fi_ops_msg {
    size: size_of::<sys::fi_ops_msg>(),
    recv: Stub::STUB,
    recvv: Stub::STUB,
    recvmsg: Stub::STUB,
    send: Stub::STUB,
    sendv: Stub::STUB,
    sendmsg: Stub::STUB,
    inject: Stub::STUB,
    senddata: Stub::STUB,
    injectdata: Stub::STUB,
};

/// The endpoint of a pointer.
///
/// # Safety
/// `endpoint` is an open endpoint.
unsafe fn of<'a>(endpoint: *mut sys::fid_ep) -> &'a Endpoint {
    // SAFETY: the caller's promise.
    unsafe { &EndpointObject::of(endpoint).endpoint }
}

/// The memory of a call: at most one part.
///
/// # Safety
/// `parts` points to `count` parts, which are the endpoint's as [`Memory::new`] asks.
unsafe fn only(parts: *const libc::iovec, count: usize) -> Result<Memory> {
    // SAFETY: the caller's promise.
    unsafe {
        match count {
            0 => Memory::new(std::ptr::null_mut(), 0),
            1 if !parts.is_null() => Memory::new((*parts).iov_base.cast(), (*parts).iov_len),
            _ => Err(Errno::INVALID),
        }
    }
}

unsafe extern "C" fn recv(
    endpoint: *mut sys::fid_ep,
    start: *mut c_void,
    length: usize,
    _region: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    enter(|| unsafe {
        let (memory, context) = (Memory::new(start.cast(), length)?, context as usize);
        of(endpoint).receive(Incoming { memory, from, tag, ignore, context, flags: None })
    })
}

unsafe extern "C" fn recvv(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    enter(|| unsafe {
        let (memory, context) = (only(parts, count)?, context as usize);
        of(endpoint).receive(Incoming { memory, from, tag, ignore, context, flags: None })
    })
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and a message, and keeps the promises of fi_tagged(3).
    enter(|| unsafe {
        // FI_DISCARD, too: cxip_trecvmsg has none. FI_CLAIM is FI_DIRECTED_RECV's bit.
        if flags & !(RECEIVE_FLAGS | sys::FI_PEEK | sys::FI_CLAIM) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let (peeks, claims) = (flags & sys::FI_PEEK != 0, flags & sys::FI_CLAIM != 0);
        let memory = match peeks {
            true => Memory::new(std::ptr::null_mut(), 0)?,
            false => only(message.msg_iov, message.iov_count)?,
        };
        let incoming = Incoming {
            memory,
            from: message.addr,
            tag: message.tag,
            ignore: message.ignore,
            context: message.context as usize,
            flags: Some(flags),
        };
        match (peeks, claims) {
            (true, _) => of(endpoint).peek(incoming, claims),
            (false, true) => {
                let context = message.context.cast::<sys::fi_context>().as_ref();
                let name = context.ok_or(Errno::INVALID)?.internal[0] as u64;
                of(endpoint).receive_claimed(incoming, name)
            }
            (false, false) => of(endpoint).receive(incoming),
        }
    })
}

unsafe extern "C" fn send(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    unsafe { transmit(endpoint, start, length, to, tag, None, Some(context)) }
}

unsafe extern "C" fn senddata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    unsafe { transmit(endpoint, start, length, to, tag, Some(data), Some(context)) }
}

unsafe extern "C" fn inject(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    unsafe { transmit(endpoint, start, length, to, tag, None, None) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    unsafe { transmit(endpoint, start, length, to, tag, Some(data), None) }
}

/// Sends one part with the endpoint's flags; without a context it is injected.
///
/// # Safety
/// As fi_tsend(3) asks.
unsafe fn transmit(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    to: u64,
    tag: u64,
    data: Option<u64>,
    context: Option<*mut c_void>,
) -> isize {
    // SAFETY: the caller's promise.
    enter(|| unsafe {
        let memory = Memory::new(start.cast_mut().cast(), length)?;
        let (is_inject, context) = (context.is_none(), context.map_or(0, |at| at as usize));
        of(endpoint).send(Outgoing { memory, to, tag, data, context, flags: None, is_inject })
    })
}

unsafe extern "C" fn sendv(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    enter(|| unsafe {
        let (memory, context) = (only(parts, count)?, context as usize);
        let (data, flags, is_inject) = (None, None, false);
        of(endpoint).send(Outgoing { memory, to, tag, data, context, flags, is_inject })
    })
}

unsafe extern "C" fn sendmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives an endpoint and a message, and keeps the promises of fi_tagged(3).
    enter(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let memory = only(message.msg_iov, message.iov_count)?;
        if flags & !SEND_FLAGS != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        of(endpoint).send(Outgoing {
            memory,
            to: message.addr,
            tag: message.tag,
            data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            context: message.context as usize,
            flags: Some(flags),
            is_inject: false,
        })
    })
}
