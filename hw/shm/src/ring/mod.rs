//! One direction of a connection: a ring of messages with one writer and one reader.
//!
//! A ring lies in memory that its *reader* made and its writer mapped. It has three parts:
//!
//! * The header, with two cache lines per word, see [`memory`].
//! * The slots, one cache line each. A slot begins with one 64-bit word: the sequence number of the
//!   message in the low half, its length and flags in the high half. The writer stores this word
//!   last. Payload never overlaps it, so a stale line can't be taken for a message. A short message
//!   lies in its slot and costs one line.
//! * The spill, a ring of bytes. It holds the bytes of a message that don't fit into its slot, in
//!   one run. The start of that run follows from the lengths of the messages alone
//!   ([`Geometry::place`]): writer and reader compute it, so no offset is sent that could be wrong.
//!
//! Moving a cache line from one core to another takes most of the time of a message. So the writer
//! asks the processor for all lines of a spilled run at once before it writes them, and for the
//! lines of the next run after it has sent a message (`hints`). A message that is not one of a
//! batch is moved to the cache that the cores share, where its reader finds it sooner. On
//! processors of AMD, long runs are written past the cache instead (`streaming`).
//!
//! Now and then the reader publishes its progress in one word. The writer reads that word only when
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
