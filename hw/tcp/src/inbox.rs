//! The memory into which bytes are received, one peer at a time. Part of a frame that has not
//! arrived whole waits with its connection.

use std::ops::Range;

use tagmatch_device::PeerId;

use super::frame::{HEADER_BYTES, PIECE_BYTES};

/// Bytes received from one peer, of which the frames were not all looked at yet.
pub(crate) struct ReceiveBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    owner: Option<PeerId>,
}

impl ReceiveBuffer {
    /// An inbox for messages of up to `message_max` bytes.
    pub(crate) fn new(message_max: usize) -> Self {
        let bytes = vec![0; HEADER_BYTES + message_max.max(PIECE_BYTES) + PIECE_BYTES].into();
        ReceiveBuffer { bytes, start: 0, end: 0, owner: None }
    }

    /// The peer whose bytes these are.
    #[inline]
    pub(crate) fn owner(&self) -> Option<PeerId> {
        self.owner
    }

    /// Drops the bytes if they are this peer's.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        if self.owner == Some(peer) {
            self.owner = None;
        }
    }

    /// The place to receive bytes of a peer, behind the part of a frame that came before. The bytes
    /// of no other peer may be left.
    pub(crate) fn begin(&mut self, peer: PeerId, partial: &[u8]) -> &mut [u8] {
        self.bytes[..partial.len()].copy_from_slice(partial);
        (self.start, self.end, self.owner) = (0, partial.len(), Some(peer));
        &mut self.bytes[partial.len()..]
    }

    /// Notes that so many bytes were received.
    #[inline]
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
    }

    /// The bytes that were not looked at.
    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The bytes behind the header of the first frame, if so many are there.
    pub(crate) fn body<const N: usize>(&self) -> Option<&[u8; N]> {
        self.rest().get(HEADER_BYTES..)?.first_chunk()
    }

    /// Takes the first `length` bytes, which are there; returns their place.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Range<usize> {
        let start = self.start;
        self.start += length;
        start..self.start
    }

    /// Takes all bytes, and ends the turn of this peer.
    pub(crate) fn take_rest(&mut self) -> &[u8] {
        self.owner = None;
        &self.bytes[self.start..self.end]
    }

    /// The bytes at a place that [`ReceiveBuffer::take`] gave.
    #[inline]
    pub(crate) fn at(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }
}
