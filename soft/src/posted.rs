//! The list of posted receives.

use crate::class::{Entries, Envelope, MaskClass, Shape, Work};
use crate::hash;
use crate::index::Place;
use crate::link::{self, Link, Links, NIL};
use crate::short::Short;
use crate::slab::{PostedHandle, RawHandle, Slab, StaleHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag, TagMask};

/// Most classes that have an index of their own; one bit of `active` each.
const MAX_CLASSES: usize = 32;
/// The class number of entries on the scanned list.
const SCANNED: u32 = u32::MAX;
/// The class number of entries of a list that is short.
const SHORT: u32 = u32::MAX - 1;

/// A posted receive; its source is the slot's extra word.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    sequence: u64,
    tag: u64,
    value: T,
    link: Link,
    class: u32,
}

const _: () = assert!(Slab::<Entry<u64>>::SLOT_BYTES == 48, "a receive fits a cache line");

impl<T: Copy> Links for Slab<Entry<T>> {
    #[inline]
    fn prev(&self, entry: u32) -> u32 {
        self.entry(entry).link.prev
    }

    #[inline]
    fn next(&self, entry: u32) -> u32 {
        self.entry(entry).link.next
    }

    #[inline]
    fn set_prev(&mut self, entry: u32, prev: u32) {
        self.entry_mut(entry).link.prev = prev;
    }

    #[inline]
    fn set_next(&mut self, entry: u32, next: u32) {
        self.entry_mut(entry).link.next = next;
    }
}

impl<T: Copy> Entries for Slab<Entry<T>> {
    #[inline]
    fn envelope(&self, entry: u32) -> Envelope {
        Envelope { tag: self.entry(entry).tag, source: self.extra(entry) }
    }
}

/// A class that has or had entries.
#[derive(Clone, Debug)]
struct PostedClass {
    class: MaskClass,
    entries: u32,
}

/// Receives of classes beyond the indexed ones, in post order.
#[derive(Clone, Debug)]
struct Scanned {
    first: u32,
    len: usize,
    /// The shapes of scanned entries, by slot; empty until there is one.
    shapes: Vec<Shape>,
}

/// Posted receives: first posted, first matched.
///
/// A short list is walked; one that has grown beyond that is indexed until it is empty again.
///
/// `T` is what the caller wants to know a receive by. Entries are indexed per *mask class* (which
/// bits of the tag are looked at, and whether the source is): see the crate's opening for the
/// costs. Allocates only when it grows; never gives memory back before it is dropped.
///
/// ```
/// use tagmatch_soft::{Pattern, PostedList, SourceId, Tag, TagMask};
///
/// let mut posted = PostedList::new(0x5eed);
/// posted.post(Pattern::new(Tag(7), TagMask::EXACT).from_source(SourceId(3)), "from three");
/// let any = posted.post(Pattern::new(Tag(0), TagMask::ANY), "any");
/// assert_eq!(posted.take_match(Tag(7), SourceId(3)), Some("from three"));
/// assert_eq!(posted.take_match(Tag(7), SourceId(3)), Some("any"));
/// assert!(posted.cancel(any).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct PostedList<T: Copy> {
    slab: Slab<Entry<T>>,
    /// All receives, or none: then they are in the classes and on the scanned list.
    short: Short,
    classes: Vec<PostedClass>,
    /// Bit `i`: `classes[i]` has entries.
    active: u32,
    scanned: Scanned,
    next_sequence: u64,
    work: Work,
}

/// The receive that a lookup found; no options, so that it stays in registers.
#[derive(Clone, Copy)]
struct Found {
    /// [`NIL`] if there is none.
    entry: u32,
    /// Its class, or [`SCANNED`].
    class: u32,
    sequence: u64,
    /// Where its class's index has it.
    at: Place,
    steps: u64,
}

/// The positions of the set bits, lowest first.
#[inline]
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (bit < MAX_CLASSES).then_some(bit)
    })
}

