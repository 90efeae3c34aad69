//! Tag matching in software: constant time, wildcards included.
//!
//! MPI's rule is short: a message goes to the first posted receive that accepts it, a receive
//! takes the first arrived message that it accepts. This crate keeps the two lists that the rule
//! needs, [`PostedList`] and [`UnexpectedList`], so that no operation gets slower as they grow.
//!
//! # How
//!
//! Receives differ in which bits they look at: their [`TagMask`], and whether they name a source.
//! All receives that look at the same bits are one *mask class*, and within a class matching is
//! equality of those bits, which a hash table answers. Programs use few classes: exact, any
//! source, any tag, and little more. So
//!
//! 1. A posted receive gets the next number of one counter, and goes to the end of its key's
//!    chain in its class's table.
//! 2. A message asks each class in use for the first receive of its key, and goes to the one with
//!    the lowest number. A class without receives is not asked.
//! 3. A message that nobody wants goes to the end of its key's chain in each class that receives
//!    have asked for. A receive asks its own class alone, whose chain begins with the oldest.
//! 4. A class of unexpected messages gets its table when the first receive of that class asks, and
//!    loses it once keeping it up since the last question has cost more than building it again
//!    would.
//!
//! A list of up to 24 entries is not indexed at all but compared with as a whole (`short`): most programs
//! never have more. Posted receives that are alike and came one after the other count as one of them, and the
//! youngest receives can be such a list while older ones are indexed.
//!
//! # What each room knows
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `tag`, `layout` | what matches what | lists |
//! | `posted`, `unexpected` | whether a list is short, or the youngest of it, handles | how a key is found |
//! | `receives` | order between classes, classes in use | short lists |
//! | `class` | keys and their chains | order between classes |
//! | `index` | hashes, in buckets of one cache line | keys and entries |
//! | `short` | a few entries, all compared at once | tables |
//! | `lanes` | vectors of the processor; the one unsafe module | what is compared |
//! | `slab`, `link` | slots, generations, chains | what an entry is |
//!
//! The crate has no I/O, no clock, no threads and no randomness of its own: the caller gives each
//! list a seed. What a value stands for, and what happens on a match, is the caller's business.
//!
//! # What it costs
//!
//! *c* is the number of classes in use (posted) or asked for (unexpected), at most 32.
//!
//! | operation | posted | unexpected |
//! |---|---|---|
//! | add | O(1) amortised | O(c) amortised |
//! | search | O(c) | O(1), O(n) when a class first asks |
//! | search and remove | O(c) | O(c), the same |
//! | cancel or remove by handle | O(1) | O(c) |
//! | receives of one source | O(n) | |
//! | all in order | O(n log n) | O(n) |
//! | bytes per entry, 4 byte values | 36 | 32, and 8 per class |
//! | bytes of index per key and class | 9 to 18 | 9 to 18 |
//!
//! Nothing else is linear: not wildcards, not receives that never match, not ten thousand with one
//! key, not tags chosen against the hash (which is seeded, and seeded anew when keys crowd). The
//! counters of [`MatchStats`] count the work, and `tests/work.rs` holds the lists to these bounds.
//!
//! **Beyond 32 classes** at a time, further receives share one list that every arrival walks, and
//! questions of further classes walk the unexpected messages. [`MatchStats`] shows both. A list
//! never gives memory back before it is dropped, except that of given up tables.

#![deny(unsafe_code)]

mod class;
mod hash;
mod index;
mod lanes;
mod layout;
mod link;
#[cfg(test)]
mod long_lists;
mod posted;
mod receives;
mod short;
mod slab;
mod stats;
mod tag;
mod unexpected;

pub use layout::{LayoutError, TagLayout};
pub use posted::PostedList;
pub use slab::{PostedHandle, StaleHandle, UnexpectedHandle};
pub use stats::MatchStats;
pub use tag::{Pattern, SourceId, Tag, TagMask};
pub use unexpected::UnexpectedList;
