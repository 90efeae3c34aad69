//! Gives devices tag matching, and takes it away when they are closed.

use std::sync::Arc;

use tagmatch_rdma_core_sys::{Verbs, ibv_context};

use crate::context_calls;
use crate::device::Device;
use crate::error::EnableError;
use crate::registry;
use crate::settings::Settings;

/// Gives an open device tag matching.
///
/// # Safety
/// The context was just opened: no object was made in it yet, and no other thread uses it. From now
/// on its objects are changed and destroyed, and it is closed, through the table of
/// [`verbs`](crate::verbs). Registered memory stays mapped until it is deregistered.
///
/// # Errors
/// The device lacks a call, or a setting is out of its range. The device is unchanged then.
pub unsafe fn enable(context: *mut ibv_context, settings: Settings) -> Result<(), EnableError> {
    settings.check()?;
    if registry::device(context).is_some() {
        return Err(EnableError::Twice);
    }
    let below = Verbs::get()?;
    // SAFETY: the caller keeps the promise of this function's Safety section.
    let device = Arc::new(unsafe { Device::new(below, context, settings) }?);
    registry::write().devices.insert(context.addr(), device.clone());
    // SAFETY: the caller keeps the promise of this function's Safety section.
    unsafe { context_calls::patch(&device) };
    Ok(())
}

/// Forgets a context that is about to be closed. Objects that the program left in it are not
/// touched any more.
pub(crate) fn forget(context: *mut ibv_context) {
    for queue in registry::take_device(context) {
        queue.stop();
        // Closing the context ends the queue's objects on the device.
        std::mem::forget(queue);
    }
}
