//! Shared memory: the device for workers on one machine.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! | module | contents |
//! |---|---|
//! | `device` | the type [`Shm`]: its parts, and the calls of a device |
//! | `poll`, `sleep` | what a poll does; sleeping until there is something to do |
//! | `connections` | all connections of a worker, and how they end |
//! | `handshake`, `packet` | from an address, or a pending connection, to an established connection; its packets as bytes |
//! | `peers`, `connection`, `processes` | the peers, a connection to one, and the processes of peers |
//! | `reads`, `direct_reads` | reading a peer's memory: from a mapping, by the kernel, or through the rings ([`tagmatch_device::CopiedReads`]) |
//! | `cooperative`, `copying` | long messages that receiver and sender copy together; the sender's part |
//! | `regions`, `region_words` | one-sided operations that need no message, and how a region is closed |
//! | `region_accesses`, `region_names` | an access to a peer's region; how a peer finds one by its key alone |
//! | `learned`, `class_choices` | learning which of two ways is faster |
//! | `carrying`, `sharing` | what is learned: which messages go out in fragments, and which ones both sides copy |
//! | `arena`, `free_ranges` | memory of the device: buffers that peers map |
//! | `peer_memory`, `generation` | reading a mapped buffer, and whether its owner still had it |
//! | `inboxes` | the rings that are read, and which of them a poll looks at |
//! | `ring` | one direction of a connection |
//! | [`segment`] | memory that a group maps together, for collective operations |
//! | `hints` | hints to the processor about cache lines |
//! | `streaming` | writing a run past this core's cache, and when that is faster |
//! | `doorbell` | how a sender says that a ring has a message |
//! | `lifelines` | the socket and the pidfd of a connection, and who watches them |
//! | `nonce` | how a reader knows that what it has read was the peer's to give |
//! | `watcher`, `events` | the descriptors that a worker watches; the events that wait for a poll |
//! | `name` | what is in an address |
//! | `config`, `info` | settings; what this machine allows, and why not |
//! | `padded` | words that share no cache line |
//! | `sync` | the atomics of shared memory, for this machine or for the model checker |
//!
//! # How two workers connect
//! 1. Each worker listens on an abstract socket with a random name, which its address contains.
//!    Nothing has a name in a file system, so nothing is left behind when a process is killed.
//! 2. Both sides first ask the kernel for the other side's user: the connecting side right after
//!    connect(2), the listening side right after accept(2). A connection of another user is closed
//!    before anything is sent or received on it.
//! 3. The connecting side sends a hello, with the memory of the pair, of its doorbell, and of its
//!    device. The listening side answers with a hello of its own. Both check that the memory can't
//!    shrink before they map it. The rings are as long as both sides' settings allow. Other
//!    descriptors that were sent are closed by another thread, since close(2) can block. From then
//!    on the kernel refuses descriptors on this connection (`SO_PASSRIGHTS`, Linux 6.16 or later).
//! 4. If both sides connect at the same time, the connection that the worker with the smaller
//!    address began counts.
//! 5. The sockets stay open. A last packet says that the sender ends the connection in order. The
//!    end of the socket without it means that the worker is gone, or its process; a pidfd tells
//!    that the process has ended where a forked child has the socket open. A worker watches the
//!    sockets of four peers itself. With more peers, it leaves them to a thread (`lifelines`).
//!
//! # Trust
//! Peers are processes of the same user. No peer can make this process panic, or touch memory that
//! isn't the device's. A peer that breaks a rule goes down; other peers are not affected, with one
//! exception: all peers share the doorbell, so a peer can delay the messages of other peers by what
//! it writes there, by up to a second while the worker sleeps. It can't stop or change them. A peer
//! can claim the address of another process of the same user only where the kernel can't tell them
//! apart (in different pid namespaces). The number of connections that one process can make is
//! bounded ([`ShmConfig::process_peers_max`]).
//!
//! A peer that lets go of a buffer while it is read, and stays connected, keeps the receive of that
//! message from ending until this worker disconnects from it, or the peer goes. Other receives go
//! on.
//!
//! A process of any user can connect and send descriptors that block the threads which close them.
//! While 16 threads are blocked, this worker accepts no connection. Established connections, and
//! those that this worker begins, are not affected.
//!
//! With direct reads, a peer can block this process. The kernel reads the peer's memory in a system
//! call of this thread, in the handshake and for each large message, and waits for a page that the
//! peer withholds (userfaultfd(2), a mapped file of FUSE). So does the write by which a sender
//! copies a part of a long message ([`ShmConfig::sender_copies`]), and so do puts and gets to and
//! from a peer's region ([`ShmConfig::direct_regions`]). Only a signal that kills the process ends
//! the wait. With [`ReadPolicy::Copied`] the kernel reads and writes no peer's memory, and no peer
//! can block this process. Memory of a peer's device is read from a mapping of this process,
//! whatever the policy is: the peer can't withhold a page of another process' mapping.
//!
//! Where the kernel lets peers read this process's memory, it lets them write it, too: it has one
//! permission for both. No key protects the memory then. A copied read takes
//! the bytes of a buffer only for the peer that the buffer was exposed to; a peer that asks for
//! another peer's buffer goes down. All connected peers can read all memory of this device at any
//! time, also what earlier buffers have left there. A page that a peer has offered and never
//! written is taken when it is read. So a hostile peer can have this process use as much memory as
//! it maps of that peer, which [`ShmConfig::device_memory_bytes`] bounds. That memory is given back
//! with the connection.
//!
//! # After fork
//! A worker belongs to the process that made it. A forked child must not use it: both processes
//! would read and write the same rings. The child may drop it or call exec.
//!
//! # Limits
//! Both workers must be in the same network namespace, since abstract sockets belong to one, and
//! must have the same user. In a user namespace, a user without a number there can't be told from
//! other users without a number; peers reach the workers of such a user over other devices. A peer
//! that went down leaves some 150 bytes behind until it is forgotten
//! ([`Device::forget`](tagmatch_device::Device::forget)).
//!
//! # On AArch64
//! `sync` says what each order of its memory is for. Everything else is unmeasured, since no ARM
//! processor was at hand:
//! - A copy into a ring is an ordinary one. Pairs of non-temporal stores (STNP) are not used:
//!   `streaming` is for what was measured to be faster.
//! - Lines are fetched for writing as on x86-64 (PRFM PSTL1KEEP). There is no CLDEMOTE.
//! - 64 bytes count as a cache line. Where lines are longer (A64FX), neighbours share one, which
//!   costs time and nothing else.
//! - The device has no spin hint of its own; the caller that waits gives one
//!   (`std::hint::spin_loop`, which is ISB there). WFE is not used: a peer's store ends it only for
//!   one line, which was loaded by LDXR before.
//! - Pages may have 4, 16 or 64 KiB. Long lines of a ring begin with a page of any of these sizes,
//!   so that they can be given back.
//!
//! # Not tested
//! For want of such machines: Yama's scopes; kernels before 5.3 (no pidfd); huge-page memfds;
//! processors other than x86-64, but for AArch64 under emulation. The decisions that depend on them
//! are tested with made-up answers. `hw/os/examples/deny.rs` takes away what later kernels have,
//! and what containers forbid (`cli/tests/containers.rs`).
//!
//! # Decisions
//! **Idle peers cost nothing.** A few busy rings are polled. All other writers are asked to ring a
//! doorbell: one bit in a page that all peers share. The race between "written, no doorbell wanted"
//! and "looked, doorbell wanted now" is closed by membarrier(2) on the reader's side, so a send
//! needs no fence. Now and then one silent ring is looked at all the same, so no peer can silence
//! another for good. A sleeper is woken by a packet to its datagram socket, of which each worker
//! has one, not by an eventfd, because a hostile owner of an eventfd could make our write to it
//! block. Any process may send to an abstract name, so the socket has a filter in the kernel that
//! drops packets without the key, which the hello gives to peers. (A worker wakes itself by an
//! eventfd.) A writer that waits for room says that it sleeps before it asks for a wake-up, so a
//! reader wakes only sleepers, and answers each wish once. Loom checks all of this in the code that
//! ships.
//!
//! **Descriptors don't grow with the peers.** A rank of a large machine has hundreds of peers, and
//! the usual limit is 1,024 descriptors (`RLIMIT_NOFILE`), of a table that belongs to the program.
//! A thread may have a table of its own (close_range(2) with `CLOSE_RANGE_UNSHARE`). So from the
//! fifth peer on, sockets and pidfds move to a thread that does nothing but watch them, and a
//! worker takes some 20 descriptors, whatever the number of its peers. A thread takes as many peers
//! as its own table has room for, and then there is another one. Each worker still hears of each
//! end from the kernel itself, at once, also while it sleeps, and needs to believe nobody. What the
//! kernel holds grows with the square of the workers: some 2.5 KiB a pair. Other ways would need
//! less of that, and were not taken: if each worker watched a few others and told the rest, a death
//! would be known only once the slowest worker has told it, and a hostile worker could tell lies or
//! nothing; a robust futex needs a list of each thread, which belongs to the C library; a lock of
//! each worker in a file can be asked for, but wakes nobody. Where the kernel gives no such table
//! (before Linux 5.9), all lifelines stay in the program's.
//!
//! **An idle pair takes one page.** Both rings of a pair are in one memory, which the connecting
//! side makes and these two alone map. Its first page has both headers and 16 lines of each ring: a
//! rank of a large machine has hundreds of peers, and seldom more than a few short messages to one
//! of them. A writer goes on to the long lines, which are whole pages, when there is no room, when
//! a message is longer, or when it writes to this peer so often that the short laps would cost
//! time. It comes back when it has written nothing between two sweeps
//! ([`ShmConfig::sweep_interval`]); the reader then gives the long lines' pages back to the
//! machine. It doesn't matter which side makes the memory: the kernel counts a page for the process
//! that touches it first, which is its writer, and each side takes no longer rings than its own
//! settings allow.

mod arena;
mod carrying;
mod class_choices;
mod config;
mod connection;
mod connections;
mod cooperative;
mod copying;
mod device;
mod direct_reads;
mod doorbell;
#[cfg(all(loom, test))]
mod doorbell_model;
mod free_ranges;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod handshake;
#[cfg(not(all(loom, test)))]
mod hints;
mod inboxes;
mod info;
#[cfg(not(all(loom, test)))]
mod layout;
mod learned;
mod lifelines;
mod name;
mod nonce;
mod packet;
mod padded;
mod peer_memory;
mod peers;
mod poll;
mod processes;
mod reads;
#[cfg(all(test, not(loom)))]
mod recorded;
mod records;
mod region_accesses;
mod region_names;
mod region_words;
mod region_writers;
mod regions;
mod ring;
pub mod segment;
mod sharing;
mod sleep;
mod streaming;
mod sync;
#[cfg(all(loom, test))]
mod tests {
    mod model;
    mod region_model;
}
mod watcher;

pub use config::{ReadPolicy, SenderWrites, ShmConfig};
pub use device::Shm;
pub use info::ShmInfo;
