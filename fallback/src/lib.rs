//! The software protocol: what the bytes between two workers mean.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! This crate knows headers, credits, requests and rendezvous. It matches by `tagmatch-soft`, has a
//! NIC match by `tagmatch-shadow` where the device has a list of receives, and moves bytes by a
//! [`tagmatch_device::Device`]. It never blocks, never reads a clock, never spawns, and takes its
//! randomness (the seed of the hashes) from outside: with a simulated device the very code that
//! ships is deterministic.
//!
//! | place | what it knows | what it must not know |
//! |---|---|---|
//! | `wire` | headers, byte for byte | what they are for |
//! | `store`, `credit` | the bytes of messages that wait; credit: had, granted, and what a message costs | messages |
//! | `peers` | a peer, and the peers that went down | the device |
//! | `requests` | the table of requests, their owners, the completion queue, for both engines | devices, NICs |
//! | `receiving` | unexpected messages, and messages of which fragments are still to come | how they are delivered |
//! | `sending` | backlogs, eager messages, fragments, rendezvous, exposed buffers | matching |
//! | `offload` | the NIC's side, which `core` calls; `offload::list` alone sees the device's list | how the shadow decides |
//! | `todo` | plain data: what the device is to do | |
//! | `state` | what `core` and `offload` both work on, and what becomes of a matched message | whether software or a NIC matched it |
//! | `core` | the state machine: events in, things to do out; fragments, and messages that wait | the device |
//! | `slices` | what is rare about messages of several slices | whose they are |
//! | `observer`, `decisions` | telling the crate above of the lists, and of decisions | who listens |
//! | `match_engine`, `flush` | the calls that both engines have | |
//! | `engine` | `core`, `sending` and the device, joined; what has not left; forgetting peers | tags beyond handing them on |
//! | `delegated` | the same calls on a device that matches and moves messages by itself | how it does it |
//!
//! # A message comes
//! 1. The device hands over its bytes; `wire` checks them. An invalid header ends the connection to
//!    the peer.
//! 2. It is paid for out of the credits that the peer was granted; a message beyond them ends the
//!    connection, too.
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
//! fragments up to another bound, where the receiver's device says so; rendezvous above, for
//! synchronous sends, and when the byte credits are spent; else it waits, first in, first out. A
//! standard eager send is complete when its bytes are on their way.
//! Everything else is an *operation*: complete on its FIN, failed on an abort or on the peer's
//! death.
//!
//! # Bounds
//! Unexpected bytes and messages: [`CreditConfig::pool`], plus [`FLOOR_MESSAGES`] requests per
//! peer. What peers that are down have left is received as any other message, until the pool runs
//! short and they keep half of it. Operations: 2^20. Control messages that wait for room: each
//! answers something that came in on a credit. Sends that wait are the caller's own memory. Peers
//! that are down: [`EngineConfig::departed_max`], and those of which something is left.
//!
//! # Decisions
//! **The core hands out things to do.** `fallback/src/core.rs` sees no device. It looks at an event
//! while the event's bytes are borrowed from the ring; what follows (a FIN, a read) is done
//! afterwards. That keeps the core pure, and borrows the ring's memory as briefly as possible.
//!
//! **A peer that doesn't read its control messages gets no new credit.** FINs and aborts wait in a
//! queue when the peer's ring is full. While that queue isn't empty, the peer is granted nothing,
//! so a peer that never reads them runs out of credit.
//!
//! **The short way of a message** is one function per crate, and all of them are inlined into one.
//! It takes a message that lies in its slot or right behind it (`Consumer::take_common`), is eager,
//! is within its credit, and has a posted receive (`Core::eager`). Any other message takes the long
//! way, which checks everything again from the start. On the short way values stay in registers,
//! for two reasons. A value that is stored in words and then moved as a whole has to reach the
//! cache first, a dozen cycles each time. And a sender's stores wait behind the slot whose cache
//! line the receiver holds. Eleven such moves were a quarter of a message's time. A compiler keeps
//! a value in memory as soon as its address is passed anywhere, even in the rarest branch or in a
//! drop while unwinding. So rare branches get copies: they take buffers by value
//! (`Buffer::release`), return results in boxes (`request::failed`), and read a copy of a header
//! (`WorkerDevice::send`). A trace of all loads and stores (valgrind's lackey) shows what is left.
//!
//! **A synchronous send of no bytes is eager, with an acknowledgement asked for.** It needs no
//! read, so a rendezvous would only add an exposure.
#![forbid(unsafe_code)]

mod config;
mod core;
mod counters;
mod credit;
mod decisions;
mod delegated;
mod engine;
mod error;
mod flush;
mod match_engine;
mod observer;
mod offload;
mod peers;
mod receiving;
mod requests;
mod rma;
mod rma_engine;
mod sending;
mod slices;
mod snapshot;
mod state;
mod store;
mod todo;
pub mod wire;

pub use config::EngineConfig;
pub use counters::{Counters, NotOffloaded};
pub use credit::{Amount, CreditConfig, CreditNow, FLOOR_MESSAGES, PairCredit};
pub use decisions::{Decision, DecisionWatcher};
pub use delegated::Delegated;
pub use engine::Engine;
pub use error::{Fault, PeerFault};
pub use flush::{FlushEngine, Flushing, Unsent, WhyUnsent};
pub use match_engine::MatchEngine;
pub use observer::ListObserver;
pub use requests::ends::{EndList, EndedBuffer};
pub use requests::request::{
    Completion, End, MessageId, Posted, Refused, RequestId, Send, SendMode, Started, Status,
    WaitedEnd,
};
pub use requests::table::{Ended, Requests};
pub use rma::EngineNotice;
pub use rma::initiator::{RemoteAction, RemoteOperation};
pub use rma::regions::{NamedRegion, RegionKey, RegionUse, Rights};
pub use rma_engine::RmaEngine;
pub use snapshot::{
    ArrivingReceive, ConnectionState, Excerpt, PeerSnapshot, PendingSend, PostedReceive, SendWait,
    Snapshot, UnexpectedEnvelope,
};
pub use store::cost_bytes;
pub use wire::{AtomicOp, AtomicType, ElementUse, FetchInto, RemoteFault};
