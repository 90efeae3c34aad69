//! The rest of a long message, behind its head.
//!
//! Its receiver has matched the head. It posts receives for the pieces, under a tag that only these
//! have, and tells the sender to go on. So no piece is ever longer than its room, whatever a
//! provider does with one that is, and no piece is received by another receive. Pieces of one
//! message arrive in their order (`FI_ORDER_SAS`), so all have the same tag.
//!
//! Where the provider lets the sender write to the receiver's buffer, there are pieces only for
//! memory that isn't the device's (`written.rs`). The parts that are written are pieces here, too.
//!
//! A piece is as long as the provider can carry without a rendezvous of its own where that isn't
//! safe (`tcp;ofi_rxm` ends the process if a peer dies in one), and else as the whole rest.
//!
//! **Memory that its owner wants back.** libfabric can't be made to give back the memory of a send
//! whose peer has died. So it never gets memory that is only lent to the device: its bytes pass
//! through memory of the device's own. A vector, which a buffer owns, goes to libfabric itself, and
//! stays with the device if need be.

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_fabric::Canceller;
use tagmatch_fabric::handshake::break_with;
use tagmatch_ofi_sys as sys;

use super::OfiTransport;
use super::carrier::{TagBits, Wire};
use super::control::{Packet, Trailer};
use super::endpoint::{Begun, Completion, Lane, LaneAddress, MemorySpan, TaggedMessage};
use super::operations::{Kind, Long, OfiOperation};
use super::provider::Provider;
use super::rma::WRITE_MAX;

/// Pieces of one message that libfabric has at a time.
const WINDOW: u32 = 16;
/// Most bytes of a piece that passes through memory of the device's own, if the provider carries
/// longer ones.
const LENT_PIECE: u32 = 64 << 10;

/// Most bytes of this buffer that are written at a time.
fn write_max(buffer: &Buffer) -> u32 {
    if buffer.is_vec() { WRITE_MAX } else { LENT_PIECE }
}

impl Provider {
    /// Most bytes of a piece of this buffer.
    pub(super) fn piece_max(&self, buffer: &Buffer) -> u32 {
        let most = if buffer.is_vec() { self.piece } else { self.piece.min(LENT_PIECE as usize) };
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Most bytes of a piece that passes through memory of the device's own.
    pub(super) fn lent_piece(&self) -> usize {
        if self.writes { LENT_PIECE as usize } else { self.piece.min(LENT_PIECE as usize) }
    }
}

impl Long {
    /// Of a send whose head has so many bytes of the message. Where it ends is the receiver's to
    /// say.
    pub(super) fn to_be_sent(head: usize) -> Self {
        Long {
            other: 0,
            piece: 0,
            next: head,
            end: head,
            out: 0,
            is_broken: false,
            envelope: None,
            wants_ack: false,
            region: None,
            target: None,
        }
    }

    /// Takes the receiver's answer, which says where the message ends and how long pieces are;
    /// `false` if it's no answer to a send of so many bytes, or not the first one.
    pub(super) fn follow(&mut self, answer: Packet, piece_max: u32, length: usize) -> bool {
        let (receive, piece, end, target) = match answer {
            Packet::Go { receive, piece, end, .. } => (receive, piece, end, None),
            Packet::WriteTo { receive, end, target, .. } => {
                (receive, piece_max, end.into(), Some(target))
            }
            _ => return false,
        };
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let is_right = self.piece == 0
            && (1..=piece_max).contains(&piece)
            && (self.next + 1..=length).contains(&end);
        if is_right {
            (self.other, self.piece, self.end) = (receive, piece as usize, end);
            self.target = target;
        }
        is_right
    }

    /// Whether no piece is under way, and none is left.
    pub(super) fn is_over(&self) -> bool {
        self.out == 0 && (self.next >= self.end || self.is_broken)
    }

