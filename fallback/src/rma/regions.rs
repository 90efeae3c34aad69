//! The regions of memory that this worker has exposed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hasher};
use std::ops::{BitOr, Range};

use tagmatch_device::{Buffer, PublishedRegion, RegionPlace};

use crate::error::Fault;
use crate::wire::{AtomicOp, RemoteFault};

/// What peers may do to a region: any of [`Rights::READ`], [`Rights::WRITE`] and
/// [`Rights::ATOMIC`], joined by `|`. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Gets.
    pub const READ: Rights = Rights(1);
    /// Puts.
    pub const WRITE: Rights = Rights(2);
    /// Atomic operations, also those that give the old values back.
    pub const ATOMIC: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether all of these rights are among them.
    pub fn contains(self, rights: Rights) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// The rights as bits, for a token.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The rights of a token; `None` if a bit stands for none.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Rights(bits))
    }

    fn writes(self) -> bool {
        self.0 & (Self::WRITE.0 | Self::ATOMIC.0) != 0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// Names a region of one worker. No later region of this worker has the same name, and nobody can
/// guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(pub u64);

/// A region whose name its owner has chosen, for interfaces that have keys of their own.
#[derive(Clone, Copy, Debug)]
pub struct NamedRegion {
    /// The name. Whoever knows it may use the region, so it guards nothing if it can be guessed.
    pub key: RegionKey,
    /// What peers call the first byte's place: 0, or the memory's address.
    pub base: u64,
    /// What peers may do. An atomic operation needs the right to read if it gives old values back,
    /// and the right to write if it may change them; [`Rights::ATOMIC`] means nothing here.
    pub rights: Rights,
    /// Whether the owner counts what peers do ([`RegionUse`]). Then peers do it by messages, since
    /// the owner doesn't see what they do by themselves.
    pub is_counted: bool,
}

/// How many operations of peers have been done on regions. Those that failed don't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionUse {
    /// Gets whose bytes have left, and atomic operations that gave old values back.
    pub reads: u64,
    /// Puts, and atomic operations that gave nothing back.
    pub writes: u64,
    /// All operations that may have changed bytes.
    pub changes: u64,
}

impl RegionUse {
    pub(crate) const READ: RegionUse = RegionUse { reads: 1, writes: 0, changes: 0 };
    pub(crate) const WRITE: RegionUse = RegionUse { reads: 0, writes: 1, changes: 1 };

    fn add(&mut self, more: RegionUse) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.changes += more.changes;
    }
}

#[derive(Clone, Debug)]
struct ExposedRegion {
    memory: Buffer,
    rights: Rights,
    base: u64,
    is_named: bool,
    /// Peers may not use it any more.
    is_closing: bool,
    done: RegionUse,
    /// Where peers find it that access it by themselves.
    place: RegionPlace,
}

const IN_USE: Fault = Fault::NotCarried { why: "a second region with the same key" };

/// All regions of a worker.
#[derive(Clone, Debug)]
pub(crate) struct ExposedRegions {
    regions: BTreeMap<RegionKey, ExposedRegion>,
    seed: u64,
    /// Keys that were given so far.
    keys: u64,
    /// What was done on all regions, also on those that were closed.
    done: RegionUse,
}

impl Drop for ExposedRegions {
    /// A peer may be writing into a region that was not closed.
    fn drop(&mut self) {
        for region in std::mem::take(&mut self.regions).into_values() {
            if !region.place.is_none() {
                std::mem::forget(region.memory);
            }
        }
    }
}

impl ExposedRegions {
    pub(crate) fn new(seed: u64) -> Self {
        ExposedRegions { regions: BTreeMap::new(), seed, keys: 0, done: RegionUse::default() }
    }

