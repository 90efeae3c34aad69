//! Communicators on `tagmatch`: what a message-passing runtime builds on tag matching.

#![forbid(unsafe_code)]

pub mod alloc;
pub mod coll;
mod comm;
mod defect;
mod error;
mod group;
pub mod ids;
pub mod net;
mod port;
mod request;
mod runtime;

pub use comm::TagChoice;
pub use comm::{
    Comm, CommInfo, CommRequest, Creation, Destination, DupRequest, Duplication, Message,
};
pub use comm::{Received, Receiving, RecvRequest, Running, SendRequest, Sending, Source, Status};
#[cfg(feature = "defects")]
pub use defect::Defect;
pub use error::{Error, ErrorClass, Failed};
pub use group::{Group, Likeness};
pub use port::{Channel, Ended, Handle, Port};
pub use request::{Pending, Request};
pub use runtime::{Config, Machine, Runtime};
