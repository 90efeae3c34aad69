//! Posted receives outside the short list, in one class for each set of bits that they compare.

use crate::class::{Keyed, ListWork, MaskClass, Shape, TagSource};
use crate::hash;
use crate::index::{CellPlace, KeyIndex, Look};
use crate::link::{self, ChainLink, Links, NIL};
use crate::slab::Slab;

/// The most classes with an index of their own; each has a bit of `active`.
const MAX_CLASSES: usize = SCANNED as usize;
/// The class number of receives on the scanned list. The same bit of `active` says whether there
/// are any.
const SCANNED: u32 = 32;
/// The class number of receives in the lanes of a short list. Their `tag` is the number of the
/// lane.
pub(crate) const SHORT: u32 = PostOrder::CLASSES - 1;

/// A posted receive. Its source is the `extra` word of the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive<T> {
    pub(crate) order: PostOrder,
    pub(crate) tag: Word,
    pub(crate) value: T,
    pub(crate) link: ChainLink,
}

pub(crate) type Receives<T> = Slab<Receive<T>>;

const _: () = assert!(Receives::<u32>::SLOT_BYTES == 36 && Receives::<u64>::SLOT_BYTES == 40);

/// A word with the alignment of its halves, so that entries need no padding. It is always read and
/// written as a whole.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Word(pub(crate) u64);

/// The sequence number of a receive, with the number of its class in the lowest bits. Of two
/// receives, the older one has the lower word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostOrder(Word);

impl PostOrder {
    /// Greater than every class number.
    const CLASSES: u32 = 64;
    /// The difference between two consecutive sequence numbers. 2^58 of them last for centuries.
    pub(crate) const STEP: u64 = Self::CLASSES as u64;

    /// `sequence` is a multiple of [`STEP`](Self::STEP).
    #[inline]
    pub(crate) fn new(sequence: u64, class: u32) -> Self {
        PostOrder(Word(sequence | u64::from(class)))
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0.0
    }

    #[inline]
    pub(crate) fn sequence(self) -> u64 {
        self.word() & !(Self::STEP - 1)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
    pub(crate) fn class(self) -> u32 {
        self.word() as u32 % Self::CLASSES
    }
}

const _: () = assert!(SCANNED < SHORT);

impl<T: Copy> Links for Receives<T> {
    #[inline]
    fn link(&self, entry: u32) -> &ChainLink {
        &self.entry(entry).link
    }

    #[inline]
    fn link_mut(&mut self, entry: u32) -> &mut ChainLink {
        &mut self.entry_mut(entry).link
    }
}

impl<T: Copy> Keyed for Receives<T> {
    #[inline]
    fn envelope(&self, entry: u32) -> TagSource {
        TagSource { tag: self.entry(entry).tag.0, source: self.extra(entry) }
    }
}

/// The receive that a search found, in one word, since a search has few registers to spare.
///
/// From the highest bits: flags, then the number of the class, which with the flags fills the upper
/// 32 bits; below them the cell in the index. For a receive of the scanned list, the lower half is
/// its entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundReceive(u64);

impl FoundReceive {
    pub(crate) const NONE: FoundReceive = FoundReceive(u64::MAX);
    const CLASS: u32 = 32;
    /// The receive is not in the home bucket of its key.
    const FARTHER: u64 = 1 << 62;
    /// The receive is on the scanned list.
    const SCANNED: u64 = 1 << 61;

    #[inline]
    fn at_home(class: usize, at: CellPlace) -> Self {
        FoundReceive((class as u64) << Self::CLASS | u64::from(at.0))
    }

    fn farther(class: usize, at: CellPlace) -> Self {
        FoundReceive(Self::at_home(class, at).0 | Self::FARTHER)
    }

    fn scanned(entry: u32) -> Self {
        FoundReceive(u64::from(entry) | Self::SCANNED)
    }

