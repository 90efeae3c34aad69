//! The sending half of a connection: frames that wait for room in the socket, and streams: reads
//! that the peer has requested, and a put of this worker, whose bytes go straight out of memory.
//!
//! Whole frames wait in the outbox. It is sent before a piece of a stream begins, so a message
//! waits for one piece at most, and for what the kernel has not sent yet. The streams take turns,
//! piece by piece. One call sends several pieces: each call ends in a packet that is not full.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use tagmatch_os::{fails_for_now, tcp};

use super::frame::{Frame, HEADER_BYTES, emit_span};
use super::piece::{OutStream, StreamPiece};
use super::sources::{Sources, StreamSource};
use super::unsent::UnsentLimit;

/// Most reads that a peer may request at a time. Further reads wait in the reader.
pub(crate) const REQUESTS_MAX: usize = 64;
/// Most accesses that are under way to a peer. The peer doesn't keep more answers to puts.
pub(crate) const ACCESSES_MAX: usize = 16;
/// Most bytes of streams that one system call sends.
const RUN_BYTES: usize = 1 << 20;
/// As many bytes while one-sided operations are under way: few are at a time, and the next ones
/// wait for what is sent now.
pub(crate) const PUT_RUN_BYTES: usize = 384 << 10;
/// Runs that are short after a one-sided operation has begun.
const SHORT_RUNS: u32 = 16;
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
    begun: Option<StreamPiece>,
    /// The reads that the peer has requested, and a put of this worker, without the bytes of the
    /// piece that was begun.
    streams: VecDeque<OutStream>,
    /// How many more bytes the reads were given than the puts, while both had to send.
    reads_ahead: isize,
    /// So many of the next runs are short: one-sided operations are under way.
    short_runs: u32,
    /// Another put begins once the one before it was sent.
    has_next_put: bool,
    /// The answers to puts of the peer. They go out once the outbox is empty.
    answers: VecDeque<bool>,
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
    pub(crate) fn request(&mut self, id: u32, source: StreamSource) {
        match source {
            StreamSource::Exposed(span) => {
                self.outbox.extend(Frame::ReadRequest { id }.emit());
                self.outbox.extend(emit_span(span));
            }
            StreamSource::Region(bytes) | StreamSource::Put(bytes) => {
                self.outbox.extend(Frame::Get { id }.emit());
                self.outbox.extend(bytes.emit());
            }
        }
    }

    /// Takes a peer's request.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn take_request(
        &mut self,
        id: u32,
        source: StreamSource,
    ) -> Result<(), &'static str> {
        let requested = self.streams.iter().filter(|stream| !stream.source.is_put()).count();
        if requested >= REQUESTS_MAX {
            return Err("a peer requests more reads at a time than allowed");
        }
        self.begin(id, source);
        Ok(())
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, id: u32, source: StreamSource) {
        self.streams.push_back(OutStream { id, source, given: 0 });
    }

    /// Notes whether another put waits for its turn: until it begins, the reads are not given more
    /// bytes than the put before it.
    pub(crate) fn note_next_put(&mut self, waits: bool) {
        self.has_next_put = waits;
    }

    /// A put has begun, or a one-sided operation was sent by a message.
    pub(crate) fn note_one_sided(&mut self) {
        self.short_runs = SHORT_RUNS;
    }

    /// Whether bytes of a put are still to be sent.
    pub(crate) fn is_putting(&self) -> bool {
        let of_streams = self.streams.iter().map(|stream| stream.source);
        of_streams.chain(self.begun.as_ref().map(|piece| piece.source)).any(StreamSource::is_put)
    }

    /// Answers a put of the peer.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn answer_put(&mut self, is_done: bool) -> Result<(), &'static str> {
        if self.answers.len() >= ACCESSES_MAX {
            return Err("a peer has more puts at a time than allowed");
        }
        self.answers.push_back(is_done);
        Ok(())
    }

    fn take_answers(&mut self) {
        let frames = self.answers.drain(..).map(|is_done| Frame::PutEnd { is_done }.emit());
        self.outbox.extend(frames.flatten());
    }

    /// Keeps a copy of what is left of a piece of a put: its buffer is needed.
    pub(crate) fn keep_put(&mut self, sources: Sources<'_>) {
        let Some(piece) = self.begun.take_if(|piece| piece.source.is_put()) else { return };
        let mut outbox = VecDeque::with_capacity(piece.left() + self.outbox.len());
        for part in piece.rest(piece.bytes(sources)) {
            outbox.extend(part.iter());
        }
        outbox.append(&mut self.outbox);
        self.outbox = outbox;
    }

    /// Drops the streams, and says that this end leaves. A piece that was begun is completed.
    pub(crate) fn leave(&mut self) {
        self.streams.clear();
        self.take_answers();
        self.outbox.extend(Frame::Bye.emit());
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_to_send(&self) -> bool {
        self.begun.is_some()
            || !self.outbox.is_empty()
            || !self.streams.is_empty()
            || !self.answers.is_empty()
    }

    /// The place in the stream behind everything that was accepted by now, streams aside.
    pub(crate) fn accepted(&self) -> u64 {
        self.taken
            + self.outbox.len() as u64
            + self.begun.as_ref().map_or(0, StreamPiece::left) as u64
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
        let is_over = |stream: &OutStream| stream.given > stream.source.length();
        if self.streams.iter().any(is_over) || self.streams.len() > REQUESTS_MAX + 1 {
            return Some("streams are over, or too many");
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
        sources: Sources<'_>,
    ) -> io::Result<bool> {
        self.unsent.follow(socket, self.taken);
        let is_short = self.short_runs > 0 || self.is_putting();
        let runs = if is_short { 1 } else { RUNS_PER_PUSH };
        for _ in 0..runs {
            if !self.end_piece(socket, sources)? || !self.push_outbox(socket)? {
                return Ok(false);
            }
            self.send_run(socket, sources)?;
            if !self.has_to_send() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `true` if the outbox is empty.
    fn push_outbox(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        if self.outbox.is_empty() {
            self.take_answers();
        }
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
    fn end_piece(&mut self, socket: BorrowedFd<'_>, sources: Sources<'_>) -> io::Result<bool> {
        while let Some(piece) = &mut self.begun {
            let bytes = piece.bytes(sources);
            if bytes.is_none() && piece.blank() {
                self.streams.retain(|stream| stream.source.is_put() || stream.id != piece.id);
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
    fn send_run(&mut self, socket: BorrowedFd<'_>, sources: Sources<'_>) -> io::Result<()> {
        let outbox = &mut self.outbox;
        self.streams.retain(|stream| {
            let is_there = sources.bytes(stream.source).is_some();
            if !is_there {
                outbox.extend(Frame::ReadFailed { id: stream.id }.emit());
            }
            is_there
        });
        // The streams take turns. Their state changes when it is known how much was sent.
        let pieces = self.next_pieces();
        if pieces.is_empty() {
            return Ok(());
        }
        let slices: Vec<_> =
            pieces.iter().flat_map(|piece| piece.rest(piece.bytes(sources))).collect();
        let Some(mut sent) = retrying(|| tcp::send_parts(socket, &slices))? else { return Ok(()) };
        self.taken += sent as u64;
        self.short_runs = self.short_runs.saturating_sub(1);
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
    fn next_pieces(&self) -> Vec<StreamPiece> {
        let mut reads: VecDeque<_> = self
            .streams
            .iter()
            .filter(|stream| !stream.source.is_put())
            .map(|read| (read, 0))
            .collect();
        let put = self.streams.iter().find(|stream| stream.source.is_put());
        if let Some(put) = put {
            return self.pieces_beside_put(put, reads);
        }
        let run_bytes = if self.short_runs > 0 { PUT_RUN_BYTES } else { RUN_BYTES };
        let piece_bytes = self.unsent.piece_bytes().min(run_bytes);
        let mut pieces = Vec::with_capacity(run_bytes / piece_bytes);
        while pieces.len() < run_bytes / piece_bytes
            && let Some(piece) = next_piece(&mut reads, piece_bytes)
        {
            pieces.push(piece);
        }
        pieces
    }

    /// The pieces of the next run, in which a put and the reads, however many these are, have as
    /// many bytes each.
    fn pieces_beside_put(&self, put: &OutStream, mut reads: StreamQueue<'_>) -> Vec<StreamPiece> {
        let piece_bytes = self.unsent.piece_bytes().min(PUT_RUN_BYTES / 2);
        let mut put = VecDeque::from([(put, 0)]);
        let mut ahead = self.reads_ahead;
        let mut pieces: Vec<StreamPiece> = Vec::new();
        let mut left = PUT_RUN_BYTES;
        while left > 0 {
            let is_turn_of_put = ahead >= 0;
            let piece = if is_turn_of_put {
                let piece = next_piece(&mut put, piece_bytes);
                // The next put begins behind this one, and has its turn then.
                if piece.is_none() && self.has_next_put {
                    break;
                }
                piece.or_else(|| next_piece(&mut reads, piece_bytes))
            } else {
                let piece = next_piece(&mut reads, piece_bytes);
                piece.or_else(|| next_piece(&mut put, piece_bytes))
            };
            let Some(piece) = piece else { break };
            ahead = ahead_after(ahead, &piece);
            left = left.saturating_sub(piece.length);
            pieces.push(piece);
        }
        pieces
    }

    /// The turn of the first stream is over: its piece is being sent.
    fn note_begun(&mut self, piece: &StreamPiece) {
        let is_of = |stream: &OutStream| stream.id == piece.id && stream.source == piece.source;
        let at = self.streams.iter().position(is_of);
        let Some(mut stream) = at.and_then(|at| self.streams.remove(at)) else { return };
        stream.given += piece.length as u64;
        self.reads_ahead = ahead_after(self.reads_ahead, piece);
        if !piece.is_last() {
            self.streams.push_back(stream);
        }
    }
}

/// Streams that take turns, and how many bytes of each the pieces so far have.
type StreamQueue<'a> = VecDeque<(&'a OutStream, usize)>;

/// The next piece of the stream whose turn it is.
fn next_piece(streams: &mut StreamQueue<'_>, bytes: usize) -> Option<StreamPiece> {
    let (stream, before) = streams.pop_front()?;
    let piece = stream.piece(before, bytes)?;
    if !piece.is_last() {
        streams.push_back((stream, before + piece.length));
    }
    Some(piece)
}

/// How many more bytes reads have than puts after this piece. What one kind has sent alone doesn't
/// count for long.
fn ahead_after(ahead: isize, piece: &StreamPiece) -> isize {
    let length = piece.length.cast_signed();
    let change = if piece.source.is_put() { -length } else { length };
    let most = (PUT_RUN_BYTES / 2).cast_signed();
    ahead.saturating_add(change).clamp(-most, most)
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
mod tests;
