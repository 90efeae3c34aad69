//! tagmatch as a libfabric provider: unmodified MPI libraries run on it.
//!
//! libfabric loads `libtagmatch_fi.so` from the folder that `FI_PROVIDER_PATH` names, and calls
//! [`fi_prov_ini`], which describes the provider. All other calls go through tables of functions.
//!
//! | module | content |
//! |---|---|
//! | `info` | `fi_getinfo`: what a program asks for, and what it gets |
//! | `settings` | the environment |
//! | `ffi` | the functions that a program enters, and their tables |
//! | `domain`, `state` | a domain's objects: endpoints with their workers, queues, counters, address vectors |
//! | `report` | where messages were matched, for `TAGMATCH_FI_REPORT` |
//! | `memory`, `address`, `errno`, `lock`, `per_process` | pointers as buffers, names of endpoints, error numbers, the lock of a domain, what a forked child must leave alone |
//!
//! A send or a receive takes four steps: `ffi::tagged` or `ffi::msg` (both of them expand
//! `ffi::calls`) turns the arguments into values, `ffi::transfer` makes buffers of the caller's
//! memory, `state::send` or `state::receive` begins the operation on the endpoint's worker, and
//! `Endpoint::progress`, called by a read of the completion queue, makes an entry of its end.
#![allow(unsafe_code, reason = "this crate's callers are C programs")]

mod address;
mod domain;
mod errno;
mod ffi;
mod info;
mod library;
mod lock;
mod memory;
mod per_process;
mod provider;
mod report;
mod settings;
mod state;

pub use provider::fi_prov_ini;
