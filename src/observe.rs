//! Observers of the matching lists, as `tagmatch-trace` has one to record traces.

use tagmatch_device::DeviceError;
pub use tagmatch_fallback::ListObserver;
/// An envelope, in the terms of the matching lists: the source is the number of a peer.
pub use tagmatch_fallback::Status as Envelope;
pub use tagmatch_soft::{Pattern, SourceId};

use crate::access::Access;
use crate::error::Error;
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// Has `observer` told of each change of the matching lists from now on, and first of what is
    /// on them. A message takes some 20 ns more then, and the time of the observer.
    ///
    /// The observer is dropped with the worker, or once the NIC has broken the rules of its list.
    ///
    /// # Errors
    /// The device matches by itself, as UCX and libfabric do, and doesn't tell of its lists
    /// ([`Ability::Observes`](crate::Ability)).
    pub fn observe(&self, observer: Box<dyn ListObserver>) -> Result<(), Error> {
        if self.access.with(|state| state.engine.as_dyn_mut().observe(observer)) {
            return Ok(());
        }
        let what = "observing the matching lists";
        let why =
            "UCX and libfabric match by themselves; any other device leaves matching to tagmatch";
        Err(DeviceError::Unsupported { what, why }.into())
    }
}
