//! The software protocol: what the bytes between two workers mean.
//!
//! This room knows headers, credits, requests and rendezvous. It matches by `tagmatch-soft`, has a
//! NIC match by `tagmatch-shadow` where the device has a list of receives, and moves bytes by a
//! [`tagmatch_device::Device`]. It never blocks, never reads a clock, never spawns, and takes its
//! randomness (the seed of the hashes) from outside: with a simulated device the very code that
//! ships is deterministic.
//!
//! | file | what it knows | what it must not know |
//! |---|---|---|
//! | `wire` | headers, byte for byte | what they are for |
//! | `credit` | how much each peer may still send | messages |
//! | `store` | where the bytes of unexpected messages are | whose they are |
//! | `copies` | how many bytes wait in copies that `inject` has made | whose they are |
//! | `line`, `requests`, `ends` | the table of requests, their owners, the completion queue, for both engines | devices, NICs |
//! | `unexpected` | messages for which no receive was posted | requests |
//! | `peer`, `todo` | plain data: a peer; what the device is to do | |
//! | `receiver` | the receiving side's state, and what becomes of a matched message | whether software or a NIC matched it |
//! | `arriving`, `fragments` | a message that comes in fragments, until it is whole | |
//! | `offload` | the NIC's side, which `core` calls; `offload::list` alone sees the device's list | how the shadow decides |
//! | `core` | the state machine: events in, things to do out | the device |
//! | `sending` | the sending side: backlogs, operations, exposed buffers | matching |
//! | `slices` | what is rare about messages of several slices | whose they are |
//! | `engine` | `core`, `sending` and the device, joined | tags beyond handing them on |
//! | `departed` | which peers are down and not forgotten | what is left of them |
//! | `forget` | what may be left of a peer, and giving its number back | why it is down |
//! | `delegated` | the same calls on a device that matches and moves messages by itself | how it does it |
//!
//! # A message comes
//! 1. The device hands over its bytes; `wire` checks them. Nonsense breaks with the peer.
//! 2. It is paid for out of the credits that the peer was granted; more breaks with the peer.
//! 3. The first posted receive that matches takes it. Eager: the bytes are copied into the buffer.
//!    Rendezvous: what fits is read out of the sender's memory; then a FIN goes back.
//! 4. No receive: an eager message's bytes go to the store, and the message to the unexpected list.
//!
//! # A receive is posted
//! 1. The oldest unexpected message that matches is delivered as in step 3.
//! 2. None: it goes to the posted list.
//!
//! # A send
//! See `sending`: eager up to a bound that sender and receiver share, and while credit lasts; in
//! fragments up to another bound, where the receiver's device says so; rendezvous above, for synchronous sends, and when the byte credits are spent; else it waits,
//! first in, first out. A standard eager send is complete when its bytes are on their way.
//! Everything else is an *operation*: complete on its FIN, failed on an abort or on the peer's
//! death.
//!
//! # Bounds
//! Unexpected bytes and messages: [`CreditConfig::pool`], plus [`FLOOR_MESSAGES`] requests per
//! peer. What peers that are down have left is received as any other message, until the pool runs
//! short and they keep half of it. Operations: 2^20. Control messages that wait for room: each
//! answers something that came in on a credit. Sends that wait are the caller's own memory. Peers
//! that are down: [`EngineConfig::departed_max`], and those of which something is left.
#![forbid(unsafe_code)]

mod arriving;
mod config;
mod copies;
mod core;
mod counters;
mod credit;
mod delegated;
mod departed;
mod ends;
mod engine;
mod error;
mod flush;
mod forget;
mod fragments;
mod line;
mod match_engine;
mod observer;
mod offload;
mod peer;
mod receiver;
mod request;
mod requests;
mod sending;
mod slices;
mod store;
mod todo;
mod unexpected;
mod waiting;
pub mod wire;

pub use config::EngineConfig;
pub use counters::{Counters, NotOffloaded};
pub use credit::{Amount, CreditConfig, CreditNow, FLOOR_MESSAGES};
pub use delegated::Delegated;
pub use ends::EndList;
pub use engine::Engine;
pub use error::{Fault, PeerFault};
pub use flush::{FlushEngine, Flushing, Unsent, WhyUnsent};
pub use match_engine::MatchEngine;
pub use observer::ListObserver;
pub use request::{
    Completion, End, MessageId, Posted, Refused, RequestId, SendMode, Started, Status,
};
pub use requests::{Ended, Requests};
pub use store::cost_bytes;
