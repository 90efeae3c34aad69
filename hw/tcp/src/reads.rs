//! This worker's reads of a peer's exposed memory, and its gets from the peer's regions: requested
//! from the peer, and received straight into their buffers.

use std::collections::VecDeque;

use tagmatch_device::{Buffer, ReadError, ReadRequest, Room};

use super::frame::RegionBytes;
use super::send_half::{REQUESTS_MAX, SendHalf};
use super::sources::StreamSource;

/// A read that has ended.
pub(crate) struct EndedRead {
    pub(crate) of: ReadOf,
    pub(crate) into: Buffer,
    pub(crate) result: Result<(), ReadError>,
}

/// Which operation a read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOf {
    /// A [`ReadRequest`] with this token.
    Exposed(u64),
    /// A get, whose read has this number.
    Region(u32),
}

/// A read of this worker.
struct ReadUnderWay {
    id: u32,
    source: StreamSource,
    of: ReadOf,
    into: Buffer,
    length: usize,
    received: usize,
}

/// The reads from one peer.
#[derive(Default)]
pub(crate) struct ReadsFromPeer {
    /// Reads that were requested, in any order.
    requested: Vec<ReadUnderWay>,
    /// Reads that will be requested when earlier ones have ended.
    waiting: VecDeque<ReadUnderWay>,
    next_id: u32,
    /// The read whose bytes are being received, and how many of this frame are still to come.
    landing: Option<(u32, usize)>,
}

impl ReadsFromPeer {
    /// Begins a read. The caller has checked that the bytes fit into the buffer.
    pub(crate) fn start(&mut self, out: &mut SendHalf, request: ReadRequest, length: usize) {
        let ReadRequest { remote, into, token, .. } = request;
        let id = self.take_id();
        let source = StreamSource::Exposed(remote);
        let of = ReadOf::Exposed(token);
        self.waiting.push_back(ReadUnderWay { id, source, of, into, length, received: 0 });
        self.request(out);
    }

    /// Begins a get of as many bytes as the buffer has. Returns the number of its read.
    pub(crate) fn start_get(
        &mut self,
        out: &mut SendHalf,
        bytes: RegionBytes,
        into: Buffer,
    ) -> u32 {
        let id = self.take_id();
        let source = StreamSource::Region(bytes);
        let of = ReadOf::Region(id);
        let length = into.len();
        self.waiting.push_back(ReadUnderWay { id, source, of, into, length, received: 0 });
        self.request(out);
        id
    }

    fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    fn request(&mut self, out: &mut SendHalf) {
        while self.requested.len() < REQUESTS_MAX
            && let Some(read) = self.waiting.pop_front()
        {
            out.request(read.id, read.source);
            self.requested.push(read);
        }
    }

    /// Whether bytes of reads are expected.
    pub(crate) fn is_expecting(&self) -> bool {
        !self.requested.is_empty()
    }

    /// Bytes of the current frame that are still to come.
    pub(crate) fn landing(&self) -> usize {
        self.landing.map_or(0, |(_, left)| left)
    }

