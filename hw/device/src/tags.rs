//! The trait of a NIC that holds part of the posted-receive list.
//!
//! The contract is what verbs tag matching promises (`ibv_post_srq_ops(3)`, rdma-core's
//! `Documentation/tag_matching.md`), narrowed to what all known hardware keeps. Fit on paper for
//! Cassini and Portals 4 as well: a fixed number of slots, handles that the device gives out, results
//! that come later, rendezvous by the NIC where it can.
//!
//! 1. **List.** Entries are matched in the order in which they were added. Only messages with a tag
//!    (eager, rendezvous) from peers that the list carries are looked at by it.
//! 2. **Phases.** The NIC counts the tagged messages that it found no entry for; each of them comes up
//!    as [`Event::Message`](crate::Event::Message) with
//!    [`through_list`](crate::Incoming::through_list). Software counts those that it has finished
//!    searching its own list for, and every operation carries that count, modulo 2^16. An entry that is
//!    added while the two counts differ is *inactive*: it matches nothing now. Whether it matches later,
//!    once an operation brings an equal count, is not known; software must be right in both cases.
//! 3. **Order of events.** [`TagEvent::Matched`] and unexpected messages come in the order in which the
//!    NIC decided. The answers of operations come in the order of the operations. An
//!    [`TagEvent::Added`] never comes before an unexpected message that the NIC had counted when it took
//!    the entry up; it may come later, also after the entry's `Matched` and its data.
//! 4. **Data** of a matched message may come any time after the match, and of several in any order.
//! 5. **Memory.** A buffer that was added belongs to the device until an event or
//!    [`TagList::reclaim`] gives it back.

use crate::{Buffer, PeerId};

/// Whether the NIC matches tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TagMatching {
    /// It doesn't.
    #[default]
    Off,
    /// Where it can (`tm_caps` of ibv_query_device_ex(3)).
    Auto,
    /// It does; one that can't is refused.
    Required,
}

/// What a list can do. Never changes while the device lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCaps {
    /// Entries that the list holds at once.
    pub slots: u32,
    /// Operations whose answers may be outstanding; one without an answer counts until a later one
    /// with an answer has been answered.
    pub operations: u32,
    /// Bytes in the largest message that the NIC reads by itself.
    pub read_max: u64,
    /// Unexpected messages after which the NIC must have been told a count again, at most 2^14.
    pub sync_every: u16,
    /// What the count starts at.
    pub first_count: u16,
}

/// The device's name for an entry; may name another one once this one's last event was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHandle(pub u32);

/// A receive for the list.
#[derive(Debug)]
pub struct TagAdd {
    /// The caller's name for the entry, which its events bring back.
    pub entry: u32,
    /// What is asked for; bits outside the mask are clear.
    pub tag: u64,
    /// The bits that are looked at.
    pub mask: u64,
    /// Where payload goes: at least as long as the largest eager payload that this device announced,
    /// and as 64 bytes.
    pub buffer: Buffer,
    /// Unexpected messages that software has finished searching for.
    pub count: u16,
}

/// Why an operation was not taken; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagRefused {
    /// All slots are taken (`ENOMEM`).
    #[error("the NIC's list is full")]
    ListFull,
    /// As many operations wait for their answers as there may be (`ENOMEM`).
    #[error("too many operations of the NIC's list are outstanding")]
    QueueFull,
    /// The buffer can't be given to the NIC: read-only, too short, or not to be registered.
    #[error("the NIC can't use this buffer")]
    Buffer,
    /// There is no such entry (`EINVAL`).
    #[error("the NIC's list has no such entry")]
    NoSuchEntry,
    /// The list is out of order for good.
    #[error("the NIC's list is out of order")]
    Broken,
}

/// What happened on the list. `entry` is what [`TagAdd::entry`] said.
#[derive(Debug)]
pub enum TagEvent {
    /// The NIC has taken an entry up, active or not (`TM_ADD`).
    Added {
        /// Which.
        entry: u32,
    },
    /// A delete found the entry in the list (`TM_DEL`).
    Deleted {
        /// Which.
        entry: u32,
        /// Its buffer, unless it was reclaimed before.
        buffer: Option<Buffer>,
    },
    /// A delete came too late (`TM_ERR`): the entry was matched; the events of that came or will.
    DeleteLost {
        /// Which.
        entry: u32,
    },
    /// The NIC has the count (`TM_SYNC`).
    Synced,
    /// A message was matched; its data comes with a later event (`TM_RECV` with `MATCH`).
    Matched {
        /// Which entry.
        entry: u32,
        /// Who sent it: whose queue pair it came in on.
        peer: PeerId,
        /// Its tag.
        tag: u64,
        /// Its `app_ctx`.
        app_ctx: u32,
    },
    /// All bytes of a matched message are in its buffer (`DATA_VALID`); of a rendezvous the NIC has
    /// sent the FIN.
    Landed {
        /// Which entry.
        entry: u32,
        /// Bytes of payload. An RVH has 32 bits for a length, so the NIC reads no longer message.
        length: u32,
        /// Immediate data of an eager message; a rendezvous has none that the NIC could hand on.
        immediate: Option<u32>,
        /// The entry's buffer.
        buffer: Buffer,
    },
    /// A matched rendezvous is longer than its buffer (`TM_RNDV_INCOMPLETE`): its TMH and RVH are in the
    /// buffer's first 32 bytes, and software must read and send the FIN.
    Incomplete {
        /// Which entry.
        entry: u32,
        /// The entry's buffer.
        buffer: Buffer,
    },
    /// A matched message's data will never come: its sender's queue pair is in error. Comes after the
    /// match and before the peer's [`Event::PeerDown`](crate::Event::PeerDown).
    Failed {
        /// Which entry.
        entry: u32,
        /// The entry's buffer, contents unspecified.
        buffer: Buffer,
    },
}

// An event of the list is no larger than any other, so that no device pays for it when it polls.
const _: () = assert!(size_of::<TagEvent>() <= 40);

/// A NIC's list of posted receives. See the module's page for the rules.
pub trait TagList {
    /// What the list can do.
    fn caps(&self) -> TagCaps;

    /// Appends an entry; [`TagEvent::Added`] answers.
    ///
    /// # Errors
    /// Gives the buffer back with the reason.
    fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)>;

    /// Removes an entry. With an answer, [`TagEvent::Deleted`] or [`TagEvent::DeleteLost`] follows;
    /// without, the caller knows that the entry can't have been matched and has reclaimed its buffer.
    ///
    /// # Errors
    /// The reason; the entry is as it was.
    fn delete(&mut self, handle: TagHandle, answer: bool, count: u16) -> Result<(), TagRefused>;

    /// Tells the count and nothing else; [`TagEvent::Synced`] answers.
    ///
    /// # Errors
    /// The reason; the count was not told.
    fn sync(&mut self, count: u16) -> Result<(), TagRefused>;

    /// The buffer of an entry that the caller knows was not and can't be matched, since the phases
    /// forbid it. `None`: it was matched, the NIC has broken its rules.
    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer>;
}
