//! A tag-matching NIC as a pure state machine, and a device that adds one to any other device.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! | module | contents |
//! |---|---|
//! | `nic` | the NIC and its driver: operations, time, completions |
//! | `arrive` | how the NIC handles an incoming message |
//! | `failing` | READs and FINs that end, queue pairs that fail |
//! | `knobs` | settings: sizes, and the behaviour where hardware may choose |
//! | `knob_values` | values of settings, also as text |
//! | `operation` | adds, deletes and syncs, and the command queue |
//! | `slots` | the driver's table of entries |
//! | `list` | the NIC's list of entries, and the two counts of unexpected messages |
//! | `queues` | completions that are not visible yet, and those that the host may poll |
//! | `completion` | the contents of a completion |
//! | `manual`, `nic_step` | a NIC whose every choice is made by the caller |
//! | `transfers` | READ and FIN of a matched rendezvous |
//! | `fault` | rules that the host has broken |
//! | `device` | [`Model`]: the NIC on a device |
//! | `progress` | `Model`'s poll |
//! | `landing` | copies the bytes of a message to the buffer that the NIC chose |
//! | `pending` | the data that `Model` keeps between polls |
//! | `tag_list` | `Model`'s list, as the engine sees it |
//! | `random` | random numbers from the seed |
//!
//! # Rules and their sources
//! *man*: `ibv_post_srq_ops(3)`. *doc*: rdma-core's `Documentation/tag_matching.md`. *mlx5*: its
//! provider in rdma-core. *UCX*: `src/uct/ib/rc/accel`. *model*: no source says it; the model
//! chooses a behaviour that a driver must be able to handle.
//!
//! 1. New entries go to the end of the list, and the list is searched from its front. An entry
//!    matches if (message tag & mask) == entry tag; the entry's tag itself is not masked (man). The
//!    list has at most `max_num_tags` entries; a further add is `ENOMEM` (mlx5).
//! 2. An entry has one scatter element (man). More are `EINVAL` (model; mlx5 uses the first).
//! 3. A slot is free again once the host has polled the completions of the entry's add, of its
//!    delete and of its last data (mlx5, `expect_cqe`). The handle of an entry that has ended is
//!    `EINVAL` (model; mlx5 uses the entry that is in the slot now).
//! 4. Operations are executed in order and completed in order (mlx5: one command queue). An
//!    unsignalled operation keeps its place in the queue until the host has polled the completion
//!    of a later operation. A full queue is `ENOMEM` (mlx5).
//! 5. The NIC counts each tagged message without a match, but not NO_TAG messages and FINs (UCX).
//!    An operation carries software's count, modulo 2^16, only with `IBV_OPS_TM_SYNC` (mlx5). An
//!    entry that is added while the two counts differ is inactive: it matches nothing. Older
//!    entries still match (doc). [`Wake`] sets whether a later count that agrees makes it active.
//! 6. A `TM_ADD` never becomes visible before an unexpected message that the NIC had counted when
//!    it executed the add (model; one engine of the hardware writes all completions). A `TM_DEL`
//!    may become visible after matches that the NIC decided later, unless
//!    [`Knobs::deletes_in_order`] is set.
//! 7. A match is a `TM_RECV` with `MATCH`, in order with the other matches and with all ordinary
//!    buffers (doc). If the message is eager and of one packet, its data is on the same completion.
//!    Otherwise the data is on a second completion with `DATA_VALID` and without a tag, any time
//!    later (doc, mlx5).
//! 8. A message without a match takes an ordinary buffer, header included. NO_TAG messages and FINs
//!    do so too, as `TM_NO_TAG` (mlx5). While there is no ordinary buffer, the sender is told to
//!    wait (RNR NAK), even if its message would match (model;
//!    [`Knobs::matches_without_buffers`]). No message is accepted before 33 buffers were posted
//!    (UCX).
//! 9. The NIC READs a matched rendezvous, then sends a FIN, then reports the match (doc;
//!    [`Knobs::data_before_fin`]). A rendezvous that is longer than its buffer is
//!    `TM_RNDV_INCOMPLETE`: its TMH and RVH are in the buffer (doc), and it has one completion or
//!    two (mlx5). A rendezvous of length zero is not READ, but gets its FIN (model;
//!    [`Knobs::reads_nothing`]).
//! 10. The delete of a matched entry fails with `TM_ERR` (man), and the completions of the match
//!     follow. An unsignalled delete of a matched entry is a [`Fault`], since the driver would not
//!     learn of it.
//! 11. A payload longer than its entry's buffer, a READ that fails, or a malformed message put the
//!     queue pair into error. Its matches without data complete with `WR_FLUSH_ERR` (model). Other
//!     queue pairs and all entries in the list are not affected.
//! 12. `SYNC_REQ` is a hint: it may be set without need, and missing where it is needed (mlx5).
//!
//! # Example
//! ```
//! # mod tagmatch { pub use tagmatch_model as model; pub use tagmatch_shm as shm; }
//! # use tagmatch_device::Device;
//! use tagmatch::model::{Model, ModelConfig};
//! use tagmatch::shm::{Shm, ShmConfig};
//!
//! let shm = Shm::new(ShmConfig::default())?;
//! let mut device = Model::new(shm, &ModelConfig::default())?;
//! assert_eq!(device.tags().map(|list| list.caps().slots), Some(127));
//! # Ok::<(), tagmatch_device::DeviceError>(())
//! ```

#![forbid(unsafe_code)]

mod arrive;
mod audit;
mod completion;
mod device;
mod failing;
mod fault;
mod knob_values;
mod knobs;
mod landing;
mod list;
mod manual;
mod nic;
mod nic_step;
mod operation;
mod pending;
mod progress;
mod queues;
mod random;
mod slots;
mod tag_list;
mod transfers;

pub use arrive::{Arrival, Verdict};
pub use completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
pub use device::Model;
pub use fault::Fault;
pub use knob_values::{Chance, Delay, InTwo, Wake};
pub use knobs::{KnobError, Knobs, ModelConfig};
pub use nic::Nic;
pub use nic_step::NicStep;
pub use operation::{Operation, OperationKind, PostError};
pub use slots::Handle;
pub use transfers::{FailureTime, HEADERS_BYTES, QUEUE_PAIR_FAILED, READ_FAILED, Work};
