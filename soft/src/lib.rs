//! Tag matching in software: constant time, wildcards included.
//!
//! Internal, no promises: programs depend on `tagmatch`.
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
//!
//! # Decisions
//! **Mask classes.** Receives with the same mask (and with or without a named source) share a hash
//! table keyed by the masked tag. A message probes one table per class in use and takes the lowest
//! sequence number. So a wildcard costs one more probe and no walk. Recorded applications use one
//! to four classes. The 33rd class and all later ones share one list that is scanned: correct,
//! linear among themselves, and counted.
//!
//! **Short lists are compared as a whole.** Recorded applications rarely have more than eighteen
//! receives posted. Up to 24 entries, posted or unexpected, stand in *lanes* (columns of equal
//! width) and are compared with vector instructions; of several matches, the lowest sequence number
//! is the oldest. The twenty-fifth entry moves all of them into the tables. They stay there, and
//! all later entries go there, until the list is empty. If the list was long, the entries after
//! that go to the tables from the first one on, because windows of receives repeat.
//!
//! **A short list may follow a long one** in the posted list. Programs post some receives long in
//! advance, and then wait for receives that they posted just now. Once receives have been taken
//! soon after they were posted for a while, the next ones stand in lanes again. All of them are
//! younger than the tables' entries. The tables are older, so a message asks them first; that one
//! look is spared if the message is like the last one that nothing there accepted. So 16384
//! receives that wait for something else cost an exchange some 40 instructions; without the short
//! list they cost 130 or more in one class, and 280 in two.
//!
//! **Equal receives share a lane.** A window of 64 receives of one pattern is one lane with a chain
//! behind it, and counts as short. Without that, each went through the table of its class.
//!
//! **The tables overlap their cache misses.** The home buckets of four classes are looked at before
//! the first entry is. A bucket is one cache line with twelve keys. Equal receives come in runs, so
//! the cell of the last key of a class is remembered and a run is hashed once. One class alone, and
//! two, have searches of their own that keep no list of what was found.
//!
//! **Large tables grow in chunks.** Beyond the first thousand, requests and waiting messages stand
//! in chunks that never move. A vector that doubles would leave its old halves in the allocator's
//! heap, and several that grow together leave a tenth to a half of the process's memory there. The
//! memory that the matching lists outgrow is filled by those chunks.
//!
//! **The hash is seeded.** The seed is secret, so no pattern of tags, accidental or chosen, makes a
//! table degenerate. A table that becomes degenerate is rebuilt with another seed.
//!
//! **Unexpected messages are indexed on demand**: by a class from the first time a receive asks for
//! it, until keeping the index has cost more than building it again would. The index by full key
//! follows the same rule, since a runtime whose tags name the source never asks for it and would
//! pay for it with every message.

#![deny(unsafe_code)]

mod class;
mod hash;
mod index;
mod lanes;
mod layout;
mod link;
mod posted;
mod receives;
mod short;
mod slab;
mod stats;
mod tag;
#[cfg(test)]
mod tests;
mod unexpected;

pub use layout::{LayoutError, TagLayout};
pub use posted::PostedList;
pub use slab::{PostedHandle, StaleHandle, UnexpectedHandle};
pub use stats::MatchStats;
pub use tag::{Pattern, SourceId, Tag, TagMask};
pub use unexpected::UnexpectedList;
