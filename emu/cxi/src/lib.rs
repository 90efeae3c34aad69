//! A libfabric provider for tests that behaves as HPE's `cxi` does, without its NIC.
//!
//! The NIC of the largest machines, HPE Slingshot, matches tags in hardware, and is reached through
//! libfabric alone. What a program must bear from it is tested here on any machine: `libfabric`
//! loads this library and finds a provider named `cxi`. It is no product: it carries messages
//! between processes of one machine and one user, and makes no effort to be fast.
#![doc = include_str!("../knobs.md")]
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `ffi` | the functions that libfabric's callers enter, and the tables of them |
//! | `endpoint` | an endpoint: `sender`, `matcher` with its `lists` and `mode` |
//! | `queue`, `vector` | completion queues, address vectors |
//! | `transport`, `wire` | datagram sockets, and the packets on them |
//! | `telemetry` | the NIC's counters, as files |
//! | `effects`, `memory` | completions, and the memory of programs |
//! | `settings`, `chance` | the knobs, and what is left to chance |
//!
//! # A message
//! 1. `sender` puts it behind the receiver's earlier ones, and sends it as soon as the receiver's
//!    socket has room. Up to 16 KiB travel with it; a longer message is only announced.
//! 2. The receiver's round of progress takes it from the socket. `matcher` gives it to the oldest
//!    receive that accepts it, or keeps it.
//! 3. The bytes of a long message are read out of its sender's memory (process_vm_readv(2)) some
//!    rounds after the match. Then the sender is told; so it is for `FI_MATCH_COMPLETE`.

mod chance;
mod effects;
mod endpoint;
mod ffi;
mod install;
mod memory;
mod queue;
mod settings;
mod telemetry;
mod transport;
mod vector;
mod wire;

pub use ffi::fi_prov_ini;
pub use install::install;
