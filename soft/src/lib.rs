//! Tag matching in software: constant time, wildcards included.
//!
//! MPI's rule is short: a message goes to the first posted receive that accepts it, and a receive
//! takes the first unexpected message that it accepts. This crate keeps the two lists that the rule
//! needs, [`PostedList`] and [`UnexpectedList`]. No operation gets slower as they grow.
//!
//! # How it works
//!
//! Receives differ in the bits that they compare: their [`TagMask`], and whether they name a
//! source. All receives that compare the same bits form a *mask class*. Within a class, matching is
//! equality of those bits, which are the *key*, so a hash table finds the match. Programs use few
//! classes: exact, any source, any tag, and rarely more. The lists work as follows:
//!
//! 1. A posted receive gets the next sequence number, and goes to the end of its key's chain in the
//!    table of its class.
//! 2. A message is looked up in each class in use. Of the receives found, the one with the lowest
//!    sequence number gets the message. A class without receives is not searched.
//! 3. An unexpected message goes to the end of its key's chain in the table of each class that
//!    receives have searched. A receive searches only its own class, whose chain begins with the
//!    oldest message.
//! 4. A class of unexpected messages gets its table at the first search by a receive of that class.
//!    It loses the table once the updates since the last search have cost more than building it
//!    again would.
//!
//! A list of up to 24 entries has no tables. It is a *short list*: each entry is in a *lane*, and
//! all lanes are compared at once (`short`). Most programs never need more. Equal receives posted
//! one after the other share a lane. The youngest receives can be in lanes while older ones are in
//! tables.
//!
//! # Modules
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `tag`, `layout` | which messages a receive accepts | lists |
//! | `posted`, `unexpected` | which entries are in lanes and which in tables, handles | how a key is found |
//! | `receives` | order between classes, classes in use | short lists |
//! | `class` | keys and their chains | order between classes |
//! | `index` | hashes, in buckets of one cache line | keys and entries |
//! | `short` | a few entries in lanes, all compared at once | tables |
//! | `lanes` | vector instructions; the one unsafe module | the meaning of the values compared |
//! | `slab`, `link` | slots, generations, chains | the contents of an entry |
//!
//! The crate has no I/O, no clock, no threads and no randomness: the caller gives each list a seed.
//! The lists do not interpret the values that the caller stores in them.
//!
//! # Costs
//!
//! *c* is the number of classes in use (posted) or with a table (unexpected), at most 32.
//!
//! | operation | posted | unexpected |
//! |---|---|---|
//! | add | O(1) amortised | O(c) amortised |
//! | search | O(c) | O(1); O(n) at the first search of a class |
//! | search and remove | O(c) | O(c); O(n) at the first search of a class |
//! | cancel or remove by handle | O(1) | O(c) |
//! | receives of one source | O(n) | |
//! | all in order | O(n log n) | O(n) |
//! | bytes per entry, 4 byte values | 36 | 32, and 8 per class |
//! | bytes of index per key and class | 9 to 18 | 9 to 18 |
//!
//! Nothing else is linear: not wildcards, not receives that never match, not ten thousand receives
//! with one key, and not tags chosen against the hash, which is seeded, and gets a new seed when
//! too many keys share a bucket. The counters of [`MatchStats`] count the work, and `tests/work.rs`
//! checks these bounds.
//!
//! **Beyond 32 classes** at a time, further receives share one list that every message scans, and
//! receives of further classes scan the unexpected messages. [`MatchStats`] counts both. A list
//! frees no memory before it is dropped, except the memory of unused tables.

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
