//! Remote memory access: fi_rma(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter_at_once};

use crate::handle::with_endpoint;
use crate::memory::Memory;
use crate::messages::Pieces;
use crate::policy::{Provider, ProviderEndpoint};
use crate::remote::{CALL_FLAGS, REMOTE_PARTS_MAX, RemoteCall, RemoteUse, total};

/// The functions of this module.
pub(crate) const fn functions<P: Provider>() -> &'static sys::fi_ops_rma {
    const {
        &sys::fi_ops_rma {
            size: size_of::<sys::fi_ops_rma>(),
            read: Some(read::<P>),
            readv: Some(readv::<P>),
            readmsg: Some(readmsg::<P>),
            write: Some(write::<P>),
            writev: Some(writev::<P>),
            writemsg: Some(writemsg::<P>),
            inject: Some(inject::<P>),
            writedata: Some(writedata::<P>),
            injectdata: Some(injectdata::<P>),
        }
    }
}

/// The memory of a call.
///
/// # Safety
/// As for [`Pieces::all`].
unsafe fn memory(pieces: Pieces, writable: bool) -> Result<Vec<Memory>> {
    // SAFETY: the caller's promise.
    unsafe { pieces.all::<REMOTE_PARTS_MAX>(writable) }
}

/// Begins an operation.
///
/// # Safety
/// `endpoint` is an endpoint.
#[inline(never)]
pub(crate) unsafe fn begin<P: Provider>(
    endpoint: *mut sys::fid_ep,
    call: RemoteCall,
    what: RemoteUse,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.begin_remote(sinks, call, what))
    }
}

/// The arguments of `fi_readmsg` and `fi_writemsg`.
///
/// # Safety
/// The message is null, or as fi_rma(3) describes it.
unsafe fn message(
    message: *const sys::fi_msg_rma,
    flags: u64,
    writable: bool,
) -> Result<(RemoteCall, Vec<Memory>, u64)> {
    // SAFETY: the caller's promise.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        if message.rma_iov_count != 1 || message.rma_iov.is_null() {
            return Err(Errno::INVALID);
        }
        let remote = &*message.rma_iov;
        let pieces = memory(Pieces::Several(message.msg_iov, message.iov_count), writable)?;
        if total(&pieces)? != remote.len {
            return Err(Errno::INVALID);
        }
        let call = RemoteCall::new(message.addr, remote.addr, remote.key, message.context);
        Ok((RemoteCall { flags: Some(flags), ..call }, pieces, message.data))
    }
}

unsafe extern "C" fn read<P: Provider>(
    endpoint: *mut sys::fid_ep,
    start: *mut c_void,
    length: usize,
    _region: *mut c_void,
    source: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_rma(3).
    enter_at_once(move || unsafe {
        let into = memory(Pieces::One(start, length), true)?;
        begin::<P>(endpoint, RemoteCall::new(source, address, key, context), RemoteUse::Read(into))
    })
}

unsafe extern "C" fn readv<P: Provider>(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    source: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let into = memory(Pieces::Several(parts, count), true)?;
        begin::<P>(endpoint, RemoteCall::new(source, address, key, context), RemoteUse::Read(into))
    })
}

unsafe extern "C" fn readmsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    given: *const sys::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        if flags & !CALL_FLAGS != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let (call, into, _) = message(given, flags, true)?;
        begin::<P>(endpoint, call, RemoteUse::Read(into))
    })
}

unsafe extern "C" fn write<P: Provider>(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let from = memory(Pieces::One(start, length), false)?;
        begin::<P>(
            endpoint,
            RemoteCall::new(destination, address, key, context),
            RemoteUse::Write(from, None),
        )
    })
}

unsafe extern "C" fn writev<P: Provider>(
    endpoint: *mut sys::fid_ep,
    parts: *const libc::iovec,
    _regions: *mut *mut c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let from = memory(Pieces::Several(parts, count), false)?;
        begin::<P>(
            endpoint,
            RemoteCall::new(destination, address, key, context),
            RemoteUse::Write(from, None),
        )
    })
}

unsafe extern "C" fn writemsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    given: *const sys::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        if flags & !(CALL_FLAGS | sys::FI_INJECT | sys::FI_REMOTE_CQ_DATA) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let (call, from, data) = message(given, flags, false)?;
        let data = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(data);
        begin::<P>(endpoint, call, RemoteUse::Write(from, data))
    })
}

unsafe extern "C" fn inject<P: Provider>(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    destination: u64,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let from = memory(Pieces::One(start, length), false)?;
        let call = RemoteCall::new(destination, address, key, std::ptr::null_mut());
        let call = RemoteCall { is_injected: true, ..call };
        begin::<P>(endpoint, call, RemoteUse::Write(from, None))
    })
}

unsafe extern "C" fn writedata<P: Provider>(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _region: *mut c_void,
    data: u64,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let from = memory(Pieces::One(start, length), false)?;
        let call = RemoteCall::new(destination, address, key, context);
        begin::<P>(endpoint, call, RemoteUse::Write(from, Some(data)))
    })
}

unsafe extern "C" fn injectdata<P: Provider>(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let from = memory(Pieces::One(start, length), false)?;
        let call = RemoteCall::new(destination, address, key, std::ptr::null_mut());
        let call = RemoteCall { is_injected: true, ..call };
        begin::<P>(endpoint, call, RemoteUse::Write(from, Some(data)))
    })
}
