//! Remote memory access: fi_rma(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter_at_once};

use crate::handle::with_endpoint;
use crate::memory::Memory;
use crate::messages::Pieces;
use crate::policy::{Provider, ProviderEndpoint};
use crate::remote::{
    CALL_FLAGS, REMOTE_PARTS_MAX, RemoteCall, RemotePlace, RemoteUse, Word, places_of, total,
};

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

/// Functions of C for one-sided operations. Each has the endpoint and these arguments. The body
/// gives the call and its use of memory, or why the call is refused; `$begin` begins the operation.
macro_rules! remote_functions {
    ($begin:ident: $(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        unsafe extern "C" fn $name<P: Provider>(
            endpoint: *mut sys::fid_ep, $($argument: $type),*
        ) -> isize {
            // SAFETY: the caller gives an endpoint, and keeps the promises of fi_rma(3) and
            // fi_atomic(3).
            enter_at_once(move || unsafe {
                let (call, what) = $body;
                $begin::<P>(endpoint, call, what)
            })
        }
    )*};
}
pub(crate) use remote_functions;

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
        let sys::fi_msg_rma { addr, context, data, .. } = *message;
        let places = places_of(message.rma_iov, message.rma_iov_count, |place| RemotePlace {
            key: place.key,
            address: place.addr,
            length: place.len,
        })?;
        let (call, length) = RemoteCall::on_places(addr, &places, context, flags)?;
        let pieces = memory(Pieces::Several(message.msg_iov, message.iov_count), writable)?;
        if total(&pieces)? == length { Ok((call, pieces, data)) } else { Err(Errno::INVALID) }
    }
}

/// The flags of a call, if they are among those that it may have.
pub(crate) fn allowed(flags: u64, may: u64) -> Result<u64> {
    if flags & !may == 0 { Ok(flags) } else { Err(Errno::BAD_FLAGS) }
}

remote_functions! { begin:
    fn read(
        start: *mut c_void, length: usize, _region: Word,
        peer: u64, address: u64, key: u64, context: Word
    ) {
        let into = memory(Pieces::One(start, length), true)?;
        (RemoteCall::new(peer, address, key, context), RemoteUse::Read(into))
    }

    fn readv(
        parts: *const libc::iovec, _regions: *mut Word, count: usize,
        peer: u64, address: u64, key: u64, context: Word
    ) {
        let into = memory(Pieces::Several(parts, count), true)?;
        (RemoteCall::new(peer, address, key, context), RemoteUse::Read(into))
    }

    fn readmsg(given: *const sys::fi_msg_rma, flags: u64) {
        let (call, into, _) = message(given, allowed(flags, CALL_FLAGS)?, true)?;
        (call, RemoteUse::Read(into))
    }

    fn write(
        start: *const c_void, length: usize, _region: Word,
        peer: u64, address: u64, key: u64, context: Word
    ) {
        let from = memory(Pieces::One(start, length), false)?;
        (RemoteCall::new(peer, address, key, context), RemoteUse::Write(from, None))
    }

    fn writev(
        parts: *const libc::iovec, _regions: *mut Word, count: usize,
        peer: u64, address: u64, key: u64, context: Word
    ) {
        let from = memory(Pieces::Several(parts, count), false)?;
        (RemoteCall::new(peer, address, key, context), RemoteUse::Write(from, None))
    }

    fn writemsg(given: *const sys::fi_msg_rma, flags: u64) {
        let flags = allowed(flags, CALL_FLAGS | sys::FI_INJECT | sys::FI_REMOTE_CQ_DATA)?;
        let (call, from, data) = message(given, flags, false)?;
        (call, RemoteUse::Write(from, (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(data)))
    }

    fn inject(start: *const c_void, length: usize, peer: u64, address: u64, key: u64) {
        let from = memory(Pieces::One(start, length), false)?;
        (RemoteCall::injected(peer, address, key), RemoteUse::Write(from, None))
    }

    fn writedata(
        start: *const c_void, length: usize, _region: Word, data: u64,
        peer: u64, address: u64, key: u64, context: Word
    ) {
        let from = memory(Pieces::One(start, length), false)?;
        (RemoteCall::new(peer, address, key, context), RemoteUse::Write(from, Some(data)))
    }

    fn injectdata(
        start: *const c_void, length: usize, data: u64, peer: u64, address: u64, key: u64
    ) {
        let from = memory(Pieces::One(start, length), false)?;
        (RemoteCall::injected(peer, address, key), RemoteUse::Write(from, Some(data)))
    }
}
