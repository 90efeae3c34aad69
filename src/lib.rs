//! MPI-style tag matching as a transport backend for message-passing runtimes.

#![deny(unsafe_code)]

mod access;
mod config;
mod envelope;
mod error;
mod message;
pub mod raw;
mod request;
mod wait;
mod worker;

pub use access::{Access, Local, Shared};
pub use config::{Config, WaitPolicy};
pub use envelope::{Match, Peer, Received, SendOptions, Sent, Status};
pub use error::{Error, Failed};
pub use message::Message;
pub use raw::{Scope, ScopedRequest};
pub use request::{Cancel, Output, Request};
pub use tagmatch_fallback::{Counters, Fault, NotOffloaded, PeerFault, SendMode};
pub use tagmatch_hw::{Address, Buffer, DeviceError, ReadMode, shm};
pub use tagmatch_soft as soft;
pub use tagmatch_soft::{Tag, TagLayout, TagMask};
pub use wait::ProgressThread;
pub use worker::{SharedWorker, Worker, WorkerOf};
