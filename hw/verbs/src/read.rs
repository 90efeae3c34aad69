//! A read of a peer's memory that has not ended.

use tagmatch_device::{Buffer, ReadError, RemoteSpan};

use super::queued::Queued;
use super::region::Region;

/// A read that has not ended.
pub(super) struct Read {
    // Before the buffer: it is unregistered first. `None` for no bytes.
    pub(super) region: Option<Region>,
    pub(super) into: Buffer,
    pub(super) remote: RemoteSpan,
    pub(super) token: u64,
    /// Bytes that READ requests were posted for.
    pub(super) asked: u64,
}

impl Read {
    /// The end of it, as an event. The device doesn't reach the buffer any more.
    pub(super) fn end(self, result: Result<(), ReadError>) -> Queued {
        drop(self.region);
        Queued::ReadDone(self.token, self.into, result)
    }
}
