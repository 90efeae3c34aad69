//! The libfabric device: a provider of libfabric matches tags by itself.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! libfabric is loaded when the first device is made, 1.17 to 2.x; nothing is linked. It is the way
//! to HPE Slingshot (`cxi`), whose NIC matches tags in hardware, to Omni-Path, AWS's EFA, and the
//! networks to come. **Never seen here: `cxi`, `opx`, `psm2`, `psm3`, `efa` and Ultra Ethernet's
//! `uet`**, which the makers of its NICs bring, since libfabric's own tree has none. What was seen:
//! `tcp;ofi_rxm`, `tcp`, `net`, `shm` and `sm2` of Debian's libfabric 1.17 and of 2.5.1,
//! `verbs;ofi_rxm` of 1.17 on soft-RoCE, our own provider, and one that behaves as `cxi` does
//! (`lab/cxi`).
//!
//! # Which provider
//! The one that [`OfiConfig::provider`] names, or else by rule (`choice.rs`): `cxi`; `efa`, `opx`,
//! `psm2`; `verbs;ofi_rxm`, `tcp;ofi_rxm`, `tcp`. Others only by their names: `shm`, `sm2`,
//! `net`, `psm3`, and our own, each for a reason that [`Ofi::probe`] tells. Refused: `lnx`,
//! `sockets`, `ofi_rxd`, `ucx`. Both ends of a connection must have the same.
//!
//! # How it works
//! 1. Peers meet over a socket of ours ([`tagmatch_fabric::handshake`]). They exchange the names of
//!    their endpoints, how they carry tags, and the number by which each knows the other. The end
//!    of this connection is the end of the peer: no provider tells of deaths. A peer is reported as
//!    up once the provider has a connection to it.
//! 2. The tag on the wire has the application's tag, the sender's number, and three bits of this
//!    device; length and immediate data go beside it (`carrier.rs`).
//! 3. A message of at most 8 KiB goes as it is. Of a longer one, or one whose sender waits for its
//!    match, a *head* goes, with a trailer. The receiver answers, and posts receives for exactly
//!    the rest (`pieces.rs`), or lets the sender write it (`written.rs`). Matching is always the
//!    provider's.
//! 4. A receive has 8 KiB of the device's own memory, so no provider ever truncates: bytes that
//!    don't fit are cut off here, with the full length and the first bytes.
//! 5. A NIC that matches (`cxi`) gets every message as it is, into the caller's buffer; a receive
//!    that names its sender says so beside the tag, so that named receives and others are in one
//!    list. Its completions of a match and of delivery are true, and are asked for.
//! 6. What libfabric has no room for waits: sends behind each other for each peer, receives in one
//!    queue for all, and looks for messages behind these. Providers are asked for room for 32,768
//!    receives. A receive that names a peer of `cxi` whose address isn't known yet waits, too
//!    (`early.rs`).
//!
//! # What providers do wrong, and what is done about it
//! | wrong | done |
//! |---|---|
//! | a truncated receive loses its length (`tcp`) or all facts (`shm`), or never ends | nothing is ever longer than its receive |
//! | `FI_MATCH_COMPLETE` and `FI_DELIVERY_COMPLETE` are taken, and false | our own answers; the provider's only on `cxi` |
//! | looks for messages eat them (`shm` of 1.17); taken ones are shown again, and the descriptor never falls silent (`net` of 1.17) | a message to oneself tries it, once a process (`trial.rs`) |
//! | the highest bit of a tag is lost (`net`) | it isn't used |
//! | a message is never delivered (`shm` of 1.17) | refused before 2.0 |
//! | deaths aren't told; sends to the dead never end | our socket tells; see below |
//! | a peer's death in a rendezvous, or in a read, ends the process (`ofi_rxm`) | the sender writes into the receiver's buffer, or sends pieces of 16 KiB, which are eager |
//! | two endpoints in one process end it (`shm`) | a process has one |
//! | behind 64 messages that wait nothing of a peer is read (`tcp`, `net`) | our own packets have an endpoint of their own |
//! | matching in hardware ends the process when the NIC has no more room (`cxi`) | hybrid mode, by `fi_control(3)` before there is an endpoint; or it is refused |
//! | links of more domains than there is room for end the process (`lnx` of 2.5.1) | refused |
//! | loading takes signals | the program's handlers are restored, also after a provider was opened |
//!
//! # What a NIC counts
//! A worker's counters say only that the provider has matched. [`OfiInfo::nic_matches`] and
//! [`NicMatches`] have the counts of the NIC of `cxi`, those of all processes that use the NIC.
//!
//! # The death of a peer
//! Receives that name it are cancelled. libfabric can't be made to give back the memory of a send,
//! so a send that it still has after 200 ms is reported without its buffer, and the buffer stays
//! with the device until the device is dropped. Memory that is only lent to the device (a scope's,
//! slices, registered memory) never goes to libfabric for that reason: its bytes pass through
//! memory of the device's own, and it comes back at once. One exception: on `cxi` a receive into
//! lent memory is posted as it is, and comes back when the NIC has given it back. Over `ofi_rxm`
//! nothing tells when a peer that has ended writes no more, so a receive into whose buffer it was
//! writing ends without the buffer. The other peers lose nothing by any of this: the endpoint
//! stays open.
//!
//! # What it doesn't give
//! [`Ability`](tagmatch_device::Ability) has the table, with the reasons; docs/devices.md shows it,
//! and has what differs between providers.
//!
//! # Shared memory beside it
//! This device stands alone: neighbours are reached through the provider, too, and
//! `DeviceConfig::Auto` never takes it. Receives that name their source could be divided between
//! the provider and shared memory. A receive from any source can't: `a` is remote, `b` a neighbour,
//! and one such receive is posted. If both lists have it, messages of `a` and `b` that come at the
//! same time both match it, and the second one must go to a later receive, which the other list
//! may have given away. libfabric's `lnx` has the same choice, and switches the NIC's matching off.
//!
//! There is a rule that would keep MPI's order, and it isn't built. Receives from any source are in
//! our list alone. Their messages are taken out of the provider by looks that claim, in the order
//! in which the receives were posted. A later receive that names a remote source and overlaps one
//! of them waits in our list, as it does for the list of a verbs NIC (`tagmatch-shadow`). The
//! price: as long as a receive from any source waits, each round of progress searches the NIC, and
//! `cxi` answers `FI_EAGAIN` to all receives while a claiming search is under way. So programs that
//! wait for any source would lose the NIC's matching for all others. A message that was claimed
//! needs a third engine besides, since its bytes are still the provider's.
//!
//! # Trust
//! A peer that has proved itself is trusted as over UCX: its messages are parsed by the provider.
//! What this device parses itself (hellos, trailers, packets) is checked, and a peer that breaks a
//! rule is cut off. Messages are neither encrypted nor signed. Over `ofi_rxm` a peer gets the key
//! of the buffer that it is to write to. One that breaks the protocol on purpose, by two
//! connections, may still be writing when the buffer is given back. Nobody else knows a key: over
//! TCP a key is 64 random bits.
//!
//! # After fork
//! As of every device: a forked child may drop it, which does nothing, or exec.

mod audit;
mod carrier;
mod choice;
mod config;
mod control;
mod early;
mod endpoint;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod info;
mod library;
mod link;
mod objects;
mod operations;
mod pieces;
mod probing;
mod progress;
mod provider;
mod receiving;
mod rising;
mod rma;
mod sending;
mod telemetry;
#[cfg(test)]
mod tests;
mod transport;
mod trial;
mod written;

pub use config::OfiConfig;
pub use info::OfiInfo;
pub use telemetry::NicMatches;
pub use transport::OfiTransport;

use tagmatch_fabric::Matching;

/// The libfabric device. See the [module](self) for how it works.
///
/// Has no threads of its own; a provider may have some.
///
/// ```
/// # mod tagmatch { pub use tagmatch_ofi as ofi; }
/// use tagmatch::ofi::{OfiConfig, OfiInfo};
/// println!("{}", OfiInfo::probe(&OfiConfig::default()));
/// ```
pub type Ofi = Matching<OfiTransport>;
