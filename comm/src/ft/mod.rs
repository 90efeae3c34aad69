//! Failures: what a program can do about them, as in ULFM.
//!
//! | call | ULFM |
//! |---|---|
//! | [`Comm::failed`], [`Comm::acknowledge`], [`Comm::acknowledged`] | `MPIX_Comm_get_failed`, `_ack_failed` |
//! | [`Comm::revoke`], [`Comm::is_revoked`] | `MPIX_Comm_revoke`, `_is_revoked` |
//! | [`Comm::agree`] | `MPIX_Comm_agree`, `_iagree` |
//! | [`Comm::shrink`] | `MPIX_Comm_shrink`, `_ishrink` |
//!
//! A process that lacks what a connection to another process of its job needs (descriptors, memory)
//! *counts itself out*: it gives up all other processes, so each of these learns from its transport
//! that it has failed, as of a death, and nobody waits for what one pair can't exchange. All its
//! operations end with [`Error::CountedOut`](crate::Error::CountedOut), which names the limit. A
//! shortage is a fact about the process that lacks, and never one about its peer.
//!
//! Each process has its own knowledge of failures. So errors are not the same at all members; only
//! the result of an agreement is. It is assumed that a process that is reported as down stays down,
//! and that all living processes learn of it in the end.
//!
//! [`Comm::failed`]: crate::Comm::failed
//! [`Comm::acknowledge`]: crate::Comm::acknowledge
//! [`Comm::acknowledged`]: crate::Comm::acknowledged
//! [`Comm::revoke`]: crate::Comm::revoke
//! [`Comm::is_revoked`]: crate::Comm::is_revoked
//! [`Comm::agree`]: crate::Comm::agree
//! [`Comm::shrink`]: crate::Comm::shrink

mod agree;
mod agreeing;
mod agreements;
mod attempts;
mod calls;
mod comparison;
mod control;
mod control_context;
mod departures;
mod early;
mod key;
mod life;
mod ranks;
mod registry;
mod rest;
mod revocations;
mod service;
mod shrink;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use agree::Value;
pub(crate) use agreeing::Agree;
pub use calls::Agreed;
pub(crate) use control::Invitation;
pub(crate) use key::{Key, epoch};
pub(crate) use life::Life;
pub(crate) use service::Service;
pub(crate) use shrink::number;