    /// The place of the next piece, if there is to be one now.
    pub(super) fn take_next(&mut self) -> Option<(usize, usize)> {
        if self.out >= WINDOW || self.next >= self.end || self.is_broken {
            return None;
        }
        let start = self.next;
        let length = self.piece.min(self.end - self.next);
        self.next += length;
        self.out += 1;
        Some((start, length))
    }
}

impl OfiTransport {
    /// Begins to receive the rest of a message into the buffer of a receive whose head has come.
    pub(super) fn begin_rest(&mut self, key: Key, source: PeerId, long: Long, trailer: &Trailer) {
        let send = trailer.send;
        let receive = key.to_short();
        let end = long.end;
        let registered = if trailer.writes { self.register(key, end) } else { None };
        let Some(operation) = self.core.operations.at(key) else { return };
        if let Some((region, target)) = registered {
            let region = Some(region);
            operation.long = Some(Box::new(Long { region, out: 1, ..long }));
            let end = u32::try_from(end).unwrap_or(u32::MAX);
            return self.say(source, Packet::WriteTo { send, receive, end, target });
        }
        let ours = self.provider.piece_max(&operation.buffer);
        let piece = ours.min(trailer.piece_max);
        operation.long = Some(Box::new(Long { piece: piece as usize, ..long }));
        self.post_pieces(key);
        self.say(source, Packet::Go { send, receive, piece, end: end as u64 });
    }

    fn post_pieces(&mut self, key: Key) {
        while let Some(operation) = self.core.operations.at(key)
            && let Some((start, length)) = operation.long.as_mut().and_then(|long| long.take_next())
        {
            let is_lent = !operation.buffer.is_vec();
            let peer = operation.peer;
            let own = if is_lent { self.core.operations.pool.pieces.take() } else { Vec::new() };
            let piece = OfiOperation {
                kind: Kind::PieceIn,
                peer,
                parent: Some(key),
                own,
                start,
                length,
                ..OfiOperation::default()
            };
            match self.core.operations.enter(piece) {
                Ok(piece) => self.post_or_wait(piece),
                Err(_) => return self.piece_gone(Some(key), true),
            }
        }
    }

    /// Posts the receive of a piece.
    pub(super) fn post_piece(&mut self, key: Key) -> Begun {
        let Some(piece) = self.core.operations.at(key) else { return Begun::Yes };
        let start = piece.start;
        let length = piece.length;
        let is_lent = !piece.own.is_empty();
        let Some(parent) = piece.parent else { return Begun::Failed(sys::FI_EINVAL) };
        let own = piece.own.as_mut_ptr();
        let tag = self.carrier.piece_tag(parent.to_short());
        let Some(operation) = self.core.operations.at(parent) else {
            return Begun::Failed(sys::FI_ECANCELED);
        };
        // A piece lies inside the buffer (`Long::take_next`, `deliver`), which is a vector.
        let start =
            if is_lent { own } else { operation.buffer.as_ptr().cast_mut().wrapping_add(start) };
        let Some((_, context)) = self.core.operations.with_context(key) else { return Begun::Yes };
        let any = LaneAddress::packets(sys::FI_ADDR_UNSPEC);
        let memory = MemorySpan { start, length };
        // SAFETY: the piece keeps its own memory, and the operation that it is a part of keeps the
        // buffer, until libfabric has given both back or the endpoint is gone; nobody looks at
        // these bytes meanwhile. The table keeps the context.
        unsafe { self.endpoint.receive(any, memory, TagBits { tag, ignored: 0 }, context) }
    }

    /// A piece has come, or not.
    pub(super) fn piece_received(&mut self, key: Key, completion: &Completion) {
        let Some(piece) = self.core.operations.at(key) else { return };
        let own = std::mem::take(&mut piece.own);
        let Some(piece) = self.core.operations.remove(key) else { return };
        let is_whole = completion.errno == 0 && completion.length == piece.length;
        if is_whole
            && let Some(bytes) = own.get(..piece.length)
            && let Some(operation) = piece.parent.and_then(|parent| self.core.operations.at(parent))
            && !operation.is_told
        {
            let place = piece.start..piece.start + piece.length;
            let room = operation.buffer.room().and_then(|room| room.part(place));
            room.map(|room| room.fill(bytes));
        }
        self.core.operations.pool.pieces.keep(own);
        let is_ours = completion.errno == sys::FI_ECANCELED;
        self.piece_gone(piece.parent, !is_whole);
        if !is_whole
            && !is_ours
            && let Some(peer) = piece.peer
        {
            break_with(self, peer, DownReason::Gone);
        }
    }

