//! Messages without a tag: fi_msg(3).

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter_at_once};

use crate::functions::message_functions;
use crate::handle::with_endpoint;
use crate::messages::{Incoming, Injected, Outgoing, Pattern, Pieces, UNTAGGED};
use crate::objects::Sinks;
use crate::policy::{Provider, ProviderEndpoint};
use crate::transfer::send_any;

message_functions!(fi_ops_msg, fi_msg);

const KIND: u64 = sys::FI_MSG;

/// Flags that a call to receive may have.
const RECEIVE_FLAGS: u64 = sys::FI_MORE | sys::FI_COMPLETION | sys::FI_MULTI_RECV;

#[expect(
    clippy::unnecessary_wraps,
    clippy::extra_unused_type_parameters,
    reason = "of tagged messages, the caller's tag can be wrong for the provider"
)]
#[inline]
fn checked<P: Provider>() -> Result<u64> {
    Ok(UNTAGGED)
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::extra_unused_type_parameters,
    reason = "of tagged messages, the caller's tag can be wrong for the provider"
)]
#[inline]
fn pattern<P: Provider>(source: u64) -> Result<Pattern> {
    Ok(Pattern::untagged(source))
}

/// Posts a receive, or a multi-receive buffer.
///
/// # Safety
/// As fi_recv(3) asks.
#[inline(always)]
unsafe fn post<P: Provider>(
    endpoint: &mut P::Endpoint,
    sinks: &mut Sinks<'_, P::Address>,
    incoming: &Incoming,
) -> Result<()> {
    let flags = incoming.flags.unwrap_or(endpoint.bound().opened.receive_flags);
    // SAFETY: the caller's promise.
    unsafe {
        if flags & sys::FI_MULTI_RECV != 0 {
            endpoint.post_multi(sinks, &{ *incoming })
        } else {
            endpoint.post(sinks, incoming)
        }
    }
}

unsafe extern "C" fn recvmsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: the caller gives a message, or null; the rest is as the caller promises.
    enter_at_once(move || unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let incoming = Incoming {
            pieces: Pieces::Several(message.msg_iov, message.iov_count),
            pattern: Pattern::untagged(message.addr),
            context: message.context,
            kind: KIND,
            flags: Some(flags),
        };
        with_endpoint::<P, _>(endpoint, |endpoint, sinks| post::<P>(endpoint, sinks, &incoming))
    })
}