    /// The class of a receive in the home bucket of its key; for any other receive, a number
    /// greater than all classes.
    #[inline]
    fn class(self) -> usize {
        (self.0 >> Self::CLASS) as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn at(self) -> CellPlace {
        CellPlace(self.0 as u32)
    }

    fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// Receives of the classes without an index, in post order.
#[derive(Clone, Debug)]
struct Scanned {
    first: u32,
    len: usize,
    /// The shapes of scanned receives, by slot; empty until there is one.
    shapes: Vec<Shape>,
}

/// The size of the memory of class numbers. Shapes that share a place in it are searched in all
/// classes.
const REMEMBERED_BITS: u32 = 6;

/// The classes in use.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    /// All classes that are or were in use.
    known: Vec<MaskClass>,
    /// Bit `i`: `known[i]` has receives.
    active: u64,
    scanned: Scanned,
    remembered: [u8; 1 << REMEMBERED_BITS],
}

/// The place in the memory for a shape's class.
#[inline]
fn memory_place(shape: Shape) -> usize {
    let mixed = (shape.mask ^ shape.source_mask >> 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - REMEMBERED_BITS)) as usize
}

/// The number of classes whose home buckets are read together.
const TOGETHER: usize = 4;

impl Classes {
    pub(crate) const fn new() -> Self {
        Classes {
            known: Vec::new(),
            active: 0,
            scanned: Scanned { first: NIL, len: 0, shapes: Vec::new() },
            remembered: [0; 1 << REMEMBERED_BITS],
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.active == 0
    }

    /// The classes that have an index and receives.
    fn in_use(&self) -> impl Iterator<Item = &MaskClass> {
        self.known.iter().filter(|class| !class.is_empty())
    }

    /// The number of classes that have an index and receives.
    pub(crate) fn indexed(&self) -> usize {
        self.in_use().count()
    }

    /// Whether a class with an index and receives has this shape.
    pub(crate) fn have(&self, shape: Shape) -> bool {
        self.in_use().any(|class| class.shape == shape)
    }

    pub(crate) fn scanned(&self) -> usize {
        self.scanned.len
    }

    pub(crate) fn bytes(&self) -> usize {
        let indexes: usize = self.known.iter().map(MaskClass::bytes).sum();
        indexes + self.scanned.shapes.capacity() * size_of::<Shape>()
    }

    pub(crate) fn longest_probe(&self) -> usize {
        self.in_use().map(MaskClass::longest_probe).max().unwrap_or(0)
    }

    /// The number of the class of this shape.
    #[inline]
    pub(crate) fn number_of(&mut self, shape: Shape, work: &mut ListWork) -> u32 {
        let number = self.remembered[memory_place(shape)];
        match self.known.get(usize::from(number)) {
            Some(known) if known.shape == shape => u32::from(number),
            _ => self.look_up(shape, work),
        }
    }

    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_CLASSES")]
    fn look_up(&mut self, shape: Shape, work: &mut ListWork) -> u32 {
        let number = match self.known.iter().position(|known| known.shape == shape) {
            Some(class) => class as u32,
            None => self.new_class(shape, work),
        };
        self.remembered[memory_place(shape)] = number as u8;
        number
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_CLASSES")]
    fn new_class(&mut self, shape: Shape, work: &mut ListWork) -> u32 {
        let class = MaskClass::new(shape, &mut work.seeds);
        if self.known.len() < MAX_CLASSES {
            self.known.push(class);
            return self.known.len() as u32 - 1;
        }
        let unused = (!self.active).trailing_zeros();
        match self.known.get_mut(unused as usize) {
            Some(place) => {
                *place = class;
                unused
            }
            None => SCANNED,
        }
    }

    /// Adds a receive, whose entry has its class, as the youngest of the class.
    #[inline(always)]
    pub(crate) fn add<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        entry: u32,
        shape: Shape,
        work: &mut ListWork,
    ) {
        let class = receives.entry(entry).order.class();
        let envelope = receives.envelope(entry);
        self.active |= 1 << class;
        match self.known.get_mut(class as usize) {
            Some(known) => known.insert(receives, entry, envelope, work),
            None => self.append_scanned(receives, entry, shape),
        }
    }

    /// Whether more than one class has receives. Mostly only one has, and there is nothing to
    /// compare.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        !self.active.is_power_of_two()
    }

    /// Takes out the oldest receive that accepts a message, if only one class has receives. Returns
    /// its entry, or [`NIL`].
    #[inline]
    pub(crate) fn take_of_one<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        message: TagSource,
        work: &mut ListWork,
    ) -> u32 {
        match self.known.get_mut(self.active.trailing_zeros() as usize) {
            Some(known) => {
                let entry = known.take(receives, message, work);
                if known.is_empty() {
                    self.active = 0;
                }
                entry
            }
            None => self.take_of_many(receives, message, work),
        }
    }

