//! The sending half of a connection: frames that wait for room in the socket, and the bytes of
//! reads that the peer has requested, which go straight out of the exposed buffers.
//!
//! Whole frames wait in the outbox. A piece of a read begins when the outbox is empty, so a message
//! waits for one piece at most, and for what the kernel has not sent yet. Several reads take turns,
//! piece by piece.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use super::frame::{Frame, HEADER_BYTES, PIECE_MAX, REQUEST_BYTES, emit_span};
use tagmatch_device::{Exposures, RemoteSpan};
use tagmatch_os::tcp;

/// Most reads that a peer may request at a time. Further reads wait in the reader.
pub(crate) const REQUESTS_MAX: usize = 64;
/// Most pieces that one call sends, so that a fast reader doesn't keep this worker from its other
/// peers.
const PIECES_PER_CALL: usize = 8;
/// An empty outbox keeps no more memory than this.
const KEPT_BYTES: usize = 16 << 10;
/// Sent in the place of a buffer that was withdrawn while a piece of it was being sent.
static BLANK: [u8; 4096] = [0; 4096];

/// The sending half of a connection.
#[derive(Default)]
pub(crate) struct SendHalf {
    /// Frames, of which a part of the first may have been sent.
    outbox: VecDeque<u8>,
    /// The piece that is being sent, of the first read in `requested`.
    piece: Option<Piece>,
    /// The reads that the peer has requested.
    requested: VecDeque<PeerRead>,
    /// How many bytes the socket has taken.
    taken: u64,
    /// How many messages were accepted.
    messages: u64,
    /// No further piece begins.
    is_leaving: bool,
}

/// A read that the peer has requested.
struct PeerRead {
    id: u32,
    span: RemoteSpan,
    sent: u64,
}

/// A frame with bytes of a read, of which a part has been sent.
struct Piece {
    header: [u8; HEADER_BYTES],
    /// The frame that ends the read, behind its last piece.
    end: Option<[u8; HEADER_BYTES]>,
    /// Bytes of the read in this piece.
    length: usize,
    /// How much was sent: header, bytes and end.
    sent: usize,
    /// The buffer was withdrawn.
    is_blank: bool,
}

/// Why a message was not accepted.
pub(crate) enum Unsent {
    /// The outbox is full.
    Full,
    /// The connection is broken.
    Broken,
}

