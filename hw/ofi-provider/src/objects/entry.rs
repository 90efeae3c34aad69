//! An entry of a completion queue.

use std::num::NonZero;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::Errno;

/// What a completion queue tells of an operation, whatever the format of the queue (fi_cq(3)).
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The context of the operation, as the caller gave it.
    pub context: usize,
    /// `FI_SEND` or `FI_RECV`, `FI_MSG` or `FI_TAGGED`, and what else applies.
    pub flags: u64,
    /// Received bytes, or bytes of a peer's write that came with data; 0 for a send.
    pub length: usize,
    /// Where the message was put, for a receive.
    pub start: usize,
    /// Immediate data, if the flags say so.
    pub data: u64,
    /// The tag of a received tagged message.
    pub tag: u64,
    /// The sender of a received message.
    pub source: u64,
    /// Set if the operation failed.
    pub failure: Option<Failure>,
}

/// What an error entry has beyond other entries.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    // Not zero, so that an entry is no longer for the failures that most entries don't have.
    errno: NonZero<i32>,
    /// The provider's own number (`prov_errno`), for which it has words.
    pub reason: i32,
    /// Bytes of the message that had no room in the buffer.
    pub overflow: usize,
}

impl Failure {
    /// A failure with libfabric's number and the provider's.
    pub fn new(errno: Errno, reason: i32) -> Self {
        const OTHER: NonZero<i32> = NonZero::new(Errno::OTHER.0).unwrap();
        Failure { errno: NonZero::new(errno.0).unwrap_or(OTHER), reason, overflow: 0 }
    }

    /// libfabric's number.
    pub fn errno(&self) -> Errno {
        Errno(self.errno.get())
    }
}

impl Entry {
    /// An entry without a message.
    #[inline(always)]
    pub fn new(context: usize, flags: u64) -> Self {
        Entry {
            context,
            flags,
            length: 0,
            start: 0,
            data: 0,
            tag: 0,
            source: sys::FI_ADDR_NOTAVAIL,
            failure: None,
        }
    }

    /// An error entry without a message.
    pub fn failed(context: usize, flags: u64, failure: Failure) -> Self {
        Entry { failure: Some(failure), ..Entry::new(context, flags) }
    }
}
