//! A posted receive, and an entry of the NIC's list, as the shadow knows them.

use tagmatch_soft::Pattern;

use crate::config::Why;
use crate::order::Age;
use crate::table::State;
use crate::waiting::Hold;

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) age: Age,
    pub(crate) pattern: Pattern,
    pub(crate) place: Place,
    /// Whether younger receives that accept the same messages must stay in software because of it.
    pub(crate) blocks: bool,
}

/// Where a receive is matched.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Place {
    /// In software, and never in the NIC.
    Software(Why),
    /// In software until the NIC can take it.
    Waiting(Option<Hold>),
    /// In the NIC, at this slot.
    Entry(u32),
}

/// An entry of the NIC's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The receive.
    pub(crate) id: u32,
    /// The device's name for the entry.
    pub(crate) handle: u32,
    /// Unexpected messages for which software had searched when the entry was added.
    pub(crate) count: u64,
    /// Why the entry is being deleted.
    pub(crate) removal: Option<Removal>,
}

/// Why an entry is being deleted. A later reason of this list replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Removal {
    /// It was added too late to be active, and is to be added again.
    Again,
    /// The user cancels the receive.
    Cancel,
    /// A message that did not come through the NIC's list is to take the receive.
    Message,
}
