//! The shadow's records of a posted receive and of an entry of the NIC's list.

use crate::config::Why;
use crate::order::PostedPattern;
use crate::table::State;
use crate::waiting::HeldBack;

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) posted: PostedPattern,
    pub(crate) place: MatchPlace,
    /// Whether this receive keeps younger receives that accept the same messages in software.
    pub(crate) blocks: bool,
}

/// Where a receive is matched.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum MatchPlace {
    /// In software. It will never be added to the NIC's list.
    Software(Why),
    /// In software until it can be added to the NIC's list.
    Waiting(Option<HeldBack>),
    /// In the NIC's list, in this slot.
    Entry(u32),
}

/// An entry of the NIC's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The receive's id.
    pub(crate) id: u32,
    /// The device's handle of the entry.
    pub(crate) handle: u32,
    /// Unexpected messages for which software had searched when the entry was added.
    pub(crate) count: u64,
    /// Why the entry is being deleted.
    pub(crate) removal: Option<Removal>,
}

/// Why an entry is being deleted. A variant further down replaces one further up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Removal {
    /// The entry was added too late to be active. The receive will be added again.
    Again,
    /// The user cancels the receive.
    Cancel,
    /// A message that did not arrive through the NIC's list is to take the receive.
    Message,
}