    /// Exposes memory. `Err`: the memory can't be written, and the rights are to write it.
    pub(crate) fn expose(&mut self, memory: Buffer, rights: Rights) -> Result<RegionKey, Buffer> {
        if rights.writes() && !memory.is_writable() {
            return Err(memory);
        }
        loop {
            // A hash that can't be inverted, so that a peer doesn't learn the seed from the key.
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.seed);
            hasher.write_u64(self.keys);
            self.keys += 1;
            let key = RegionKey(hasher.finish());
            if let Entry::Vacant(free) = self.regions.entry(key) {
                free.insert(ExposedRegion {
                    memory,
                    rights,
                    base: 0,
                    is_named: false,
                    is_closing: false,
                    done: RegionUse::default(),
                    place: RegionPlace::default(),
                });
                return Ok(key);
            }
        }
    }

    /// Exposes memory under a name that the caller has chosen. `Err`: there is a region with this
    /// name, or the memory can't be written, and the rights are to write it.
    pub(crate) fn expose_named(
        &mut self,
        memory: Buffer,
        NamedRegion { key, base, rights, .. }: NamedRegion,
    ) -> Result<(), (Buffer, Fault)> {
        if rights.writes() && !memory.is_writable() {
            return Err((memory, Fault::ReadOnlyBuffer));
        }
        match self.regions.entry(key) {
            Entry::Occupied(_) => Err((memory, IN_USE)),
            Entry::Vacant(free) => {
                free.insert(ExposedRegion {
                    memory,
                    rights,
                    base,
                    is_named: true,
                    is_closing: false,
                    done: RegionUse::default(),
                    place: RegionPlace::default(),
                });
                Ok(())
            }
        }
    }

    /// The right that an atomic operation on a region needs.
    pub(crate) fn right_of_atomic(&self, key: u64, op: AtomicOp, fetches: bool) -> Rights {
        let is_named = self.regions.get(&RegionKey(key)).is_some_and(|region| region.is_named);
        let reads = if fetches { Rights::READ } else { Rights::default() };
        let writes = if op == AtomicOp::Read { Rights::default() } else { Rights::WRITE };
        if is_named { reads | writes } else { Rights::ATOMIC }
    }

    /// Lets peers access a region by themselves: `publish` tells the device of the region.
    pub(crate) fn publish(
        &mut self,
        key: RegionKey,
        publish: impl FnOnce(&PublishedRegion<'_>) -> RegionPlace,
    ) {
        if let Some(region) = self.regions.get_mut(&key) {
            region.place = publish(&PublishedRegion {
                key: key.0,
                base: region.is_named.then_some(region.base),
                memory: &region.memory,
                reads: region.rights.contains(Rights::READ),
                writes: region.rights.contains(Rights::WRITE),
                changes: region.rights.contains(Rights::ATOMIC),
            });
        }
    }

    /// See [`RmaEngine::region_place`](crate::RmaEngine::region_place).
    pub(crate) fn place(&self, key: RegionKey) -> RegionPlace {
        self.regions.get(&key).map_or_else(RegionPlace::default, |region| region.place)
    }

    /// Takes a region's memory back. From then on its key names nothing. No peer accesses it by
    /// itself any more.
    pub(crate) fn close(&mut self, key: RegionKey) -> Option<Buffer> {
        self.regions.remove(&key).map(|region| region.memory)
    }

    /// Peers can't use a region any more, and its key stays taken.
    pub(crate) fn conceal(&mut self, key: RegionKey) {
        if let Some(region) = self.regions.get_mut(&key) {
            region.is_closing = true;
        }
    }

    /// The memory of a region, for its owner.
    pub(crate) fn memory(&mut self, key: RegionKey) -> Option<&mut Buffer> {
        self.regions.get_mut(&key).map(|region| &mut region.memory)
    }

    /// An operation was done on a region.
    pub(crate) fn note(&mut self, key: u64, done: RegionUse) {
        self.done.add(done);
        if let Some(region) = self.regions.get_mut(&RegionKey(key)) {
            region.done.add(done);
        }
    }

    /// What was done on a region, or on all of them.
    pub(crate) fn done(&self, key: Option<RegionKey>) -> RegionUse {
        let Some(key) = key else { return self.done };
        self.regions.get(&key).map_or(RegionUse::default(), |region| region.done)
    }

    /// The bytes that a peer may use in this way.
    ///
    /// # Errors
    /// There is no such region, it doesn't grant the right, or some of the bytes lie outside.
    pub(crate) fn access(
        &mut self,
        key: u64,
        right: Rights,
        offset: u64,
        length: u64,
    ) -> Result<AccessedBytes<'_>, RemoteFault> {
        let region = self.regions.get_mut(&RegionKey(key));
        let region = region.filter(|region| !region.is_closing).ok_or(RemoteFault::NoRegion)?;
        if !region.rights.contains(right) {
            return Err(RemoteFault::NoRight);
        }
        let offset = offset.checked_sub(region.base).ok_or(RemoteFault::OutOfBounds)?;
        let end = offset.checked_add(length).ok_or(RemoteFault::OutOfBounds)?;
        let place = |at: u64| usize::try_from(at).map_err(|_| RemoteFault::OutOfBounds);
        let range = place(offset)?..place(end)?;
        if range.end > region.memory.len() {
            return Err(RemoteFault::OutOfBounds);
        }
        Ok(AccessedBytes { memory: &mut region.memory, range })
    }
}

/// Bytes of a region, all inside.
#[derive(Debug)]
pub(crate) struct AccessedBytes<'a> {
    memory: &'a mut Buffer,
    range: Range<usize>,
}

impl<'a> AccessedBytes<'a> {
    pub(crate) fn is_writable(&self) -> bool {
        self.memory.is_writable()
    }

    pub(crate) fn read(self) -> &'a [u8] {
        &self.memory[self.range]
    }

    /// The bytes, to be written. Empty if the memory can't be written, which the rights exclude.
    pub(crate) fn write(self) -> &'a mut [u8] {
        self.memory.as_mut_slice().and_then(|all| all.get_mut(self.range)).unwrap_or_default()
    }
}
