//! Messages without a tag: fi_msg(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;

use super::calls::message_functions;
use super::entry::{enter_at_once, refuse};
use super::handle::with_endpoint;
use super::transfer::{self, Incoming, Outgoing, Pieces};
use crate::errno::{Errno, Result};
use crate::state::{Pattern, UNTAGGED};

message_functions!(MSG: fi_ops_msg, fi_msg);

const KIND: u64 = sys::FI_MSG;

/// Flags that a call to receive may have.
const RECEIVE_FLAGS: u64 = sys::FI_MORE | sys::FI_COMPLETION | sys::FI_MULTI_RECV;

#[expect(clippy::unnecessary_wraps, reason = "a caller's tag can be wrong")]
#[inline]
fn worker_tag() -> Result<u64> {
    Ok(UNTAGGED)
}

#[expect(clippy::unnecessary_wraps, reason = "a caller's tag can be wrong")]
#[inline]
fn pattern(source: u64) -> Result<Pattern> {
    Ok(Pattern::untagged(source))
}

/// Posts a receive, or a multi-receive buffer.
///
/// # Safety
/// As fi_recv(3) asks.
#[inline(always)]
unsafe fn receive(endpoint: *mut sys::fid_ep, incoming: Incoming) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_msg(3).
    enter_at_once(|| unsafe {
        with_endpoint(endpoint, |endpoint, sinks| {
            let flags = incoming.flags.unwrap_or(endpoint.opened.receive_flags);
            if flags & sys::FI_MULTI_RECV != 0 {
                incoming.post_multi(endpoint, sinks)
            } else {
                incoming.post(endpoint, sinks)
            }
        })
    })
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives a message, or null.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return refuse(Errno::INVALID);
    };
    if flags & !RECEIVE_FLAGS != 0 {
        return refuse(Errno::BAD_FLAGS);
    }
    let incoming = Incoming {
        pieces: Pieces::Several(message.msg_iov, message.iov_count),
        pattern: Pattern::untagged(message.addr),
        context: message.context,
        kind: KIND,
        flags: Some(flags),
    };
    // SAFETY: as the caller promises.
    unsafe { receive(endpoint, incoming) }
}
