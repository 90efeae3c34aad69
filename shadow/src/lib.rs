//! The receives that a tag-matching NIC holds, and the receives that it may be given next.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! The tag-matching list of a NIC is short and asynchronous, and it is only one of the ways on
//! which messages arrive. This crate decides which posted receives are added to the list, and what
//! follows when software finds a message for a receive that is there. It produces operations for
//! the list and takes the list's events. It knows nothing of verbs, buffers or messages. [`Shadow`]
//! is its one type with behaviour.
//!
//! # Order
//! MPI gives a message to the first posted receive that matches, in the order of posting. The NIC
//! knows only the receives in its list, in the order in which they were added. So a receive may be
//! added only if no older receive that could take one of its messages *blocks* it. These receives
//! block younger ones:
//!
//! - receives in software;
//! - receives whose entry is being deleted, because they may return to software;
//! - receives whose entry is not known to be active and was added with another count than an ADD
//!   would carry now. An entry with the same count doesn't block: if it misses its phase, the
//!   younger one misses it as well.
//!
//! # Phases
//! The NIC counts the messages that it reports as unexpected, and software counts those for which
//! it has searched the posted receives. Each operation carries software's count, and the NIC adds
//! an entry as inactive if the two counts differ (rdma-core, `Documentation/tag_matching.md`).
//! Otherwise a younger message could overtake an unexpected message that software has not seen yet.
//!
//! An entry is known to be *active* if no unexpected message was reported between the count that
//! its ADD carried and the answer to the ADD. Any other entry may be inactive. NICs differ in
//! whether they activate it later. So it is deleted and added again, together with the entries
//! added after it with the same count, the youngest first: an older entry must not be missing while
//! a younger one can be active.
//!
//! # Messages that don't arrive through the list
//! If the first match of such a message is in the NIC's list, the message waits: the NIC may have
//! given that receive another message already. A delete with an answer decides. To keep this rare,
//! as soon as messages can arrive on other ways, a receive is added only if its tag names a sender
//! whose messages have all arrived through the list.
//!
//! # Withdrawing an entry
//! An unexpected message of the list whose first match is in the list can be delivered at once. The
//! NIC did not match it, so the entry was not active, and it can't become active until the NIC is
//! told a higher count. The delete of the entry goes before any other operation and carries the old
//! count.
//!
//! An entry whose delete is under way for a cancel, or for a message that arrived on another way,
//! can't be taken like this. The delete may have been executed, and the NIC may since have matched
//! younger receives with older messages. A message that finds such an entry waits for the answer,
//! which can only be that the delete removed the entry, and is then searched for again.
//!
//! # Promotion
//! Receives that could not be added wait until the reason is gone. They are then examined in the
//! order of posting, at most [`LOOKS_MAX`] per event. A full list never blocks a caller.
//!
//! # Modules
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `table` | the life cycle of an entry | receives |
//! | `order` | which receive blocks which | the reason |
//! | `waiting` | the receives to be examined | what they are examined for |
//! | `policy` | which receives are worth adding; senders | other receives |
//! | `queue` | operations without answers | what they are for |
//! | `shadow` | all modules above: calls; in its folder events in, operations out, a hash of it all | the NIC |
//!
//! Each call takes O(log n) amortised, in the posted receives and the masks in use. The crate has
//! no I/O, no clock and no randomness.
//!
//! # Decisions
//! **A message that matches an entry being cancelled waits.** The delete may be done already, and a
//! younger receive may since have got an earlier message of the same sender: matching at once would
//! let the two cross. So the answer of the delete decides. If it says deleted, the cancel wins and
//! the message searches on. (Random histories of the shadow and of the model found this
//! independently; the planted slip `TakeWhileCancelled` brings it back.)
//!
//! **SYNC has an answer.** An operation without an answer takes a place among the outstanding ones
//! until a later one is answered. A NIC whose list is idle and that is only told counts would run
//! out of places.
//!
//! **The index of the order rule is made of ordered maps**, one per mask that candidates have and
//! one per mask combined with it. The oldest receive in the way is found in O(classes log n),
//! wildcards included. Hash tables would need a seed, and an order beside them.
//!
//! **One list per worker.** A peer that the list doesn't carry, oneself among them, is handled as
//! *another way*: its messages wait for a delete with an answer where a NIC holds the receive. Two
//! NICs with a list each in one worker would need a shadow each; nothing here offers that.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod entry;
mod error;
mod op;
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
pub use op::{LOOKS_MAX, Op, Refusal};
pub use shadow::events::{Deleted, Lost};
pub use shadow::operations::DueOp;
pub use shadow::{CancelAnswer, Shadow, Take};
