//! The effects of a call or a packet: completions, and packets to other endpoints.

use tagmatch_ofi_sys::calls::Errno;

use crate::wire::{Name, Packet};

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) context: usize,
    /// `FI_SEND` or `FI_RECV`, with `FI_TAGGED`.
    pub(crate) flags: u64,
    pub(crate) length: usize,
    pub(crate) start: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) source: Option<Name>,
    pub(crate) failure: Option<Failure>,
}

/// Why an operation has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    /// Bytes of the message for which there was no room.
    pub(crate) overflow: usize,
}

impl Failure {
    /// A failure that is about no bytes.
    pub(crate) fn of(errno: Errno) -> Self {
        Failure { errno, overflow: 0 }
    }
}

impl Completion {
    /// The end of an operation of which nothing more is told.
    pub(crate) fn of(context: usize, flags: u64, failure: Option<Failure>) -> Self {
        let (length, start, data, tag, source) = (0, 0, 0, 0, None);
        Completion { context, flags, length, start, data, tag, source, failure }
    }
}

/// Completions and packets, in their order.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) completions: Vec<Completion>,
    pub(crate) packets: Vec<(Name, Packet)>,
}