    /// Lets the pieces of a send follow its head.
    pub(super) fn go_on(&mut self, source: PeerId, packet: Packet) -> Result<(), &'static str> {
        let (Packet::Go { send, .. } | Packet::WriteTo { send, .. }) = packet else {
            return Ok(());
        };
        // A send that has ended meanwhile, because its peer is ending.
        let Some(key) = self.core.operations.of_peer(send) else { return Ok(()) };
        let Some(operation) = self.core.operations.at(key) else { return Ok(()) };
        let piece_max = match packet {
            Packet::WriteTo { .. } if !self.provider.writes => {
                return Err("a go that asks for writes, which aren't possible");
            }
            Packet::WriteTo { .. } => write_max(&operation.buffer),
            _ => self.provider.piece_max(&operation.buffer),
        };
        let is_right = operation.awaits_word_of(source);
        let long = operation.long.as_mut().filter(|_| is_right);
        if !long.is_some_and(|long| long.follow(packet, piece_max, operation.length)) {
            return Err("a go for no message that waits for one");
        }
        // The ack after the last piece is awaited then.
        let until = operation.until;
        operation.awaits = (until == tagmatch_device::matching::CompleteWhen::Delivered).into();
        self.send_pieces(key);
        Ok(())
    }

    fn send_pieces(&mut self, key: Key) {
        while let Some(operation) = self.core.operations.at(key)
            && let Some(peer) = operation.peer
            && let Some((start, length)) = operation.long.as_mut().and_then(|long| long.take_next())
        {
            let is_lent = !operation.buffer.is_vec();
            let mut own =
                if is_lent { self.core.operations.pool.pieces.take() } else { Vec::new() };
            if let Some(own) = own.get_mut(..length)
                && let Some(operation) = self.core.operations.at(key)
            {
                own.copy_from_slice(&operation.buffer[start..start + length]);
            }
            let piece = OfiOperation {
                kind: Kind::PieceOut,
                peer: Some(peer),
                parent: Some(key),
                own_length: length,
                own,
                start,
                length,
                ..OfiOperation::default()
            };
            match self.core.operations.enter(piece) {
                Ok(piece) => self.launch(peer, piece),
                Err(_) => return self.piece_gone(Some(key), true),
            }
        }
    }

    /// Passes a piece to libfabric.
    pub(super) fn pass_piece(&mut self, address: sys::fi_addr_t, key: Key) -> Begun {
        let Some(piece) = self.core.operations.at(key) else { return Begun::Yes };
        let start = piece.start;
        let length = piece.length;
        let parent = piece.parent;
        let own = (!piece.own.is_empty()).then_some(piece.own.as_ptr());
        let Some(operation) = parent.and_then(|parent| self.core.operations.at(parent)) else {
            return Begun::Failed(sys::FI_ECANCELED);
        };
        let Some(long) = operation.long.as_ref() else { return Begun::Failed(sys::FI_EINVAL) };
        let other = long.other;
        let target = long.target;
        // A piece lies inside the buffer (`Long::take_next`, `OfiTransport::go_on`).
        let from = own.unwrap_or_else(|| operation.buffer.as_ptr().wrapping_add(start));
        let bytes = MemorySpan { start: from.cast_mut(), length };
        let tag = self.carrier.piece_tag(other);
        let Some((_, context)) = self.core.operations.with_context(key) else { return Begun::Yes };
        if let Some(target) = target {
            // SAFETY: as in `post_piece`.
            return unsafe { self.endpoint.write(address, bytes, target.at(start), context) };
        }
        let to = LaneAddress::packets(address);
        // SAFETY: as in `post_piece`.
        unsafe {
            self.endpoint.send(TaggedMessage { to, bytes, wire: Wire { tag, data: 0 } }, context)
        }
    }

    /// A piece has gone, or failed.
    pub(super) fn piece_sent(&mut self, key: Key, completion: &Completion) {
        if completion.errno != 0 {
            return self.send_failed(key, completion.errno);
        }
        if let Some(piece) = self.core.operations.remove(key) {
            self.piece_gone(piece.parent, false);
        }
    }

