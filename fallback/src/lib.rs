//! The software protocol.
#![forbid(unsafe_code)]

mod core;
mod counters;
mod credit;
mod engine;
mod error;
mod message;
mod peer;
mod request;
mod sending;
mod slab;
mod store;
pub mod wire;

pub use counters::{Counters, NotOffloaded};
pub use credit::{Amount, CreditConfig, FLOOR_MESSAGES};
pub use engine::{Engine, EngineConfig};
pub use error::{Fault, PeerFault};
pub use request::{Completion, MessageId, RequestId, SendMode, Started, Status};
pub use store::cost_bytes;
