//! One direction of a connection: a ring of messages with one writer and one reader.
//!
//! A ring lies in memory that its *reader* made and its writer mapped. It has three parts:
//!
//! * the header: one cache line per word, see [`memory`];
//! * the slots, one cache line each. A slot begins with one 64-bit word: the sequence number of the
//!   message in the low half, its length and flags in the high half. The writer stores it last.
//!   Payload never overlaps it, so a stale line can't be taken for a message. A short message lies
//!   in the slot in whole and costs one line;
//! * the spill, a ring of bytes: what of a message does not fit into its slot, in one run. Where
//!   that run begins follows from the lengths alone ([`Geometry::place`]), so that writer and
//!   reader agree without telling each other, and there is no offset that could be wrong.
//!
//! The reader publishes how far it has come in one word, rarely; the writer looks at it only when
//! the ring seems full.

pub(crate) mod consumer;
pub(crate) mod geometry;
pub(crate) mod memory;
#[cfg(all(loom, test))]
pub(crate) mod model;
pub(crate) mod producer;
pub(crate) mod slot;

pub(crate) use consumer::Consumer;
pub(crate) use geometry::Geometry;
pub(crate) use memory::Ring;
pub(crate) use producer::{Producer, PushError};

#[cfg(all(test, not(loom)))]
mod tests;
