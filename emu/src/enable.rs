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
/// The context is open and was just opened: nothing was made of it, and no other thread uses it. From now
/// on, what is made of it is changed and destroyed, and it is closed, through [`verbs`]' table. Memory that
/// is registered stays mapped until that is ended.
///
/// # Errors
/// The device lacks something, or a setting is out of its range; nothing has changed then.
pub unsafe fn enable(context: *mut ibv_context, settings: Settings) -> Result<(), EnableError> {
    settings.check()?;
    if registry::device(context).is_some() {
        return Err(EnableError::Twice);
    }
    let below = Verbs::get()?;
    // SAFETY: as the caller says.
    let device = Arc::new(unsafe { Device::new(below, context, settings) }?);
    registry::write().devices.insert(context.addr(), device.clone());
    // SAFETY: as the caller says.
    unsafe { context_calls::patch(&device) };
    Ok(())
}

/// A context is closed. What the program has left of it isn't touched any more.
pub(crate) fn forget(context: *mut ibv_context) {
    for queue in registry::take_device(context) {
        queue.stop();
        // Its objects on the device go with the context.
        std::mem::forget(queue);
    }
}
