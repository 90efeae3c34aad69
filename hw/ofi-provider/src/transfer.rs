//! What sends of tagged and of untagged messages have in common.

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::Result;

use crate::handle::with_endpoint;
use crate::messages::Outgoing;
use crate::policy::{Provider, ProviderEndpoint};

/// Sends a message, for functions that are called seldom: one copy of the code serves all of them.
///
/// # Safety
/// `endpoint` is an endpoint, and the caller keeps the promises of fi_msg(3).
#[inline(never)]
pub(crate) unsafe fn send_any<P: Provider>(
    endpoint: *mut sys::fid_ep,
    message: &Outgoing,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.send(sinks, message)) }
}
