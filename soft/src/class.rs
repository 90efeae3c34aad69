//! One mask class: all entries that compare the same bits, found by the value of those bits.

use crate::hash::{KeySeed, SeedStream, spread};
use crate::index::{CellPlace, KeyIndex, Look, Probe};
use crate::link::{self, Links, NIL};
use crate::tag::Pattern;

/// The bits that a pattern compares: a mask, and the source or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) mask: u64,
    /// All ones if the source is compared, otherwise zero.
    pub(crate) source_mask: u64,
}

impl Shape {
    /// Every bit of tag and source is compared.
    pub(crate) const FULL: Shape = Shape { mask: u64::MAX, source_mask: u64::MAX };
    /// Nothing is compared: every message is accepted.
    pub(crate) const ANY: Shape = Shape { mask: 0, source_mask: 0 };

    /// Whether the compared bits are the same in both.
    #[inline]
    pub(crate) fn same(self, a: TagSource, b: TagSource) -> bool {
        let tag = (a.tag ^ b.tag) & self.mask;
        let source = u64::from(a.source ^ b.source) & self.source_mask;
        tag | source == 0
    }
}

/// The tag and source of a message, or those that a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagSource {
    pub(crate) tag: u64,
    pub(crate) source: u32,
}

/// The tag and source of a pattern, and the bits that it compares.
#[inline]
pub(crate) fn key_of(pattern: &Pattern) -> (TagSource, Shape) {
    let source_mask = if pattern.source().is_some() { u64::MAX } else { 0 };
    let shape = Shape { mask: pattern.mask().0, source_mask };
    let source = pattern.source().map_or(0, |source| source.0);
    (TagSource { tag: pattern.tag().0, source }, shape)
}

/// The entries that classes index: their keys and their links.
pub(crate) trait Keyed: Links {
    fn envelope(&self, entry: u32) -> TagSource;
}

/// The index of one class.
#[derive(Clone, Debug)]
pub(crate) struct MaskClass {
    pub(crate) shape: Shape,
    seed: KeySeed,
    index: KeyIndex,
}

/// Data that all classes of a list share: the seeds, and the counts of the work done.
#[derive(Clone, Debug)]
pub(crate) struct ListWork {
    pub(crate) seeds: SeedStream,
    pub(crate) inspected: u64,
    pub(crate) scans: u64,
    pub(crate) growths: u64,
    pub(crate) reseeds: u64,
}

impl ListWork {
    pub(crate) fn new(seed: u64) -> Self {
        let seeds = SeedStream::new(seed);
        ListWork { seeds, inspected: 0, scans: 0, growths: 0, reseeds: 0 }
    }
}

impl MaskClass {
    pub(crate) fn new(shape: Shape, seeds: &mut SeedStream) -> Self {
        MaskClass { shape, seed: seeds.next_seed(), index: KeyIndex::new() }
    }

    pub(crate) fn longest_probe(&self) -> usize {
        self.index.longest()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Whether there is no entry.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// `spread` is [`spread`] of the source, which is the same for all classes.
    #[inline]
    fn hash(&self, envelope: TagSource, spread: u64) -> u64 {
        let Shape { mask, source_mask } = self.shape;
        self.seed.hash(envelope.tag & mask, spread & source_mask)
    }

    /// The cell of this envelope's key and the oldest entry, if the index remembers them from the
    /// last operation.
    #[inline]
    pub(crate) fn remembered(
        &self,
        entries: &impl Keyed,
        envelope: TagSource,
    ) -> Option<(CellPlace, u32)> {
        let remembered = self.index.remembered();
        remembered.filter(|&(_, first)| self.shape.same(entries.envelope(first), envelope))
    }

    /// Reads the home bucket of an envelope's key, but no entry yet.
    #[inline]
    pub(crate) fn look(&self, envelope: TagSource, spread: u64) -> Look {
        self.index.look(self.hash(envelope, spread))
    }

    /// The first entry of a candidate of a [`look`](Self::look), and the cell of its key.
    #[inline]
    pub(crate) fn candidate(&self, home: u32, cell: u32) -> (CellPlace, u32) {
        self.index.candidate(home, cell)
    }

    /// The first entry of a key.
    #[inline]
    pub(crate) fn entry(&self, at: CellPlace) -> u32 {
        self.index.entry(at)
    }

    /// The oldest entry of this class that accepts the envelope, and the cell of its key.
    #[inline]
    pub(crate) fn find(&self, entries: &impl Keyed, envelope: TagSource, spread: u64) -> Probe {
        let hash = self.hash(envelope, spread);
        self.index.find(hash, |entry| self.shape.same(entries.envelope(entry), envelope))
    }

    /// Adds an entry with this envelope, which is a chain of one, as the youngest of its key.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        entries: &mut impl Keyed,
        entry: u32,
        envelope: TagSource,
        work: &mut ListWork,
    ) {
        work.inspected += 1;
        if let Some((_, first)) = self.remembered(entries, envelope) {
            return link::append(entries, first, entry);
        }
        let hash = self.hash(envelope, spread(envelope.source));
        if !self.index.insert_new(hash, entry) {
            self.insert_known(entries, entry, hash, work);
        }
    }

