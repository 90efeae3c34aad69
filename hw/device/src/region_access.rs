//! Regions of memory that devices read and write for a peer, without messages of the protocol.

use crate::{Buffer, PeerId, Room};

/// Where a region's owner says that a peer finds it; part of the region's token. All zeros: peers
/// can't access the region by themselves. Only a device knows what else it means, and believes
/// nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionPlace {
    /// Where the device of the owner says what may be accessed.
    pub record: u64,
    /// The first byte.
    pub address: u64,
}

impl RegionPlace {
    /// The place of a region that its owner's device finds by the key alone.
    pub const BY_KEY: RegionPlace = RegionPlace { record: 1, address: 0 };

    /// Whether peers can't access the region by themselves.
    pub fn is_none(&self) -> bool {
        self.record == 0
    }
}

/// A region of this worker that peers may access by themselves. Its memory stays where it is until
/// [`Device::unpublish`](crate::Device::unpublish).
#[derive(Clone, Copy, Debug)]
pub struct PublishedRegion<'a> {
    /// The region's key. Without a base it isn't 0, and no other region of this worker ever has it.
    pub key: u64,
    /// The number that peers have for the first byte, if they find the region by its key alone
    /// ([`RegionPlace::BY_KEY`]). Another region may have had the key, or have it later. The memory
    /// is kept until [`Device::unpublish`](crate::Device::unpublish) returns `true`.
    pub base: Option<u64>,
    /// All bytes of the region.
    pub memory: &'a Buffer,
    /// Whether peers may read it.
    pub reads: bool,
    /// Whether peers may write it.
    pub writes: bool,
    /// Whether peers may change its elements by atomic operations.
    pub changes: bool,
}

/// Whether bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// From the region into the buffer.
    Read,
    /// From the buffer into the region.
    Write,
}

/// Bytes of a peer's region, as a token and an operation say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpan {
    /// The region's key.
    pub key: u64,
    /// Where the region is.
    pub place: RegionPlace,
    /// The first byte's place in the region.
    pub offset: u64,
}

/// An access to a peer's region: as many bytes as the buffer has.
#[derive(Debug)]
pub struct RegionAccess {
    /// The region's owner.
    pub peer: PeerId,
    /// Which bytes.
    pub of: RegionSpan,
    /// What is done with them.
    pub kind: AccessKind,
    /// The local bytes. The device owns it until
    /// [`Event::AccessDone`](crate::Event::AccessDone).
    pub buffer: Buffer,
}

/// Which accesses to a peer a device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLimits {
    /// How many may be under way at a time. If more than one: an access that ends without being
    /// done is one that the owner doesn't allow, so that its messages find an error, too. An
    /// access that begins later may have been done.
    pub at_once: usize,
    /// An access to fewer bytes than these is better done by messages.
    pub bytes_min: usize,
}

impl Default for AccessLimits {
    fn default() -> Self {
        AccessLimits { at_once: 1, bytes_min: 1 }
    }
}

/// The end of an access.
#[derive(Debug)]
pub struct AccessEnd {
    /// The peer of the [`RegionAccess`].
    pub peer: PeerId,
    /// The buffer of the [`RegionAccess`].
    pub buffer: Buffer,
    /// Whether all bytes were written to the region, and are visible to its owner's processors, or
    /// all were read from it. Otherwise a part may have been, and the messages of a one-sided
    /// operation find out what is wrong, if anything is.
    pub is_done: bool,
}

/// An access that is done in one call.
pub enum QuickAccess<'a> {
    /// As many bytes as there is room for are read.
    Read(Room<'a>),
    /// The bytes are written.
    Write(&'a [u8]),
    /// Elements are changed, each of them by an atomic operation of the processor.
    Change(ElementChanges<'a>),
}

/// Changes of elements, one behind the other.
pub struct ElementChanges<'a> {
    /// Bytes of an element.
    pub size: usize,
    /// How many elements.
    pub count: usize,
    /// Puts the new value of an element, by its number, in the place of the old one. It is called
    /// again with another old value if another processor has changed the element meanwhile.
    pub change: &'a mut dyn FnMut(usize, &mut [u8]),
}

impl QuickAccess<'_> {
    /// Bytes of the region that it concerns; `None`: more than memory has.
    pub fn byte_len(&self) -> Option<usize> {
        match self {
            QuickAccess::Read(room) => Some(room.len()),
            QuickAccess::Write(bytes) => Some(bytes.len()),
            QuickAccess::Change(changes) => changes.size.checked_mul(changes.count),
        }
    }
}
