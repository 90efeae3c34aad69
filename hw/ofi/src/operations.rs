//! Operations under way, and the memory that libfabric uses for them.
//!
//! An operation's slot has a [`Context`], which never moves. libfabric names the context when the
//! operation has ended, and may write to it until then. Everything else about an operation is in a
//! [`Slab`].

use std::ptr::NonNull;

use tagmatch_device::matching::{CompleteWhen, Envelope};
use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Buffer, PeerId};

use super::carrier::Wire;
use super::endpoint::Context;
use super::rma::{Target, WritableRegion};

/// Contexts that are allocated at a time.
const CHUNK: u32 = 256;
/// Most operations under way. One fewer than there are short keys, so that one of them is nobody's.
const OPERATIONS_MAX: u32 = Key::SHORT_MAX - 1;
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

/// Why a receive is being cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Canceller {
    #[default]
    Nobody,
    /// The caller asked for it, or the device is closing.
    Caller,
    /// The peer that it depends on has ended.
    PeersEnd,
}

/// One operation.
#[derive(Default)]
pub(super) struct Operation {
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
    /// Tag and data of what is sent; tag and ignored bits of what is received.
    pub(super) wire: Wire,
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

impl Operation {
    /// Whether libfabric has memory of the caller's.
    pub(super) fn lends(&self) -> bool {
        let pieces = self.long.as_ref().is_some_and(|long| long.out > 0) && self.buffer.is_vec();
        self.is_begun && self.own.is_empty() || pieces
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

/// The table of operations.
pub(super) struct Operations {
    table: Slab<Operation>,
    contexts: Vec<NonNull<[Context]>>,
    /// Memory of the device's own for heads.
    pub(super) heads: SpareMemory,
    /// Memory of the device's own for pieces of messages in memory that is lent.
    pub(super) pieces: SpareMemory,
    /// Memory of the device's own that peers write to.
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

impl Operations {
    /// A table for pieces of at most so many bytes of lent memory.
    pub(super) fn new(piece: usize) -> Self {
        Operations {
            table: Slab::default(),
            contexts: Vec::new(),
            heads: SpareMemory::of(HEAD_MAX),
            pieces: SpareMemory::of(piece),
            written: SpareMemory::of(WRITTEN_MAX),
        }
    }

    /// Enters an operation.
    ///
    /// # Errors
    /// Gives it back if there are too many.
    #[inline]
    pub(super) fn enter(&mut self, operation: Operation) -> Result<Key, Box<Operation>> {
        let key = self.table.insert(operation, OPERATIONS_MAX).map_err(Box::new)?;
        while self.room() <= key.index {
            self.grow();
        }
        Ok(key)
    }

    fn room(&self) -> u32 {
        u32::try_from(self.contexts.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK)
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.room();
        let chunk: Box<[Context]> =
            (first..first.saturating_add(CHUNK)).map(Context::new).collect();
        self.contexts.push(NonNull::from(Box::leak(chunk)));
    }

    #[inline]
    pub(super) fn at(&mut self, key: Key) -> Option<&mut Operation> {
        self.table.get_mut(key)
    }

    /// The operation, and the context that libfabric has of it.
    #[inline]
    pub(super) fn with_context(&mut self, key: Key) -> Option<(&mut Operation, &Context)> {
        let chunk = self.contexts.get((key.index / CHUNK) as usize)?;
        // SAFETY: allocated by `grow`, freed with the table; nobody has a unique reference to it.
        let context = &unsafe { chunk.as_ref() }[(key.index % CHUNK) as usize];
        Some((self.table.get_mut(key)?, context))
    }

    #[inline]
    pub(super) fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    /// The operation that a peer names.
    pub(super) fn of_peer(&self, short: u32) -> Option<Key> {
        self.table.key_of_short(short)
    }

    /// Removes an operation that libfabric doesn't have any more.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Option<Operation> {
        let mut operation = self.table.remove(key)?;
        match operation.kind {
            Kind::PieceIn | Kind::PieceOut => self.pieces.keep(std::mem::take(&mut operation.own)),
            _ if operation.own.len() == HEAD_MAX => {
                self.heads.keep(std::mem::take(&mut operation.own));
            }
            _ if operation.own.len() == WRITTEN_MAX => {
                self.written.keep(std::mem::take(&mut operation.own));
            }
            _ => {}
        }
        Some(operation)
    }

    pub(super) fn keys(&self, wanted: impl FnMut(&Operation) -> bool) -> Vec<Key> {
        self.table.keys_where(wanted)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.table.iter()
    }
}

impl Drop for Operations {
    /// Frees all memory. To be called when the endpoint is gone, and libfabric with it.
    fn drop(&mut self) {
        for chunk in self.contexts.drain(..) {
            // SAFETY: leaked from a box by `grow`; nobody else has it any more.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_stay_where_they_are_and_name_their_operation() {
        let mut table = Operations::new(16_384);
        let keys: Vec<Key> = (0..600u64)
            .map(|token| table.enter(Operation { token, ..Operation::default() }).ok().unwrap())
            .collect();
        let places: Vec<usize> = keys
            .iter()
            .map(|key| std::ptr::from_ref(table.with_context(*key).unwrap().1).addr())
            .collect();
        for (key, place) in keys.iter().zip(&places).rev() {
            let (operation, context) = table.with_context(*key).unwrap();
            assert_eq!((operation.token, context.index), (u64::from(key.index), key.index));
            assert_eq!(std::ptr::from_ref(context).addr(), *place);
            assert!(table.remove(*key).is_some() && table.at(*key).is_none());
        }
        let again = table.enter(Operation::default()).ok().unwrap();
        assert_eq!(again.index, 0);
        assert!(table.of_peer(keys[0].to_short()).is_none());
        assert_eq!(table.of_peer(again.to_short()), Some(again));
    }

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
        let mut table = Operations::new(16_384);
        for (kind, size) in [
            (Kind::Send, HEAD_MAX),
            (Kind::PieceIn, 16_384),
            (Kind::PieceOut, 16_384),
            (Kind::Receive, WRITTEN_MAX),
        ] {
            let operation = Operation { kind, own: vec![7; size], ..Operation::default() };
            let key = table.enter(operation).ok().unwrap();
            assert!(table.remove(key).unwrap().own.is_empty());
            let again = match size {
                HEAD_MAX => table.heads.take(),
                WRITTEN_MAX => table.written.take(),
                _ => table.pieces.take(),
            };
            assert_eq!(again, vec![7; size]);
        }
    }
}
