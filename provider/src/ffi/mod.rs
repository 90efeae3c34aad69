//! The functions that libfabric's callers enter, and the tables of them. Each checks its arguments,
//! turns pointers into values, and hands them to the domain's objects (`crate::state`).

mod absent;
mod av;
mod calls;
mod cntr;
mod cq;
mod domain;
mod entry;
mod ep;
mod eq;
mod fabric;
mod handle;
mod mr;
mod msg;
mod tagged;
mod transfer;

pub(crate) use entry::enter;
pub(crate) use fabric::open as open_fabric;