    /// libfabric has let go of a piece: the next one follows, or the message is complete.
    pub(super) fn piece_gone(&mut self, parent: Option<Key>, is_broken: bool) {
        let Some(key) = parent else { return };
        let Some(operation) = self.core.operations.at(key) else { return };
        let Some(long) = operation.long.as_mut() else { return };
        long.out -= 1;
        long.is_broken |= is_broken;
        let is_written = !long.is_broken && long.is_over() && long.target.is_some();
        if let Some(peer) = operation.peer.filter(|_| is_written) {
            let receive = long.other;
            self.say(peer, Packet::Written { receive });
        }
        let Some(operation) = self.core.operations.at(key) else { return };
        let Some(long) = operation.long.as_mut() else { return };
        if !long.is_broken && long.next < long.end && !operation.is_told {
            return match operation.kind {
                Kind::Send => self.send_pieces(key),
                _ => self.post_pieces(key),
            };
        }
        if long.out > 0 || operation.is_begun {
            return;
        }
        if operation.is_told {
            self.core.operations.remove(key);
        } else if operation.long.as_ref().is_some_and(|long| long.is_broken) {
            self.end_lost(key);
        } else if operation.kind == Kind::Send {
            self.finish_send(key);
        } else {
            self.rest_received(key);
        }
    }

    /// The last byte of a message has come.
    pub(super) fn rest_received(&mut self, key: Key) {
        let Some(operation) = self.core.operations.at(key) else { return };
        let (source, Some(long)) = (operation.peer, operation.long.as_ref()) else { return };
        let other = long.other;
        let wants_ack = long.wants_ack;
        let Some(envelope) = long.envelope else { return };
        if let Some(source) = source.filter(|_| wants_ack) {
            self.say(source, Packet::Ack { send: other });
        }
        self.core.end_receive(key, Ok(envelope));
    }

    /// Ends the pieces of a message whose peer has ended, as far as libfabric lets go of them.
    pub(super) fn cancel_pieces(&mut self, peer: PeerId) {
        let is_its = |operation: &OfiOperation| {
            operation.kind == Kind::PieceIn && operation.peer == Some(peer)
        };
        for key in self.core.operations.keys(is_its) {
            let Some((piece, context)) = self.core.operations.with_context(key) else { continue };
            piece.canceller = Canceller::PeersEnd;
            if piece.is_begun {
                self.endpoint.cancel(Lane::Packets, context);
            } else {
                let parent = piece.parent;
                self.unposted.retain(|waiting| *waiting != key);
                self.core.operations.remove(key);
                self.piece_gone(parent, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_the_rest_of_the_message_and_no_more(
            head in 0usize..9000, rest in 1usize..30_000, cut in 0usize..30_000, piece in 1u32..5000,
        ) {
            let end = head + rest - cut.min(rest - 1);
            let mut long = Long::to_be_sent(head);
            let go = Packet::Go { send: 1, receive: 2, piece, end: end as u64 };
            prop_assert!(long.follow(go, 5000, head + rest));
            let mut place = head;
            while let Some((start, length)) = long.take_next() {
                prop_assert!(long.out <= WINDOW && !long.is_over());
                prop_assert_eq!(start, place);
                prop_assert!(length > 0 && length <= piece as usize);
                place = start + length;
                prop_assert!(length == piece as usize || place == end);
                if long.out == WINDOW {
                    prop_assert!(long.take_next().is_none());
                    long.out -= 1;
                }
            }
            prop_assert_eq!(place, end);
            long.out = 0;
            prop_assert!(long.is_over());
        }

        #[test]
        fn an_answer_to_no_such_message_is_refused(length in 8192usize..30_000, beyond: u64) {
            let go = |piece, end| Packet::Go { send: 1, receive: 2, piece, end };
            let end = length as u64;
            let beyond = beyond.saturating_add(end + 1);
            let wrong = [go(0, end), go(5001, end), go(10, beyond), go(10, 8000), Packet::Mark { lane: Lane::Messages }];
            let mut long = Long::to_be_sent(8000);
            for answer in wrong {
                prop_assert!(!long.follow(answer, 5000, length) && long.is_over());
            }
            prop_assert!(long.follow(go(10, end), 5000, length));
            prop_assert!(!long.follow(go(10, end), 5000, length), "a second one");
        }
    }

    #[test]
    fn lent_memory_is_written_in_parts_and_vectors_in_longer_ones() {
        let mut lent = vec![0u8; 8];
        let start = NonNull::new(lent.as_mut_ptr()).unwrap();
        // SAFETY: the memory lives longer than the buffer.
        let lent = unsafe { Buffer::from_raw(start, 8, true) };
        assert_eq!((write_max(&lent), write_max(&Buffer::zeroed(8))), (LENT_PIECE, WRITE_MAX));
    }
}
