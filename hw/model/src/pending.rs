//! Data of the device that has a NIC: buffers of entries, FINs and events that wait.

use tagmatch_device::{Buffer, Event, PeerId};

use super::slots::Handle;
use super::transfers::HEADERS_BYTES;

/// The buffer of an entry of the NIC's list.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryBuffer {
    pub(super) handle: Option<Handle>,
    /// The number that the caller gave the entry.
    pub(super) entry: u32,
    /// The peer whose memory is being read into the buffer.
    pub(super) reads_from: Option<PeerId>,
    pub(super) buffer: Option<Buffer>,
}

/// A FIN that the inner device hasn't taken yet.
#[derive(Clone)]
pub(super) struct Fin {
    pub(super) handle: Handle,
    pub(super) peer: PeerId,
    pub(super) headers: [u8; HEADERS_BYTES],
    pub(super) length: usize,
}

/// An event for the caller, with the buffer that it will borrow named but not borrowed.
pub(super) enum Found {
    Ordinary {
        wr_id: usize,
        length: usize,
        through_list: bool,
        peer: PeerId,
        immediate: Option<u32>,
    },
    Passing {
        peer: PeerId,
        immediate: Option<u32>,
    },
    Plain(Event<'static>),
}
