//! One mask class: all entries whose patterns look at the same bits, found by what those bits are.

use crate::hash::{KeySeed, SeedStream, spread};
use crate::index::{Crowded, KeyIndex, Place};
use crate::link::{self, Links, NIL};
use crate::tag::Pattern;

/// Which bits a pattern looks at: the mask, and the source or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) mask: u64,
    /// All ones if the source is looked at, else zero.
    pub(crate) source_mask: u64,
}

impl Shape {
    /// Tag and source, every bit.
    pub(crate) const FULL: Shape = Shape {
        mask: u64::MAX,
        source_mask: u64::MAX,
    };
    /// Everything is accepted.
    pub(crate) const ANY: Shape = Shape {
        mask: 0,
        source_mask: 0,
    };

    #[inline]
    pub(crate) fn of(pattern: &Pattern) -> Self {
        let source_mask = if pattern.source().is_some() {
            u64::MAX
        } else {
            0
        };
        Shape {
            mask: pattern.mask().0,
            source_mask,
        }
    }

    /// Whether the bits looked at are the same in both.
    #[inline]
    pub(crate) fn same(self, a: Envelope, b: Envelope) -> bool {
        let tag = (a.tag ^ b.tag) & self.mask;
        let source = u64::from(a.source ^ b.source) & self.source_mask;
        tag | source == 0
    }
}

/// A message's tag and source, or what an entry asks of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) tag: u64,
    pub(crate) source: u32,
}

/// The entries that classes index: their keys and their links.
pub(crate) trait Entries: Links {
    fn envelope(&self, entry: u32) -> Envelope;
}

/// The index of one class.
#[derive(Clone, Debug)]
pub(crate) struct MaskClass {
    pub(crate) shape: Shape,
    seed: KeySeed,
    index: KeyIndex,
}

#[inline]
fn hash_under(shape: Shape, seed: KeySeed, envelope: Envelope) -> u32 {
    seed.hash(
        envelope.tag & shape.mask,
        spread(envelope.source) & shape.source_mask,
    )
}

/// What an insertion had to do besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) growths: u64,
    pub(crate) reseeds: u64,
}

impl MaskClass {
    pub(crate) fn new(shape: Shape, seeds: &mut SeedStream, keys: usize) -> Self {
        MaskClass {
            shape,
            seed: seeds.next_seed(),
            index: KeyIndex::with_capacity(keys),
        }
    }

    pub(crate) fn longest_probe(&self) -> usize {
        self.index.longest()
    }

    #[inline]
    fn hash_of(&self, envelope: Envelope) -> u32 {
        hash_under(self.shape, self.seed, envelope)
    }

    /// The oldest entry of this class that accepts the envelope, and where its key's cell is.
    /// `spread` is [`spread`] of the source, which all classes share.
    #[inline]
    pub(crate) fn find(
        &self,
        entries: &impl Entries,
        envelope: Envelope,
        spread: u64,
        inspected: &mut u64,
    ) -> Option<(Place, u32)> {
        let Shape { mask, source_mask } = self.shape;
        let hash = self.seed.hash(envelope.tag & mask, spread & source_mask);
        let is_key = |entry| self.shape.same(entries.envelope(entry), envelope);
        self.index.find(hash, inspected, is_key).ok()
    }

    /// Adds an entry as the youngest of its key.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        entries: &mut impl Entries,
        entry: u32,
        seeds: &mut SeedStream,
        inspected: &mut u64,
    ) -> Upkeep {
        let envelope = entries.envelope(entry);
        let hash = self.hash_of(envelope);
        let is_key = |entry| self.shape.same(entries.envelope(entry), envelope);
        match self.index.find(hash, inspected, is_key) {
            Ok((_, first)) => link::append(entries, first, entry),
            Err(place) => {
                link::start(entries, entry);
                if self.index.is_full() || self.index.insert(place, hash, entry).is_err() {
                    return self.insert_into_larger(entries, entry, seeds);
                }
            }
        }
        Upkeep::default()
    }

    /// Adds an entry whose key is new, to a table that is full or crowded.
    #[cold]
    #[inline(never)]
    fn insert_into_larger(
        &mut self,
        entries: &impl Entries,
        entry: u32,
        seeds: &mut SeedStream,
    ) -> Upkeep {
        let mut upkeep = Upkeep::default();
        if self.index.is_full() {
            self.index.grow();
            upkeep.growths += 1;
        }
        loop {
            let hash = self.hash_of(entries.envelope(entry));
            let (Ok((place, _)) | Err(place)) = self.index.find(hash, &mut 0, |_| false);
            match self.index.insert(place, hash, entry) {
                Ok(()) => return upkeep,
                Err(Crowded) => {
                    self.seed = seeds.next_seed();
                    let MaskClass { shape, seed, index } = self;
                    index.rehash(|other| hash_under(*shape, *seed, entries.envelope(other)));
                    upkeep.reseeds += 1;
                }
            }
        }
    }

    /// Takes out the entry that [`find`](Self::find) found here. Whether its key has no more.
    #[inline]
    pub(crate) fn remove_found(&mut self, entries: &mut impl Entries, place: Place, first: u32) {
        match link::remove_first(entries, first) {
            NIL => self.index.remove(place),
            next => self.index.replace(place, next),
        }
    }

    /// Takes out any entry of this class. Constant: at most one look into the index.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, entry: u32, inspected: &mut u64) {
        if link::is_first(entries, entry) {
            let hash = self.hash_of(entries.envelope(entry));
            if let Ok((place, _)) = self.index.find(hash, inspected, |other| other == entry) {
                self.remove_found(entries, place, entry);
            }
        } else if entries.link(entry).next != NIL {
            link::remove_later(entries, NIL, entry);
        } else {
            let envelope = entries.envelope(entry);
            let spread = spread(envelope.source);
            if let Some((_, first)) = self.find(entries, envelope, spread, inspected) {
                link::remove_later(entries, first, entry);
            }
        }
    }
}