    /// Takes out the oldest receive that accepts a message, if several classes have receives.
    /// Returns its entry, or [`NIL`].
    #[inline]
    pub(crate) fn take_of_several<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        message: TagSource,
        work: &mut ListWork,
    ) -> u32 {
        // With wildcards there are mostly two classes. Comparing them directly is faster than a
        // list of candidates.
        let but_first = self.active & self.active.wrapping_sub(1);
        let classes = [self.active, but_first].map(|active| active.trailing_zeros() as usize);
        if but_first.is_power_of_two()
            && let Ok([a, b]) = self.known.get_disjoint_mut(classes)
        {
            // Both home buckets are read before the first entry.
            let spread = hash::spread(message.source);
            let looks = [a.look(message, spread), b.look(message, spread)];
            if !Look::goes_on(looks[0].rest | looks[1].rest) {
                work.inspected += 2;
                let of_a = a.at_home(receives, message, looks[0], work);
                let of_b = b.at_home(receives, message, looks[1], work);
                let (class, known, at) = match (of_a, of_b) {
                    (Some((at, a_first)), Some((_, b_first)))
                        if receives.entry(a_first).order.word()
                            < receives.entry(b_first).order.word() =>
                    {
                        (classes[0], a, at)
                    }
                    (_, Some((at, _))) => (classes[1], b, at),
                    (Some((at, _)), None) => (classes[0], a, at),
                    (None, None) => return NIL,
                };
                let entry = known.remove_candidate(receives, at);
                if known.is_empty() {
                    self.active &= !(1 << class);
                }
                return entry;
            }
        }
        self.take_of_many(receives, message, work)
    }

    #[inline(never)]
    fn take_of_many<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        message: TagSource,
        work: &mut ListWork,
    ) -> u32 {
        work.scans += u64::from(self.scanned.len != 0);
        match self.find(receives, message, &mut work.inspected) {
            FoundReceive::NONE => NIL,
            found => self.remove_found(receives, found),
        }
    }

    /// The oldest receive that accepts a message. Adds the number of buckets and entries read to
    /// `steps`.
    #[inline(always)]
    pub(crate) fn find<T: Copy>(
        &self,
        receives: &Receives<T>,
        message: TagSource,
        steps: &mut u64,
    ) -> FoundReceive {
        const CELLS: u32 = KeyIndex::CELLS_MAX;
        let spread = hash::spread(message.source);
        let mut best = FoundReceive::NONE;
        let mut best_order = u64::MAX;
        let mut first_class = 0;
        let mut probes = 0;
        for together in self.known.chunks(TOGETHER) {
            // All home buckets are read before the first entry, so that the cache misses overlap,
            // and so that hardly a branch depends on which class has a match.
            let mut homes = [0; TOGETHER];
            let mut candidates = 0;
            let mut rest = 0;
            let mut shift = 0;
            for known in together {
                // The candidates of the last class are the highest bits.
                candidates >>= CELLS;
                if !known.is_empty() {
                    let look = known.look(message, spread);
                    homes[shift % TOGETHER] = look.home;
                    candidates |= look.candidates << (u64::BITS - CELLS);
                    rest |= look.rest;
                }
                shift += 1;
            }
            probes += together.len() as u64;
            while candidates != 0 {
                let bit = candidates.trailing_zeros();
                candidates &= candidates - 1;
                let place = ((bit / CELLS) as usize + shift) % TOGETHER;
                let known = &together[place];
                let (at, entry) = known.candidate(homes[place], bit % CELLS);
                let receive = receives.entry(entry);
                if !known.shape.same(receives.envelope(entry), message) {
                    probes += 1;
                } else if receive.order.word() < best_order {
                    best_order = receive.order.word();
                    best = FoundReceive::at_home(first_class + place, at);
                }
            }
            if Look::goes_on(rest) {
                let farther;
                (best, farther) = self.find_farther(receives, message, first_class, best);
                probes += farther;
                best_order = self.order_of(receives, best);
            }
            first_class += TOGETHER;
        }
        *steps += probes;
        if self.scanned.len != 0 {
            return self.find_scanned(receives, message, best, steps);
        }
        best
    }

    /// Searches the buckets after the home in [`TOGETHER`] classes from this one on. Returns the
    /// best receive then, and the number of buckets and entries read.
    #[inline(never)]
    fn find_farther<T: Copy>(
        &self,
        receives: &Receives<T>,
        message: TagSource,
        first_class: usize,
        mut best: FoundReceive,
    ) -> (FoundReceive, u64) {
        let spread = hash::spread(message.source);
        let mut steps = 0;
        let mut best_order = self.order_of(receives, best);
        for (class, known) in self.known.iter().enumerate().skip(first_class).take(TOGETHER) {
            if !Look::goes_on(known.look(message, spread).rest) {
                continue;
            }
            let probe = known.find(receives, message, spread);
            steps += probe.steps - 1;
            if probe.entry != NIL && receives.entry(probe.entry).order.word() < best_order {
                best = FoundReceive::farther(class, probe.at);
                best_order = receives.entry(probe.entry).order.word();
            }
        }
        (best, steps)
    }

    /// Searches the scanned list up to the best match so far.
    #[cold]
    #[inline(never)]
    fn find_scanned<T: Copy>(
        &self,
        receives: &Receives<T>,
        message: TagSource,
        best: FoundReceive,
        steps: &mut u64,
    ) -> FoundReceive {
        let best_order = self.order_of(receives, best);
        let mut entry = self.scanned.first;
        while entry != NIL && receives.entry(entry).order.word() < best_order {
            *steps += 1;
            if self.scanned.shapes[entry as usize].same(receives.envelope(entry), message) {
                return FoundReceive::scanned(entry);
            }
            entry = receives.next(entry);
        }
        best
    }

    /// The entry of a receive that was found; not for [`FoundReceive::NONE`].
    #[inline]
    pub(crate) fn entry_of(&self, found: FoundReceive) -> u32 {
        match self.known.get(found.class()) {
            Some(known) => known.entry(found.at()),
            None => self.entry_elsewhere(found),
        }
    }

    #[inline(never)]
    fn entry_elsewhere(&self, found: FoundReceive) -> u32 {
        if found.is(FoundReceive::SCANNED) {
            return found.at().0;
        }
        self.known[FoundReceive(found.0 & !FoundReceive::FARTHER).class()].entry(found.at())
    }

    /// The order of a receive that was found. For [`FoundReceive::NONE`] it is greater than all
    /// others.
    fn order_of<T: Copy>(&self, receives: &Receives<T>, found: FoundReceive) -> u64 {
        if found == FoundReceive::NONE {
            return u64::MAX;
        }
        receives.entry(self.entry_of(found)).order.word()
    }

    /// Takes out the receive that [`find`](Self::find) found, and returns its entry; not for
    /// [`FoundReceive::NONE`].
    #[inline]
    fn remove_found<T: Copy>(&mut self, receives: &mut Receives<T>, found: FoundReceive) -> u32 {
        match self.known.get_mut(found.class()) {
            Some(known) => {
                let entry = known.remove_candidate(receives, found.at());
                if known.is_empty() {
                    self.active &= !(1 << found.class());
                }
                entry
            }
            None => self.remove_elsewhere(receives, found),
        }
    }

    #[inline(never)]
    fn remove_elsewhere<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        found: FoundReceive,
    ) -> u32 {
        let entry = self.entry_elsewhere(found);
        if found.is(FoundReceive::SCANNED) {
            self.unlink_scanned(receives, entry);
            return entry;
        }
        let class = FoundReceive(found.0 & !FoundReceive::FARTHER).class();
        let known = &mut self.known[class];
        known.remove_found(receives, found.at(), entry);
        if known.is_empty() {
            self.active &= !(1 << class);
        }
        entry
    }

    /// Takes out any receive.
    pub(crate) fn remove<T: Copy>(
        &mut self,
        receives: &mut Receives<T>,
        entry: u32,
        work: &mut ListWork,
    ) {
        let class = receives.entry(entry).order.class();
        match self.known.get_mut(class as usize) {
            Some(known) => {
                known.remove(receives, entry, work);
                if known.is_empty() {
                    self.active &= !(1 << class);
                }
            }
            None => self.unlink_scanned(receives, entry),
        }
    }

    /// The bits that a receive compares.
    pub(crate) fn shape_of<T: Copy>(&self, receives: &Receives<T>, entry: u32) -> Shape {
        match self.known.get(receives.entry(entry).order.class() as usize) {
            Some(known) => known.shape,
            None => self.scanned.shapes[entry as usize],
        }
    }

    #[cold]
    fn append_scanned<T: Copy>(&mut self, receives: &mut Receives<T>, entry: u32, shape: Shape) {
        if self.scanned.shapes.len() <= entry as usize {
            self.scanned.shapes.resize(entry as usize + 1, Shape::ANY);
        }
        self.scanned.shapes[entry as usize] = shape;
        if self.scanned.first == NIL {
            self.scanned.first = entry;
        } else {
            link::append(receives, self.scanned.first, entry);
        }
        self.scanned.len += 1;
    }

    #[cold]
    fn unlink_scanned<T: Copy>(&mut self, receives: &mut Receives<T>, entry: u32) {
        if entry == self.scanned.first {
            self.scanned.first = link::remove_first(receives, entry);
        } else {
            link::remove_later(receives, self.scanned.first, entry);
        }
        self.scanned.len -= 1;
        if self.scanned.len == 0 {
            self.active &= !(1 << SCANNED);
        }
    }
}

#[cfg(test)]
mod situations {
    use super::*;

    impl Classes {
        /// All classes with an index, by number, including those without receives.
        pub(crate) fn known(&self) -> &[MaskClass] {
            &self.known
        }
    }
}
