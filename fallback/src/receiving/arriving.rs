//! A message of which some fragments are still to come.

use crate::credit::Amount;
use crate::requests::request::{RequestId, Status};
use crate::store::Stored;

/// A message of which some fragments are still to come. It has been charged as a whole.
#[derive(Clone, Debug)]
pub(crate) struct PartialMessage {
    pub(crate) status: Status,
    /// Bytes of it that are here, less than its length.
    pub(crate) received: usize,
    pub(crate) place: FragmentPlace,
}

/// Where the fragments of a message are put.
#[derive(Clone, Debug)]
pub(crate) enum FragmentPlace {
    /// Into the buffer of a receive, which is matched.
    Receive(RequestId),
    /// Into the store.
    Store(Stored),
}

impl PartialMessage {
    /// The bytes that it takes in the store, if it is put there.
    pub(crate) fn stored_bytes(&self) -> Option<u64> {
        matches!(self.place, FragmentPlace::Store(_)).then(|| self.cost().bytes)
    }

    /// The credit that the message holds.
    pub(crate) fn cost(&self) -> Amount {
        Amount::of_eager(self.status.length)
    }
}
