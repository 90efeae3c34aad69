//! The UCX device: UCX matches tags by itself, over any network that it supports.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! # How it works
//! 1. libucp is loaded when the first device is made, 1.13 or later. A device is one UCX worker.
//!    UCX does the matching, keeps unexpected messages and transfers large ones.
//! 2. Peers meet over a socket of ours ([`tagmatch_fabric::handshake`]), which an
//!    [`Address`](tagmatch_device::Address) names. They exchange their worker addresses, the way in
//!    which they encode tags, and the number by which each knows the other.
//! 3. This connection stays open, and its end is the peer's. An error of UCX's endpoint counts as
//!    well.
//! 4. A message's tag on the wire carries the application's tag, the sender's number in the
//!    layout's source field, and immediate data above the layout; see [`UcxConfig`].
//! 5. When a peer ends, its last messages are still received, for a bounded time; when this worker
//!    disconnects a peer, the messages that it has sent still go out, for a bounded time. Then
//!    receives that name the peer are cancelled, the endpoint is closed by force, which ends the
//!    sends, and the peer is reported as down. A worker that leaves in order says so over the
//!    connection first; then its end is no fault.
//! 6. A device that is dropped ends all its peers in this way, and makes progress until no
//!    operation is under way. Operations that stay under way are leaked together with the worker,
//!    since UCX may still write to their buffers.
//! 7. Memory of the caller's own is registered once with UCX's context (`ucp_mem_map`), and
//!    operations on its parts pass the handle. The context outlives the worker for that. A
//!    registration that ends on another thread is unmapped by the worker's thread.
//!
//! # What UCX doesn't give
//! - [`CompleteWhen::Delivered`](tagmatch_device::matching::CompleteWhen): UCX acknowledges a
//!   synchronous send when it matches, before it copies, while further fragments of an eager
//!   message may be under way. The sender of a rendezvous that copies is done when it has sent. So
//!   sends that ask for delivery are refused.
//! - The first bytes of a message that doesn't fit: a truncated receive has the length only, and
//!   zeros in its buffer.
//! - Forgetting a rendezvous whose sender died: a probe still finds it; its receive ends when the
//!   peer's end is reported.
//! - Matching in a ConnectX together with error handling of peers: see [`UcxConfig::hw_tags`].
//!
//! # Trust
//! UCX trusts its peers, so this device has to trust them, too, once they are connected: UCX parses
//! their messages, and ends the process if a worker address is malformed. So each peer is checked
//! before UCX gets anything from it:
//! - On this machine, the kernel confirms that the other process belongs to the same user, before a
//!   byte is sent or received.
//! - Everywhere, a peer must prove that it knows the secret of the address that was connected to,
//!   and the job's secret where there is one ([`UcxConfig::secret`]).
//!   The secret has 128 bits, is not in the name of the socket, and is never sent in clear. An
//!   attacker that reads or changes the handshake on its way over TCP learns no secret and can only
//!   end the connection. **An address is therefore to be handed to peers alone.**
//!
//! Risks that remain, because they are UCX's:
//! - A peer that has proved itself can end this process by a worker address, or a message, that UCX
//!   can't read.
//! - Messages over TCP are neither encrypted nor signed: a machine on their way can read and change
//!   them.
//! - The transport `tcp` of UCX 1.13 ends the process now and then when a peer goes while both
//!   connect (an assertion in `tcp_ep.c`).
//! - The transport `tcp` listens on ports of its own, on each interface including loopback, and
//!   accepts every connection, also of other users of this machine; a few wrong bytes end the
//!   process (seen with UCX 1.13). Where others can reach these ports, leave `tcp` out of
//!   [`UcxConfig::transports`], or restrict it by `UCX_NET_DEVICES` and a firewall.
//!
//! # Signals, log, memory
//! UCX installs signal handlers when it is loaded; the program's handlers are restored at once
//! ([`tagmatch_ucx_sys::Ucp::load`]). UCX's log goes to the `log` crate under the target `ucx`,
//! except for lines that UCX writes while it is being loaded.
//!
//! # After fork
//! A device belongs to the process that made it. A forked child may drop it, which does nothing, or
//! exec.
//!
//! # Decisions
//! - **64 bits for everything.** UCX's tag is all that travels beside the payload. The sender's
//!   number goes into the source field of the layout. The receiver gives it out, so it is small and
//!   can be trusted; or it is the runtime's own rank (`own_source`), if its tags have that already.
//!   Immediate data goes above the layout. What has no place is refused at the call
//!   (`Fault::NotCarried`), with what to do about it; nothing is approximated.
//! - **Facts on every path.** Receives never complete at once, because UCX 1.13 leaves their facts
//!   unset then. An operation that a peer's end has ended is reported once the device has said why
//!   it ended.
//! - **Not counted.** UCX doesn't tell whether a receive was matched by a NIC, on its posted list
//!   or among the unexpected messages. So `Counters::by_device` counts them all, and nothing is
//!   guessed. tagperf sees that messages wait by probing for the last one, which no other
//!   overtakes.
//! - **One list of tests.** `tests/api/` runs over each device. What UCX can't do is one enum in
//!   `hw/device/src/ability.rs`, each with its reason, and `ci/test ucx` checks that it is no more
//!   than docs/devices.md says.

mod carrier;
mod config;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod info;
mod library;
mod link;
mod log;
mod operations;
mod registration;
mod transport;
mod worker;

pub use config::UcxConfig;
pub use info::UcxInfo;
pub use transport::UcxTransport;

use tagmatch_fabric::Matching;

/// The UCX device. See the [module](self) for how it works.
///
/// Has no threads of its own; UCX may have one for connections that are being made.
///
/// ```
/// # mod tagmatch { pub use tagmatch_ucx as ucx; }
/// use tagmatch::ucx::{UcxConfig, UcxInfo};
/// println!("{}", UcxInfo::probe(&UcxConfig::default()));
/// ```
pub type Ucx = Matching<UcxTransport>;
