//! Short lists: up to [`LANES`] entries, searched by comparing with all of them at once.
//!
//! Recorded applications rarely have more than eighteen receives posted. Comparing with all of them
//! takes less time than one look into a hash table. There is no hash to compute when an entry is
//! added, and no chain to unlink when it is removed. An entry takes the lowest free *lane*. If
//! several lanes match, the one with the lowest sequence number is the oldest.

use crate::class::{Shape, TagSource};
use crate::lanes::{GROUP, LANE_BITS, equal_halves, equal_words, equal_words_under};

const GROUPS: usize = 3;
/// The most entries of a short list.
pub(crate) const LANES: usize = GROUP * GROUPS;

/// The significant bit of every lane.
const ALL: u64 = (1 << (LANES * LANE_BITS as usize)) / 3;
/// The bits of one group.
const GROUP_SHIFT: usize = GROUP * LANE_BITS as usize;

const _: () = assert!(LANES * (LANE_BITS as usize) < u64::BITS as usize);

/// A set of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneSet(u64);

impl LaneSet {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest lane; the number of no lane if the set is empty.
    #[inline]
    pub(crate) fn lowest(self) -> usize {
        self.0.trailing_zeros() as usize / LANE_BITS as usize
    }

    #[inline]
    fn without_lowest(self) -> LaneSet {
        LaneSet(self.0 & self.0.wrapping_sub(1))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let now = rest;
            rest = rest.without_lowest();
            (!now.is_empty()).then(|| now.lowest())
        })
    }
}

#[inline]
fn bit(lane: usize) -> u64 {
    1 << (lane * LANE_BITS as usize)
}

/// Up to [`LANES`] entries: which lanes they have, and in which order they were added.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    live: u64,
    sequences: [u64; LANES],
    tags: [u64; LANES],
    sources: [u32; LANES],
}

/// The values of a group's lanes.
#[inline]
fn group_of<T>(values: &[T; LANES], group: usize) -> &[T; GROUP] {
    &values.as_chunks().0[group]
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Lanes { live: 0, sequences: [0; LANES], tags: [0; LANES], sources: [0; LANES] }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.live == ALL
    }

    /// Whether there is at most one entry, as in most short lists. Then a plain comparison is
    /// faster than vectors: the data was often written just before, in pieces, and a vector load
    /// would have to wait until the pieces reach the cache.
    #[inline]
    fn is_one_at_most(&self) -> bool {
        self.all().without_lowest().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.live.count_ones() as usize
    }

    #[inline]
    pub(crate) fn all(&self) -> LaneSet {
        LaneSet(self.live)
    }

    pub(crate) fn sequence(&self, lane: usize) -> u64 {
        self.sequences[lane]
    }

    /// All lanes in the order in which their entries were added.
    pub(crate) fn in_order(&self) -> Vec<usize> {
        let mut lanes: Vec<usize> = self.all().iter().collect();
        lanes.sort_unstable_by_key(|&lane| self.sequences[lane]);
        lanes
    }

    /// The oldest of these lanes.
    #[inline]
    pub(crate) fn oldest(&self, of: LaneSet) -> usize {
        if of.without_lowest().is_empty() { of.lowest() } else { self.oldest_of_several(of) }
    }

    #[inline(never)]
    fn oldest_of_several(&self, of: LaneSet) -> usize {
        let mut oldest = of.lowest();
        let mut rest = of.without_lowest();
        while !rest.is_empty() {
            let lane = rest.lowest();
            if self.sequences[lane] < self.sequences[oldest] {
                oldest = lane;
            }
            rest = rest.without_lowest();
        }
        oldest
    }

    /// Adds an entry to lanes that are not full, and returns its lane.
    #[inline]
    pub(crate) fn add(&mut self, envelope: TagSource, sequence: u64) -> usize {
        let lane = LaneSet(!self.live & ALL).lowest();
        self.tags[lane] = envelope.tag;
        self.sources[lane] = envelope.source;
        self.sequences[lane] = sequence;
        self.live |= bit(lane);
        lane
    }

    #[inline]
    fn has(&self, lane: usize) -> bool {
        self.live & bit(lane) != 0
    }

    #[inline]
    pub(crate) fn remove(&mut self, lane: usize) {
        self.live &= !bit(lane);
    }

    pub(crate) fn clear(&mut self) {
        self.live = 0;
    }

    #[inline]
    pub(crate) fn envelope(&self, lane: usize) -> TagSource {
        TagSource { tag: self.tags[lane], source: self.sources[lane] }
    }

    /// The unexpected messages that a receive accepts.
    #[inline]
    pub(crate) fn accepted_by(&self, wanted: TagSource, shape: Shape) -> LaneSet {
        if self.is_one_at_most() {
            let all = self.all();
            let accepts = !all.is_empty() && shape.same(self.envelope(all.lowest()), wanted);
            return if accepts { all } else { LaneSet(0) };
        }
        let equal = |group| equal_words_under(group_of(&self.tags, group), shape.mask, wanted.tag);
        let tags = self.find(equal);
        if shape.source_mask == 0 {
            return tags;
        }
        LaneSet(tags.0 & self.of_source(wanted.source).0)
    }

    /// The lanes whose source is this one.
    #[inline]
    fn of_source(&self, source: u32) -> LaneSet {
        self.find(|group| equal_halves(group_of(&self.sources, group), source))
    }

    /// The lanes for which `compare` is true, a group at a time.
    #[inline]
    fn find(&self, compare: impl Fn(usize) -> u64) -> LaneSet {
        let mut found = 0;
        for group in 0..GROUPS {
            let shift = GROUP_SHIFT * group;
            if self.live >> shift == 0 {
                break;
            }
            found |= compare(group) << shift;
        }
        LaneSet(found & self.live)
    }
}

