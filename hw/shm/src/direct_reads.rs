//! Reads that this worker does itself: from a mapping, or by the kernel. The sender may copy a part
//! of the bytes ([`cooperative`](super::cooperative)).
//!
//! **A read is verified by what it reads last.** `process_vm_readv` takes a pid, which may have
//! come to mean another process, and an address, which may hold something else once its worker has
//! closed. So each call also reads the connection's [`nonce`](super::nonce), after the bytes.
//!
//! **Several short reads from one peer take one call.** The call itself and the nonce cost as much
//! as some KiB do. So a worker that has a short read to do looks for a few more messages before,
//! if there are any, and reads for all of them at once. Where that fails, or brings fewer bytes, it
//! reads one by one, so that each read has an error of its own.

use std::io;
use std::ops::Range;
use std::time::Duration;

use tagmatch_device::{Buffer, PeerId, ReadError, ReadMessage, ReadMode, RemoteSpan};
use tagmatch_os::process::ReadPart;

use super::arena;
use super::config::SenderWrites;
use super::connection::Connection;
use super::cooperative::{MessagePieces, OFFERED_MIN, ReceiverSide, SenderPieces};
use super::peer_memory::PeerMemory;
use super::ring::PushError;

/// Time between two looks whether a sender has stopped writing into memory of the caller.
const PAUSE: Duration = Duration::from_millis(1);
/// Longer reads have a call of the kernel of their own.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// A read under way.
pub(crate) struct DirectRead {
    pub(crate) peer: PeerId,
    remote: RemoteSpan,
    /// Where the bytes lie in the mapped memory of the peer's device, if they do.
    mapped_at: Option<usize>,
    pub(crate) into: Buffer,
    pieces: MessagePieces,
    /// Bytes that were read from the front, before a part was offered to the sender.
    done: usize,
    /// Which pieces are whose, since a part was offered to the sender.
    side: Option<ReceiverSide>,
    /// Why the read ends without its bytes, once the sender has released its piece.
    error: Option<ReadError>,
    /// Whether only the sender can bring the read forward.
    waits: bool,
    /// Whether the sender was to be offered a part when the read began.
    is_shared: bool,
    pub(crate) token: u64,
}

/// Whether a read goes on after a step.
pub(crate) enum ReadProgress {
    /// Bytes are left to read.
    Going,
    /// The sender has to release a piece.
    Waiting,
    /// The read has ended.
    Ended(Result<(), ReadError>),
}

impl DirectRead {
    pub(crate) fn new(
        peer: PeerId,
        remote: RemoteSpan,
        mapped_at: Option<usize>,
        (into, length): (Buffer, usize),
        token: u64,
    ) -> Self {
        let pieces = MessagePieces::of(length);
        let done = 0;
        let side = None;
        DirectRead {
            peer,
            remote,
            mapped_at,
            into,
            pieces,
            done,
            side,
            error: None,
            waits: false,
            is_shared: false,
            token,
        }
    }

