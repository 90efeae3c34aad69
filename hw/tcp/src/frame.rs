//! Frames: what travels over a connection once both ends have proved that they know the secret.
//!
//! A frame has a header of 12 bytes, and then `length` bytes:
//!
//! | bytes | contents |
//! |---|---|
//! | 0..4 | length, little-endian |
//! | 4 | kind |
//! | 5..8 | zero |
//! | 8..12 | a word, little-endian: immediate data, or the number of a read |
//!
//! The owner of exposed memory sends the bytes of a read in several frames, and between them frames
//! of other reads and messages. So a small message doesn't wait for a long read to end. A get from
//! a region is a read. A put into a region is a stream in the other direction: its bytes follow its
//! first frame in several frames, with no frame of another put between them, and the region's
//! owner answers it when the last byte has come.

use tagmatch_device::RemoteSpan;
use tagmatch_device::bytes::{array_at, u32_at, u64_at};

/// Bytes of a frame's header.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes of a read request, which follow its header.
pub(crate) const REQUEST_BYTES: usize = 20;
/// Bytes of a get or of a put, which follow its header: which bytes of which region.
pub(crate) const REGION_BYTES: usize = 24;
/// Most bytes of a read or a put that one frame carries.
pub(crate) const PIECE_MAX: usize = 512 << 10;
/// Bytes of a read or a put that a frame carries, except on fast connections. Two frames may lie in
/// front of a small message: one that is being sent, and one that the kernel has not sent yet.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Most bytes of a message, for all devices.
pub(crate) const MESSAGE_MAX: u32 = 16 << 20;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message of the engine. The bytes follow.
    Message { length: usize, immediate: Option<u32> },
    /// A request to read exposed memory. The span follows.
    ReadRequest { id: u32 },
    /// Bytes of a read. They follow.
    ReadData { id: u32, length: usize },
    /// The last bytes of a read were sent.
    ReadEnd { id: u32 },
    /// The memory of a read is not exposed, or no longer.
    ReadFailed { id: u32 },
    /// A request to read bytes of a region. They are named behind the header, and sent as those of
    /// a read.
    Get { id: u32 },
    /// A put begins. The bytes that it writes are named behind the header.
    Put,
    /// Bytes of the put that has begun. They follow.
    PutData { length: usize },
    /// All bytes of a put have come: they are in the region, or the region doesn't allow it. Puts
    /// are answered in their order.
    PutEnd { is_done: bool },
    /// The sender waits for acknowledgements of what it has sent.
    Flush,
    /// The sender ends the connection in order. Nothing follows.
    Bye,
}

const MESSAGE: u8 = 1;
const MESSAGE_WITH_IMMEDIATE: u8 = 2;
const READ_REQUEST: u8 = 3;
const READ_DATA: u8 = 4;
const READ_END: u8 = 5;
const READ_FAILED: u8 = 6;
const BYE: u8 = 7;
const FLUSH: u8 = 8;
const GET: u8 = 9;
const PUT: u8 = 10;
const PUT_DATA: u8 = 11;
const PUT_DONE: u8 = 12;
const PUT_FAILED: u8 = 13;

impl Frame {
    /// The bytes of the header.
    #[inline]
    pub(crate) fn emit(self) -> [u8; HEADER_BYTES] {
        let (length, kind, word) = match self {
            Frame::Message { length, immediate: None } => (length, MESSAGE, 0),
            Frame::Message { length, immediate: Some(word) } => {
                (length, MESSAGE_WITH_IMMEDIATE, word)
            }
            Frame::ReadRequest { id } => (REQUEST_BYTES, READ_REQUEST, id),
            Frame::ReadData { id, length } => (length, READ_DATA, id),
            Frame::ReadEnd { id } => (0, READ_END, id),
            Frame::ReadFailed { id } => (0, READ_FAILED, id),
            Frame::Get { id } => (REGION_BYTES, GET, id),
            Frame::Put => (REGION_BYTES, PUT, 0),
            Frame::PutData { length } => (length, PUT_DATA, 0),
            Frame::PutEnd { is_done: true } => (0, PUT_DONE, 0),
            Frame::PutEnd { is_done: false } => (0, PUT_FAILED, 0),
            Frame::Bye => (0, BYE, 0),
            Frame::Flush => (0, FLUSH, 0),
        };
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        out[4] = kind;
        out[8..].copy_from_slice(&word.to_le_bytes());
        out
    }

