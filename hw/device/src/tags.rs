//! The trait of a NIC that holds part of the posted-receive list.
//!
//! The contract is that of verbs tag matching (`ibv_post_srq_ops(3)`, rdma-core's
//! `Documentation/tag_matching.md`), limited to what all known hardware guarantees. On paper it
//! also fits Cassini and Portals 4, which have a fixed number of slots, handles made by the device,
//! results that are reported later, and rendezvous by the NIC where the NIC is able to.
//!
//! 1. **List.** Entries match in the order in which they were added. The NIC searches the list only
//!    for messages with a tag (eager, rendezvous) from peers that the list serves.
//! 2. **Phases.** The NIC counts the tagged messages for which it found no entry; it reports each
//!    of them as unexpected, by [`Event::Message`](crate::Event::Message) with
//!    [`through_list`](crate::Incoming::through_list). Software counts the unexpected messages for
//!    which it has searched its own list, and every operation carries that count, modulo 2^16. An
//!    entry that is added while the two counts differ is *inactive*: it matches nothing now. It may
//!    or may not match later, when an operation brings an equal count; software must be right in
//!    both cases.
//! 3. **Order of events.** [`TagEvent::Matched`] and unexpected messages are reported in the order
//!    in which the NIC decided. The answers of operations are reported in the order of the
//!    operations. A [`TagEvent::Added`] is never reported before an unexpected message that the NIC
//!    had counted when it added the entry. It may be reported later, even after the entry's
//!    `Matched` and its data.
//! 4. **Data** of a matched message may arrive at any time after the match, and the data of several
//!    messages in any order.
//! 5. **Memory.** The buffer of an entry belongs to the device until an event or
//!    [`TagList::reclaim`] returns it.

use crate::{Buffer, PeerId};

/// Whether the NIC matches tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagMatching {
    /// It doesn't.
    #[default]
    Off,
    /// Where it can (`tm_caps` of ibv_query_device_ex(3)).
    Auto,
    /// It does. A NIC that can't is refused.
    Required,
}

/// The limits of a list. They never change while the device lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCaps {
    /// Entries that the list holds at once.
    pub slots: u32,
    /// Most operations that may be outstanding. An operation without an answer counts as
    /// outstanding until a later operation with an answer is answered.
    pub operations: u32,
    /// Bytes in the largest rendezvous message that the NIC reads itself.
    pub read_max: u64,
    /// After so many unexpected messages, at most 2^14, the NIC must have been told a count again.
    pub sync_every: u16,
    /// The count at the start.
    pub first_count: u16,
}

/// The device's number for an entry. It may be reused after the last event of the entry was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHandle(pub u32);

/// A posted receive for the list.
#[derive(Debug)]
pub struct TagAdd {
    /// The caller's number for the entry. Its events carry it.
    pub entry: u32,
    /// The tag to match. Bits outside of the mask are clear.
    pub tag: u64,
    /// The bits that are compared.
    pub mask: u64,
    /// The buffer for the payload: at least 64 bytes, and at least as long as the largest eager
    /// payload that this device has announced.
    pub buffer: Buffer,
    /// The count of unexpected messages for which software has searched its own list.
    pub count: u16,
}

/// Why an operation was not taken. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagRefused {
    /// All slots are taken (`ENOMEM`).
    #[error("the NIC's list is full")]
    ListFull,
    /// As many operations are outstanding as there may be (`ENOMEM`).
    #[error("too many operations of the NIC's list are outstanding")]
    QueueFull,
    /// The NIC can't use the buffer: it is read-only or too short, or its memory can't be
    /// registered.
    #[error("the NIC can't use this buffer")]
    Buffer,
    /// There is no such entry (`EINVAL`).
    #[error("the NIC's list has no such entry")]
    NoSuchEntry,
    /// The list has failed for good.
    #[error("the NIC's list has failed")]
    Broken,
}

