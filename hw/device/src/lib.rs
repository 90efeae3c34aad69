//! The traits of tagmatch's devices, and the values that devices and the protocol exchange.
//!
//! A device carries bytes from one worker to another. It does not know tags, credits or protocols. A
//! [`Device`] sends ordered messages, reads registered memory of a peer, and reports when a peer comes up or
//! goes down. The protocol above (`tagmatch-fallback`) gives the messages their meaning. This crate makes no
//! system call: whatever implements a device, a simulator too, needs nothing else.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | the trait that every device implements, with its events |
//! | [`buffer`] | memory that belongs to an operation until it ends |
//! | [`bytes`] | the bytes of a message, copied out of memory that its sender may still write |
//! | [`address`] | where a worker can be reached, in at most 64 opaque bytes |
//! | [`matching`] | the trait of devices that match tags by themselves |
//! | [`tm`] | the headers of a tag-matching NIC |
//! | [`tags`] | the trait of a NIC that holds posted receives |

pub mod address;
pub mod buffer;
pub mod bytes;
pub mod copy;
pub mod device;
mod finding;
pub mod matching;
pub mod tags;
pub mod tm;

pub use address::Address;
pub use buffer::Buffer;
pub use bytes::Bytes;
pub use device::{
    Device, DeviceError, DownReason, Event, EventDescriptor, Exposure, ExposureId, Incoming,
    Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan,
};
pub use finding::Finding;
pub use tags::{TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagMatching, TagRefused};