    /// Reads a header, for a device that receives messages of up to `message_max` bytes.
    ///
    /// # Errors
    /// The rule that the sender broke.
    #[inline]
    pub(crate) fn parse(
        header: &[u8; HEADER_BYTES],
        message_max: usize,
    ) -> Result<Self, &'static str> {
        let length = u32_at(header, 0) as usize;
        let kind = header[4];
        let word = u32_at(header, 8);
        if header[5..8] != [0; 3] {
            return Err("a frame with unknown flags");
        }
        let frame = match kind {
            MESSAGE | MESSAGE_WITH_IMMEDIATE if length > message_max => {
                return Err("a message longer than the announced limit");
            }
            MESSAGE => Frame::Message { length, immediate: None },
            MESSAGE_WITH_IMMEDIATE => Frame::Message { length, immediate: Some(word) },
            READ_DATA | PUT_DATA if length > PIECE_MAX => return Err("a piece that is too long"),
            READ_DATA => Frame::ReadData { id: word, length },
            READ_REQUEST if length == REQUEST_BYTES => Frame::ReadRequest { id: word },
            READ_END if length == 0 => Frame::ReadEnd { id: word },
            READ_FAILED if length == 0 => Frame::ReadFailed { id: word },
            BYE if length == 0 => Frame::Bye,
            FLUSH if length == 0 => Frame::Flush,
            GET if length == REGION_BYTES => Frame::Get { id: word },
            PUT if length == REGION_BYTES => Frame::Put,
            PUT_DATA => Frame::PutData { length },
            PUT_DONE | PUT_FAILED if length == 0 => Frame::PutEnd { is_done: kind == PUT_DONE },
            READ_REQUEST..=PUT_FAILED => return Err("a frame whose length is impossible"),
            _ => return Err("a frame of unknown kind"),
        };
        Ok(frame)
    }
}

/// The span of a read request, as it follows the header.
pub(crate) fn emit_span(span: RemoteSpan) -> [u8; REQUEST_BYTES] {
    let mut out = [0; REQUEST_BYTES];
    out[..8].copy_from_slice(&span.address.to_le_bytes());
    out[8..16].copy_from_slice(&span.length.to_le_bytes());
    out[16..].copy_from_slice(&span.key.to_le_bytes());
    out
}

/// Reads the span of a read request.
pub(crate) fn parse_span(bytes: &[u8; REQUEST_BYTES]) -> RemoteSpan {
    RemoteSpan {
        address: u64_at(bytes, 0),
        length: u64_at(bytes, 8),
        key: u32::from_le_bytes(array_at(bytes, 16)),
    }
}

/// Bytes of a region, as a get or a put names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionBytes {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl RegionBytes {
    /// The bytes that follow the header of a get or a put.
    pub(crate) fn emit(self) -> [u8; REGION_BYTES] {
        let mut out = [0; REGION_BYTES];
        out[..8].copy_from_slice(&self.key.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..].copy_from_slice(&self.length.to_le_bytes());
        out
    }

    /// Reads what follows the header of a get or a put.
    pub(crate) fn parse(bytes: &[u8; REGION_BYTES]) -> Self {
        RegionBytes { key: u64_at(bytes, 0), offset: u64_at(bytes, 8), length: u64_at(bytes, 16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_round_trip() {
        for frame in [
            Frame::Message { length: 0, immediate: None },
            Frame::Message { length: 100, immediate: Some(u32::MAX) },
            Frame::ReadRequest { id: 1 },
            Frame::ReadData { id: 2, length: PIECE_MAX },
            Frame::ReadEnd { id: 3 },
            Frame::ReadFailed { id: 4 },
            Frame::Get { id: 5 },
            Frame::Put,
            Frame::PutData { length: PIECE_MAX },
            Frame::PutEnd { is_done: true },
            Frame::PutEnd { is_done: false },
            Frame::Bye,
            Frame::Flush,
        ] {
            assert_eq!(Frame::parse(&frame.emit(), 100), Ok(frame));
        }
        let span = RemoteSpan { address: 1 << 40, key: 7, length: 1 << 33 };
        assert_eq!(parse_span(&emit_span(span)), span);
        let bytes = RegionBytes { key: u64::MAX, offset: 1 << 33, length: 5 };
        assert_eq!(RegionBytes::parse(&bytes.emit()), bytes);
    }

    #[test]
    fn a_frame_that_is_longer_than_its_kind_allows_is_refused() {
        for frame in [
            Frame::Message { length: 101, immediate: None },
            Frame::Message { length: u32::MAX as usize, immediate: Some(1) },
            Frame::ReadData { id: 2, length: PIECE_MAX + 1 },
            Frame::PutData { length: PIECE_MAX + 1 },
        ] {
            assert!(Frame::parse(&frame.emit(), 100).is_err(), "{frame:?}");
        }
        for frame in
            [Frame::Bye, Frame::Flush, Frame::ReadEnd { id: 1 }, Frame::ReadRequest { id: 1 }]
        {
            let mut bytes = frame.emit();
            bytes[0] += 1;
            assert!(Frame::parse(&bytes, 100).is_err(), "{frame:?}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_back_as_it_was_or_refused(header: [u8; HEADER_BYTES]) {
            if let Ok(frame) = Frame::parse(&header, 1000) {
                prop_assert!(frame.emit()[..5] == header[..5]);
            }
        }
    }
}
