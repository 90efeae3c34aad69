//! One mask class: all entries whose patterns look at the same bits, found by what those bits are.

use crate::hash::{KeySeed, SeedStream, spread};
use crate::index::{KeyIndex, Look, Place, Probe};
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
    pub(crate) const FULL: Shape = Shape { mask: u64::MAX, source_mask: u64::MAX };
    /// Everything is accepted.
    pub(crate) const ANY: Shape = Shape { mask: 0, source_mask: 0 };

    #[inline]
    pub(crate) fn of(pattern: &Pattern) -> Self {
        let source_mask = if pattern.source().is_some() { u64::MAX } else { 0 };
        Shape { mask: pattern.mask().0, source_mask }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What all classes of a list share: where seeds come from, and the counts of the work done.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) seeds: SeedStream,
    pub(crate) inspected: u64,
    pub(crate) scans: u64,
    pub(crate) growths: u64,
    pub(crate) reseeds: u64,
}

impl Work {
    pub(crate) fn new(seed: u64) -> Self {
        let seeds = SeedStream::new(seed);
        Work { seeds, inspected: 0, scans: 0, growths: 0, reseeds: 0 }
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

    /// `spread` is [`spread`] of the source, which all classes share.
    #[inline]
    fn hash(&self, envelope: Envelope, spread: u64) -> u64 {
        let Shape { mask, source_mask } = self.shape;
        self.seed.hash(envelope.tag & mask, spread & source_mask)
    }

    /// The cell of this envelope's key at its home, and its oldest entry, if they need no search.
    #[inline]
    pub(crate) fn remembered(
        &self,
        entries: &impl Entries,
        envelope: Envelope,
    ) -> Option<(Place, u32)> {
        let remembered = self.index.remembered();
        remembered.filter(|&(_, first)| self.shape.same(entries.envelope(first), envelope))
    }

    /// Looks where an envelope's key would be, at no entry yet.
    #[inline]
    pub(crate) fn look(&self, envelope: Envelope, spread: u64) -> Look {
        self.index.look(self.hash(envelope, spread))
    }

    /// The first entry of a candidate of a [`look`](Self::look), and where its key's cell is.
    #[inline]
    pub(crate) fn candidate(&self, home: u32, lane: u32) -> (Place, u32) {
        self.index.candidate(home, lane)
    }

    /// The first entry of a key.
    #[inline]
    pub(crate) fn entry(&self, at: Place) -> u32 {
        self.index.entry(at)
    }

    /// The oldest entry of this class that accepts the envelope, and where its key's cell is.
    #[inline]
    pub(crate) fn find(&self, entries: &impl Entries, envelope: Envelope, spread: u64) -> Probe {
        let hash = self.hash(envelope, spread);
        self.index.find(hash, |entry| self.shape.same(entries.envelope(entry), envelope))
    }

    /// Adds an entry with this envelope, which is a chain of its own, as the youngest of its key.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        entries: &mut impl Entries,
        entry: u32,
        envelope: Envelope,
        work: &mut Work,
    ) {
        work.inspected += 1;
        if let Some((_, first)) = self.remembered(entries, envelope) {
            return link::append(entries, first, entry);
        }
        let hash = self.hash(envelope, spread(envelope.source));
        if !self.index.insert_new(hash, entry) {
            self.insert_known(entries, entry, envelope, hash, work);
        }
    }