impl<T: Copy> PostedList<T> {
    /// An empty list. The seed keeps senders from choosing tags that the hash is bad at: take it
    /// from a source of randomness, or from a simulator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        PostedList {
            slab: Slab::new(),
            short: Short::new(),
            classes: Vec::new(),
            active: 0,
            scanned: Scanned { first: NIL, len: 0, shapes: Vec::new() },
            next_sequence: 0,
            work: Work::new(seed),
        }
    }

    /// Number of receives.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is no receive.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Adds a receive behind all others. Amortised constant.
    ///
    /// # Panics
    /// If the list holds 2^30 receives already, which takes more than 64 GiB.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, value: T) -> PostedHandle {
        let shape = Shape::of(&pattern);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let source = pattern.source().map_or(0, |source| source.0);
        let tag = pattern.tag().0;
        let is_short = self.active == 0 && self.scanned.len == 0 && self.short.has_room();
        if is_short {
            let entry = || Entry { sequence, tag, value, link: Link::NONE, class: SHORT };
            let handle = self.slab.insert(source, entry);
            self.short.push(handle.index, Envelope { tag, source }, shape);
            return PostedHandle(handle);
        }
        if !self.short.is_empty() {
            self.index_all();
        }
        let class = self.class_for(shape);
        let entry = || Entry { sequence, tag, value, link: Link::NONE, class };
        let handle = self.slab.insert(source, entry);
        self.index_one(handle.index, class, shape);
        PostedHandle(handle)
    }

    /// Puts an entry where lookups find it in a list that is not short.
    #[inline]
    fn index_one(&mut self, entry: u32, class: u32, shape: Shape) {
        if let Some(known) = self.classes.get_mut(class as usize) {
            known.entries += 1;
            self.active |= 1 << class;
            let envelope = self.slab.envelope(entry);
            known.class.insert(&mut self.slab, entry, envelope, &mut self.work);
        } else {
            self.append_scanned(entry, shape);
        }
    }

    /// The list is short no more.
    #[cold]
    #[inline(never)]
    fn index_all(&mut self) {
        for (entry, shape) in self.short.drain() {
            let class = self.class_for(shape);
            self.slab.entry_mut(entry).class = class;
            self.index_one(entry, class, shape);
        }
    }

    /// Removes the first posted receive that accepts a message of this envelope. One probe for
    /// each class in use.
    #[inline]
    pub fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<T> {
        let envelope = Envelope { tag: tag.0, source: source.0 };
        if !self.short.is_empty() {
            return self.take_short(envelope);
        }
        if self.scanned.len != 0 {
            return self.take_match_scanning(envelope);
        }
        let found = self.find(envelope);
        self.take_found(found)
    }

    /// The first posted receive that accepts a message of this envelope; it stays. One probe for
    /// each class in use.
    #[inline]
    #[must_use]
    pub fn first_match(&self, tag: Tag, source: SourceId) -> Option<PostedHandle> {
        if let Some(at) = self.short.find(Envelope { tag: tag.0, source: source.0 }) {
            return Some(PostedHandle(self.slab.handle(self.short.entry(at))));
        }
        let mut found = self.find(Envelope { tag: tag.0, source: source.0 });
        if self.scanned.len != 0 {
            found = self.find_scanned(Envelope { tag: tag.0, source: source.0 }, found);
        }
        (found.entry != NIL).then(|| PostedHandle(self.slab.handle(found.entry)))
    }

    /// Removes one receive. Constant.
    ///
    /// # Errors
    /// [`StaleHandle`] if it was matched or cancelled already; nothing changes.
    #[inline]
    pub fn cancel(&mut self, handle: PostedHandle) -> Result<T, StaleHandle> {
        let entry = self.slab.resolve(handle.0).ok_or(StaleHandle)?;
        Ok(self.remove(entry))
    }

    /// A receive's pattern and value, if it is still posted. Constant.
    #[must_use]
    pub fn get(&self, handle: PostedHandle) -> Option<(Pattern, T)> {
        let entry = self.slab.resolve(handle.0)?;
        Some((self.pattern(entry), self.slab.entry(entry).value))
    }

    /// Removes all receives that name this source, in post order; those from any source stay.
    ///
    /// For the death of a peer: linear in the most receives that the list ever held.
    pub fn take_source(&mut self, source: SourceId) -> Vec<T> {
        let mut doomed: Vec<_> = (self.slab.indices())
            .filter(|&entry| self.pattern(entry).source() == Some(source))
            .map(|entry| (self.slab.entry(entry).sequence, entry))
            .collect();
        doomed.sort_unstable();
        doomed.into_iter().map(|(_, entry)| self.remove(entry)).collect()
    }

    /// All receives in post order. Sorts: for reports and tests.
    pub fn iter_in_order(&self) -> impl Iterator<Item = (PostedHandle, Pattern, T)> {
        let mut order: Vec<u32> = self.slab.indices().collect();
        order.sort_unstable_by_key(|&entry| self.slab.entry(entry).sequence);
        order.into_iter().map(|entry| {
            let handle: RawHandle = self.slab.handle(entry);
            (PostedHandle(handle), self.pattern(entry), self.slab.entry(entry).value)
        })
    }

    /// What the list holds and has cost so far.
    #[must_use]
    pub fn stats(&self) -> MatchStats {
        MatchStats {
            entries: self.len(),
            classes: self.active.count_ones() as usize + self.short.shapes(),
            scanned_entries: self.scanned.len,
            scans: self.work.scans,
            inspected: self.work.inspected,
            longest_probe: bits(self.active)
                .map(|class| self.classes[class].class.longest_probe())
                .max()
                .unwrap_or(0),
            growths: self.work.growths,
            reseeds: self.work.reseeds,
            ..MatchStats::default()
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_CLASSES")]
    fn find(&self, envelope: Envelope) -> Found {
        let spread = hash::spread(envelope.source);
        let mut best = Found {
            entry: NIL,
            class: SCANNED,
            sequence: u64::MAX,
            at: Place::default(),
            steps: 0,
        };
        for class in bits(self.active) {
            let probe = self.classes[class].class.find(&self.slab, envelope, spread);
            best.steps += probe.steps;
            if probe.entry != NIL {
                let sequence = self.slab.entry(probe.entry).sequence;
                if sequence < best.sequence {
                    best.sequence = sequence;
                    best.entry = probe.entry;
                    best.class = class as u32;
                    best.at = probe.at;
                }
            }
        }
        best
    }

    #[inline]
    fn take_found(&mut self, found: Found) -> Option<T> {
        self.work.inspected += found.steps;
        if found.entry == NIL {
            return None;
        }
        if let Some(known) = self.classes.get_mut(found.class as usize) {
            known.class.remove_found(&mut self.slab, found.at, found.entry);
            known.entries -= 1;
            if known.entries == 0 {
                self.active &= !(1 << found.class);
            }
        } else {
            self.unlink_scanned(found.entry);
        }
        Some(self.slab.remove(found.entry).value)
    }

    #[inline]
    fn take_short(&mut self, envelope: Envelope) -> Option<T> {
        let at = self.short.find(envelope)?;
        self.work.inspected += at as u64 + 1;
        let entry = self.short.remove(at);
        Some(self.slab.remove(entry).value)
    }

    /// [`take_match`](Self::take_match) with the scanned list in use; by itself, so that the
    /// common path keeps what it finds in registers.
    #[cold]
    #[inline(never)]
    fn take_match_scanning(&mut self, envelope: Envelope) -> Option<T> {
        self.work.scans += 1;
        let found = self.find_scanned(envelope, self.find(envelope));
        self.take_found(found)
    }

    /// Walks the scanned list up to the best match so far.
    #[cold]
    #[inline(never)]
    fn find_scanned(&self, envelope: Envelope, best: Found) -> Found {
        let mut steps = best.steps;
        let mut entry = self.scanned.first;
        while entry != NIL {
            let sequence = self.slab.entry(entry).sequence;
            if best.sequence < sequence {
                break;
            }
            steps += 1;
            if self.scanned.shapes[entry as usize].same(self.slab.envelope(entry), envelope) {
                return Found { entry, class: SCANNED, sequence, at: Place::default(), steps };
            }
            entry = self.slab.next(entry);
        }
        Found { steps, ..best }
    }

    fn remove(&mut self, entry: u32) -> T {
        let class = self.slab.entry(entry).class;
        if class == SHORT {
            if let Some(at) = self.short.position(entry) {
                self.short.remove(at);
            }
        } else if let Some(known) = self.classes.get_mut(class as usize) {
            known.class.remove(&mut self.slab, entry, &mut self.work);
            known.entries -= 1;
            if known.entries == 0 {
                self.active &= !(1 << class);
            }
        } else {
            self.unlink_scanned(entry);
        }
        self.slab.remove(entry).value
    }

    fn pattern(&self, entry: u32) -> Pattern {
        let Entry { class, tag, .. } = *self.slab.entry(entry);
        let shape = match self.classes.get(class as usize) {
            Some(known) => known.class.shape,
            None if class == SHORT => self.short.shape_of(entry).unwrap_or(Shape::ANY),
            None => self.scanned.shapes[entry as usize],
        };
        let pattern = Pattern::new(Tag(tag), TagMask(shape.mask));
        if shape.source_mask == 0 {
            pattern
        } else {
            pattern.from_source(SourceId(self.slab.extra(entry)))
        }
    }

    /// The number of the class of this shape, or [`SCANNED`].
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_CLASSES")]
    fn class_for(&mut self, shape: Shape) -> u32 {
        match self.classes.iter().position(|known| known.class.shape == shape) {
            Some(class) => class as u32,
            None => self.new_class(shape),
        }
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_CLASSES")]
    fn new_class(&mut self, shape: Shape) -> u32 {
        let class = PostedClass { class: MaskClass::new(shape, &mut self.work.seeds), entries: 0 };
        if self.classes.len() < MAX_CLASSES {
            self.classes.push(class);
            return self.classes.len() as u32 - 1;
        }
        match bits(!self.active).next() {
            Some(unused) => {
                self.classes[unused] = class;
                unused as u32
            }
            None => SCANNED,
        }
    }

    #[cold]
    fn append_scanned(&mut self, entry: u32, shape: Shape) {
        if self.scanned.shapes.len() <= entry as usize {
            self.scanned.shapes.resize(entry as usize + 1, Shape::ANY);
        }
        self.scanned.shapes[entry as usize] = shape;
        if self.scanned.first == NIL {
            link::start(&mut self.slab, entry);
            self.scanned.first = entry;
        } else {
            link::append(&mut self.slab, self.scanned.first, entry);
        }
        self.scanned.len += 1;
    }

    #[cold]
    fn unlink_scanned(&mut self, entry: u32) {
        if entry == self.scanned.first {
            self.scanned.first = link::remove_first(&mut self.slab, entry);
        } else {
            link::remove_later(&mut self.slab, self.scanned.first, entry);
        }
        self.scanned.len -= 1;
    }
}
