//! What a tag-matching NIC holds of the posted-receive list, and what it may be given next.
//!
//! A NIC's list is short, asynchronous, and only one of the ways by which messages come. This room decides
//! which receives go there, and what it means when software finds a message for one that is there. It
//! gives operations for the list and takes the list's events; it knows nothing of verbs, buffers or
//! messages. [`Shadow`] is all of it.
//!
//! P is the list of posted receives, in order of posting; N is what the NIC holds of it.
//!
//! # C1: order
//! MPI gives a message to the first receive of P that matches. The NIC knows N only, in the order of
//! adding. So a receive may be added iff no older one that overlaps it is in its way. In the way are
//! receives in software, those being deleted (they may come back), and those in N that are not known
//! to be active and carried another count than an ADD would now. With the same count, an older one
//! that misses its phase takes the younger one with it.
//!
//! # Phases
//! The NIC counts messages that it hands up, software those that it has searched P for; each operation
//! carries software's count, and an entry is added inactive if the counts differ
//! (rdma-core, `Documentation/tag_matching.md`). Otherwise a message on its way up could be overtaken.
//! An ADD whose answer comes when no message has come up since the count that it carried is *active*. Any
//! other may be inactive. Whether it wakes later differs between NICs: it is deleted and added again,
//! together with those added after it with the same count, the youngest first: an older one must not
//! be missing while a younger one can be awake.
//!
//! # C2: one order of arrival
//! A message that did not come up through the list and whose first match is in N waits: the NIC may have
//! given that receive another message already. A delete with an answer decides. Which is why, once there
//! are other ways by which messages come, only receives that pin a source whose messages all come up
//! through the list are added.
//!
//! # Withdraw
//! A message that came up through the list and whose first match is in N can be delivered at once: the NIC
//! did not match it, so the entry was not active and, until the count is raised, can't be. The entry's
//! delete goes before any other operation and carries the count from before.
//!
//! An entry whose delete is under way for a cancel or a message of C2 can't be taken any more: the delete may
//! be done, and the NIC may since have given younger receives messages that came before this one. Who finds it
//! waits for the answer, which can only be that the delete won, and searches on.
//!
//! # Promotion
//! Receives that could not be added wait until what was in their way is gone, and are looked at in order
//! of posting, at most [`LOOKS_MAX`] per event. A full list never stops anything.
//!
//! # Rooms
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `table` | the life of an entry | receives |
//! | `order` | what is in whose way (C1) | why |
//! | `waiting` | who is to be looked at | what for |
//! | `policy` | what is worth it; sources (C2) | other receives |
//! | `queue` | operations without answers | what they are for |
//! | `digest` | what later behaviour depends on | |
//! | `shadow`, `events`, `operations` | all of these: calls, events in, operations out | the NIC |
//!
//! Everything is O(log n) in the receives posted and the masks in use, amortised; there is no I/O, no clock
//! and no randomness.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod digest;
mod entry;
mod error;
mod events;
mod op;
mod operations;
mod order;
mod policy;
mod queue;
mod shadow;
pub mod table;
mod waiting;

pub use config::{ShadowConfig, Why};
pub use counters::Counters;
pub use entry::Removal;
pub use error::ShadowError;
pub use events::{Deleted, Lost};
pub use op::{LOOKS_MAX, Op, Refusal};
pub use shadow::{Cancel, Shadow, Take};
