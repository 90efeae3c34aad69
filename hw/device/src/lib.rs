//! The traits of tagmatch's devices, and the values that devices and the protocol exchange.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! A device carries bytes from one worker to another. It does not know tags, credits or protocols.
//! A [`Device`] sends ordered messages, reads exposed memory of a peer, and reports when a peer is
//! connected and when it is down. The protocol above it (`tagmatch-fallback`) gives the messages
//! their meaning. This crate makes no system call, so a simulator can implement a device as well.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | the trait that every device implements, with its events |
//! | [`buffer`] | memory that belongs to an operation until the operation ends |
//! | [`Exposures`] | the table of buffers that peers may read |
//! | [`RegionAccess`] | reading and writing memory of a peer for a one-sided operation |
//! | [`words`] | elements of memory that several processes change at once |
//! | [`CopiedReads`] | reading a peer's memory by messages of the device |
//! | [`bytes`] | the bytes of a received message, which its sender may still be writing |
//! | [`address`] | where a worker is reached, in at most 64 opaque bytes |
//! | [`contents`] | what these bytes say, and over which network two workers reach each other |
//! | [`LearnedChoice`] | which of two ways a device has found faster, and what each of them took |
//! | [`verbs_port`] | what these bytes say of a port on InfiniBand or RoCE, and which ports reach each other |
//! | [`PeerId`] | the number by which a device calls a peer |
//! | [`matching`] | the trait of devices that match tags themselves |
//! | [`tm`] | the headers of a tag-matching NIC |
//! | [`tags`] | the trait of a NIC that holds posted receives |

mod ability;
pub mod address;
pub mod buffer;
mod bug;
pub mod bytes;
pub mod chunks;
pub mod contents;
mod copied_reads;
pub mod copy;
pub mod device;
mod device_error;
mod down_reason;
mod elements;
mod exposures;
mod finding;
mod flush;
mod integer_map;
mod join;
mod learned;
pub mod matching;
mod network;
mod numbers;
mod peer;
mod peer_table;
mod quota;
mod read_message;
mod region_access;
mod registered;
mod release;
mod resize;
mod room;
mod settings;
mod shortage;
pub mod slab;
mod slices;
pub mod tags;
pub mod tm;
pub mod verbs_port;
mod waiting_peers;
pub mod words;

pub use ability::{Ability, DeviceKind};
pub use address::Address;
pub use buffer::{Buffer, BufferParts};
pub use bug::{Bug, OrBug, ToleratedBugs, bugs};
pub use bytes::Bytes;
pub use copied_reads::{CopiedReads, CopyPath, EndedRead};
pub use device::{
    Device, Event, EventDescriptor, EventSink, Exposure, ExposureId, Incoming, Limits, Outgoing,
    Polled, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan, hand_on,
};
pub use device_error::{DeviceError, InCall, limit_of};
pub use down_reason::DownReason;
pub use elements::{Element, as_bytes, as_bytes_mut};
pub use exposures::{Exposures, Readable};
pub use finding::Finding;
pub use flush::Flush;
pub use integer_map::{IntegerHasher, IntegerMap};
pub use join::{Join, JoinAndSleep};
pub use learned::{LearnedChoice, LearnedDirection, LearnedWay};
pub use network::{Network, Networks};
pub use numbers::PeerNumbers;
pub use peer::PeerId;
pub use peer_table::{PeerState, PeerTable};
pub use quota::Quota;
pub use read_message::ReadMessage;
pub use region_access::{
    AccessEnd, AccessKind, AccessLimits, ElementChanges, PublishedRegion, QuickAccess,
    RegionAccess, RegionPlace, RegionSpan,
};
pub use registered::{RawMemory, Registered};
pub use release::{OtherRelease, Release};
pub use room::Room;
pub use shortage::{Shortage, errno_text};
pub use tags::{TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagMatching, TagRefused};
pub use waiting_peers::WaitingPeers;
