//! Pieces of streams: frames with bytes that go straight out of the memory of this worker. A stream
//! is a read that the peer has requested, or a put of this worker.

use std::io::IoSlice;

use super::frame::{Frame, HEADER_BYTES, REGION_BYTES};
use super::sources::{Sources, StreamSource};

/// Sent in the place of a buffer that was withdrawn while a piece of it was being sent.
static BLANK: [u8; 4096] = [0; 4096];

/// Most bytes in front of those of the memory: the frame with which a put begins, and the header.
const FRONT_MAX: usize = HEADER_BYTES + REGION_BYTES + HEADER_BYTES;

/// Bytes that are being sent out of the memory of this worker.
pub(crate) struct OutStream {
    /// The number that the peer has given its read; 0 for a put.
    pub(crate) id: u32,
    pub(crate) source: StreamSource,
    /// How many bytes the pieces that were begun have.
    pub(crate) given: u64,
}

impl OutStream {
    /// The piece that begins `ahead` bytes behind those that were given, with `bytes` bytes; `None`
    /// behind the last.
    pub(crate) fn piece(&self, ahead: usize, bytes: usize) -> Option<StreamPiece> {
        let OutStream { id, source, given } = *self;
        let start = given + ahead as u64;
        let total = source.length();
        // A read without bytes has one piece.
        if start > total || (start == total && start > 0) {
            return None;
        }
        let left = total - start;
        let length = usize::try_from(left).map_or(bytes, |left| left.min(bytes));
        let is_last = left == length as u64;
        let mut front = PieceFront { bytes: [0; FRONT_MAX], length: 0 };
        match source {
            StreamSource::Put(to) => {
                if start == 0 {
                    front.add(&Frame::Put.emit());
                    front.add(&to.emit());
                }
                front.add(&Frame::PutData { length }.emit());
            }
            StreamSource::Exposed(_) | StreamSource::Region(_) => {
                front.add(&Frame::ReadData { id, length }.emit());
            }
        }
        let has_end = is_last && !source.is_put();
        Some(StreamPiece {
            id,
            source,
            start: usize::try_from(start).ok()?,
            front,
            end: has_end.then(|| Frame::ReadEnd { id }.emit()),
            is_last,
            length,
            sent: 0,
            is_blank: false,
        })
    }
}

/// The bytes that are sent before the payload of a piece.
struct PieceFront {
    bytes: [u8; FRONT_MAX],
    length: usize,
}

impl PieceFront {
    fn add(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}

/// A frame with bytes of a stream, of which a part has been sent.
pub(crate) struct StreamPiece {
    pub(crate) id: u32,
    pub(crate) source: StreamSource,
    /// Where in the stream its bytes begin.
    start: usize,
    front: PieceFront,
    /// The frame that ends a read, behind its last piece.
    end: Option<[u8; HEADER_BYTES]>,
    is_last: bool,
    /// Bytes of the stream in this piece.
    pub(crate) length: usize,
    /// How much was sent: front, bytes and end.
    pub(crate) sent: usize,
    /// The buffer was withdrawn.
    is_blank: bool,
}

impl StreamPiece {
    /// Whether the stream ends with this piece.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// How much is left to be sent.
    pub(crate) fn left(&self) -> usize {
        self.front.length + self.length + self.end.map_or(0, |end| end.len()) - self.sent
    }

    /// The bytes of this piece; `None` if the peer may not read them any more.
    pub(crate) fn bytes<'a>(&self, sources: Sources<'a>) -> Option<&'a [u8]> {
        sources.bytes(self.source)?.get(self.start..self.start + self.length)
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
        let front = &self.front.bytes[self.sent.min(self.front.length)..self.front.length];
        let skip = self.sent.saturating_sub(self.front.length).min(self.length);
        let blank = &BLANK[..BLANK.len().min(self.length - skip)];
        let body = bytes.map_or(blank, |bytes| &bytes[skip..]);
        let has_all = skip + body.len() == self.length;
        let end = self.end.as_ref().filter(|_| has_all).map_or(&[][..], |end| {
            end.get(self.sent.saturating_sub(self.front.length + self.length)..).unwrap_or_default()
        });
        [front, body, end].map(IoSlice::new)
    }
}
