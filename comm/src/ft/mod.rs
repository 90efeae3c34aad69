//! Failures: what a program can do about them, as in ULFM.
//!
//! | call | ULFM |
//! |---|---|
//! | [`Comm::failed`], [`Comm::acknowledge`], [`Comm::acknowledged`] | `MPIX_Comm_get_failed`, `_ack_failed` |
//! | [`Comm::revoke`], [`Comm::is_revoked`] | `MPIX_Comm_revoke`, `_is_revoked` |
//! | [`Comm::agree`] | `MPIX_Comm_agree`, `_iagree` |
//! | [`Comm::shrink`] | `MPIX_Comm_shrink`, `_ishrink` |
//!
//! A process that lacks what a connection to another process of its job needs (descriptors, memory)
//! *counts itself out*: it gives up all other processes, so each of these learns from its transport
//! that it has failed, as of a death, and nobody waits for what one pair can't exchange. All its
//! operations end with [`Error::CountedOut`](crate::Error::CountedOut), which names the limit. A
//! shortage is a fact about the process that lacks, and never one about its peer. A process that
//! has no way to another one, since their workers have no network in common, does the same: the
//! other one finds out in the same way as soon as it needs this one.
//!
//! A process whose transport refuses a message for a reason of its own, and not because the
//! receiver is down, counts itself out as well if the receiver may wait for the message: a control
//! message, a short message of a collective operation, the copy of a buffered send. The error names
//! the reason. If a long message of a collective operation is refused, the operation ends with the
//! transport's error, and the members that need the message learn that it has failed. If a control
//! message can't be *received*, its sender is given up, like a process whose connection was lost.
//!
//! A connection may also be lost between two processes that both live. The process that has lost
//! another one of its job asks others whether that one lives. If it does, the asking process counts
//! itself out, so that nobody waits for what the two can't exchange; of two that have lost each
//! other, one goes. A process takes no other member's word for a death: it waits until its own
//! transport reports the same. Processes of other jobs are excepted: nobody is asked about them,
//! and a member is believed. A job of two processes has nobody to ask, and each takes the other for
//! dead. If several connections are lost at the same time, two processes that can't reach each
//! other may both stay. Another process can't tell which end has broken a connection: a process
//! that breaks its own connection to another one may take out that one, and itself with it.
//!
//! Each process has its own knowledge of failures. So errors are not the same at all members; only
//! the result of an agreement is. It is assumed that a process that is reported as down stays down,
//! and that all living processes learn of it in the end.
//!
//! # How it works
//! `ft/` continues after failures as ULFM does. Each process has one service (`ft/service.rs`). It
//! exchanges control messages in a context of its own, and looks for them every few turns of
//! progress. So a process that has ended its part of an agreement still answers others.
//!
//! 1. The transport reports a death. Every communicator that has the dead process as a member then
//!    lists it as failed. A message of an agreement that names a death in the job waits until the
//!    own transport reports it, too; about processes of other jobs the message is believed. Until
//!    the failure is acknowledged, receives from any source report it, and stay posted. A process
//!    that lacks what a connection to another process of its job needs (`Net::failure`) gives up
//!    all others, and all its operations end with that error. So does one of two living processes
//!    that have lost their connection (`ft/doubts.rs`, pure). So a pair that can't exchange
//!    messages is a failure that all processes learn of.
//! 2. A revocation goes to the members at distances of powers of two. Each of them passes it on
//!    once. If a neighbour dies, it passes the revocation on to the next member that lives. The
//!    message names all members, so that a process that does not have the communicator yet can pass
//!    it on, too.
//! 3. While no death is known, an agreement (`ft/agree.rs`, pure) spreads: each member sends what
//!    it has gathered to the members at distances of powers of two, and decides when it has heard
//!    of all members. Once a death is known, an agreement gathers up a tree and spreads the
//!    decision down. The ballot is 0 in the first case, and one more than the lowest living rank in
//!    the second. A member that goes to a higher ballot drops what it has gathered, and accepts no
//!    decision of an older ballot. If it has already accepted a decision, it reports that one.
//! 4. A shrink agrees on which members are dead, then on the outcome of each round of the
//!    allocation. So all members have the same result.
//! 5. Other creations don't agree on anything: they may succeed at some members and fail at others.
//!    A member whose round of the allocation has failed says so to the members that it exchanges
//!    messages with (`creation/allocating.rs`). So no member waits for it in a later round, and
//!    none of its messages is left for the next call. If nothing fails, no extra message is sent.
//! 6. Before a process first uses a message of another one, it compares that one's settings with
//!    its own (`ft/comparison.rs`). Each process sends its settings before its first message to
//!    another process, and before its first receive from it. Control messages have the same tag and
//!    form whatever the settings are. If two processes of a job differ, the difference is passed on
//!    in the job as a revocation is, and all operations end with it.
//!
//! | rule | from | where we differ, and why |
//! |---|---|---|
//! | receives from any source report failures and stay posted; acknowledge; revoke; agree; shrink | ULFM | a receive from any source that is waited for by value, or awaited, is given up: it is cancelled before the failure is reported. If a message was faster, the message is the result. An agreement gives flags and the list of unacknowledged ranks, where ULFM gives a result and an error at the same time |
//! | agreement is early returning, on a tree | Herault et al., SC'15; Open MPI | without failures there is no tree, up and down, but log2 N messages in a row (for 2 ranks: one instead of two). Ballots replace requests for results: a member that has decided reports the decision to each new leader by itself. MPICH's agreement ignores failures between its reductions, so it is no consensus |
//! | a late revocation does not hit a reused context id | Open MPI | the epoch is not agreed on. It is computed from the parent's epoch, the number of the call and the members' ranks in the parent. So it costs no message, and members in other jobs compute the same epoch |
//! | numbers of collective operations begin at any value | | a second guard, beside resting ids: a message that a revoked communicator left unreceived is not taken for a message of a later communicator with the same id |
//!
//! # Among thousands of processes
//! An agreement costs a process a number of messages that grows with the logarithm of the number of
//! processes, and three for each death: the report of the transport, a question whether the dead
//! process lives, and the answer. In a job of 4096 simulated processes (`comm/tests/thousands.rs`),
//! agree, shrink, barrier and free after deaths as the job begins take
//!
//! | deaths | longest chain of messages to the decision | messages and reports of a process |
//! |---|---|---|
//! | 1 | 26 | 52 |
//! | 10 | 23 | 79 |
//! | 100 | 22 | 345 |
//!
//! A process has 30 KB at the start: 7 bytes for each process of its job. Of a process that has
//! died it remembers the number, and gives back all else.
//!
//! A process that decides and then dies, before any other process has heard of its decision, may
//! have decided otherwise than the processes that live. A process that leaves its job counts as
//! down for those that still ask it something. A death is what the transport reports as one. For a
//! transport that doesn't notice deaths, `net/heartbeat` adds a ring of heartbeats, without a
//! thread: a process that makes no progress for a timeout counts as down.
//!
//! [`Comm::failed`]: crate::Comm::failed
//! [`Comm::acknowledge`]: crate::Comm::acknowledge
//! [`Comm::acknowledged`]: crate::Comm::acknowledged
//! [`Comm::revoke`]: crate::Comm::revoke
//! [`Comm::is_revoked`]: crate::Comm::is_revoked
//! [`Comm::agree`]: crate::Comm::agree
//! [`Comm::shrink`]: crate::Comm::shrink

mod agree;
mod agreed;
mod agreement_table;
mod attempts;
mod comparison;
mod control;
mod control_context;
mod departures;
mod doubts;
mod early;
mod ranks;
mod registry;
mod rest;
mod revocations;
mod service;
mod service_io;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use agree::{Value, senders};
pub use agreed::Agreed;
pub(crate) use agreement_table::Vote;
pub(crate) use control::Invitation;
pub(crate) use service::Service;
pub(crate) use wire::read_again;
