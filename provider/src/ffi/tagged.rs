//! Tagged messages: fi_tagged(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;

use super::calls::message_functions;
use super::entry::{enter_at_once, refuse};
use super::handle::with_endpoint;
use super::transfer::{self, Incoming, Outgoing, Pieces};
use crate::errno::{Errno, Result};
use crate::state::{Pattern, UNTAGGED};

message_functions!(TAGGED: fi_ops_tagged, fi_msg_tagged, tag, ignore);

const KIND: u64 = sys::FI_TAGGED;

/// Flags that a call to receive may have.
const RECEIVE_FLAGS: u64 =
    sys::FI_MORE | sys::FI_COMPLETION | sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD;

/// A caller's tag, which has 63 bits (`mem_tag_format`).
#[inline]
fn worker_tag(tag: u64) -> Result<u64> {
    if tag & UNTAGGED == 0 { Ok(tag) } else { Err(Errno::INVALID) }
}

/// The tagged messages that a receive takes. Bits that are set in `ignore` don't count.
#[inline]
fn pattern(source: u64, tag: u64, ignore: u64) -> Result<Pattern> {
    Ok(Pattern { tag: worker_tag(tag & !(ignore & UNTAGGED))?, mask: !ignore | UNTAGGED, source })
}

/// Posts a receive.
///
/// # Safety
/// As fi_trecv(3) asks.
#[inline(always)]
unsafe fn receive(endpoint: *mut sys::fid_ep, incoming: Incoming) -> isize {
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
    enter_at_once(|| unsafe {
        with_endpoint(endpoint, |endpoint, sinks| incoming.post(endpoint, sinks))
    })
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    enter_at_once(|| {
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
            false => pattern(message.addr, message.tag, message.ignore)?,
        };
        let incoming = Incoming {
            pieces: Pieces::Several(message.msg_iov, message.iov_count),
            pattern,
            context: message.context,
            kind: KIND,
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
