//! Operations under way, and the memory that the library uses for them.
//!
//! An operation's slot has a context, which never moves. The library names the context when the
//! operation has ended, and may write to it until then. Everything else about an operation is in a
//! [`Slab`].

use std::rc::Rc;

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Buffer, PeerId};

/// Contexts that are allocated at a time.
const CHUNK: u32 = 256;

/// Why a receive is being cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Canceller {
    /// It isn't.
    #[default]
    Nobody,
    /// The caller asked for it, or the device is closing.
    Caller,
    /// The peer that it depends on has ended.
    PeersEnd,
}

/// One operation, as the transport keeps it.
pub trait Operation: Sized {
    /// The memory of an operation that the library uses until the operation has ended.
    type Context;
    /// The state that all operations of a device share, beside their own entries.
    type Pool;
    /// Most operations under way.
    const MAX: u32;

    /// The context of the slot with this index.
    fn context(index: u32, pool: &Self::Pool) -> Self::Context;

    /// Gives memory back that later operations can use.
    fn recycle(&mut self, pool: &mut Self::Pool);

    /// The token of the caller's send or receive.
    fn token(&self) -> u64;

    /// The peer that it depends on: the receiver of a send, the sender that a receive names.
    fn peer(&self) -> Option<PeerId>;

    /// Whether it is a send of the caller's whose end was not reported.
    fn is_send(&self) -> bool;

    /// Whether it is a receive of the caller's whose end was not reported.
    fn is_receive(&self) -> bool;

    /// Whether it takes something to a peer.
    fn goes_out(&self) -> bool {
        self.is_send()
    }

    /// The caller's buffer.
    fn into_buffer(self) -> Buffer;
}

/// The table of operations.
///
/// Dropping it frees the contexts, so the library has to be closed before.
pub struct Operations<O: Operation> {
    table: Slab<O>,
    /// Shared, because the library writes to them by pointers that it was given.
    contexts: Vec<Rc<[O::Context]>>,
    /// The state that all operations share.
    pub pool: O::Pool,
}

impl<O: Operation> Operations<O> {
    /// An empty table.
    pub fn new(pool: O::Pool) -> Self {
        Operations { table: Slab::default(), contexts: Vec::new(), pool }
    }

    /// Enters an operation.
    ///
    /// # Errors
    /// Gives the buffer back if there are too many operations.
    #[inline]
    pub fn enter(&mut self, operation: O) -> Result<Key, Buffer> {
        let key = self.table.insert(operation, O::MAX).map_err(O::into_buffer)?;
        while self.room() <= key.index {
            self.grow();
        }
        Ok(key)
    }

    #[inline]
    fn room(&self) -> u32 {
        u32::try_from(self.contexts.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK)
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.room();
        let indices = first..first.saturating_add(CHUNK);
        self.contexts.push(indices.map(|index| O::context(index, &self.pool)).collect());
    }

    /// An operation.
    #[inline]
    pub fn at(&mut self, key: Key) -> Option<&mut O> {
        self.table.get_mut(key)
    }

    /// An operation, to be looked at.
    pub fn get(&self, key: Key) -> Option<&O> {
        self.table.get(key)
    }

    /// An operation, and the context that the library has of it.
    #[inline]
    pub fn with_context(&mut self, key: Key) -> Option<(&mut O, &O::Context)> {
        let context =
            &self.contexts.get((key.index / CHUNK) as usize)?[(key.index % CHUNK) as usize];
        Some((self.table.get_mut(key)?, context))
    }

    /// The operation in this slot.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    /// The operation whose [short key](Key::to_short) a peer names.
    pub fn of_peer(&self, short: u32) -> Option<Key> {
        self.table.key_of_short(short)
    }

    /// Removes an operation that the library doesn't have any more.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<O> {
        let mut operation = self.table.remove(key)?;
        operation.recycle(&mut self.pool);
        Some(operation)
    }

    /// The keys of the operations that `wanted` picks.
    pub fn keys(&self, wanted: impl FnMut(&O) -> bool) -> Vec<Key> {
        self.table.keys_where(wanted)
    }

    /// All operations.
    pub fn iter(&self) -> impl Iterator<Item = &O> {
        self.table.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Leaves all memory to a library that may still read or write it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.table));
        std::mem::forget(std::mem::take(&mut self.contexts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation whose context is its index.
    struct Numbered(u64);

    impl Operation for Numbered {
        type Context = u32;
        type Pool = Vec<u64>;
        const MAX: u32 = 600;

        fn context(index: u32, _: &Vec<u64>) -> u32 {
            index
        }

        fn recycle(&mut self, pool: &mut Vec<u64>) {
            pool.push(self.0);
        }

        fn token(&self) -> u64 {
            self.0
        }

        fn peer(&self) -> Option<PeerId> {
            None
        }

        fn is_send(&self) -> bool {
            true
        }

        fn is_receive(&self) -> bool {
            false
        }

        fn into_buffer(self) -> Buffer {
            Buffer::default()
        }
    }

    #[test]
    fn contexts_stay_where_they_are_and_name_their_operation() {
        let mut table = Operations::new(Vec::new());
        let keys: Vec<Key> = (0..600).map(|token| table.enter(Numbered(token)).unwrap()).collect();
        assert!(table.enter(Numbered(600)).is_err(), "one too many");
        let places: Vec<usize> = keys
            .iter()
            .map(|key| std::ptr::from_ref(table.with_context(*key).unwrap().1).addr())
            .collect();
        for (key, place) in keys.iter().zip(&places).rev() {
            let (operation, context) = table.with_context(*key).unwrap();
            assert_eq!((operation.0, *context), (u64::from(key.index), key.index));
            assert_eq!(std::ptr::from_ref(context).addr(), *place);
            assert!(table.remove(*key).is_some() && table.at(*key).is_none());
        }
        assert!(table.is_empty() && table.pool.len() == 600);
        let again = table.enter(Numbered(7)).unwrap();
        assert_eq!(again.index, 0);
        assert!(table.of_peer(keys[0].to_short()).is_none());
        assert_eq!(table.of_peer(again.to_short()), Some(again));
    }
}
