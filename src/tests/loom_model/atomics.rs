//! An atomic of the model checker, whose orders may be weakened (`ci/orders`).

use std::sync::atomic::Ordering;

use tagmatch_testkit::weakened::{AccessKind, order};

#[derive(Debug)]
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, given: Ordering) -> bool {
        self.0.load(order(given, AccessKind::Load))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: bool, given: Ordering) {
        self.0.store(value, order(given, AccessKind::Store));
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: bool, given: Ordering) -> bool {
        self.0.swap(value, order(given, AccessKind::Exchange))
    }
}
