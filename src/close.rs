//! The end of a worker.

use crate::access::{Access, State};
use crate::wait::drain;

/// Ends a worker when it is dropped: requests and messages may outlive the worker's handles, their
/// operations don't.
pub(crate) struct Close<A: Access> {
    pub(crate) access: A,
    /// Messages that have not left are waited for first; see [`drain`].
    pub(crate) drains: bool,
}

/// In a build with debug assertions: panics if the books of the worker are wrong, so that each test
/// that closes a worker notices what was not given back.
fn audit(state: &State, is_closed: bool) {
    if cfg!(debug_assertions) && !std::thread::panicking() {
        let mut wrong = state.engine.as_dyn().audit(is_closed);
        wrong.extend(state.audit());
        assert!(wrong.is_empty(), "an audit of the worker: {}", wrong.join("; "));
    }
}

impl<A: Access> Drop for Close<A> {
    fn drop(&mut self) {
        /// Closes the engine, also if a waker panics during the drain.
        struct Closing<'a, A: Access>(&'a A);
        impl<A: Access> Drop for Closing<'_, A> {
            fn drop(&mut self) {
                self.0.with(|state| {
                    audit(state, false);
                    state.engine.as_dyn_mut().close();
                    audit(state, true);
                });
            }
        }
        if self.access.fixed().is_forked() {
            // Not freed either: memory of the device may be shared with the parent.
            return std::mem::forget(self.access.clone());
        }
        let closing = Closing(&self.access);
        if self.drains && !std::thread::panicking() {
            drain(closing.0);
        }
    }
}