    /// Begins to receive `length` bytes of a read.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn land(&mut self, id: u32, length: usize) -> Result<(), &'static str> {
        let read = self.find(id)?;
        if length > read.length - read.received {
            return Err("a read was sent more bytes than requested");
        }
        self.landing = Some((id, length));
        Ok(())
    }

    /// The place for the bytes that are still to come of the current frame.
    pub(crate) fn room(&mut self) -> Option<Room<'_>> {
        let (id, left) = self.landing?;
        let read = self.requested.iter_mut().find(|read| read.id == id)?;
        read.into.room()?.part(read.received..read.received + left)
    }

    /// Notes that bytes were received into [`ReadsFromPeer::room`].
    pub(crate) fn advance(&mut self, count: usize) {
        let Some((id, left)) = self.landing else { return };
        if let Ok(read) = self.find(id) {
            read.received += count;
        }
        self.landing = Some((id, left - count)).filter(|(_, left)| *left > 0);
    }

    /// Ends a read as the peer says, and requests the next one.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn end(
        &mut self,
        out: &mut SendHalf,
        id: u32,
        is_good: bool,
    ) -> Result<EndedRead, &'static str> {
        let read = self.find(id)?;
        if is_good && read.received < read.length {
            return Err("a read was sent fewer bytes than requested");
        }
        let at = self.requested.iter().position(|read| read.id == id).ok_or(UNKNOWN)?;
        let read = self.requested.swap_remove(at);
        self.request(out);
        let result = if is_good { Ok(()) } else { Err(ReadError::BadSpan) };
        Ok(EndedRead { of: read.of, into: read.into, result })
    }

    fn find(&mut self, id: u32) -> Result<&mut ReadUnderWay, &'static str> {
        self.requested.iter_mut().find(|read| read.id == id).ok_or(UNKNOWN)
    }

    /// For tests: an error in the books, if there is one.
    pub(crate) fn error(&self) -> Option<&'static str> {
        let is_known = |(id, _)| self.requested.iter().any(|read| read.id == id);
        if !self.landing.is_none_or(is_known) {
            return Some("bytes of a read arrive that is not under way");
        }
        let waits = !self.waiting.is_empty() && self.requested.len() < REQUESTS_MAX;
        waits.then_some("a read waits, and may be requested")
    }

    /// Takes all reads back when the peer is down.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = EndedRead> + use<> {
        self.landing = None;
        let requested = std::mem::take(&mut self.requested).into_iter();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let result = Err(ReadError::PeerDown);
        requested.chain(waiting).map(move |read| EndedRead { of: read.of, into: read.into, result })
    }
}

const UNKNOWN: &str = "bytes of a read that was not requested";

#[cfg(test)]
mod tests {
    use tagmatch_device::{PeerId, RemoteSpan};

    use super::*;

    fn reads(count: u64, length: usize) -> (ReadsFromPeer, SendHalf) {
        let mut reads = ReadsFromPeer::default();
        let mut out = SendHalf::default();
        let remote = RemoteSpan { address: 1, key: 2, length: length as u64 };
        for token in 0..count {
            let into = Buffer::zeroed(length);
            let request = ReadRequest { peer: PeerId(1), remote, into, token };
            reads.start(&mut out, request, length);
        }
        (reads, out)
    }

    #[test]
    fn a_read_ends_when_all_its_bytes_are_there() {
        let (mut reads, mut out) = reads(1, 10);
        reads.land(0, 6).unwrap();
        reads.room().unwrap().fill(b"abcdef");
        reads.advance(6);
        assert_eq!(
            reads.end(&mut out, 0, true).err(),
            Some("a read was sent fewer bytes than requested")
        );
        reads.land(0, 4).unwrap();
        reads.room().unwrap().fill(b"ghij");
        reads.advance(4);
        let EndedRead { of, into, result } = reads.end(&mut out, 0, true).unwrap();
        assert_eq!((of, &into[..], result), (ReadOf::Exposed(0), &b"abcdefghij"[..], Ok(())));
    }

    #[test]
    fn bytes_beyond_a_read_or_of_no_read_are_refused() {
        let (mut reads, mut out) = reads(1, 10);
        assert!(reads.land(0, 11).is_err() && reads.land(1, 1).is_err());
        assert!(reads.end(&mut out, 1, true).is_err());
        let ended = reads.end(&mut out, 0, false).unwrap();
        assert_eq!(ended.result, Err(ReadError::BadSpan));
        assert!(reads.land(0, 1).is_err(), "the read has ended");
    }

    #[test]
    fn no_more_than_64_are_requested_at_a_time_and_all_are_taken_back() {
        let (mut reads, mut out) = reads(100, 1);
        assert_eq!(reads.requested.len(), 64);
        assert!(reads.end(&mut out, 99, false).is_err(), "not requested yet");
        assert!(reads.end(&mut out, 3, false).is_ok());
        assert_eq!((reads.requested.len(), reads.waiting.len()), (64, 35));
        assert_eq!(reads.take_all().count(), 99);
    }
}
