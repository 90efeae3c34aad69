//! A tag-matching shared receive queue for any verbs device.
//!
//! Very few devices match tags, and none that everybody has. This crate puts the model NIC of
//! [`tagmatch_model`] on a device that can't, soft-RoCE for one: queues of the type `IBV_SRQT_TM` can
//! be made, take `ibv_post_srq_ops`, scatter what is matched into tagged buffers, READ what is announced
//! by a rendezvous, and send the FIN, as hardware does and as strictly. Programs need no change.
//!
//! - In process: [`verbs`] is the table of libibverbs' functions for devices that are emulated. Whoever
//!   calls through [`tagmatch_rdma_core_sys`] uses that table instead of
//!   [`Verbs::get`](tagmatch_rdma_core_sys::Verbs::get), and differs in nothing else. [`enable`] does one
//!   device, with [`Settings`].
//! - Under foreign programs: `LD_PRELOAD=libtagmatch_emu.so`, built from `emu/preload`.
//!
//! # How it works
//! 1. The program's tag-matching queue is a plain shared receive queue of the device, which the program
//!    can't tell. To it go bounce buffers, exactly while the NIC has ordinary buffers for what arrives in
//!    them: so RNR is the device's own.
//! 2. Queue pairs on it report to a completion queue that the program doesn't see. Each message is
//!    given to the NIC, and copied to where that says, within registered memory alone.
//! 3. Queue pairs that are made without a send queue get one, for the NIC's READs and FINs.
//! 4. What the NIC reports comes out of the program's extended completion queue, between what the
//!    device itself reports there; with an event on its channel, if one was asked for.
//! 5. All that happens while the program polls; while it doesn't, a thread does it.
//!
//! # What differs from hardware
//! - A message of more than [`Settings::message_max`] bytes ends its queue pair.
//! - A queue pair that the NIC puts into error (an overflow, memory that isn't registered) gives no
//!   asynchronous event, and its peer no NAK: requests there end when their retries do. (rxe takes a
//!   `retry_cnt` of 7 for infinite.)
//! - rxe reports a message before it acknowledges it: on several processors, a FIN may reach the sender
//!   before the completion of the request that it ends.
//! - Memory is what `ibv_reg_mr(3)` and its kin have registered in this process; not device memory,
//!   dma-buf, or what was imported. It must stay mapped while it is registered: hardware would pin it.
//! - The NIC's completions take no room in the completion queue, so that it never overflows by them.
//!   `ibv_poll_cq(3)` doesn't show them: on mlx5 it would show them wrong. Asked for events of solicited
//!   messages alone, the queue gives those of others too.
//! - `ibv_modify_srq(3)` of the queue is refused: it has neither limit nor resizing.
//! - RDMA WRITE with immediate data to the queue ends its queue pair.
//! - A forked child has no thread, and must leave the queues alone.
//!
//! Rules that the program breaks, and that hardware would punish silently, are kept for [`faults`]; with
//! [`FAULTS_VARIABLE`] set they are written to standard error when the queue is destroyed.
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

mod bounce;
mod completions;
mod context_calls;
mod device;
mod enable;
mod engine;
mod error;
mod event_trigger;
mod hidden_cq;
pub mod library_calls;
mod polling;
mod progress_thread;
mod queue_pairs;
mod regions;
mod registry;
mod settings;
mod tag_queue;
mod verbs_wire;

use std::sync::OnceLock;

use tagmatch_model::Fault;
use tagmatch_rdma_core_sys::{LoadError, Verbs, ibv_srq};

pub use enable::enable;
pub use error::EnableError;
pub use settings::{BadSetting, FAULTS_VARIABLE, MESSAGE_MAX_VARIABLE, Settings};

/// libibverbs' functions, for devices with emulated tag matching: those opened through this table have it,
/// with [`Settings::from_environment`]; contexts, and objects, that aren't emulated are passed on.
///
/// # Errors
/// libibverbs can't be loaded.
pub fn verbs() -> Result<&'static Verbs, &'static LoadError> {
    static TABLE: OnceLock<Verbs> = OnceLock::new();
    let below = Verbs::get()?;
    Ok(TABLE.get_or_init(|| library_calls::table(below)))
}

/// Rules of the NIC that the user of a queue has broken: the first 64 different ones, none of a program
/// that is right. Empty for a queue that isn't emulated.
pub fn faults(srq: *mut ibv_srq) -> Vec<Fault> {
    registry::tag_queue(srq).map_or_else(Vec::new, |queue| queue.faults())
}
