//! One direction of a connection: a ring of messages with one writer and one reader.
//!
//! A ring has a header, with two cache lines per word, and lines: 16 *short lines*, which share a
//! page with the headers and with those of the other direction, and *long lines* (see [`memory`]).
//! The writer uses one kind at a time, and says with a word of its own that the next message is in
//! the other kind. It changes from the short lines to the long ones at any time, since a free line
//! is left for that word and the long lines are all free. It changes back once the reader has read
//! all ([`Producer::rest`]), and clears the short lines' words before. A reader that follows it
//! back gives the long lines' memory back, and they are zero then, before it says that it was
//! there: until the writer hears that, it stays in the short lines.
//!
//! A message begins in a line, its *slot*, with one 64-bit word. Up to 56 bytes follow in the same
//! line. A message of up to 112 bytes takes a second slot, the line behind. The other bytes of a
//! longer one lie in the lines behind its slot, in one run. So a short message costs one line or
//! two, and a longer one lies where the processors' prefetchers expect it. The word of the first
//! slot has the length and the flags in its high half, and is stored last. The word of a second
//! slot has nothing but the flags of the lap, so that it is no message in the next one: a lap of
//! short messages leaves no line whose word has to be cleared.
//!
//! **A message is there if its word has the flags of the lap**, which are those of every second
//! lap. The word of the lap before, and zero, say that there is none. A line that was in a run, or
//! was left out in the lap before, has other bytes there. So the writer, which knows what it has
//! left in each line ([`lap`]), clears such a word before it publishes the message before, and
//! those of a few lines behind after that. To clear each word would cost a transfer of its line for
//! each message of a batch.
//!
//! **Laps are as short as the reader allows**, unless laps of the whole ring turn out to be faster
//! on this pair's processors ([`lap`]). The lines of a lap that was not long ago are in the caches
//! of both cores. So a writer whose reader keeps up returns to the first line after a page, and
//! says so by a flag of the message before. Half a round trip of 1 KiB went from 1,086 to 766 ns
//! between cores without a common cache, and from 330 to 245 ns between others, when laps of 256
//! KiB became laps of 4 KiB. A writer that has to wait for room makes its laps longer, and jumps
//! over what its reader has not read of a short lap: the whole ring can be in use at any time. Runs
//! that are written past the cache don't end a lap: they are faster into lines that no cache has.
//! On processors of AMD, the few peers of a small job have rings of 2 MiB, because a lap of that
//! length leaves no line in the reader's own cache (`config`). A ring takes no more memory than its
//! laps.
//!
//! **What was read is said on the way.** The low half of a message's word says how far its sender
//! has read the ring of the other direction ([`piggyback`]). Where nothing is sent back, the reader
//! publishes its progress in a word of the header, now and then. The writer reads that word only
//! when the ring seems full.
//!
//! Moving a cache line from one core to another takes most of the time of a message. So the writer
//! asks the processor for all lines of a run at once before it writes them, and for those of the
//! next message after it has sent one (`hints`). Slots, and the run of a message that is not one of
//! a batch, are moved to the cache that the cores share, where the reader finds them sooner. On
//! processors of AMD, long runs are written past the cache instead (`streaming`).

pub(crate) mod consumer;
pub(crate) mod geometry;
mod lap;
pub(crate) mod memory;
#[cfg(all(loom, test))]
pub(crate) mod model;
mod parts;
pub(crate) mod piggyback;
pub(crate) mod producer;
pub(crate) mod slot;

pub(crate) use consumer::Consumer;
pub(crate) use geometry::Geometry;
pub(crate) use lap::LONG_MESSAGE_BYTES;
pub(crate) use memory::Ring;
pub(crate) use piggyback::Piggyback;
pub(crate) use producer::{Producer, PushError};
use tagmatch_device::CopyPath;

impl CopyPath for Producer {
    type Error = PushError;

    fn has_half_free(&mut self) -> Result<bool, PushError> {
        Producer::has_half_free(self)
    }

    fn part_max(&self) -> usize {
        self.long_geometry().fragment_max() as usize
    }

    fn send(&mut self, header: &[u8], part: &[u8]) -> Result<(), PushError> {
        self.push_internal(header, part)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
