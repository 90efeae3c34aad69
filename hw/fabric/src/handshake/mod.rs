//! How devices that match by themselves meet: what `hw/ucx` and `hw/ofi` have in common.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! UCX and libfabric move tagged messages, and leave open how processes find each other, whom they
//! trust, and how they learn that a process has died. This module answers that, over a socket of
//! its own for each pair of devices.
//!
//! # How it works
//! 1. An address names a socket, on this machine by random bytes and for others by TCP: an address
//!    of the transport below doesn't fit into an [`Address`](tagmatch_device::Address). It also
//!    holds a random secret.
//! 2. Over the socket both ends prove that they know the secret, and the job's secret where there
//!    is one (`proof.rs`). Then they exchange [`Hello`]s: the addresses of the transport below, the
//!    layout of tags, and the number by which each knows the other.
//! 3. This connection stays open. It ends when the peer's process ends, in whatever way, so the end
//!    of a process is noticed at once. Keep-alives notice the end of a machine.
//! 4. When a peer ends, its last messages are still received, for a bounded time; when this device
//!    disconnects a peer, the messages that it has sent still go out, for a bounded time. Then the
//!    device ends the operations that depend on the peer, and the peer is reported as down. A
//!    device that leaves in order says so first; then its end is no fault.
//!
//! A device has a [`Meeting`] and implements [`MeetingHost`]; the functions of this module take the
//! device. On a machine, the kernel confirms that the other process belongs to the same user before
//! a byte is sent or received.
//!
//! The modules build on each other in this order: `kind`, `proof`, `address`, `hello`,
//! `connection`, `listeners`, `peers`, `meeting`, `audit`, `host`, `ending`, `packets`, `connect`.

mod address;
mod alarm;
mod audit;
mod connect;
mod connection;
mod ending;
mod hello;
mod host;
mod kind;
mod listeners;
mod meeting;
mod packets;
mod peers;
mod proof;

pub use alarm::Alarm;
pub use connect::{look, start_connect};
pub use ending::{break_with, tend_leaving};
pub use hello::{Hello, Packet, Refusal};
pub use host::MeetingHost;
pub use kind::MeetingKind;
pub use meeting::{Layout, Meeting, MeetingConfig};
pub use packets::{come_up, hear};
pub use peers::{Peer, PeerState, Peers, Sent};
