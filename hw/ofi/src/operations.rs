//! Operations under way, and memory of the device's own for them.

use tagmatch_device::matching::{CompleteWhen, Envelope};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, PeerId};
use tagmatch_fabric::Canceller;
use tagmatch_ofi_sys as sys;

use super::carrier::TagBits;
use super::endpoint::{Completion, Lane, OperationContext};
use super::rma::{Target, WritableRegion};

/// Most bytes of memory of the device's own that are kept for later operations, for heads and for
/// pieces.
const SPARE_BYTES_MAX: usize = 8 << 20;
/// Most bytes of a message on the wire that isn't a piece of a longer one, its trailer included. A
/// receive is posted with so much room, so no provider ever truncates.
pub(super) const HEAD_MAX: usize = 8192;

/// Most bytes of a message that a peer writes to memory of the device's own.
pub(super) const WRITTEN_MAX: usize = 4 << 20;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A send of the caller's.
    #[default]
    Send,
    /// A receive of the caller's.
    Receive,
    /// A receive that drops a message.
    Discard,
    /// A part of a long message that goes out.
    PieceOut,
    /// A part of a long message that comes in.
    PieceIn,
    /// A control packet that goes out.
    ControlOut,
    /// A receive for control packets.
    ControlIn,
    /// A look for a message. If it has taken one, it stays until that is received or dropped.
    Look,
}

/// One operation.
#[derive(Default)]
pub struct OfiOperation {
    pub(super) kind: Kind,
    /// libfabric has its context, and the memory that it was begun with.
    pub(super) is_begun: bool,
    pub(super) token: u64,
    /// The peer that it depends on.
    pub(super) peer: Option<PeerId>,
    /// The caller's buffer.
    pub(super) buffer: Buffer,
    /// Memory of the device's own, which libfabric has instead of the caller's buffer; and how many
    /// of its bytes are sent.
    pub(super) own: Vec<u8>,
    pub(super) own_length: usize,
    /// The application's tag of what is sent; tag and ignored bits on the wire of what is received.
    pub(super) bits: TagBits,
    /// Of a packet: where it goes or is received, and whether it is a mark.
    pub(super) lane: Lane,
    pub(super) is_mark: bool,
    pub(super) immediate: Option<u32>,
    pub(super) until: CompleteWhen,
    /// Control packets without which a send isn't complete.
    pub(super) awaits: u32,
    pub(super) canceller: Canceller,
    /// It receives what a look has taken, so its tag is the message's own.
    pub(super) is_claimed: bool,
    /// Its end was reported although libfabric still has its memory.
    pub(super) is_told: bool,
    pub(super) long: Option<Box<Long>>,
    /// Of a piece: the operation that it is a part of, and where it lies in the buffer.
    pub(super) parent: Option<Key>,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// What a receive matches on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WirePattern {
    /// The sender, if the provider compares it. `None`: its address isn't known yet.
    pub(super) from: Option<sys::fi_addr_t>,
    pub(super) bits: TagBits,
}

/// How far a long message has come.
pub(super) struct Long {
    /// The number of the operation at the other end.
    pub(super) other: u32,
    /// Bytes of each piece but the last.
    pub(super) piece: usize,
    /// Where the next piece begins, and where the last one ends.
    pub(super) next: usize,
    pub(super) end: usize,
    /// Pieces that libfabric has.
    pub(super) out: u32,
    /// A piece has failed, or the peer has ended.
    pub(super) is_broken: bool,
    /// Of a receive: what is to be reported.
    pub(super) envelope: Option<Envelope>,
    /// Of a receive: its sender waits for the last byte.
    pub(super) wants_ack: bool,
    /// Of a receive: its sender writes the rest into its buffer.
    pub(super) region: Option<WritableRegion>,
    /// Of a send: where the rest is to be written.
    pub(super) target: Option<Target>,
}

impl OfiOperation {
    /// Whether libfabric has memory of the caller's.
    pub(super) fn lends(&self) -> bool {
        let pieces = self.long.as_ref().is_some_and(|long| long.out > 0) && self.buffer.is_vec();
        self.is_begun && self.own.is_empty() || pieces
    }

    /// What has been received into memory of the device's own.
    pub(super) fn head(&self, completion: &Completion) -> &[u8] {
        &self.own[..completion.length.min(self.own.len())]
    }

    /// Whether it's a send that waits for a control packet of this peer.
    pub(super) fn awaits_word_of(&self, peer: PeerId) -> bool {
        self.kind == Kind::Send && self.peer == Some(peer) && self.awaits > 0
    }

