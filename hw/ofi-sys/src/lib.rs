//! The binary interface of [libfabric], for Rust: types written by hand, nothing linked.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! libfabric is mostly an agreement about memory: the public calls are inline functions of its
//! headers, which call through tables of function pointers that a provider fills. So a provider
//! needs these tables, and no function of the library. A program that uses a provider needs six
//! functions, which [`Libfabric`] loads at run time.
//!
//! | module | content |
//! |---|---|
//! | [`provider`] | what a provider's library exports |
//! | [`calls`], [`cancel`], [`sleeping`], [`stub`] | what the functions of each provider have in common |
//! | [`domain`] | `fi_info`, fabrics, domains, address vectors, memory regions |
//! | [`attributes`] | attributes of endpoints |
//! | [`endpoint`] | endpoints, and the tables of functions that move data |
//! | [`one_sided`] | the arguments of one-sided operations |
//! | [`remote`] | structures whose content isn't declared |
//! | [`queues`] | event queues, completion queues, counters |
//! | [`head`] | the head of every object |
//! | [`flags`], [`values`], [`errno`], [`version`] | constants |
//! | [`later`] | what versions after 1.17 have added |
//! | [`cxi`] | what one provider adds |
//! | [`load`] | the exported functions, as [`Libfabric`] |
//!
//! Names are those of the headers, and the declarations are those of version 1.17. Later versions
//! have only added fields at the ends of structures. C's enumerations are plain integers here, so
//! no value that a program passes is undefined behaviour.
//!
//! Constants that nothing here uses are not declared. The offset of every field is asserted when
//! this crate is compiled for x86-64. `ci/parts/headers` compares all offsets, types and constants
//! with the headers of versions 1.17, 2.1 and 2.6.
//!
//! Not covered: passive endpoints, shared contexts, wait sets, poll sets, triggered operations,
//! multicast, and the description of a NIC.
//!
//! [libfabric]: https://ofiwg.github.io/libfabric/
#![allow(non_camel_case_types, non_snake_case)]

pub mod attributes;
pub mod calls;
pub mod cancel;
pub mod cxi;
pub mod domain;
pub mod endpoint;
pub mod errno;
pub mod flags;
pub mod head;
pub mod later;
pub mod load;
pub mod one_sided;
pub mod provider;
pub mod queues;
pub mod remote;
pub mod sleeping;
pub mod stub;
pub mod values;
pub mod version;

pub use attributes::*;
pub use cxi::*;
pub use domain::*;
pub use endpoint::*;
pub use errno::*;
pub use flags::*;
pub use head::*;
pub use later::*;
pub use load::{Libfabric, LoadError};
pub use one_sided::*;
pub use provider::*;
pub use queues::*;
pub use remote::*;
pub use tagmatch_sys::{Constant, Structure, signals};
pub use values::*;
pub use version::*;

/// Every structure of this crate that version 1.17 has.
pub fn structures() -> impl Iterator<Item = &'static Structure> {
    let objects = [FID, FABRIC, DOMAIN, ENDPOINT, QUEUES, PROVIDER];
    let calls = [TAGGED, CM, RMA, ATOMIC, COLLECTIVE];
    let arguments = [ELEMENTS, RMA_ARGUMENTS, ATOMIC_ARGUMENTS];
    objects.into_iter().chain(calls).chain(arguments).chain([ATTRIBUTES]).flatten()
}

/// Every constant of this crate that version 1.17 has.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    let flags = [FLAGS, AV_FLAGS, ATOMIC_FLAGS];
    let values = [VALUES, ELEMENT_VALUES, QUEUE_VALUES, OPTIONS, ERRORS];
    flags.into_iter().chain(values).flatten()
}

/// Every structure of this crate that is newer than version 1.17.
pub fn later_structures() -> impl Iterator<Item = &'static Structure> {
    [LATER_ATTRIBUTES, LATER_QUEUES].into_iter().flatten()
}

/// Every constant of this crate that is newer than version 1.17.
pub fn later_constants() -> impl Iterator<Item = &'static Constant> {
    [LATER_VALUES, CXI_VALUES].into_iter().flatten()
}
