//! Pieces of the reads that a peer has requested: frames with bytes that go straight out of an
//! exposed buffer.

use std::io::IoSlice;

use tagmatch_device::{Readable, RemoteSpan};

use super::frame::{Frame, HEADER_BYTES};

/// Sent in the place of a buffer that was withdrawn while a piece of it was being sent.
static BLANK: [u8; 4096] = [0; 4096];

/// A read that the peer has requested.
pub(crate) struct RequestedRead {
    pub(crate) id: u32,
    pub(crate) span: RemoteSpan,
    /// How many bytes the pieces that were begun have.
    pub(crate) given: u64,
}

impl RequestedRead {
    /// One of the next pieces of `bytes` bytes, the next one being 0; `None` behind the last.
    pub(crate) fn piece(&self, number: usize, bytes: usize) -> Option<ReadPiece> {
        let start = self.given + (number * bytes) as u64;
        // A read without bytes has one piece.
        if start > self.span.length || (start == self.span.length && start > 0) {
            return None;
        }
        let left = self.span.length - start;
        let length = usize::try_from(left).map_or(bytes, |left| left.min(bytes));
        let is_last = left == length as u64;
        Some(ReadPiece {
            id: self.id,
            span: self.span,
            start: usize::try_from(start).ok()?,
            header: Frame::ReadData { id: self.id, length }.emit(),
            end: is_last.then(|| Frame::ReadEnd { id: self.id }.emit()),
            length,
            sent: 0,
            is_blank: false,
        })
    }
}

/// A frame with bytes of a read, of which a part has been sent.
pub(crate) struct ReadPiece {
    pub(crate) id: u32,
    span: RemoteSpan,
    /// Where in the span its bytes begin.
    start: usize,
    header: [u8; HEADER_BYTES],
    /// The frame that ends the read, behind its last piece.
    end: Option<[u8; HEADER_BYTES]>,
    /// Bytes of the read in this piece.
    pub(crate) length: usize,
    /// How much was sent: header, bytes and end.
    pub(crate) sent: usize,
    /// The buffer was withdrawn.
    is_blank: bool,
}

impl ReadPiece {
    /// Whether the read ends with this piece.
    pub(crate) fn is_last(&self) -> bool {
        self.end.is_some()
    }

    /// How much is left to be sent.
    pub(crate) fn left(&self) -> usize {
        HEADER_BYTES + self.length + self.end.map_or(0, |end| end.len()) - self.sent
    }

    /// The bytes of this piece; `None` if they are not exposed any more.
    pub(crate) fn bytes<'a>(&self, readable: Readable<'a>) -> Option<&'a [u8]> {
        readable.bytes(self.span)?.get(self.start..self.start + self.length)
    }

    /// The buffer is gone: the peer needs it no more, or this worker is being closed. The frame is
    /// completed, and the read fails. `false` if that is so already.
    pub(crate) fn blank(&mut self) -> bool {
        let is_new = !self.is_blank;
        if is_new {
            self.is_blank = true;
            self.end = Some(Frame::ReadFailed { id: self.id }.emit());
        }
        is_new
    }

    /// What is left to be sent, of the bytes of this piece; blank bytes if they are gone.
    pub(crate) fn rest<'a>(&'a self, bytes: Option<&'a [u8]>) -> [IoSlice<'a>; 3] {
        let header = self.header.get(self.sent..).unwrap_or_default();
        let skip = self.sent.saturating_sub(HEADER_BYTES).min(self.length);
        let blank = &BLANK[..BLANK.len().min(self.length - skip)];
        let body = bytes.map_or(blank, |bytes| &bytes[skip..]);
        let has_all = skip + body.len() == self.length;
        let end = self.end.as_ref().filter(|_| has_all).map_or(&[][..], |end| {
            end.get(self.sent.saturating_sub(HEADER_BYTES + self.length)..).unwrap_or_default()
        });
        [header, body, end].map(IoSlice::new)
    }
}
