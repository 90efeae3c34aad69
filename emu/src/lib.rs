//! A tag-matching shared receive queue for any verbs device.
//!
//! Very few devices match tags, and none that everybody has. This crate puts the model NIC of
//! [`tagmatch_hw::model`] on a device that can't, soft-RoCE for one: queues of the type `IBV_SRQT_TM` can
//! be made, take `ibv_post_srq_ops`, scatter what is matched into tagged buffers, READ what is announced
//! by a rendezvous, and send the FIN, as hardware does and as strictly. Programs need no change.
//!
//! - In process: [`verbs`] is the table of libibverbs' functions for devices that are emulated. Whoever
//!   calls through [`tagmatch_rdma_core_sys`] uses that table instead of
//!   [`Verbs::get`](tagmatch_rdma_core_sys::Verbs::get), and differs in nothing else. [`enable`] does one
//!   device, with [`Settings`].
//! - Under foreign programs: `LD_PRELOAD=libtagmatch_emu.so`, built from `emu/preload`.
//!
//! | module | what it is |
//! |---|---|
//! | `engine` | the queue itself, in safe code |
//! | `link` | its wire: verbs |
//! | `hidden` | a completion queue and memory that the program doesn't see |
//! | `regions` | memory that the program has registered |
//! | `tag_queue` | a tag-matching queue, as calls reach it |
//! | `completions` | an extended completion queue |
//! | `bell` | its events, where the device knows of no completion |
//! | `helper` | the thread that goes on while the program doesn't poll |
//! | `pairs` | queue pairs |
//! | `device` | an open context, and its pointers |
//! | `registry` | which objects are emulated |
//! | `inline` | what the header's functions come to |
//! | `exported` | what the library's functions come to |
//! | `settings` | what can be set |

mod bell;
mod completions;
mod device;
mod engine;
pub mod exported;
mod helper;
mod hidden;
mod inline;
mod link;
mod pairs;
mod regions;
mod registry;
mod settings;
mod tag_queue;

use std::sync::{Arc, OnceLock};

use tagmatch_hw::model::Fault;
use tagmatch_rdma_core_sys::{LoadError, Verbs, ibv_context, ibv_srq};

use device::Device;
pub use settings::{BadSetting, MESSAGE_MAX_VARIABLE, Settings};

/// Why a device can't be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// libibverbs is not there.
    #[error(transparent)]
    NotLoaded(#[from] &'static LoadError),
    /// The context is of an interface without tag matching: a library older than rdma-core 16.
    #[error("its context ends before post_srq_ops")]
    NotExtended,
    /// The device has no such call.
    #[error("it has no {0}")]
    Lacks(&'static str),
    /// It has been enabled already.
    #[error("it has been enabled already")]
    Twice,
    /// A setting is out of its range.
    #[error(transparent)]
    BadSetting(#[from] BadSetting),
}

/// libibverbs' functions, for devices with emulated tag matching: those opened through this table have it,
/// with [`Settings::from_environment`]; contexts, and objects, that aren't emulated are passed on.
///
/// # Errors
/// libibverbs can't be loaded.
pub fn verbs() -> Result<&'static Verbs, &'static LoadError> {
    static TABLE: OnceLock<Verbs> = OnceLock::new();
    let below = Verbs::get()?;
    Ok(TABLE.get_or_init(|| exported::table(below)))
}

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
    unsafe { device.patch() };
    Ok(())
}

/// Rules of the NIC that the user of a queue has broken: the first 64 different ones, none of a program
/// that is right. Empty for a queue that isn't emulated.
pub fn faults(srq: *mut ibv_srq) -> Vec<Fault> {
    registry::tag_queue(srq).map_or_else(Vec::new, |queue| queue.faults())
}

/// A context is closed. What the program has left of it isn't touched any more.
fn forget(context: *mut ibv_context) {
    for queue in registry::take_device(context) {
        queue.stop();
        // Its objects on the device go with the context.
        std::mem::forget(queue);
    }
}
