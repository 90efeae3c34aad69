//! An entry of a completion queue.

use tagmatch_ofi_sys as sys;

use crate::errno::{Errno, Reason};

/// What a completion queue tells of an operation, whatever the format of the queue (fi_cq(3)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The context of the operation, as the caller gave it.
    pub(crate) context: usize,
    /// `FI_SEND` or `FI_RECV`, `FI_MSG` or `FI_TAGGED`, and what else applies.
    pub(crate) flags: u64,
    /// Received bytes; 0 for a send.
    pub(crate) length: usize,
    /// Where the message was put, for a receive.
    pub(crate) start: usize,
    /// Immediate data, if the flags say so.
    pub(crate) data: u64,
    /// The tag of a received tagged message.
    pub(crate) tag: u64,
    /// The sender of a received message.
    pub(crate) source: u64,
    /// Set if the operation failed.
    pub(crate) failure: Option<Failure>,
}

/// What an error entry has beyond other entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// libfabric's number.
    pub(crate) errno: Errno,
    /// Our own number.
    pub(crate) reason: Reason,
    /// Bytes of the message that had no room in the buffer.
    pub(crate) overflow: usize,
}

impl Failure {
    /// A failure with these numbers.
    pub(crate) fn new((errno, reason): (Errno, Reason)) -> Self {
        Failure { errno, reason, overflow: 0 }
    }
}

impl Entry {
    /// An entry without a message.
    pub(crate) fn new(context: usize, flags: u64) -> Self {
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
    pub(crate) fn failed(context: usize, flags: u64, numbers: (Errno, Reason)) -> Self {
        Entry { failure: Some(Failure::new(numbers)), ..Entry::new(context, flags) }
    }
}
