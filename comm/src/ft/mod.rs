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
//! A connection may also be lost between two processes that both live. The process that has lost
//! another one of its job asks others whether that one lives. If it does, the asking process counts
//! itself out, so that nobody waits for what the two can't exchange; of two that have lost each
//! other, one goes. A process takes no other member's word for a death: it waits until its own
//! transport reports the same. Processes of other jobs are excepted: nobody is asked about them, and
//! a member is believed. A job of two processes has nobody to ask, and each takes the other for
//! dead. If several connections are lost at the same time, two processes that can't reach each other
//! may both stay. Another process can't tell which end has broken a connection: a process that breaks
//! its own connection to another one may take out that one, and itself with it.
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
mod agree_machine;
mod agreement_table;
mod attempts;
mod calls;
mod comparison;
mod control;
mod control_context;
mod departures;
mod doubts;
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
pub(crate) use agree_machine::Agree;
pub use calls::Agreed;
pub(crate) use control::Invitation;
pub(crate) use key::{Key, epoch};
pub(crate) use life::Life;
pub(crate) use service::Service;
pub(crate) use shrink::number;
