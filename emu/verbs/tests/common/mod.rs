//! Two ends on one device: a receiver with an emulated tag-matching queue, and senders on plain
//! verbs.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod memory;
mod receiver;
mod sender;
mod wire;

pub(crate) use memory::Memory;
pub(crate) use receiver::{Found, Receiver, Shape, add_request, srq_attr};
pub(crate) use sender::{SOURCE, Sender};
pub(crate) use wire::{Path, eager, no_tag, open, open_with, rendezvous};
