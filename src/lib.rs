//! MPI-style tag matching as a transport backend for message-passing runtimes.
//!
//! A [`Worker`] sends messages to peers and receives them into posted buffers. A message is matched
//! to a receive by a 64-bit tag under a mask, and by its sender where the receive names one: first
//! posted, first matched; first arrived, first found. Wildcards cost no more than exact receives,
//! whatever the number of them. Small messages are sent at once; large ones are read by the
//! receiver out of the sender's memory. The device is shared memory between processes of one
//! machine, for which nothing needs to be installed; verbs, RDMA between machines; TCP, between
//! machines without RDMA; UCX, or a provider of libfabric, on whatever these reach
//! ([`DeviceConfig`]). UCX and libfabric match by themselves, and can't keep all of these promises:
//! [`Ability`] has the table.
//!
//! ```
//! use tagmatch::{Config, Match, Worker};
//!
//! let worker = Worker::new(Config::default())?;
//! let me = worker.oneself();
//! let receive = worker.recv(Match::tag(7).from(me), vec![0; 64]);
//! worker.send(me, 7, b"hello".to_vec()).wait()?;
//! assert_eq!(receive.wait()?.data(), b"hello");
//! # Ok::<(), tagmatch::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | send, receive, probe | [`Worker`], or [`SharedWorker`] from several threads |
//! | say which messages | [`Match`]; [`TagLayout`] packs context id, source and tag as MPI does |
//! | learn how it ended | [`Request`]: test, wait, await, cancel |
//! | learn how many operations ended | [`WorkerOf::ends`]: a completion queue, which also tells of peers |
//! | wait for one of several requests, or for all | [`WorkerOf::wait_any`], [`WorkerOf::wait_all`] |
//! | wait for a limited time, or be woken | [`Request::wait_timeout`], [`WorkerOf::mprobe_timeout`], [`Interrupter`] |
//! | take a message before receiving it | [`WorkerOf::mprobe`], [`WorkerOf::mprobe_async`], [`Message`] |
//! | leave without loss | [`WorkerOf::flush`], [`WorkerOf::unsent`], [`WorkerOf::close`] |
//! | send a copy, with nothing to wait for | [`WorkerOf::inject`]; [`WorkerOf::inject_with`] with immediate data and a bound |
//! | send a slice if it can leave now, or do nothing | [`WorkerOf::inject_at_once`] |
//! | send and receive numbers | [`Buffer::from_elements`] and [`Buffer::into_elements`] for vectors; [`as_bytes`] and [`as_bytes_mut`] for slices |
//! | send or receive several slices as one message | [`Buffer::from_slices`] |
//! | put, get and change memory that a peer has exposed | [`WorkerOf::expose_region`], [`WorkerOf::attach`], [`Remote`] |
//! | lend slices instead of giving buffers | [`WorkerOf::scope`] |
//! | manage memory yourself | [`raw`] |
//! | see what happened | [`WorkerOf::counters`] |
//!
//! With a logger of the crate `log`, set before a worker is made, the worker tells at level `debug`
//! over which networks it is reached, which peers are connected, and why peers are down; at level
//! `trace` why the NIC did not match a receive.
//!
//! How it works inside is in the repository's ARCHITECTURE.md.

#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// First, so that the page of `Worker` begins with `new`, `connect`, `send` and `recv`: rustdoc
// shows the `impl` blocks of a type in the order of their modules.
mod worker;

mod access;
mod auto;
mod awaited;
mod close;
mod config;
mod crowding;
mod device;
mod end;
mod engine;
mod envelope;
mod error;
mod inject;
mod interrupt;
mod leave;
mod long_sleep;
mod message;
mod networks;
pub mod observe;
mod probe;
mod progress_thread;
mod queue;
pub mod raw;
mod region;
mod remote;
mod request;
mod route;
mod several;
pub mod snapshot;
mod sync;
#[cfg(test)]
mod tests;
mod wait;
mod wait_policy;

#[doc(hidden)]
pub use access::wake_all;
pub use access::{Access, Local, Shared};
pub use auto::AutoConfig;
pub use config::{Config, DeviceConfig, HwTags};
/// For `tagmatch-comm`. No promise is made about it.
#[doc(hidden)]
pub use crowding::{Crowding, WaitPlan};
pub use end::{End, QueuedRequest, QueuedSend};
pub use envelope::{Match, Peer, Received, SendOptions, Sent, Status};
pub use error::{Error, Failed};
pub use interrupt::Interrupter;
pub use leave::{NotFlushed, Unsent};
pub use message::Message;
pub use probe::MprobeFuture;
pub use progress_thread::ProgressThread;
#[doc(hidden)]
pub use queue::EndTaker;
pub use raw::{Scope, ScopedRequest};
pub use region::{PutNotice, Region, Token};
pub use remote::{AtomicAction, Remote};
pub use request::{Cancel, Output, Request};
/// For `tagmatch-comm`. No promise is made about it.
#[doc(hidden)]
pub use tagmatch_device::settings;
pub use tagmatch_device::{
    Ability, Address, Buffer, DeviceError, DeviceKind, Element, Finding, LearnedChoice,
    LearnedDirection, LearnedWay, Network, Networks, PeerId, ReadMode, Shortage, TagMatching,
    as_bytes, as_bytes_mut,
};
#[doc(hidden)]
pub use tagmatch_fallback::RegionUse;
pub use tagmatch_fallback::{
    AtomicOp, AtomicType, Counters, Fault, NotOffloaded, PeerFault, RemoteFault, Rights, SendMode,
    WhyUnsent,
};
#[doc(hidden)]
pub use tagmatch_os::safety;
#[cfg(any(feature = "ofi", feature = "tcp", feature = "ucx", feature = "verbs"))]
pub use tagmatch_secret::{Secret, SecretError};
pub use tagmatch_soft::{Tag, TagLayout, TagMask};
pub use wait::Sleeper;
pub use wait_policy::WaitPolicy;
pub use worker::{SharedWorker, Worker, WorkerOf};

/// Shared memory: its settings, and what this machine allows.
pub mod shm {
    /// For `tagmatch-comm`. No promise is made about it.
    #[doc(hidden)]
    pub use tagmatch_shm::segment;
    pub use tagmatch_shm::{ReadPolicy, SenderWrites, ShmConfig, ShmInfo};
}

/// TCP: its settings.
#[cfg(feature = "tcp")]
pub mod tcp {
    pub use tagmatch_tcp::TcpConfig;
}

/// RDMA: its settings, also by name, and what this machine has.
#[cfg(feature = "verbs")]
pub mod verbs {
    pub use tagmatch_verbs::{SETTINGS, Setting, VerbsConfig, VerbsInfo};
}

/// UCX: its settings, and what it finds on this machine. The module `ofi` has those of libfabric.
#[cfg(feature = "ucx")]
pub mod ucx {
    pub use tagmatch_ucx::{UcxConfig, UcxInfo};
}

/// libfabric: its settings, what it finds on this machine, and what its NIC has matched.
#[cfg(feature = "ofi")]
pub mod ofi {
    pub use tagmatch_ofi::{NicMatches, OfiConfig, OfiInfo};
}

/// The model of a tag-matching NIC: its settings ([`HwTags::Model`]).
#[cfg(feature = "model")]
pub mod model {
    pub use tagmatch_model::{Chance, Delay, InTwo, KnobError, Knobs, ModelConfig, Wake};
}

/// The examples in README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The example of this page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/slices.md")]
pub struct SlicesPage;
