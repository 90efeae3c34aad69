//! What can go wrong, by who can do something about it.

use crate::ids::ContextId;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Some process that was to take part has no context id left.
    #[error("a process has none of its {ids} context ids left; free a communicator")]
    Exhausted {
        /// Ids that each process has.
        ids: u32,
    },
    /// Every process has context ids left, but none that is free in all of them.
    #[error("no context id is free in all processes, though each has some of its {ids} left")]
    Fragmented {
        /// Ids that each process has.
        ids: u32,
    },
    /// The id was freed before.
    #[error("context id {id} was freed twice")]
    DoubleFree {
        /// Which id.
        id: ContextId,
    },
    /// Predefined communicators are not freed.
    #[error("context id {id} is predefined and can't be freed")]
    FreePredefined {
        /// Which id.
        id: ContextId,
    },
    /// The bits are no context id of this layout.
    #[error("{bits:#x} is no context id of {width} bits")]
    NotAnId {
        /// The bits.
        bits: u32,
        /// Bits that an id has.
        width: u32,
    },
    /// Intercommunicators want a layout of context ids with the bit L.
    #[error("this layout of context ids has no bit for local communicators")]
    NoLocalcomm,
    /// A setting is out of range.
    #[error("{what}: at most {max}")]
    Layout {
        /// Which setting.
        what: &'static str,
        /// The largest value.
        max: u32,
    },
    /// What other processes contributed to an allocation can't be right.
    #[error("the reduction for a context id gave what this process has not offered")]
    NotOffered,
}

/// Errors by what a caller can do about them, as MPI's error classes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The caller gave something that can't be.
    Argument,
    /// Something has run out; free some of it.
    Resource,
    /// Another process sent what it should not have.
    Peer,
}

impl Error {
    /// The error's class.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Exhausted { .. } | Error::Fragmented { .. } => ErrorClass::Resource,
            Error::NotOffered => ErrorClass::Peer,
            _ => ErrorClass::Argument,
        }
    }
}
