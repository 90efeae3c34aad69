//! Devices: how bytes get from one worker to another.
//!
//! This room knows sockets, shared memory, system calls, verbs and UCX. It does not know
//! tags, credits or protocols: a [`Device`] carries ordered messages, reads registered memory of a
//! peer, and says when a peer came or went. The room above (`tagmatch-fallback`) gives the messages
//! their meaning.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | the trait that every device implements, with its events |
//! | [`buffer`] | memory that belongs to an operation until it ends |
//! | [`bytes`] | what a message brought, read by value out of memory that others may write |
//! | [`address`] | where a worker can be reached, in at most 64 opaque bytes |
//! | [`matching`] | the trait of devices that match tags by themselves |
//! | [`tm`] | the headers of a tag-matching NIC |
//! | [`tags`] | the trait of a NIC that holds posted receives |
//! | [`model`] | a NIC that holds posted receives, in software, on any device |
//! | [`shm`] | shared memory, for workers on one machine |
//! | [`ucx`] | UCX: a transport that matches by itself, on whatever network it reaches |
//! | [`verbs`] | RDMA: InfiniBand, RoCE, soft-RoCE |

pub mod address;
pub mod buffer;
pub mod bytes;
mod copy;
pub mod device;
mod finding;
pub mod matching;
pub mod model;
pub(crate) mod os;
pub mod shm;
pub mod sleep;
pub mod tags;
pub mod tm;
pub mod ucx;
pub mod verbs;

pub use address::Address;
pub use buffer::Buffer;
pub use bytes::Bytes;
pub use device::{
    Device, DeviceError, DownReason, Event, Exposure, ExposureId, Incoming, Limits, Outgoing,
    PeerId, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan,
};
pub use finding::Finding;
pub use model::{Model, ModelConfig};
pub use shm::{ReadPolicy, Shm, ShmConfig, ShmInfo};
pub use tags::{TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagRefused};
pub use ucx::{Ucx, UcxConfig, UcxInfo};
pub use verbs::{Verbs, VerbsConfig, VerbsInfo};
