//! A tag-matching shared receive queue for any verbs device.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! Few RDMA devices match tags. This crate puts the model NIC of [`tagmatch_model`] on a device
//! that doesn't, such as soft-RoCE: the program can then make queues of the type `IBV_SRQT_TM` and
//! call `ibv_post_srq_ops(3)`. Matched messages are scattered into the tagged buffers; the data of
//! a matched rendezvous is fetched by RDMA READ, and the FIN is sent, by the same rules as hardware
//! has. Programs need no change.
//!
//! [`verbs`] is the table of libibverbs' functions for devices that are emulated. A program that
//! calls through [`tagmatch_rdma_core_sys`] uses this table instead of
//! [`Verbs::get`](tagmatch_rdma_core_sys::Verbs::get), and needs no other change. [`enable`]
//! emulates one device, with [`Settings`]. For programs in C there is a whole device in software:
//! `tagmatch-hca` (`lab/hca`).
//!
//! # How it works
//! 1. The program's tag-matching queue is a plain shared receive queue of the device. The emulator
//!    posts bounce buffers to it, at most as many as the NIC has ordinary buffers: so a sender that
//!    has to wait gets the device's own RNR NAK.
//! 2. Queue pairs on it report to a completion queue that the program doesn't see. Each message is
//!    given to the model NIC, and copied to the memory that the NIC names, within registered memory
//!    only.
//! 3. Queue pairs that are made without a send queue get one, for the NIC's READs and FINs.
//! 4. The NIC's completions appear in the program's extended completion queue, among those of the
//!    device, with an event on its channel if the program asked for one.
//! 5. All this is done when the program polls. While it doesn't poll, a thread does it.
//!
//! # What differs from hardware
//! - A message of more than [`Settings::message_max`] bytes ends its queue pair.
//! - A queue pair that the NIC puts into error (an overflow, memory that isn't registered) gives no
//!   asynchronous event, and its peer gets no NAK: the peer's requests end when their retries are
//!   used up. (rxe takes a `retry_cnt` of 7 for infinite.)
//! - rxe reports a message before it acknowledges it: on several processors, a FIN may reach the
//!   sender before the completion of the request that it ends.
//! - Memory has to be registered in this process by `ibv_reg_mr(3)`. Other memory is not known. The
//!   memory must stay mapped while it is registered: hardware would pin it.
//! - The NIC's completions take no room in the completion queue, so they never make it overflow.
//!   `ibv_poll_cq(3)` doesn't show them; on mlx5 it shows them wrong. A program that asks for
//!   events of solicited messages only gets events of other messages, too.
//! - `ibv_modify_srq(3)` of the queue is refused: it has neither limit nor resizing.
//! - RDMA WRITE with immediate data to the queue ends its queue pair.
//! - A forked child has no thread, and must leave the queues alone.
//!
//! When the program breaks a rule, where hardware would silently misbehave, the rule is recorded
//! for [`faults`].
//!
//! | module | contents |
//! |---|---|
//! | `engine` | a tag-matching queue over any wire, in safe code |
//! | `verbs_wire` | the engine's wire: queue pairs and bounce buffers of the device |
//! | `tag_queue` | a tag-matching queue with its wire, its lock and its thread |
//! | `completions`, `polling` | an extended completion queue, and the functions that poll it |
//! | `event_trigger` | events for the NIC's completions |
//! | `hidden_cq`, `bounce` | a completion queue and memory that the program doesn't see |
//! | `regions` | memory that the program has registered |
//! | `progress_thread` | the thread that makes progress while the program doesn't poll |
//! | `queue_pairs` | queue pairs of an emulated device |
//! | `device`, `enable` | an emulated context; enabling it and forgetting it |
//! | `registry` | which objects are emulated, by their addresses |
//! | `context_calls`, `library_calls` | the functions that a program calls, through the context and by name |
//! | `settings`, `error` | settings; errors |

mod bounce;
mod completions;
mod context_calls;
mod device;
mod enable;
mod engine;
mod error;
mod event_trigger;
mod hidden_cq;
mod library_calls;
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
use tagmatch_rdma_core_sys::{Library, LoadError, Verbs, ibv_srq};

pub use enable::enable;
pub use error::EnableError;
pub use settings::{BadSetting, Settings};

/// libibverbs' functions with emulated tag matching. A device that is opened through this table is
/// emulated, with the default [`Settings`]. Calls on contexts and objects that aren't
/// emulated are passed on.
///
/// # Errors
/// libibverbs can't be loaded.
pub fn verbs() -> Result<&'static Verbs, &'static LoadError> {
    static TABLE: OnceLock<Verbs> = OnceLock::new();
    let below = Verbs::get()?;
    Ok(TABLE.get_or_init(|| library_calls::table(below)))
}

/// [`verbs`], as a device takes it.
// SAFETY: the functions of the table are libibverbs', or emulate them on its objects.
pub const LIBRARY: Library = unsafe { Library::new(verbs) };

/// The rules of the NIC that the program has broken on a queue: the first 64 different ones. Empty
/// for a correct program, and for a queue that isn't emulated.
pub fn faults(srq: *mut ibv_srq) -> Vec<Fault> {
    registry::tag_queue(srq).map_or_else(Vec::new, |queue| queue.faults())
}
