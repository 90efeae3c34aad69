//! Events by which a NIC breaks its contract.

use thiserror::Error;

use crate::table::{State, Step};

/// An event that the contract of the NIC's list doesn't allow.
///
/// The entries stay as they were, and the list gets no more receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// The event names a slot that the list doesn't have.
    #[error("the NIC reported an event for entry {slot} of its list, which has {slots} entries")]
    NoSuchEntry {
        /// The slot that the event named.
        slot: u32,
        /// The number of slots.
        slots: u32,
    },
    /// The event can't happen in the entry's state.
    #[error("entry {slot} of the NIC's list was {state:?} when it got the event {step:?}")]
    Impossible {
        /// The entry's slot.
        slot: u32,
        /// The entry's state.
        state: State,
        /// The reported event.
        step: Step,
    },
    /// The NIC answered a sync, but the oldest operation without an answer is no sync.
    #[error("the NIC answered a sync that was not the oldest operation without an answer")]
    Unsynced,
    /// The NIC answered an operation before an older one.
    #[error(
        "entry {slot} of the NIC's list ({state:?}) got the answer {step:?} before older operations"
    )]
    OutOfTurn {
        /// The entry's slot.
        slot: u32,
        /// The entry's state.
        state: State,
        /// The reported answer.
        step: Step,
    },
}
