//! Internal, no promises: programs depend on `tagmatch`.
//!
//! The device over a library that matches tags by itself, such as UCX or libfabric.
//!
//! [`Matching`] is the device. It has all that doesn't depend on the library: posted receives by
//! their tokens, held messages, events, sleeping, flushing, the ends of peers and of the device. A
//! library is a [`TagTransport`]: `hw/ucx` calls libucp, `hw/ofi` calls libfabric. A transport has
//! a [`FabricCore`], which is what the device keeps.
//!
//! [`handshake`] is how peers meet: UCX and libfabric move tagged messages, and leave open how
//! processes find each other, whom they trust, and how they learn that a process has died.
//!
//! The modules build on each other in this order: `handshake`, `operations`, `transport`,
//! `audit`, `polling`, `flushing`, `probing`, `device`.

#![forbid(unsafe_code)]

mod audit;
mod device;
mod flushing;
pub mod handshake;
mod operations;
mod polling;
mod probing;
pub mod settings;
mod transport;

pub use device::Matching;
pub use operations::{Canceller, Operation, Operations};
pub use transport::{FabricCore, TagTransport, report_up};
