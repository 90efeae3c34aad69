//! The device under the engine, as the engine sees it: events, requests, and memory of the program.

use tagmatch_model::{HEADERS_BYTES, Handle};

/// A scatter element of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// Memory that may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

/// An event of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireEvent {
    /// A bounce buffer has come back with a message.
    Arrived { pair: u32, buffer: u32, length: u32, immediate: Option<u32> },
    /// A bounce buffer has come back without a message, since the queue pair has failed.
    Failed { pair: u32, buffer: u32 },
    /// A READ or FIN has ended.
    Done { token: u64, is_ok: bool },
}

/// The device below, and the program's memory.
pub(crate) trait Wire {
    /// The next event of the device.
    fn poll(&mut self) -> Option<WireEvent>;
    /// Gives a bounce buffer to the device; `false` if it takes none.
    fn post(&mut self, buffer: u32) -> bool;
    /// The bytes of a bounce buffer that the device has given back.
    fn bounce(&self, buffer: u32) -> &[u8];
    /// Copies a part of a bounce buffer into segments of the program, which are long enough.
    fn scatter(
        &self,
        buffer: u32,
        range: std::ops::Range<usize>,
        to: &[Segment],
    ) -> Result<(), Denied>;
    /// Begins a READ or a FIN. Its end is an [`WireEvent::Done`] with this token. `false` if it
    /// can't begin.
    fn begin(&mut self, pair: u32, token: u64, request: &NicRequest) -> bool;
    /// Puts a queue pair into error.
    fn break_pair(&mut self, pair: u32);
}

/// A request on the NIC's own send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NicRequest {
    /// A READ of a part of a rendezvous.
    Read { handle: Handle, address: u64, rkey: u32, into: Segment },
    /// The FIN of a rendezvous: the first `length` bytes of `headers`.
    Fin { handle: Handle, headers: [u8; HEADERS_BYTES], length: usize },
}

impl NicRequest {
    pub(super) fn handle(&self) -> Handle {
        match self {
            NicRequest::Read { handle, .. } | NicRequest::Fin { handle, .. } => *handle,
        }
    }

    pub(super) fn is_fin(&self) -> bool {
        matches!(self, NicRequest::Fin { .. })
    }
}
