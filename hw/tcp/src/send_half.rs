//! The sending half of a connection: frames that wait for room in the socket, and the bytes of
//! reads that the peer has requested, which go straight out of the exposed buffers.
//!
//! Whole frames wait in the outbox. It is sent before a piece of a read begins, so a message waits
//! for one piece at most, and for what the kernel has not sent yet. Several reads take turns, piece
//! by piece. One call sends several pieces: each call ends in a packet that is not full.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use tagmatch_device::{Readable, RemoteSpan};
use tagmatch_os::{fails_for_now, tcp};

use super::frame::{Frame, HEADER_BYTES, REQUEST_BYTES, emit_span};
use super::piece::{ReadPiece, RequestedRead};
use super::unsent::UnsentLimit;

/// Most reads that a peer may request at a time. Further reads wait in the reader.
pub(crate) const REQUESTS_MAX: usize = 64;
/// Most bytes of reads that one system call sends.
const RUN_BYTES: usize = 1 << 20;
/// Most runs of one push, so that a fast reader doesn't keep this worker from its other peers.
const RUNS_PER_PUSH: usize = 2;
/// The places of so many messages are known.
const ENDS: usize = 16;
/// An empty outbox keeps no more memory than this.
const KEPT_BYTES: usize = 16 << 10;

/// The sending half of a connection.
#[derive(Default)]
pub(crate) struct SendHalf {
    /// Frames, of which a part of the first may have been sent.
    outbox: VecDeque<u8>,
    /// The piece of which a part was sent. It goes before the outbox.
    begun: Option<ReadPiece>,
    /// The reads that the peer has requested, without the bytes of the piece that was begun.
    requested: VecDeque<RequestedRead>,
    /// How many bytes the socket has taken.
    taken: u64,
    /// How many messages were accepted.
    messages: u64,
    /// The places in the stream behind the last messages. Message number `n`, counted from 0, has
    /// the entry `n % ENDS`.
    ends: [u64; ENDS],
    /// The place in the stream behind the last question for an acknowledgement.
    asked: u64,
    /// What may lie in front of a message.
    unsent: UnsentLimit,
}

/// Why a message was not accepted.
pub(crate) enum Unsent {
    /// The outbox is full.
    Full,
    /// The connection is broken.
    Broken,
}