/// Up to [`LANES`] receives.
// In this order, since `sourced` must not lie beside the set of live lanes: the compiler would
// change both by vector instructions.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct ShortPosted {
    pub(crate) lanes: Lanes,
    masks: [u64; LANES],
    /// The bits of the source that each receive compares: all or none.
    source_masks: [u32; LANES],
    /// The lane of the receive that was added last.
    latest: usize,
    /// The lanes whose receives name a source.
    sourced: u64,
}

impl ShortPosted {
    pub(crate) const fn new() -> Self {
        ShortPosted {
            lanes: Lanes::new(),
            masks: [0; LANES],
            source_masks: [0; LANES],
            sourced: 0,
            latest: 0,
        }
    }

    /// Adds a receive to lanes that are not full, and returns its lane.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "all bits or none")]
    pub(crate) fn add(&mut self, envelope: TagSource, shape: Shape, sequence: u64) -> usize {
        let lane = self.lanes.add(envelope, sequence);
        self.masks[lane] = shape.mask;
        self.source_masks[lane] = shape.source_mask as u32;
        self.sourced = self.sourced & !bit(lane) | bit(lane) & shape.source_mask;
        self.latest = lane;
        lane
    }

    /// No receive is like the one that was added last.
    pub(crate) fn forget_latest(&mut self) {
        self.latest = LANES;
    }

    /// The lane of the receive that was added last, if it is still there and equal.
    #[inline]
    pub(crate) fn lane_of_like(&self, envelope: TagSource, shape: Shape) -> Option<usize> {
        let lane = self.latest;
        let is_like = self.lanes.has(lane)
            && self.lanes.envelope(lane) == envelope
            && self.shape(lane) == shape;
        is_like.then_some(lane)
    }

    /// The lane of the oldest receive that accepts a message.
    #[inline(always)]
    pub(crate) fn first(&self, message: TagSource) -> Option<usize> {
        if self.lanes.is_empty() {
            return None;
        }
        if self.lanes.is_one_at_most() {
            let lane = self.lanes.all().lowest();
            let is_same = self.shape(lane).same(self.lanes.envelope(lane), message);
            return is_same.then_some(lane);
        }
        self.first_of_several(message)
    }

    #[inline(never)]
    fn first_of_several(&self, message: TagSource) -> Option<usize> {
        let equal = |group| {
            let tags = group_of(&self.lanes.tags, group);
            let masks = group_of(&self.masks, group);
            equal_words(tags, masks, message.tag)
        };
        let found = self.lanes.find(equal);
        let found =
            if found.0 & self.sourced == 0 { found } else { self.of_source(found, message.source) };
        (!found.is_empty()).then(|| self.lanes.oldest(found))
    }

    #[inline]
    fn of_source(&self, tags: LaneSet, source: u32) -> LaneSet {
        LaneSet(tags.0 & (self.lanes.of_source(source).0 | !self.sourced))
    }

    #[inline]
    pub(crate) fn shape(&self, lane: usize) -> Shape {
        // All bits or none: extends the sign.
        let source_mask = i64::from(self.source_masks[lane].cast_signed()).cast_unsigned();
        Shape { mask: self.masks[lane], source_mask }
    }

    /// The number of different shapes for which `is_counted` is false.
    pub(crate) fn shapes(&self, is_counted: impl Fn(Shape) -> bool) -> usize {
        let mut shapes: Vec<Shape> = Vec::new();
        for lane in self.lanes.all().iter() {
            let shape = self.shape(lane);
            if !shapes.contains(&shape) && !is_counted(shape) {
                shapes.push(shape);
            }
        }
        shapes.len()
    }
}
