//! libibverbs of [rdma-core], for Rust: types written by hand, functions loaded at run time.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! A program with this crate starts on a machine that has no rdma-core at all: [`Verbs::get`] loads
//! `libibverbs.so.1` when it is first called, or says why it can't. Nothing is linked, generated or
//! compiled from C.
//!
//! | module | content |
//! |---|---|
//! | [`load`] | the exported functions, as [`Verbs`] |
//! | [`inline`] | the header's inline functions; each calls through a pointer of its object |
//! | [`context`] | devices and contexts; the rule by which a context says which calls it has |
//! | [`attributes`] | attributes of devices, ports and addresses |
//! | [`queues`] | queue pairs, shared receive queues (tag matching included), work requests |
//! | [`completions`] | completion queues, work completions, asynchronous events |
//!
//! Names are those of the header `infiniband/verbs.h` and of its manual pages. This crate checks
//! nothing for the caller: a section `# Safety` means that the function's manual page holds. Where
//! an integer is big-endian (`__be16` to `__be64` in the header), its comment says so.
//!
//! The offset of every field is asserted when this crate is compiled for x86-64. `ci/parts/headers`
//! compares all offsets, and all constants, with an installed header.
//!
//! Covered: reliable connections and datagrams with shared receive queues, completion channels,
//! extended completion queues and tag matching. Not covered: `ibv_qp_ex`, XRC domains, memory
//! windows, atomic operations, flow steering, work queues. Constants and functions that only these
//! need are not declared.
//!
//! [rdma-core]: https://github.com/linux-rdma/rdma-core
#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]

pub mod attributes;
pub mod completions;
pub mod context;
pub mod inline;
pub mod load;
pub mod queues;

pub use attributes::*;
pub use completions::*;
pub use context::*;
pub use inline::*;
pub use load::{Library, LoadError, Verbs};
pub use queues::*;
pub use tagmatch_sys::{Constant, Structure};

/// Every structure of this crate, for comparison with the header.
pub fn structures() -> impl Iterator<Item = &'static Structure> {
    [ATTRIBUTES, COMPLETIONS, CONTEXT, QUEUES].into_iter().flatten()
}

/// Every constant of this crate, for comparison with the header.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    [VALUES_OF_ATTRIBUTES, VALUES_OF_COMPLETIONS, VALUES_OF_QUEUES].into_iter().flatten()
}
