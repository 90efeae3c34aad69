//! Communicators on `tagmatch`: what a message-passing runtime builds on tag matching.

#![forbid(unsafe_code)]

pub mod alloc;
mod defect;
mod error;
pub mod ids;

#[cfg(feature = "defects")]
pub use defect::Defect;
pub use error::{Error, ErrorClass};