    #[inline(never)]
    fn insert_known(
        &mut self,
        entries: &mut impl Entries,
        entry: u32,
        envelope: Envelope,
        hash: u64,
        work: &mut Work,
    ) {
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

    /// Makes room in a table that is full, and order in one that is crowded.
    #[cold]
    #[inline(never)]
    fn enlarge(&mut self, entries: &impl Entries, work: &mut Work) {
        let grows = self.index.is_full();
        if !grows {
            self.seed = work.seeds.next_seed();
        }
        let MaskClass { shape, seed, index } = self;
        let hash_of = |other| {
            let Envelope { tag, source } = entries.envelope(other);
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
        entries: &mut impl Entries,
        envelope: Envelope,
        work: &mut Work,
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

    /// The cell of this envelope's key, if it is at its home, and the oldest entry.
    #[inline]
    pub(crate) fn at_home(
        &self,
        entries: &impl Entries,
        envelope: Envelope,
        look: Look,
        work: &mut Work,
    ) -> Option<(Place, u32)> {
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
        entries: &mut impl Entries,
        envelope: Envelope,
        work: &mut Work,
    ) -> u32 {
        let probe = self.find(entries, envelope, spread(envelope.source));
        work.inspected += probe.steps - 1;
        if probe.entry != NIL {
            self.remove_found(entries, probe.at, probe.entry);
        }
        probe.entry
    }

    /// Takes out the entry that [`candidate`](Self::candidate) found here, and returns it.
    #[inline]
    pub(crate) fn remove_candidate(&mut self, entries: &mut impl Entries, at: Place) -> u32 {
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

    /// Takes out the entry that [`find`](Self::find) found here.
    #[inline]
    pub(crate) fn remove_found(&mut self, entries: &mut impl Entries, at: Place, first: u32) {
        match link::remove_first(entries, first) {
            NIL => {
                let envelope = entries.envelope(first);
                self.index.remove(at, self.hash(envelope, spread(envelope.source)));
            }
            next => self.index.replace(at, next),
        }
    }

    /// Takes out any entry of this class. Constant: at most one look into the index.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, entry: u32, work: &mut Work) {
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

/// What a search for a key came to. Tests count these.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lookup {
    /// The key is in its home bucket.
    Home,
    /// The key is in a bucket behind its home.
    Farther,
    /// The key is not in the table, which its home bucket shows.
    Missing,
    /// The key is not in the table, but its home bucket has passed keys on.
    MissingFarther,
}

/// Which entry of its key's chain an entry is. Tests count these.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InChain {
    Only,
    Oldest,
    Middle,
    Youngest,
}

#[cfg(test)]
impl MaskClass {
    /// What a search for an envelope's key comes to, and the key's first entry.
    pub(crate) fn lookup(&self, entries: &impl Entries, envelope: Envelope) -> (Lookup, u32) {
        let spread = spread(envelope.source);
        let look = self.look(envelope, spread);
        let first = self.find(entries, envelope, spread).entry;
        let at_home = self.at_home(entries, envelope, look, &mut Work::new(0));
        let lookup = match at_home {
            Some(_) => Lookup::Home,
            None if first != NIL => Lookup::Farther,
            None if Look::goes_on(look.rest) => Lookup::MissingFarther,
            None => Lookup::Missing,
        };
        (lookup, first)
    }

    /// Where an entry of this class is.
    pub(crate) fn standing(&self, entries: &impl Entries, entry: u32) -> (Lookup, InChain) {
        let in_chain = match (link::is_first(entries, entry), entries.next(entry) == NIL) {
            (true, true) => InChain::Only,
            (true, false) => InChain::Oldest,
            (false, false) => InChain::Middle,
            (false, true) => InChain::Youngest,
        };
        (self.lookup(entries, entries.envelope(entry)).0, in_chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;

    struct Plain {
        keys: Vec<Envelope>,
        links: Vec<Link>,
    }

    impl Links for Plain {
        fn prev(&self, entry: u32) -> u32 {
            self.links.prev(entry)
        }

        fn next(&self, entry: u32) -> u32 {
            self.links.next(entry)
        }

        fn set_prev(&mut self, entry: u32, prev: u32) {
            self.links.set_prev(entry, prev);
        }

        fn set_next(&mut self, entry: u32, next: u32) {
            self.links.set_next(entry, next);
        }
    }

    impl Entries for Plain {
        fn envelope(&self, entry: u32) -> Envelope {
            self.keys[entry as usize]
        }
    }

    /// Two entries per key, and a seed under which all keys have one hash.
    #[test]
    fn a_class_with_the_worst_seed_takes_another() {
        let keys: Vec<_> = (0..2000).map(|i| Envelope { tag: i % 1000, source: 0 }).collect();
        let links = (0..2000).map(Link::alone).collect();
        let mut entries = Plain { links, keys };
        let mut work = Work::new(1);
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
