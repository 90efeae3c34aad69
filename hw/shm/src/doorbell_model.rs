//! A doorbell for the model checker: the same page, made of the model checker's atomics.

use tagmatch_os::memory::Mapping;

use super::doorbell::Page;
use super::padded::Padded;
use super::sync::{AtomicU32, AtomicU64, Wakes};

/// Stands for a doorbell in mapped memory, and counts the wakes that a socket would carry.
pub(crate) struct Doorbell {
    page: Page,
    pub(crate) wakes: Wakes,
}

impl Doorbell {
    pub(crate) fn new(_: Mapping) -> Option<Self> {
        let page = Page {
            summary: Padded(AtomicU64::new(0)),
            sleeping: Padded(AtomicU32::new(0)),
            words: Padded(std::array::from_fn(|_| AtomicU64::new(0))),
        };
        Some(Doorbell { page, wakes: Wakes::new() })
    }

    pub(crate) fn page(&self) -> &Page {
        &self.page
    }
}
