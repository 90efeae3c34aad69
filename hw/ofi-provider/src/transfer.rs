//! What sends of tagged and of untagged messages have in common.

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter_at_once, refuse};

use crate::handle::with_endpoint;
use crate::messages::{Injected, Outgoing};
use crate::policy::{Provider, ProviderEndpoint};

/// Sends a message with a tag, or refuses it if its tag is wrong.
///
/// # Safety
/// `endpoint` is an endpoint, and the caller keeps the promises of fi_msg(3).
#[inline]
pub(crate) unsafe fn begin<P: Provider>(
    endpoint: *mut sys::fid_ep,
    tag: Result<u64>,
    message: Outgoing,
) -> isize {
    let message = match tag {
        Ok(tag) => Outgoing { tag, ..message },
        Err(errno) => return refuse(errno),
    };
    if message.flags.is_some_and(|flags| flags & !P::CALL_SEND_FLAGS != 0) {
        return refuse(Errno::BAD_FLAGS);
    }
    // SAFETY: the caller's promise.
    enter_at_once(|| unsafe {
        with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.send(sinks, &message))
    })
}

/// Sends a copy of a message; there is no entry.
///
/// # Safety
/// As for [`begin`].
#[inline]
pub(crate) unsafe fn copy<P: Provider>(
    endpoint: *mut sys::fid_ep,
    tag: Result<u64>,
    message: Injected,
) -> isize {
    match tag {
        // SAFETY: the caller's promise.
        Ok(tag) => unsafe { copy_checked::<P>(endpoint, Injected { tag, ..message }) },
        Err(errno) => refuse(errno),
    }
}

/// # Safety
/// As for [`begin`].
// One function for all four callers: its body is inlined into it, and in copies of it is not.
#[inline(never)]
unsafe fn copy_checked<P: Provider>(endpoint: *mut sys::fid_ep, message: Injected) -> isize {
    // SAFETY: the caller's promise.
    enter_at_once(|| unsafe {
        with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.inject(sinks, message))
    })
}
