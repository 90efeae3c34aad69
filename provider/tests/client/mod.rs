//! A client of libfabric's interface. It calls the functions in the provider's tables, as the
//! inline functions of libfabric's headers do, without libfabric between.
//!
//! Objects are plain handles. Most tests use a [`World`]: endpoints of several domains, each of
//! which has the names of all others in its address vector.

mod cancelled;
mod child;
mod code;
mod domain;
mod endpoint;
mod memory;
mod objects;
mod one_sided;
mod process;
mod queue;
mod world;

pub(crate) use cancelled::is_cancelled;
pub(crate) use child::ends_in_a_forked_child;
pub(crate) use code::{Code, call, code};
pub(crate) use domain::{Domain, Hints, bind, close, info_for};
pub(crate) use endpoint::{Call, Endpoint, Name, at};
pub(crate) use memory::{Memory, payload};
pub(crate) use objects::{Counter, Vector};
pub(crate) use one_sided::{Elements, Place, Region, RemoteCall};
pub(crate) use process::{alone, alone_one_sided, alone_with};
pub(crate) use queue::{Entry, Queue, QueueSettings};
pub(crate) use world::{Node, World, within_limit};

pub(crate) use tagmatch_ofi_sys as sys;
