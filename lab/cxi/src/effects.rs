//! The effects of a call or a packet: completions, and packets to other endpoints.

use tagmatch_ofi_provider::{Entry, Failure};
use tagmatch_ofi_sys::calls::Errno;

use crate::wire::{Name, Packet};

/// The end of an operation. Its entry names no source until the endpoint has found its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) entry: Entry,
    pub(crate) source: Option<Name>,
}

/// A failure that is about no bytes. cxi's own number is libfabric's.
pub(crate) fn failure(errno: Errno) -> Failure {
    Failure::new(errno, errno.0)
}

impl Completion {
    /// The end of an operation of which nothing more is told.
    pub(crate) fn of(context: usize, flags: u64, failure: Option<Failure>) -> Self {
        Completion { entry: Entry { failure, ..Entry::new(context, flags) }, source: None }
    }
}

/// Completions and packets, in their order.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) completions: Vec<Completion>,
    pub(crate) packets: Vec<(Name, Packet)>,
}