/// An event of the list. `entry` is the number that [`TagAdd::entry`] gave.
#[derive(Debug)]
pub enum TagEvent {
    /// The NIC has added an entry, active or not (`TM_ADD`).
    Added {
        /// The entry.
        entry: u32,
    },
    /// A delete found the entry in the list (`TM_DEL`).
    Deleted {
        /// The entry.
        entry: u32,
        /// Its buffer, unless it was reclaimed before.
        buffer: Option<Buffer>,
    },
    /// A delete was too late (`TM_ERR`): the entry had matched. The events of the match were
    /// reported, or will be.
    DeleteLost {
        /// The entry.
        entry: u32,
    },
    /// The NIC has received a count (`TM_SYNC`).
    Synced,
    /// A message was matched (`TM_RECV` with `MATCH`). A later event reports its data.
    Matched {
        /// The entry.
        entry: u32,
        /// The sender: the peer whose queue pair has received it.
        peer: PeerId,
        /// Its tag.
        tag: u64,
        /// Its `app_ctx`.
        app_ctx: u32,
    },
    /// All bytes of a matched message are in the entry's buffer (`DATA_VALID`). If the message is a
    /// rendezvous, the NIC has sent the FIN.
    Landed {
        /// The entry.
        entry: u32,
        /// Bytes of payload. An RVH has 32 bits for a length, so the NIC reads no longer message.
        length: u32,
        /// Immediate data of an eager message. The NIC has none for a rendezvous.
        immediate: Option<u32>,
        /// The entry's buffer.
        buffer: Buffer,
    },
    /// A matched rendezvous is longer than its buffer (`TM_RNDV_INCOMPLETE`): its TMH and RVH are
    /// in the buffer's first 32 bytes, and software must read and send the FIN.
    Incomplete {
        /// The entry.
        entry: u32,
        /// The entry's buffer.
        buffer: Buffer,
    },
    /// The data of a matched message will never arrive, because the sender's queue pair is in
    /// error. Reported after the match and before the peer's
    /// [`Event::PeerDown`](crate::Event::PeerDown).
    Failed {
        /// The entry.
        entry: u32,
        /// The entry's buffer. Its contents are unspecified.
        buffer: Buffer,
    },
}

// An event of the list is no larger than the other events, so that it doesn't make polls slower.
const _: () = assert!(size_of::<TagEvent>() <= 40);

/// A NIC's list of posted receives. The module's page has the rules.
pub trait TagList {
    /// The limits of the list.
    fn caps(&self) -> TagCaps;

    /// Appends an entry. [`TagEvent::Added`] is the answer.
    ///
    /// # Errors
    /// Returns the buffer with the reason.
    fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)>;

    /// Removes an entry. If `answer` is true, [`TagEvent::Deleted`] or [`TagEvent::DeleteLost`] is
    /// the answer. If it is false, the caller knows that the entry can't have matched, and has
    /// reclaimed its buffer.
    ///
    /// # Errors
    /// The reason. The entry is unchanged.
    fn delete(&mut self, handle: TagHandle, answer: bool, count: u16) -> Result<(), TagRefused>;

    /// Tells the NIC the count. [`TagEvent::Synced`] is the answer.
    ///
    /// # Errors
    /// The reason. The NIC was not told.
    fn sync(&mut self, count: u16) -> Result<(), TagRefused>;

    /// Allocates zeroed memory that entries will have again and again. A list that registers the
    /// buffers of its entries keeps this memory registered. `None` if there is no memory.
    fn entry_buffer(&mut self, length: usize) -> Option<Buffer> {
        Buffer::try_zeroed(length)
    }

    /// Takes back the buffer of an entry of which the caller knows, by the rule of phases, that it
    /// has not matched and can't match. `None` if the entry has matched, since the NIC has broken
    /// its rules, or if there is no memory for a buffer in its place: then its receive fails.
    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list without room, and without memory of its own.
    struct Full;

    impl TagList for Full {
        fn caps(&self) -> TagCaps {
            TagCaps { slots: 0, operations: 0, read_max: 0, sync_every: 1, first_count: 0 }
        }

        fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)> {
            Err((add.buffer, TagRefused::ListFull))
        }

        fn delete(&mut self, _: TagHandle, _: bool, _: u16) -> Result<(), TagRefused> {
            Err(TagRefused::NoSuchEntry)
        }

        fn sync(&mut self, _: u16) -> Result<(), TagRefused> {
            Err(TagRefused::QueueFull)
        }

        fn reclaim(&mut self, _: TagHandle) -> Option<Buffer> {
            None
        }
    }

    #[test]
    fn the_memory_of_entries_is_ordinary_and_zeroed() {
        assert_eq!(Full.entry_buffer(100).unwrap().into_vec(), [0; 100]);
        assert!(Full.entry_buffer(usize::MAX).is_none());
    }
}
