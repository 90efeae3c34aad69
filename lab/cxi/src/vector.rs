//! An address vector: a table of names.

use std::sync::{Mutex, PoisonError};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::wire::Name;

/// Names by their index, which is what a program calls an address (`FI_AV_TABLE`).
#[derive(Default)]
pub(crate) struct Vector(Mutex<Vec<Option<Name>>>);

impl Vector {
    fn names(&self) -> std::sync::MutexGuard<'_, Vec<Option<Name>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a name.
    pub(crate) fn insert(&self, name: Name) -> u64 {
        let mut names = self.names();
        names.push(Some(name));
        names.len() as u64 - 1
    }

    /// Removes a name. Its address isn't used again.
    pub(crate) fn remove(&self, address: u64) -> Result<()> {
        let index = usize::try_from(address).map_err(|_| Errno::INVALID)?;
        let mut names = self.names();
        names.get_mut(index).and_then(Option::take).map(drop).ok_or(Errno::INVALID)
    }

    /// The name with this address.
    pub(crate) fn name(&self, address: u64) -> Result<Name> {
        let index = usize::try_from(address).map_err(|_| Errno::INVALID)?;
        self.names().get(index).copied().flatten().ok_or(Errno::INVALID)
    }

    /// The address of a name, by a search (`FI_SOURCE`).
    pub(crate) fn address(&self, name: Name) -> u64 {
        let found = self.names().iter().position(|other| *other == Some(name));
        found.map_or(sys::FI_ADDR_NOTAVAIL, |index| index as u64)
    }
}
