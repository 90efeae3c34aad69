//! A read of a peer's memory that hasn't ended.

use tagmatch_device::{Buffer, Event, ReadError, RemoteSpan};

use super::region::Region;

pub(super) struct Read {
    // Drop order: the region is unregistered before the buffer is freed. `None` for a read of zero
    // bytes.
    pub(super) region: Option<Region>,
    pub(super) into: Buffer,
    pub(super) remote: RemoteSpan,
    pub(super) token: u64,
    /// Bytes for which READ requests were posted.
    pub(super) requested: u64,
}

impl Read {
    /// Ends the read and returns its event. The device must not access the buffer any more.
    pub(super) fn end(self, result: Result<(), ReadError>) -> Event<'static> {
        drop(self.region);
        Event::ReadDone { token: self.token, into: self.into, result }
    }
}
