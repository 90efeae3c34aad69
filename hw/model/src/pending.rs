//! The data that [`Model`](crate::Model) keeps between polls: buffers of entries, FINs and events
//! that wait.

use tagmatch_device::{Buffer, Event, PeerId};

use crate::slots::Handle;
use crate::transfers::HEADERS_BYTES;

/// The buffer of an entry of the NIC's list.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryBuffer {
    pub(crate) handle: Option<Handle>,
    /// The number that the caller gave the entry.
    pub(crate) entry: u32,
    /// The peer whose memory is being read into the buffer.
    pub(crate) reads_from: Option<PeerId>,
    pub(crate) buffer: Option<Buffer>,
}

/// A FIN that the inner device has not accepted yet.
#[derive(Clone)]
pub(crate) struct Fin {
    pub(crate) handle: Handle,
    pub(crate) peer: PeerId,
    pub(crate) headers: [u8; HEADERS_BYTES],
    pub(crate) length: usize,
}

/// An event for the caller. It names the buffer that it will borrow, but does not borrow it yet.
pub(crate) enum PendingEvent {
    /// A message in an ordinary buffer.
    Ordinary {
        wr_id: usize,
        length: usize,
        through_list: bool,
        peer: PeerId,
        immediate: Option<u32>,
    },
    /// A message of a peer that the list does not carry.
    Uncarried { peer: PeerId, immediate: Option<u32> },
    /// An event that borrows nothing.
    Owned(Event<'static>),
}
