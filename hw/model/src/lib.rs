//! A tag-matching NIC as a pure state machine, and a device with one.
//!
//! | module | what it is |
//! |---|---|
//! | `nic` | the NIC and its driver: operations, time, completions |
//! | `arrive` | a message comes in: what the NIC makes of it |
//! | `failing` | READs and FINs that end, queue pairs that fail |
//! | `knobs` | settings: sizes, and what the NIC does where it may choose |
//! | `operation` | adds, deletes and syncs, and the queue in which they wait |
//! | `slots` | the driver's table of entries |
//! | `list` | the NIC's list of entries, and the two counts |
//! | `queues` | completions on their way to the host |
//! | `completion` | what they say |
//! | `steps` | all of that by hand, for who explores every choice |
//! | `transfers` | READ and FIN of a matched rendezvous |
//! | `fault` | rules that the host has broken |
//! | `device` | [`Model`]: the NIC on a device |
//! | `progress` | what its poll does |
//! | `landing` | where the bytes of a message go |
//! | `held` | its list, as the engine sees it |
//!
//! # Rules, and where they come from
//! *man*: `ibv_post_srq_ops(3)`. *doc*: rdma-core's `Documentation/tag_matching.md`. *mlx5*: its
//! provider in rdma-core. *UCX*: `src/uct/ib/rc/accel`. *model*: sources are silent, and this is what
//! a driver must be able to bear.
//!
//! 1. Entries are appended, and matched in that order; an entry matches if (tag & mask) == its own tag,
//!    which isn't masked (man). `max_num_tags` entries at most, then `ENOMEM` (mlx5).
//! 2. One scatter element (man); more are `EINVAL` (model; mlx5 takes the first).
//! 3. A slot is free again once the completions of its add, its delete and its last data were taken
//!    (mlx5, `expect_cqe`). Handles of entries that have ended are `EINVAL` (model; mlx5 takes whatever
//!    is there now).
//! 4. Operations are taken up in order and answered in order (mlx5: one command queue). One without a
//!    completion keeps its place until that of a later one was taken; no place is `ENOMEM` (mlx5).
//! 5. Each tagged message without a match is counted, NO_TAG and FIN are not (UCX). Operations carry
//!    software's count, modulo 2^16, only with `IBV_OPS_TM_SYNC` (mlx5). An entry that is added while the
//!    counts differ matches nothing; older ones do (doc). Whether a later count that agrees wakes it is a
//!    [knob](Wake).
//! 6. A `TM_ADD` never shows before an unexpected message that the NIC had counted when it took the
//!    entry up (model; hardware's completions come from one engine). A `TM_DEL` may show after matches
//!    that were decided later; a [knob](Knobs::deletes_in_order) forbids it.
//! 7. A match is `TM_RECV` with `MATCH`, in order with the other matches and with all ordinary buffers
//!    (doc). Its data is on the same completion if the message is eager and of one packet, else on a
//!    second one with `DATA_VALID`, any time later, without tag (doc, mlx5).
//! 8. A message without a match takes an ordinary buffer, header included; so do NO_TAG and FIN, as
//!    `TM_NO_TAG` (mlx5). Without a buffer the sender is told to wait (RNR NAK), also if its message would
//!    match (model). Nothing is taken before 33 buffers were posted (UCX).
//! 9. A matched rendezvous is READ and answered with a FIN (doc), in this order, then reported. One that
//!    is longer than its buffer leaves TMH and RVH there and is `TM_RNDV_INCOMPLETE` (doc), in one
//!    completion or two (mlx5). One of length zero isn't read, only answered (model).
//! 10. A delete that finds its entry matched is `TM_ERR` (man), and the entry's own completions come. One
//!     without a completion must not lose: a [`Fault`].
//! 11. A payload longer than its entry's buffer, a READ that fails, or a message that is none end the
//!     queue pair. Its matches whose data is due end with `WR_FLUSH_ERR` (model), other queue pairs and all
//!     entries in the list stay as they are.
//! 12. `SYNC_REQ` is a hint: it comes where it needn't and doesn't where it should (mlx5).
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

mod arrive;
mod completion;
mod device;
mod failing;
mod fault;
mod knobs;
mod landing;
mod list;
mod nic;
mod operation;
mod pending;
mod progress;
mod queues;
mod random;
mod slots;
mod step;
mod steps;
mod tag_list;
mod transfers;

pub use arrive::{Arrival, Verdict};
pub use completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
pub use device::Model;
pub use fault::Fault;
pub use knobs::{Chance, Delay, FLOOR, Knobs, ModelConfig, SYNC_LIMIT, Wake};
pub use nic::Nic;
pub use operation::{Operation, OperationKind, PostError};
pub use slots::Handle;
pub use step::NicStep;
pub use transfers::{HEADERS_BYTES, Work};