impl SendHalf {
    /// Sends a message, or keeps what the socket doesn't take in the outbox, up to `outbox_max`
    /// bytes.
    #[inline]
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        parts: [&[u8]; 2],
        immediate: Option<u32>,
        outbox_max: usize,
    ) -> Result<(), Unsent> {
        let length = parts[0].len() + parts[1].len();
        let header = Frame::Message { length, immediate }.emit();
        let mut sent = 0;
        if self.piece.is_none() && self.outbox.is_empty() {
            let slices = [&header[..], parts[0], parts[1]].map(IoSlice::new);
            sent = match retrying(|| tcp::send_parts(socket, &slices)) {
                Ok(Some(sent)) => sent,
                Ok(None) => 0,
                Err(_) => return Err(Unsent::Broken),
            };
            self.taken += sent as u64;
        } else if self.outbox.len() + HEADER_BYTES + length > outbox_max {
            return Err(Unsent::Full);
        }
        self.messages += 1;
        if sent < HEADER_BYTES + length {
            self.keep([&header, parts[0], parts[1]], sent);
        }
        Ok(())
    }

    /// Appends the parts to the outbox, without their first `skip` bytes.
    #[cold]
    fn keep(&mut self, parts: [&[u8]; 3], mut skip: usize) {
        for part in parts {
            let rest = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            self.outbox.extend(rest);
        }
    }

    /// Whether there is room for a message of `length` bytes.
    pub(crate) fn has_room(&self, length: usize, outbox_max: usize) -> bool {
        let is_idle = self.piece.is_none() && self.outbox.is_empty();
        is_idle || self.outbox.len() + HEADER_BYTES + length <= outbox_max
    }

    /// Requests a read from the peer.
    pub(crate) fn request(&mut self, id: u32, span: RemoteSpan) {
        self.outbox.extend(Frame::ReadRequest { id }.emit());
        let span: [u8; REQUEST_BYTES] = emit_span(span);
        self.outbox.extend(span);
    }

    /// Takes a peer's request.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn take_request(&mut self, id: u32, span: RemoteSpan) -> Result<(), &'static str> {
        if self.requested.len() >= REQUESTS_MAX {
            return Err("a peer requests more reads at a time than allowed");
        }
        self.requested.push_back(PeerRead { id, span, sent: 0 });
        Ok(())
    }

    /// Drops the peer's reads, and says that this end leaves. A piece that was begun is completed.
    pub(crate) fn leave(&mut self) {
        self.requested.truncate(usize::from(self.piece.is_some()));
        self.is_leaving = true;
        self.outbox.extend(Frame::Bye.emit());
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_to_send(&self) -> bool {
        !self.outbox.is_empty() || !self.requested.is_empty()
    }

    /// The place in the stream behind everything that was accepted by now, requested reads aside.
    pub(crate) fn accepted(&self) -> u64 {
        self.taken + self.outbox.len() as u64 + self.piece.as_ref().map_or(0, Piece::left) as u64
    }

    /// How many bytes of the stream the socket has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// How many messages were accepted.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Sends what waits, as far as the socket has room. `true` if nothing is left.
    pub(crate) fn push(
        &mut self,
        socket: BorrowedFd<'_>,
        exposures: &Exposures,
    ) -> io::Result<bool> {
        for _ in 0..PIECES_PER_CALL {
            if !self.push_piece(socket, exposures)? || !self.push_outbox(socket)? {
                return Ok(false);
            }
            if !self.begin_piece(exposures) {
                return Ok(!self.has_to_send());
            }
        }
        Ok(false)
    }

    /// `true` if the outbox is empty.
    fn push_outbox(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while !self.outbox.is_empty() {
            let (first, second) = self.outbox.as_slices();
            let slices = [first, second].map(IoSlice::new);
            let Some(sent) = retrying(|| tcp::send_parts(socket, &slices))? else {
                return Ok(false);
            };
            self.taken += sent as u64;
            self.outbox.drain(..sent);
        }
        self.outbox.shrink_to(KEPT_BYTES);
        Ok(true)
    }

    /// Begins a piece of the next read. `false` if there is none, or if it can't be read: then the
    /// outbox has a frame that says so.
    fn begin_piece(&mut self, exposures: &Exposures) -> bool {
        let Some(PeerRead { id, span, sent }) = self.requested.front() else { return false };
        if exposures.bytes(*span).is_none() {
            self.outbox.extend(Frame::ReadFailed { id: *id }.emit());
            self.requested.pop_front();
            return true;
        }
        let left = span.length - sent;
        let length = usize::try_from(left).map_or(PIECE_MAX, |left| left.min(PIECE_MAX));
        let is_last = left == length as u64;
        self.piece = Some(Piece {
            header: Frame::ReadData { id: *id, length }.emit(),
            end: is_last.then(|| Frame::ReadEnd { id: *id }.emit()),
            length,
            sent: 0,
            is_blank: false,
        });
        true
    }

    /// Continues the piece that is being sent. `true` if none is left.
    fn push_piece(&mut self, socket: BorrowedFd<'_>, exposures: &Exposures) -> io::Result<bool> {
        let (Some(piece), Some(read)) = (&mut self.piece, self.requested.front_mut()) else {
            return Ok(true);
        };
        while piece.left() > 0 {
            let bytes = exposures.bytes(read.span).and_then(|bytes| {
                let start = usize::try_from(read.sent).ok()?;
                bytes.get(start..start + piece.length)
            });
            // The peer has said that it needs the buffer no more, or this worker is being closed.
            // The frame is completed, and the read fails.
            if bytes.is_none() && !piece.is_blank {
                piece.is_blank = true;
                piece.end = Some(Frame::ReadFailed { id: read.id }.emit());
            }
            let slices = piece.rest(bytes);
            let Some(sent) = retrying(|| tcp::send_parts(socket, &slices))? else {
                return Ok(false);
            };
            self.taken += sent as u64;
            piece.sent += sent;
        }
        read.sent += piece.length as u64;
        if piece.end.is_some() || self.is_leaving {
            self.requested.pop_front();
        } else {
            self.requested.rotate_left(1);
        }
        self.piece = None;
        Ok(true)
    }
}

impl Piece {
    /// How much is left to be sent.
    fn left(&self) -> usize {
        HEADER_BYTES + self.length + self.end.map_or(0, |end| end.len()) - self.sent
    }

