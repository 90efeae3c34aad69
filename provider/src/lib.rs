//! tagmatch as a libfabric provider: unmodified MPI libraries run on it.
//!
//! libfabric loads `libtagmatch_fi.so` from the folder that `FI_PROVIDER_PATH` names, and calls
//! [`fi_prov_ini`], which describes the provider. All other calls go through tables of functions.
//!
//! | module | content |
//! |---|---|
//! | `provider` | what this provider is, for the tables of functions of `tagmatch-ofi-provider` |
//! | `info` | what a program asks for, and what it gets |
//! | `settings` | the environment |
//! | `state` | endpoints with their workers |
//! | `absent` | operations that there are not |
//! | `elements` | the types and operations of atomic operations |
//! | `report` | where messages were matched, for `TAGMATCH_FI_REPORT` |
//! | `memory`, `address`, `errno`, `library` | memory as buffers, names of endpoints, error numbers, what MPI libraries do |
//!
//! A send or a receive takes four steps: a function of `tagmatch-ofi-provider` turns the arguments
//! into values, `state::calls` makes buffers of the caller's memory, `state::send` or
//! `state::receive` begins the operation on the endpoint's worker, and `Endpoint::progress`, called
//! by a read of the completion queue, makes an entry of its end.
#![allow(unsafe_code, reason = "this crate's callers are C programs")]

mod absent;
mod address;
mod elements;
mod errno;
mod info;
mod library;
mod memory;
mod provider;
mod report;
mod settings;
mod state;

pub use provider::fi_prov_ini;