    /// Whether libfabric has anything of it.
    pub(super) fn is_held(&self) -> bool {
        self.is_begun || self.long.as_ref().is_some_and(|long| long.out > 0)
    }
}

/// Receives that wait for peers, in the order in which they were posted.
#[derive(Default)]
pub(super) struct EarlyReceives {
    pub(super) queue: Vec<Key>,
    /// One of them is from any source.
    pub(super) has_any: bool,
}

/// Memory of the device's own, kept for later operations.
pub struct SpareMemories {
    /// For heads.
    pub(super) heads: SpareMemory,
    /// For pieces of messages in memory that is lent.
    pub(super) pieces: SpareMemory,
    /// For peers to write to.
    pub(super) written: SpareMemory,
}

/// Buffers of one size, kept for later operations. Their bytes are any.
pub(super) struct SpareMemory {
    size: usize,
    kept: Vec<Vec<u8>>,
}

impl SpareMemory {
    fn of(size: usize) -> Self {
        SpareMemory { size, kept: Vec::new() }
    }

    #[inline]
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.kept.pop().unwrap_or_else(|| vec![0; self.size])
    }

    /// Keeps a buffer, if it has the size, and there are not enough.
    #[inline]
    pub(super) fn keep(&mut self, memory: Vec<u8>) {
        if memory.len() == self.size && self.kept.len() < SPARE_BYTES_MAX / self.size {
            self.kept.push(memory);
        }
    }
}

impl SpareMemories {
    /// With pieces of at most so many bytes of lent memory.
    pub(super) fn new(piece: usize) -> Self {
        SpareMemories {
            heads: SpareMemory::of(HEAD_MAX),
            pieces: SpareMemory::of(piece),
            written: SpareMemory::of(WRITTEN_MAX),
        }
    }
}

impl tagmatch_fabric::Operation for OfiOperation {
    type Context = OperationContext;
    type Pool = SpareMemories;
    /// One fewer than there are short keys, so that one of them is nobody's.
    const MAX: u32 = Key::SHORT_MAX - 1;

    fn context(index: u32, _: &SpareMemories) -> OperationContext {
        OperationContext::new(index)
    }

    #[inline]
    fn recycle(&mut self, spare: &mut SpareMemories) {
        match self.kind {
            Kind::PieceIn | Kind::PieceOut => spare.pieces.keep(std::mem::take(&mut self.own)),
            _ if self.own.len() == HEAD_MAX => spare.heads.keep(std::mem::take(&mut self.own)),
            _ if self.own.len() == WRITTEN_MAX => spare.written.keep(std::mem::take(&mut self.own)),
            _ => {}
        }
    }

    #[inline]
    fn token(&self) -> u64 {
        self.token
    }

    #[inline]
    fn peer(&self) -> Option<PeerId> {
        self.peer
    }

    fn is_send(&self) -> bool {
        self.kind == Kind::Send && !self.is_told
    }

    fn is_receive(&self) -> bool {
        self.kind == Kind::Receive && !self.is_told
    }

    fn goes_out(&self) -> bool {
        self.is_send() || self.kind == Kind::ControlOut && !self.is_told
    }

    #[inline]
    fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tagmatch_fabric::Operations;

    #[test]
    fn spare_memory_has_its_size_and_is_bounded() {
        let mut spare = SpareMemory::of(HEAD_MAX);
        let most = SPARE_BYTES_MAX / HEAD_MAX;
        spare.keep(vec![1; HEAD_MAX + 1]);
        (0..most + 5).for_each(|_| spare.keep(vec![1; HEAD_MAX]));
        let kept = (0..most).filter(|_| spare.take() == [1; HEAD_MAX]).count();
        assert_eq!((kept, spare.take()), (most, vec![0; HEAD_MAX]));
    }

    #[test]
    fn memory_of_heads_and_pieces_is_used_again() {
        let mut table = Operations::new(SpareMemories::new(16_384));
        for (kind, size) in [
            (Kind::Send, HEAD_MAX),
            (Kind::PieceIn, 16_384),
            (Kind::PieceOut, 16_384),
            (Kind::Receive, WRITTEN_MAX),
        ] {
            let operation = OfiOperation { kind, own: vec![7; size], ..OfiOperation::default() };
            let key = table.enter(operation).ok().unwrap();
            assert!(table.remove(key).unwrap().own.is_empty());
            let again = match size {
                HEAD_MAX => table.pool.heads.take(),
                WRITTEN_MAX => table.pool.written.take(),
                _ => table.pool.pieces.take(),
            };
            assert_eq!(again, vec![7; size]);
        }
    }
}
