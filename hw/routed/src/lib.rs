//! Several devices as one: shared memory for the peers of this machine, and networks for all
//! others.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! # How it works
//! 1. **One route a pair.** Both workers choose the same network from both addresses
//!    ([`route`](tagmatch_device::contents::route)), and use it for ever. So two messages of one
//!    sender never overtake each other.
//! 2. **One address.** It has the worker's name and what each network has to say. A device checks
//!    that a peer which asks for a connection is to be reached over that device.
//! 3. **One table of numbers.** The devices share the numbers of peers
//!    ([`PeerNumbers`](tagmatch_device::PeerNumbers)). A device treats the number of another
//!    device's peer as a peer that is down. So a message to a peer of this machine costs nothing
//!    more: it is passed to shared memory first, and to a network if shared memory knows no such
//!    peer. A number that its device gives back may be given by another device next, with another
//!    generation.
//! 4. **Polling.** Shared memory is polled each time. Networks are polled when shared memory has
//!    nothing, and once in 64 polls otherwise; only once in 64 polls as long as they have no peer.
//! 5. **Sleeping.** One epoll descriptor covers the descriptors of all devices. That is all that
//!    needs the system: without it ([`Routed::sleepless`]) the same code runs in a simulator.
//! 6. **The NIC's list** is the list of the first network that has one. Messages over shared memory
//!    and over other networks bypass it
//!    ([`Incoming::through_list`](tagmatch_device::Incoming)); the engine has rules for those.
//!
//! # Decisions
//! - `Device::expose` and `Device::withdraw` name the reader, since only one device can give the
//!   reader the memory.
//!
//! - **The simulator runs `Routed` itself** (profiles `several*`): workers on two or three
//!   machines, each machine on one or two networks, with the list of a model NIC on the better one.
//!   `Routed` needs the system only for the descriptor that a thread sleeps on, so that is a
//!   parameter of the type. A count proves that messages came past the list while their receives
//!   were in it.

#![forbid(unsafe_code)]

mod audit;
mod device;
mod networks;
mod sleep;

pub use device::Routed;
