//! How a NIC can break its contract.

use thiserror::Error;

use crate::table::{State, Step};

/// An event that can't be. No entry has changed, but the list gets no more receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// The list never had so many entries.
    #[error("an event of the NIC's list names entry {slot}, there are {slots}")]
    NoSuchEntry {
        /// What the event said.
        slot: u32,
        /// Entries that there are.
        slots: u32,
    },
    /// The entry's state doesn't allow the event.
    #[error("entry {slot} of the NIC's list was {state} when it got the event {step}")]
    Impossible {
        /// Which entry.
        slot: u32,
        /// Its state.
        state: State,
        /// The event.
        step: Step,
    },
    /// No sync is next to be answered.
    #[error("the NIC answered a sync that was not its turn")]
    Unsynced,
    /// Answers must come in the order of the operations.
    #[error(
        "entry {slot} of the NIC's list ({state}) got the answer {step} before older operations"
    )]
    OutOfTurn {
        /// Which entry.
        slot: u32,
        /// Its state.
        state: State,
        /// The answer.
        step: Step,
    },
}