    /// Whether the bytes are in memory of the peer that this worker has mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped_at.is_some()
    }

    /// Bytes that are read.
    pub(crate) fn length(&self) -> usize {
        self.pieces.length()
    }

    pub(crate) fn remote(&self) -> RemoteSpan {
        self.remote
    }

    /// Whether the sender has to release a piece before anything else.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether all bytes are read by one call of the kernel, which reads other such reads' bytes as
    /// well.
    pub(crate) fn is_short(&self) -> bool {
        self.mapped_at.is_none() && !self.is_shared && self.length() < SHORT_BYTES_MAX
    }

    /// Before the first step: looks whether the sender is to be offered a part.
    pub(crate) fn look_at(&mut self, connection: &Connection, allowed: SenderWrites) {
        self.is_shared = self.is_offerable(connection, allowed);
    }

    /// The bytes of a short read, and where they go. `None` if the buffer can't be written.
    pub(crate) fn part(&mut self) -> Option<ReadPart<'_>> {
        let room = self.into.room()?.part(0..self.pieces.length())?;
        // SAFETY: the bytes that the kernel writes are initialised.
        let into = unsafe { room.into_uninit() };
        Some(ReadPart { address: self.remote.address, into })
    }

    /// Reads as many bytes as the budget allows.
    ///
    /// # Errors
    /// The rule that the sender broke.
    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        allowed: SenderWrites,
        budget: &mut usize,
    ) -> Result<ReadProgress, &'static str> {
        self.waits = false;
        self.offer(connection, allowed)?;
        while self.error.is_none() {
            if *budget == 0 {
                return Ok(ReadProgress::Going);
            }
            let Some(range) = self.claim(connection, *budget)? else { break };
            *budget = budget.saturating_sub(range.len());
            self.copy(connection, range);
        }
        if let Some(side) = &mut self.side {
            let claims = connection.claims();
            side.claim_rest(claims)?;
            match side.sender_pieces(claims)? {
                SenderPieces::Claimed => {
                    self.waits = true;
                    return Ok(ReadProgress::Waiting);
                }
                SenderPieces::Failed(piece) => self.copy(connection, self.pieces.bytes(piece)),
                SenderPieces::Copied => {}
            }
            self.side = None;
            connection.is_offering = false;
        }
        let result = self.error.map_or_else(|| self.verify(connection), Err);
        Ok(ReadProgress::Ended(result))
    }

    /// Offers the sender to copy a part, if it takes offers and this is worth it. A connection has
    /// one offer at a time.
    fn offer(
        &mut self,
        connection: &mut Connection,
        allowed: SenderWrites,
    ) -> Result<(), &'static str> {
        let is_possible = !connection.is_offering
            && self.side.is_none()
            && self.error.is_none()
            && self.pieces.length() - self.done >= OFFERED_MIN
            && self.is_offerable(connection, allowed);
        let Some(front) = self.pieces.beginning_with(self.done).filter(|_| is_possible) else {
            return Ok(());
        };
        connection.offers = connection.offers.wrapping_add(1);
        let number = connection.offers;
        let begun = ReceiverSide::begin(connection.claims(), number, self.pieces.count(), front);
        let Some(side) = begun else { return Ok(()) };
        let offer = ReadMessage::Offer { number, span: self.remote }.emit();
        let target = self.into.as_ptr().expose_provenance() as u64;
        match connection.producer.push_internal(&offer, &target.to_le_bytes()) {
            Ok(()) => {
                connection.notify();
                connection.is_offering = true;
                self.side = Some(side);
                Ok(())
            }
            // This worker reads alone, or offers the rest later.
            Err(PushError::Full) => Ok(()),
            Err(PushError::Broken(what)) => Err(what),
        }
    }

    /// Whether the sender takes offers, may write here, and is faster so.
    fn is_offerable(&self, connection: &Connection, allowed: SenderWrites) -> bool {
        connection.takes_offers
            && connection.read_mode == ReadMode::Direct
            && self.mapped_at.is_none()
            && self.may_be_written(allowed)
            && connection.sharing.is_offered(self.pieces.length())
    }

    /// Whether a sender may write into the buffer.
    fn may_be_written(&self, allowed: SenderWrites) -> bool {
        match allowed {
            SenderWrites::Nowhere => false,
            SenderWrites::OwnedBuffers => self.is_owned(),
            SenderWrites::AllBuffers => true,
        }
    }

    /// Whether the memory is the buffer's own. Such memory is initialised, and stays allocated if
    /// the buffer is leaked.
    fn is_owned(&self) -> bool {
        self.into.is_vec() || arena::is_of_device(&self.into)
    }

    /// The next bytes that this worker reads; `None` if there are none for it.
    fn claim(
        &mut self,
        connection: &Connection,
        budget: usize,
    ) -> Result<Option<Range<usize>>, &'static str> {
        if let Some(side) = &mut self.side {
            let piece = side.claim(connection.claims())?;
            return Ok(piece.map(|piece| self.pieces.bytes(piece)));
        }
        let start = self.done;
        // Whole pieces, so that the rest can be offered to the sender.
        self.done = self.pieces.end_after(start, budget);
        Ok((start < self.done).then_some(start..self.done))
    }

    /// Copies some of the bytes. Notes why they can't be copied.
    fn copy(&mut self, connection: &Connection, range: Range<usize>) {
        if let Err(error) = self.try_to_copy(connection, range) {
            self.error.get_or_insert(error);
        }
    }

    fn try_to_copy(
        &mut self,
        connection: &Connection,
        range: Range<usize>,
    ) -> Result<(), ReadError> {
        let mut start = range.start;
        let Some(into) = self.into.room().and_then(|room| room.part(range)) else {
            return Err(ReadError::Failed { errno: libc::EINVAL });
        };
        // SAFETY: the bytes of a mapping are initialised, and so are those that the kernel writes.
        // The sender writes other pieces at the same time, which are not looked at here.
        let mut into = unsafe { into.into_uninit() };
        if let (Some(at), Some(memory)) = (self.mapped_at, &connection.memory) {
            memory.copy(at + start, into);
            return Ok(());
        }
        let Some(process) = connection.process() else {
            return Err(ReadError::Failed { errno: libc::EINVAL });
        };
        let mut is_peers = true;
        while !into.is_empty() {
            let address = self.remote.address + start as u64;
            match process.read(address, into) {
                // No bytes and no error: the memory ends here.
                Ok((0, _)) => return Err(ReadError::BadSpan),
                Ok((count, is_verified)) => {
                    start += count;
                    into = &mut into[count..];
                    is_peers = is_verified;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if !process.has_nonce() => return Err(ReadError::PeerDown),
                Err(error) => {
                    return Err(match error.raw_os_error() {
                        Some(libc::EFAULT) => ReadError::BadSpan,
                        errno => ReadError::Failed { errno: errno.unwrap_or(0) },
                    });
                }
            }
        }
        if is_peers { Ok(()) } else { Err(ReadError::PeerDown) }
    }

    /// Checks that what was read from a mapping are the bytes of the peer. The peer's process may
    /// have ended meanwhile: that does not matter as long as the peer has not let go of the buffer.
    fn verify(&self, connection: &Connection) -> Result<(), ReadError> {
        let mapped = connection.memory.as_ref().filter(|_| self.mapped_at.is_some());
        let is_current = mapped.is_none_or(PeerMemory::is_current);
        if is_current { Ok(()) } else { Err(ReadError::PeerDown) }
    }

    /// Claims what is left, so that the sender begins no other piece. Returns whether it may still
    /// be writing one.
    pub(crate) fn take_back(&mut self, connection: &Connection) -> bool {
        let Some(side) = &mut self.side else { return false };
        let claims = connection.claims();
        // A sender that breaks rules is not waited for: it can write at any time.
        let pieces = side.claim_rest(claims).and_then(|()| side.sender_pieces(claims));
        pieces == Ok(SenderPieces::Claimed) && !connection.has_ended()
    }

    /// Whether the sender has released the piece that this read waits for, or has broken a rule.
    pub(crate) fn is_answered(&self, connection: &Connection) -> bool {
        let side = self.side.as_ref().filter(|_| self.waits);
        side.is_some_and(|side| {
            side.sender_pieces(connection.claims()) != Ok(SenderPieces::Claimed)
        })
    }

    /// Drops a read whose sender may still be writing into the buffer.
    pub(crate) fn abandon(mut self, connection: &Connection) {
        if !self.is_owned() {
            // The caller may use its memory for something else afterwards.
            while self.take_back(connection) {
                std::thread::sleep(PAUSE);
            }
        } else if self.take_back(connection) {
            std::mem::forget(self.into);
        }
    }
}
