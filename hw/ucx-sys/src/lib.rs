//! libucp of [UCX], for Rust: types written by hand, functions loaded at run time.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! A program with this crate starts on a machine that has no UCX at all: [`Ucp::get`] loads
//! `libucp.so.0` when it is first called, or says why it can't and what to install. Nothing is
//! linked, generated or compiled from C.
//!
//! | module | content |
//! |---|---|
//! | [`load`] | the exported functions, as [`Ucp`] |
//! | [`types`] | structures and constants of `ucp/api/ucp.h` |
//! | [`status`] | statuses, and pointers that may hold a status |
//!
//! Names are those of the header. The declarations fit version 1.13 and later versions: structures
//! that the library reads have a field mask, and only bits and fields of 1.13 are declared. C's
//! enumerations are plain integers here, so no value that the library returns is undefined
//! behaviour.
//!
//! Offsets and constants are asserted and compared as in `tagmatch-rdma-core-sys`.
//!
//! Covered: contexts, workers, endpoints by worker address, tagged messages, events. Not covered:
//! active messages, streams, remote memory access, listeners.
//!
//! [UCX]: https://openucx.org
#![allow(non_camel_case_types, non_upper_case_globals)]

pub mod load;
pub mod status;
pub mod types;

pub use load::{LoadError, Ucp};
pub use status::*;
pub use tagmatch_sys::{Constant, Structure, signals};
pub use types::*;

/// Every structure of this crate, for comparison with the header.
pub fn structures() -> impl Iterator<Item = &'static Structure> {
    STRUCTURES.iter()
}

/// Every constant of this crate, for comparison with the header.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    [VALUES, STATUSES].into_iter().flatten()
}