    #[inline(never)]
    fn insert_known(
        &mut self,
        entries: &mut impl Keyed,
        entry: u32,
        hash: u64,
        work: &mut ListWork,
    ) {
        let envelope = entries.envelope(entry);
        let probe =
            self.index.find(hash, |other| self.shape.same(entries.envelope(other), envelope));
        work.inspected += probe.steps - 1;
        if probe.entry != NIL {
            link::append(entries, probe.entry, entry);
            self.index.remember(probe.at, hash);
        } else if self.index.insert(hash, entry) || self.index.is_full() {
            self.enlarge(entries, work);
        }
    }

    /// Doubles a full table. Gives a table in which keys crowd a new seed.
    #[cold]
    #[inline(never)]
    fn enlarge(&mut self, entries: &impl Keyed, work: &mut ListWork) {
        let grows = self.index.is_full();
        if !grows {
            self.seed = work.seeds.next_seed();
        }
        let MaskClass { shape, seed, index } = self;
        let hash_of = |other| {
            let TagSource { tag, source } = entries.envelope(other);
            seed.hash(tag & shape.mask, spread(source) & shape.source_mask)
        };
        if grows {
            index.grow(hash_of);
            work.growths += 1;
        } else {
            index.rehash(hash_of);
            work.reseeds += 1;
        }
    }

    /// Takes out the oldest entry that accepts the envelope; [`NIL`] if there is none.
    #[inline]
    pub(crate) fn take(
        &mut self,
        entries: &mut impl Keyed,
        envelope: TagSource,
        work: &mut ListWork,
    ) -> u32 {
        work.inspected += 1;
        if let Some((at, _)) = self.remembered(entries, envelope) {
            return self.remove_candidate(entries, at);
        }
        let look = self.look(envelope, spread(envelope.source));
        match self.at_home(entries, envelope, look, work) {
            Some((at, _)) => self.remove_candidate(entries, at),
            None if Look::goes_on(look.rest) => self.take_farther(entries, envelope, work),
            None => NIL,
        }
    }

    /// The cell of this envelope's key and the oldest entry, if the key is in its home bucket.
    #[inline]
    pub(crate) fn at_home(
        &self,
        entries: &impl Keyed,
        envelope: TagSource,
        look: Look,
        work: &mut ListWork,
    ) -> Option<(CellPlace, u32)> {
        let mut candidates = look.candidates;
        while candidates != 0 {
            let (at, first) = self.candidate(look.home, candidates.trailing_zeros());
            if self.shape.same(entries.envelope(first), envelope) {
                return Some((at, first));
            }
            work.inspected += 1;
            candidates &= candidates - 1;
        }
        None
    }

    #[inline(never)]
    fn take_farther(
        &mut self,
        entries: &mut impl Keyed,
        envelope: TagSource,
        work: &mut ListWork,
    ) -> u32 {
        let probe = self.find(entries, envelope, spread(envelope.source));
        work.inspected += probe.steps - 1;
        if probe.entry != NIL {
            self.remove_found(entries, probe.at, probe.entry);
        }
        probe.entry
    }

    /// Takes out the entry that [`candidate`](Self::candidate) found at `at`, and returns it.
    #[inline]
    pub(crate) fn remove_candidate(&mut self, entries: &mut impl Keyed, at: CellPlace) -> u32 {
        let first = self.index.entry(at);
        match link::remove_first(entries, first) {
            NIL => self.index.remove_at_home(at),
            next => {
                self.index.replace(at, next);
                self.index.remember_home(at);
            }
        }
        first
    }

    /// Takes out the entry that [`find`](Self::find) found at `at`.
    #[inline]
    pub(crate) fn remove_found(&mut self, entries: &mut impl Keyed, at: CellPlace, first: u32) {
        match link::remove_first(entries, first) {
            NIL => {
                let envelope = entries.envelope(first);
                self.index.remove(at, self.hash(envelope, spread(envelope.source)));
            }
            next => self.index.replace(at, next),
        }
    }