/// Where the end of a message is noted.
fn place_of_end(message: u64) -> usize {
    usize::try_from(message % ENDS as u64).unwrap_or(0)
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
        if self.begun.is_none() && self.outbox.is_empty() {
            let slices = [&header[..], parts[0], parts[1]].map(IoSlice::new);
            sent = match retrying(|| tcp::send_parts(socket, &slices)) {
                Ok(Some(sent)) => sent,
                Ok(None) => 0,
                Err(_) => return Err(Unsent::Broken),
            };
            self.taken += sent as u64;
        } else if !self.has_room(length, outbox_max) {
            return Err(Unsent::Full);
        }
        if sent < HEADER_BYTES + length {
            self.keep([&header, parts[0], parts[1]], sent);
        }
        self.ends[place_of_end(self.messages)] = self.accepted();
        self.messages += 1;
        Ok(())
    }

    /// Sends bytes before all frames: the rest of a handshake.
    pub(crate) fn send_first(&mut self, bytes: &[u8]) {
        self.outbox.extend(bytes);
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

    /// Whether there is room for a message of `length` bytes. An empty outbox has room for every
    /// message: one that is longer than the outbox would else wait until all reads have ended.
    #[inline]
    pub(crate) fn has_room(&self, length: usize, outbox_max: usize) -> bool {
        self.outbox.is_empty() || self.outbox.len() + HEADER_BYTES + length <= outbox_max
    }

    /// Asks the peer to acknowledge at once what was sent, unless it was asked since: a program may
    /// flush again and again while the peer doesn't receive.
    pub(crate) fn ask_for_acknowledgement(&mut self) {
        if self.accepted() > self.asked {
            self.outbox.extend(Frame::Flush.emit());
            self.asked = self.accepted();
        }
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
        self.requested.push_back(RequestedRead { id, span, given: 0 });
        Ok(())
    }

    /// Drops the peer's reads, and says that this end leaves. A piece that was begun is completed.
    pub(crate) fn leave(&mut self) {
        self.requested.clear();
        self.outbox.extend(Frame::Bye.emit());
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_to_send(&self) -> bool {
        self.begun.is_some() || !self.outbox.is_empty() || !self.requested.is_empty()
    }

    /// The place in the stream behind everything that was accepted by now, requested reads aside.
    pub(crate) fn accepted(&self) -> u64 {
        self.taken
            + self.outbox.len() as u64
            + self.begun.as_ref().map_or(0, ReadPiece::left) as u64
    }

    /// How many bytes of the stream the socket has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// How many of the messages after the first `known` ones, which are acknowledged, are not known
    /// to be, where the other machine has acknowledged up to a place in the stream. Exact for up to
    /// [`ENDS`] messages. Of earlier ones it counts as many as may lie in the bytes.
    pub(crate) fn unacknowledged(&self, acknowledged: u64, known: u64) -> u64 {
        let first = self.messages.saturating_sub(ENDS as u64);
        let end = |number: u64| self.ends[place_of_end(number)];
        let last =
            (first..self.messages).filter(|number| end(*number) > acknowledged).count() as u64;
        let between = end(first).saturating_sub(acknowledged) / HEADER_BYTES as u64;
        let earlier = if first == 0 { 0 } else { between.min(first) };
        (last + earlier).min(self.messages - known.min(self.messages))
    }

    /// For tests: an error in the books, if there is one.
    pub(crate) fn error(&self) -> Option<&'static str> {
        let accepted = self.accepted();
        let first = self.messages.saturating_sub(ENDS as u64);
        let ends = (first..self.messages).map(|number| self.ends[place_of_end(number)]);
        if !ends.clone().chain([accepted]).is_sorted() {
            return Some("the messages end in another order than they were accepted in");
        }
        let begun = self.begun.as_ref();
        if begun.is_some_and(|piece| piece.left() == 0) {
            return Some("a piece was sent, and is not over");
        }
        let is_over = |read: &RequestedRead| read.given > read.span.length;
        if self.requested.iter().any(is_over) || self.requested.len() > REQUESTS_MAX {
            return Some("requested reads are over, or too many");
        }
        (self.asked > accepted).then_some("an acknowledgement is awaited of what was not accepted")
    }

    /// How many messages were accepted.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Sends what waits, as far as the socket has room. `true` if nothing is left.
    pub(crate) fn push(
        &mut self,
        socket: BorrowedFd<'_>,
        readable: Readable<'_>,
    ) -> io::Result<bool> {
        self.unsent.follow(socket, self.taken);
        for _ in 0..RUNS_PER_PUSH {
            if !self.end_piece(socket, readable)? || !self.push_outbox(socket)? {
                return Ok(false);
            }
            self.send_run(socket, readable)?;
            if !self.has_to_send() {
                return Ok(true);
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

    /// Completes the piece that was begun. `true` if none is left.
    fn end_piece(&mut self, socket: BorrowedFd<'_>, readable: Readable<'_>) -> io::Result<bool> {
        while let Some(piece) = &mut self.begun {
            let bytes = piece.bytes(readable);
            if bytes.is_none() && piece.blank() {
                self.requested.retain(|read| read.id != piece.id);
            }
            let Some(sent) = retrying(|| tcp::send_parts(socket, &piece.rest(bytes)))? else {
                return Ok(false);
            };
            self.taken += sent as u64;
            piece.sent += sent;
            if piece.left() == 0 {
                self.begun = None;
            }
        }
        Ok(true)
    }

    /// Sends the next pieces by one call, as far as the socket has room. For a read whose
    /// bytes are gone, a frame that ends it is put into the outbox.
    fn send_run(&mut self, socket: BorrowedFd<'_>, readable: Readable<'_>) -> io::Result<()> {
        let outbox = &mut self.outbox;
        self.requested.retain(|read| {
            let is_there = readable.bytes(read.span).is_some();
            if !is_there {
                outbox.extend(Frame::ReadFailed { id: read.id }.emit());
            }
            is_there
        });
        // The reads take turns. Their state changes when it is known how much was sent.
        let pieces = self.next_pieces();
        if pieces.is_empty() {
            return Ok(());
        }
        let slices: Vec<_> =
            pieces.iter().flat_map(|piece| piece.rest(piece.bytes(readable))).collect();
        let Some(mut sent) = retrying(|| tcp::send_parts(socket, &slices))? else { return Ok(()) };
        self.taken += sent as u64;
        for mut piece in pieces {
            if sent == 0 {
                break;
            }
            piece.sent = sent.min(piece.left());
            sent -= piece.sent;
            self.note_begun(&piece);
            if piece.left() > 0 {
                self.begun = Some(piece);
            }
        }
        Ok(())
    }

    /// The pieces of the next run.
    fn next_pieces(&self) -> Vec<ReadPiece> {
        let piece_bytes = self.unsent.piece_bytes();
        let run = RUN_BYTES / piece_bytes;
        let mut pieces = Vec::with_capacity(run);
        let turns: Vec<_> = self.requested.iter().take(run).collect();
        for round in 0..run {
            let before = pieces.len();
            for read in &turns {
                if pieces.len() < run {
                    pieces.extend(read.piece(round, piece_bytes));
                }
            }
            if pieces.len() == before {
                break;
            }
        }
        pieces
    }

    /// The first read's turn is over: its piece is being sent.
    fn note_begun(&mut self, piece: &ReadPiece) {
        let at = self.requested.iter().position(|read| read.id == piece.id);
        let Some(mut read) = at.and_then(|at| self.requested.remove(at)) else { return };
        read.given += piece.length as u64;
        if !piece.is_last() {
            self.requested.push_back(read);
        }
    }
}

/// Calls again while a signal interrupts the call; `None` if the socket takes nothing now.
#[inline]
fn retrying(call: impl Fn() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        return match call() {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if fails_for_now(&error) => Ok(None),
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::frame::PIECE_BYTES;
    use super::*;
    use tagmatch_device::{Buffer, Exposures, PeerId};

    const READER: PeerId = PeerId(1);

    /// What the other end has got, and whether everything was sent.
    fn pass(
        out: &mut SendHalf,
        sockets: &mut (UnixStream, UnixStream),
        x: Readable<'_>,
    ) -> Vec<u8> {
        let mut got = Vec::new();
        let mut piece = [0; 777];
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
    fn what_may_be_lost_is_counted_by_the_places_of_the_last_messages() {
        let (socket, _there) = stream();
        let mut out = SendHalf::default();
        let mut ends = Vec::new();
        for length in 0..40 {
            assert!(out.send(socket.as_fd(), [&[1; 8], &[2; 40][..length]], None, 1 << 20).is_ok());
            ends.push(out.accepted());
        }
        let all = out.accepted();
        assert_eq!(out.unacknowledged(all, 0), 0);
        assert_eq!((out.unacknowledged(all - 1, 0), out.unacknowledged(ends[38], 0)), (1, 1));
        assert_eq!(out.unacknowledged(ends[24], 0), 15);
        // Earlier ones are at most as many as fit into the bytes, without the acknowledged ones.
        let most = 16 + (ends[24] - ends[20]) / HEADER_BYTES as u64;
        assert_eq!(out.unacknowledged(ends[20], 0), most);
        assert_eq!(out.unacknowledged(ends[20], 21), 19);
        assert_eq!((out.unacknowledged(0, 0), out.unacknowledged(0, 40)), (40, 0));
        assert_eq!(SendHalf::default().unacknowledged(0, 0), 0);
    }

    #[test]
    fn several_reads_take_turns_and_messages_pass_between_their_pieces() {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut exposures = Exposures::default();
        let long = exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
        let other = exposures.expose(READER, Buffer::from(vec![2; PIECE_BYTES + 1])).unwrap();
        out.take_request(1, long.span).unwrap();
        out.take_request(2, other.span).unwrap();
        // The socket takes a part of a piece.
        while out.push(sockets.0.as_fd(), exposures.readable_by(READER)).unwrap()
            || out.begun.is_none()
        {}
        assert!(out.send(sockets.0.as_fd(), [b"message", b""], Some(5), 1 << 20).is_ok());
        let got = frames(&pass(&mut out, &mut sockets, exposures.readable_by(READER)));
        let data = |id| Frame::ReadData { id, length: PIECE_BYTES };
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
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut exposures = Exposures::default();
        let long = exposures.expose(READER, Buffer::from(vec![1; 8 * PIECE_BYTES])).unwrap();
        out.take_request(1, long.span).unwrap();
        while out.push(sockets.0.as_fd(), exposures.readable_by(READER)).unwrap()
            || out.begun.is_none()
        {}
        drop(exposures.withdraw(READER, long.id).unwrap());
        exposures.expose(READER, Buffer::from(vec![9; 8 * PIECE_BYTES])).unwrap();
        let bytes = pass(&mut out, &mut sockets, exposures.readable_by(READER));
        assert_eq!(frames(&bytes).last(), Some(&Frame::ReadFailed { id: 1 }));
        assert!(!bytes.contains(&9));
        out.take_request(2, long.span).unwrap();
        let bytes = pass(&mut out, &mut sockets, exposures.readable_by(READER));
        assert_eq!(frames(&bytes), [Frame::ReadFailed { id: 2 }]);
    }

    #[test]
    fn the_outbox_refuses_what_is_beyond_its_bound_and_keeps_the_order() {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut sent = 0;
        while out.send(sockets.0.as_fd(), [&[7; 1000], b"end"], None, 5000).is_ok() {
            sent += 1;
        }
        assert!(out.outbox.len() <= 5000 && !out.has_room(1003, 5000));
        let got = frames(&pass(&mut out, &mut sockets, Exposures::default().readable_by(READER)));
        assert_eq!(got.len(), sent);
        assert!(out.has_room(1003, 5000) && out.accepted() == out.taken());
    }

    #[test]
    fn a_message_longer_than_the_outbox_does_not_wait_for_the_end_of_reads() {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut exposures = Exposures::default();
        let long = exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
        out.take_request(1, long.span).unwrap();
        while out.push(sockets.0.as_fd(), exposures.readable_by(READER)).unwrap()
            || out.begun.is_none()
        {}
        assert!(out.send(sockets.0.as_fd(), [&[7; 9000], b""], None, 5000).is_ok());
        assert!(!out.has_room(1, 5000));
        let got = frames(&pass(&mut out, &mut sockets, exposures.readable_by(READER)));
        let message = Frame::Message { length: 9000, immediate: None };
        let at = got.iter().position(|frame| *frame == message).unwrap();
        assert!(at < got.len() - 20, "{got:?}");
    }

    #[test]
    fn a_peer_is_asked_once_for_the_acknowledgement_of_what_was_sent() {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        for _ in 0..2 {
            assert!(out.send(sockets.0.as_fd(), [b"message", b""], None, 5000).is_ok());
            (0..3).for_each(|_| out.ask_for_acknowledgement());
        }
        let message = Frame::Message { length: 7, immediate: None };
        let got = frames(&pass(&mut out, &mut sockets, Exposures::default().readable_by(READER)));
        assert_eq!(got, [message, Frame::Flush, message, Frame::Flush]);
    }

    #[test]
    fn there_is_something_to_send_while_a_message_a_read_or_a_piece_is_left() {
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut exposures = Exposures::default();
        let long = exposures.expose(READER, Buffer::from(vec![1; 30 * PIECE_BYTES])).unwrap();
        assert!(!out.has_to_send());
        out.take_request(1, long.span).unwrap();
        assert!(out.has_to_send(), "a read alone");
        while out.begun.is_none() {
            out.push(sockets.0.as_fd(), exposures.readable_by(READER)).unwrap();
        }
        out.requested.clear();
        assert!(out.outbox.is_empty() && out.has_to_send(), "a piece alone");
        pass(&mut out, &mut sockets, exposures.readable_by(READER));
        assert!(!out.has_to_send());
        while out.outbox.is_empty() {
            assert!(out.send(sockets.0.as_fd(), [b"message", b""], None, 5000).is_ok());
        }
        assert!(out.begun.is_none() && out.has_to_send(), "a message alone");
        pass(&mut out, &mut sockets, exposures.readable_by(READER));
        assert!(!out.has_to_send());
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
        let mut sockets = stream();
        let mut out = SendHalf::default();
        let mut exposures = Exposures::default();
        let long = exposures.expose(READER, Buffer::from(vec![1; 8 * PIECE_BYTES])).unwrap();
        out.take_request(1, long.span).unwrap();
        out.take_request(2, long.span).unwrap();
        while out.push(sockets.0.as_fd(), exposures.readable_by(READER)).unwrap()
            || out.begun.is_none()
        {}
        out.leave();
        let got = frames(&pass(&mut out, &mut sockets, exposures.readable_by(READER)));
        assert_eq!(got.last(), Some(&Frame::Bye));
        assert!(!got.contains(&Frame::ReadEnd { id: 1 }), "{got:?}");
    }
}
