//! Tagged messages: fi_tagged(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter_at_once};

use crate::functions::message_functions;
use crate::handle::with_endpoint;
use crate::messages::{Incoming, Injected, Outgoing, Pattern, Pieces};
use crate::objects::Sinks;
use crate::policy::{Provider, ProviderEndpoint};
use crate::transfer::send_any;

message_functions!(fi_ops_tagged, fi_msg_tagged, tag, ignore);

const KIND: u64 = sys::FI_TAGGED;

#[inline(always)]
fn checked<P: Provider>(tag: u64) -> Result<u64> {
    P::tag(tag)
}

#[inline(always)]
fn pattern<P: Provider>(source: u64, tag: u64, ignore: u64) -> Result<Pattern> {
    P::pattern(source, tag, ignore)
}

/// Posts a receive.
///
/// # Safety
/// As fi_trecv(3) asks.
#[inline(always)]
unsafe fn post<P: Provider>(
    endpoint: &mut P::Endpoint,
    sinks: &mut Sinks<'_, P::Address>,
    incoming: &Incoming,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { endpoint.post(sinks, incoming) }
}

unsafe extern "C" fn recvmsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    enter_at_once(|| {
        // SAFETY: the caller gives a message, or null.
        let message = unsafe { message.as_ref() }.ok_or(Errno::INVALID)?;
        if flags & !P::CALL_RECEIVE_FLAGS != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let wants = flags & (sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD);
        if wants == sys::FI_DISCARD {
            return Err(Errno::BAD_FLAGS);
        }
        // The receive of a claimed message is found by its context alone: programs give other tags.
        let claims = wants & sys::FI_PEEK == 0 && wants != 0;
        let pattern = if claims {
            Pattern::untagged(sys::FI_ADDR_UNSPEC)
        } else {
            pattern::<P>(message.addr, message.tag, message.ignore)?
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
            with_endpoint::<P, _>(endpoint, |endpoint, sinks| {
                if wants & sys::FI_PEEK != 0 {
                    endpoint.peek(sinks, &incoming)
                } else if claims {
                    endpoint.claim(sinks, &incoming)
                } else {
                    endpoint.post(sinks, &incoming)
                }
            })
        }
    })
}