    /// What is left to be sent, of the bytes of this piece; blank bytes if they are gone.
    fn rest<'a>(&'a self, bytes: Option<&'a [u8]>) -> [IoSlice<'a>; 3] {
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

/// Calls again while a signal interrupts the call; `None` if the socket has no room.
#[inline]
fn retrying(call: impl Fn() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        return match call() {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // The kernel has no memory for more at the moment.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) => {
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use tagmatch_device::Buffer;

    /// What the other end has got, and whether everything was sent.
    fn pass(out: &mut SendHalf, sockets: &mut (UnixStream, UnixStream), x: &Exposures) -> Vec<u8> {
        let (mut got, mut piece) = (Vec::new(), [0; 777]);
        loop {
            let is_done = out.push(sockets.0.as_fd(), x).unwrap();
            match sockets.1.read(&mut piece) {
                Ok(count) => got.extend_from_slice(&piece[..count]),
                Err(_) if is_done => return got,
                Err(_) => {}
            }
        }
    }

    fn stream() -> (UnixStream, UnixStream) {
        let (one, two) = UnixStream::pair().unwrap();
        two.set_nonblocking(true).unwrap();
        (one, two)
    }

    /// The headers of the frames in a stream.
    fn frames(mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
            frames.push(Frame::parse(header, 1 << 20).unwrap());
            bytes = &rest[u32::from_le_bytes(*header.first_chunk().unwrap()) as usize..];
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn several_reads_take_turns_and_messages_pass_between_their_pieces() {
        let (mut sockets, mut out) = (stream(), SendHalf::default());
        let mut exposures = Exposures::default();
        let long = exposures.expose(Buffer::from(vec![1; 30 * PIECE_MAX])).unwrap();
        let other = exposures.expose(Buffer::from(vec![2; PIECE_MAX + 1])).unwrap();
        out.take_request(1, long.span).unwrap();
        out.take_request(2, other.span).unwrap();
        // The socket takes a part of a piece.
        while out.push(sockets.0.as_fd(), &exposures).unwrap() || out.piece.is_none() {}
        assert!(out.send(sockets.0.as_fd(), [b"message", b""], Some(5), 1 << 20).is_ok());
        let got = frames(&pass(&mut out, &mut sockets, &exposures));
        let data = |id| Frame::ReadData { id, length: PIECE_MAX };
        let message = Frame::Message { length: 7, immediate: Some(5) };
        let at = got.iter().position(|frame| *frame == message).unwrap();
        assert!(at < got.len() - 20, "{got:?}");
        let reads: Vec<_> = got.into_iter().filter(|frame| *frame != message).collect();
        let last = Frame::ReadData { id: 2, length: 1 };
        let end = |id| Frame::ReadEnd { id };
        assert_eq!(reads[..6], [data(1), data(2), data(1), last, end(2), data(1)]);
        assert_eq!((reads.len(), reads.last()), (34, Some(&end(1))));
    }

    #[test]
    fn a_read_whose_buffer_is_gone_fails_without_a_byte_of_another_buffer() {
        let (mut sockets, mut out) = (stream(), SendHalf::default());
        let mut exposures = Exposures::default();
        let long = exposures.expose(Buffer::from(vec![1; 8 * PIECE_MAX])).unwrap();
        out.take_request(1, long.span).unwrap();
        while out.push(sockets.0.as_fd(), &exposures).unwrap() || out.piece.is_none() {}
        drop(exposures.withdraw(long.id).unwrap());
        exposures.expose(Buffer::from(vec![9; 8 * PIECE_MAX])).unwrap();
        let bytes = pass(&mut out, &mut sockets, &exposures);
        assert_eq!(frames(&bytes).last(), Some(&Frame::ReadFailed { id: 1 }));
        assert!(!bytes.contains(&9));
        out.take_request(2, long.span).unwrap();
        let bytes = pass(&mut out, &mut sockets, &exposures);
        assert_eq!(frames(&bytes), [Frame::ReadFailed { id: 2 }]);
    }

    #[test]
    fn the_outbox_refuses_what_is_beyond_its_bound_and_keeps_the_order() {
        let (mut sockets, mut out) = (stream(), SendHalf::default());
        let mut sent = 0;
        while out.send(sockets.0.as_fd(), [&[7; 1000], b"end"], None, 5000).is_ok() {
            sent += 1;
        }
        assert!(out.outbox.len() <= 5000 && !out.has_room(1003, 5000));
        let got = frames(&pass(&mut out, &mut sockets, &Exposures::default()));
        assert_eq!(got.len(), sent);
        assert!(out.has_room(1003, 5000) && out.accepted() == out.taken());
    }

    #[test]
    fn a_peer_requests_64_reads_at_a_time_and_no_more() {
        let mut out = SendHalf::default();
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        for id in 0..64 {
            assert_eq!(out.take_request(id, span), Ok(()));
        }
        assert!(out.take_request(64, span).is_err());
    }

    #[test]
    fn who_leaves_completes_the_piece_that_was_begun_and_says_so() {
        let (mut sockets, mut out) = (stream(), SendHalf::default());
        let mut exposures = Exposures::default();
        let long = exposures.expose(Buffer::from(vec![1; 8 * PIECE_MAX])).unwrap();
        out.take_request(1, long.span).unwrap();
        out.take_request(2, long.span).unwrap();
        while out.push(sockets.0.as_fd(), &exposures).unwrap() || out.piece.is_none() {}
        out.leave();
        let got = frames(&pass(&mut out, &mut sockets, &exposures));
        assert_eq!(got.last(), Some(&Frame::Bye));
        assert!(!got.contains(&Frame::ReadEnd { id: 1 }), "{got:?}");
    }
}
