//! libibverbs of [rdma-core], for Rust: types written by hand, functions loaded at run time.
//!
//! A program with this crate starts on a machine that has no rdma-core at all: [`Verbs::get`] loads
//! `libibverbs.so.1` when it is first asked for, or says why it can't. Nothing is linked, generated
//! or compiled from C.
//!
//! | module | what it is |
//! |---|---|
//! | [`load`] | the exported functions, as [`Verbs`] |
//! | [`inline`] | the functions that exist in the header alone; each calls through a pointer of its object |
//! | [`context`] | devices and contexts; the rule by which a context says what it can |
//! | [`attributes`] | what a device, a port, an address has |
//! | [`queues`] | queue pairs, shared receive queues (tag matching included), work requests |
//! | [`completions`] | completion queues, work completions, asynchronous events |
//!
//! Names are those of the header `infiniband/verbs.h` and of its manual pages. Nothing is checked
//! for the caller; what a page there asks for is what `# Safety` means here. Integers in big-endian
//! byte order (`__be16` to `__be64` there) are said to be so.
//!
//! Every field's place is asserted when this crate is compiled for x86-64, and `ci/parts/headers`
//! compares all of them, and every constant, with an installed header.
//!
//! Covered: reliable connections and datagrams with shared receive queues, completion channels,
//! extended completion queues and tag matching. Not covered: `ibv_qp_ex`, XRC domains, memory
//! windows, flow steering, work queues.
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
pub use load::{LoadError, Verbs};
pub use queues::*;
pub use tagmatch_sys::{Constant, Structure};

/// Every structure of this crate, for comparison with the header.
pub fn structures() -> impl Iterator<Item = &'static Structure> {
    [ATTRIBUTES, COMPLETIONS, CONTEXT, QUEUES].into_iter().flatten()
}

/// Every constant of this crate, for comparison with the header.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    [VALUES_OF_ATTRIBUTES, VALUES_OF_COMPLETIONS, VALUES_OF_CONTEXT, VALUES_OF_QUEUES]
        .into_iter()
        .flatten()
}