    /// Takes out any entry of this class. Constant time: at most one search of the index.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Keyed, entry: u32, work: &mut ListWork) {
        let is_first = link::is_first(entries, entry);
        if !is_first && entries.next(entry) != NIL {
            return link::remove_later(entries, NIL, entry);
        }
        let envelope = entries.envelope(entry);
        let hash = self.hash(envelope, spread(envelope.source));
        if is_first {
            let probe = self.index.find(hash, |other| other == entry);
            work.inspected += probe.steps;
            match link::remove_first(entries, entry) {
                NIL => self.index.remove(probe.at, hash),
                next => self.index.replace(probe.at, next),
            }
        } else {
            let is_key = |other| self.shape.same(entries.envelope(other), envelope);
            let probe = self.index.find(hash, is_key);
            work.inspected += probe.steps;
            link::remove_later(entries, probe.entry, entry);
        }
    }
}

#[cfg(test)]
pub(crate) use situations::{InChain, Lookup};

/// The situations of keys and entries, which the tests of long lists count.
#[cfg(test)]
mod situations {
    use super::*;

    /// The result of a search for a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Lookup {
        /// The key is in its home bucket.
        Home,
        /// The key is in a bucket after its home.
        Farther,
        /// The key is not in the table, as its home bucket shows.
        Missing,
        /// The key is not in the table, but its home bucket has overflowed.
        MissingFarther,
    }

    /// The position of an entry in its key's chain.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum InChain {
        Only,
        Oldest,
        Middle,
        Youngest,
    }

    impl MaskClass {
        /// The result of a search for an envelope's key, and the key's first entry.
        pub(crate) fn lookup(&self, entries: &impl Keyed, envelope: TagSource) -> (Lookup, u32) {
            let spread = spread(envelope.source);
            let look = self.look(envelope, spread);
            let first = self.find(entries, envelope, spread).entry;
            let at_home = self.at_home(entries, envelope, look, &mut ListWork::new(0));
            let lookup = match at_home {
                Some(_) => Lookup::Home,
                None if first != NIL => Lookup::Farther,
                None if Look::goes_on(look.rest) => Lookup::MissingFarther,
                None => Lookup::Missing,
            };
            (lookup, first)
        }

        /// The places of an entry of this class in the table and in its chain.
        pub(crate) fn standing(&self, entries: &impl Keyed, entry: u32) -> (Lookup, InChain) {
            let in_chain = match (link::is_first(entries, entry), entries.next(entry) == NIL) {
                (true, true) => InChain::Only,
                (true, false) => InChain::Oldest,
                (false, false) => InChain::Middle,
                (false, true) => InChain::Youngest,
            };
            (self.lookup(entries, entries.envelope(entry)).0, in_chain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::ChainLink;

    struct Plain {
        keys: Vec<TagSource>,
        links: Vec<ChainLink>,
    }

    impl Links for Plain {
        fn link(&self, entry: u32) -> &ChainLink {
            &self.links[entry as usize]
        }

        fn link_mut(&mut self, entry: u32) -> &mut ChainLink {
            &mut self.links[entry as usize]
        }
    }

    impl Keyed for Plain {
        fn envelope(&self, entry: u32) -> TagSource {
            self.keys[entry as usize]
        }
    }

    /// There are two entries per key, and a seed under which all keys have one hash.
    #[test]
    fn a_class_with_the_worst_seed_gets_a_new_one() {
        let keys: Vec<_> = (0..2000).map(|i| TagSource { tag: i % 1000, source: 0 }).collect();
        let links = (0..2000).map(ChainLink::alone).collect();
        let mut entries = Plain { links, keys };
        let mut work = ListWork::new(1);
        let mut class = MaskClass::new(Shape::FULL, &mut work.seeds);
        class.seed = KeySeed::WORST;
        for entry in 0..2000 {
            let envelope = entries.envelope(entry);
            class.insert(&mut entries, entry, envelope, &mut work);
        }
        assert_eq!(work.reseeds, 1);
        for round in [0, 1000] {
            for entry in 0..1000 {
                let envelope = entries.envelope(entry);
                let probe = class.find(&entries, envelope, spread(0));
                assert_eq!(probe.entry, entry + round);
                class.remove(&mut entries, entry + round, &mut work);
            }
        }
    }
}
