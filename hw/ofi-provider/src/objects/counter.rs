//! A counter.

use tagmatch_device::slab::Key;

/// A counter: how many of the operations that it is bound to have ended, well or badly
/// (fi_cntr(3)). Both numbers wrap around.
#[derive(Default)]
pub(crate) struct Counter {
    /// Operations that have succeeded.
    pub(crate) value: u64,
    /// Operations that have failed.
    pub(crate) errors: u64,
    /// The endpoints that are bound to it.
    pub(crate) endpoints: Vec<Key>,
    /// How many memory regions are bound to it.
    pub(crate) regions: usize,
}

impl Counter {
    /// Counts an operation.
    pub(crate) fn add(&mut self, is_success: bool) {
        let number = if is_success { &mut self.value } else { &mut self.errors };
        *number = number.wrapping_add(1);
    }

    /// Counts operations that have succeeded.
    pub(crate) fn add_all(&mut self, count: u64) {
        self.value = self.value.wrapping_add(count);
    }
}
