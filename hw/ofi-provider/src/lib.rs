//! Internal, no promises: programs depend on `tagmatch`.
//!
//! A libfabric provider without its matching: libfabric's objects and the tables of functions by
//! which C programs reach them, for any provider.
//!
//! Two providers are made with it: tagmatch's own (`provider/`), and one that behaves in tests as
//! HPE's cxi does (`lab/cxi`). Each implements [`Provider`] and [`ProviderEndpoint`], and exports
//! what [`description`] gives. All functions are generic over the provider, so a call of a program
//! reaches the endpoint without a call through a pointer.
//!
//! | module | content |
//! |---|---|
//! | `policy` | the traits that a provider implements |
//! | `getinfo`, `hints`, `offer`, `answer` | `fi_getinfo`: what a program asks for, and what it gets |
//! | `fabric`, `domain`, `av`, `cq`, `cntr`, `eq`, `mr`, `ep` | the functions of each kind of object, and their tables |
//! | `tagged`, `msg` (both expand `functions`), `transfer` | the functions that send and receive |
//! | `rma`, `atomic`, `remote` | the functions of one-sided operations, and their arguments |
//! | `messages`, `memory` | the arguments of these, and the caller's memory |
//! | `handle` | objects as the caller has them |
//! | `parent`, `state`, `objects` | fabrics and domains, a domain's objects, and what these contain |
//! | `progress` | the thread of a domain with automatic progress |
//! | `cancellable_sleep` | sleeps in which a thread may be cancelled |
//! | `lock`, `per_process` | the lock of a domain, and what a forked child must leave alone |
//!
//! # Decisions
//!
//! **A caller may be wrong.** Each function checks its pointers, a panic becomes an error number,
//! and a closed object's memory is kept for a while, so that a call on it is an error.
//!
//! **Automatic progress costs the programs nothing that do without.** Only a domain that is opened
//! with `FI_PROGRESS_AUTO` has a thread, and a lock in any case. The thread arms the endpoints as a
//! thread that sleeps in a blocking read does, so a call finds out about it in the branch that such
//! endpoints take anyway.
//!
//! **A thread may be cancelled** (pthread_cancel(3)): see [`tagmatch_ofi_sys::cancel`].
#![allow(unsafe_code, reason = "the callers are C programs")]

mod answer;
mod atomic;
mod av;
mod cancellable_sleep;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod functions;
mod getinfo;
mod handle;
mod hints;
mod lock;
mod memory;
mod messages;
mod mr;
mod msg;
mod objects;
mod offer;
mod parent;
mod per_process;
mod policy;
mod progress;
mod remote;
mod rma;
mod state;
mod tagged;
mod transfer;
mod yielding;

pub use getinfo::{Description, description};
pub use hints::{Hints, Opened, with_directions};
pub use memory::Memory;
pub use messages::{Incoming, Injected, Outgoing, Pattern, Pieces, UNTAGGED};
pub use objects::{Bindings, Entry, Failure, Output, Sinks, Vector};
pub use offer::{Constants, Offer, Offers, Refusal};
pub use per_process::PerProcess;
pub use policy::{Provider, ProviderEndpoint};
pub use remote::{
    AtomicForm, AtomicLimits, REMOTE_PARTS_MAX, RemoteAtomic, RemoteCall, RemotePlace, RemoteUse,
    SharedRegion,
};
