//! The list of posted receives.

use crate::class::{ListWork, Shape, TagSource, key_of};
use crate::link::{ChainLink, Links, NIL};
use crate::receives::{Classes, FoundReceive, PostOrder, Receive, Receives, SHORT, Word};
use crate::short::{LANES, ShortPosted};
use crate::slab::{PostedHandle, StaleHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag, TagMask};

/// See [`PostedList::patience`].
const PATIENCE: u32 = 64;
/// The most receives that share a lane with an older one: the number that has to move at once if
/// the list outgrows its lanes, which takes some tens of microseconds. Larger windows of equal
/// receives than this are rare.
const SHARING_MAX: usize = 1024;
/// A receive counts as matched soon if fewer sequence numbers than this were given out since its
/// own: those of a third of the lanes.
const SOON: u64 = LANES as u64 / 3 * PostOrder::STEP;

/// Posted receives: first posted, first matched.
///
/// A list is short at first: its receives are in lanes, which are compared all at once. A list that
/// outgrows its lanes is indexed, and later receives are indexed, too. This ends when the list is
/// empty, or when receives are matched soon after they were posted. Later receives then go to the
/// lanes again, while older ones stay indexed. So receives posted long in advance cost little more
/// than one lookup.
///
/// `T` is the caller's value for a receive. Receives are indexed by *mask class* (the bits of the
/// tag that they compare, and whether they compare the source); the [crate](crate)'s documentation
/// lists the costs. The list allocates only when it grows, and frees no memory before it is
/// dropped.
///
/// ```
/// # mod tagmatch { pub use tagmatch_soft as soft; }
/// use tagmatch::soft::{Pattern, PostedList, SourceId, Tag, TagMask};
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
    receives: Receives<T>,
    /// The youngest receives, all of them younger than those in the classes.
    short: ShortPosted,
    /// The slot of each lane's receive, [`NIL`] before its first use. Equal receives that were
    /// posted one after the other share a lane: this is the slot of the oldest, and the others are
    /// in its chain.
    slots: [u32; LANES],
    /// The slot of each lane's youngest receive, once the lane has a slot. So adding a receive and
    /// removing the oldest don't touch the other end of the chain.
    youngest: [u32; LANES],
    /// The number of receives that share a lane with an older one.
    sharing: usize,
    classes: Classes,
    /// The number of receives in the classes.
    indexed: usize,
    /// The largest value of `indexed` since it was zero.
    indexed_max: usize,
    /// A message that no indexed receive accepts, if one is known: the next one is likely to be
    /// equal.
    missed: Option<TagSource>,
    /// This many indexed receives must be matched soon after they were posted before receives go to
    /// the lanes again. The lanes were full before, so they would fill again: programs post windows
    /// of receives repeatedly, and would pay for moving each window from the lanes into the
    /// classes.
    patience: u32,
    next_sequence: u64,
    work: ListWork,
}

impl<T: Copy> PostedList<T> {
    /// An empty list. The seed prevents senders from choosing tags with equal hashes: take it from
    /// a source of randomness, or from a simulator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        PostedList {
            receives: Receives::new(),
            short: ShortPosted::new(),
            slots: [NIL; LANES],
            youngest: [NIL; LANES],
            sharing: 0,
            classes: Classes::new(),
            indexed: 0,
            indexed_max: 0,
            missed: None,
            patience: 0,
            next_sequence: 0,
            work: ListWork::new(seed),
        }
    }

    /// Number of receives.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexed + self.short.lanes.len() + self.sharing
    }

    /// Whether there is no receive.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indexed == 0 && self.short.lanes.is_empty()
    }

    /// Adds a receive after all others. Amortised constant.
    ///
    /// # Panics
    /// If the list holds 2^30 receives already, which takes more than 32 GiB.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, value: T) -> PostedHandle {
        let (envelope, shape) = key_of(&pattern);
        if let Some(handle) = self.post_sharing(envelope, shape, value) {
            return handle;
        }
        self.post_alone(envelope, shape, value)
    }

    /// As [`PostedList::post`], if `is_allowed`: not asked if the last one waits and is equal.
    #[inline(always)]
    pub fn post_if(
        &mut self,
        pattern: Pattern,
        value: T,
        is_allowed: impl FnOnce() -> bool,
    ) -> Option<PostedHandle> {
        let (envelope, shape) = key_of(&pattern);
        match self.post_sharing(envelope, shape, value) {
            None if is_allowed() => Some(self.post_alone(envelope, shape, value)),
            posted => posted,
        }
    }

    #[inline(always)]
    fn post_alone(&mut self, envelope: TagSource, shape: Shape, value: T) -> PostedHandle {
        if self.patience != 0 || self.sharing >= SHARING_MAX || self.short.lanes.is_full() {
            return self.post_indexed(envelope, shape, value);
        }
        self.post_short(envelope, shape, value)
    }

    /// [`PostedList::post_if`] will ask about the next receive.
    pub fn forget_latest(&mut self) {
        self.short.forget_latest();
    }

    #[inline]
    fn next_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += PostOrder::STEP;
        sequence
    }

    #[inline(always)]
    fn post_short(&mut self, envelope: TagSource, shape: Shape, value: T) -> PostedHandle {
        let sequence = self.next_sequence();
        let lane = self.short.add(envelope, shape, sequence);
        let mut entry = self.slots[lane];
        if entry == NIL {
            entry = self.reserve_slot(lane, value);
        }
        PostedHandle(self.receives.occupy(entry, |receive| receive.value = value))
    }

    /// Reserves a slot for a lane.
    #[cold]
    #[inline(never)]
    fn reserve_slot(&mut self, lane: usize, value: T) -> u32 {
        let order = PostOrder::new(0, SHORT);
        let tag = Word(lane as u64);
        let link = ChainLink { prev: NIL, next: NIL };
        let entry = self.receives.reserve(Receive { order, tag, value, link });
        (self.slots[lane], self.youngest[lane]) = (entry, entry);
        entry
    }

    /// Adds a receive to the lane of the youngest one, if that equals it and has room.
    #[inline(always)]
    fn post_sharing(&mut self, of: TagSource, shape: Shape, value: T) -> Option<PostedHandle> {
        let lane = self.short.lane_of_like(of, shape).filter(|_| self.sharing < SHARING_MAX)?;
        let order = PostOrder::new(self.next_sequence(), SHORT);
        let tag = Word(lane as u64);
        let prev = self.youngest[lane];
        let receive = |_| Receive { order, tag, value, link: ChainLink { prev, next: NIL } };
        let handle = self.receives.insert(NIL, receive);
        self.receives.set_next(prev, handle.index);
        self.youngest[lane] = handle.index;
        self.sharing += 1;
        Some(PostedHandle(handle))
    }

    #[inline(never)]
    fn post_indexed(&mut self, envelope: TagSource, shape: Shape, value: T) -> PostedHandle {
        let sequence = self.next_sequence();
        if !self.short.lanes.is_empty() {
            self.index_all();
            self.patience = PATIENCE;
        }
        let class = self.classes.number_of(shape, &mut self.work);
        let TagSource { tag, source } = envelope;
        let order = PostOrder::new(sequence, class);
        let tag = Word(tag);
        let receive = |entry| Receive { order, tag, value, link: ChainLink::alone(entry) };
        let handle = self.receives.insert(source, receive);
        let PostedList { receives, classes, work, .. } = self;
        classes.add(receives, handle.index, shape, work);
        self.missed = None;
        self.indexed += 1;
        self.indexed_max = self.indexed_max.max(self.indexed);
        PostedHandle(handle)
    }

    /// Decides where the next receives go, after the last indexed one was removed.
    #[cold]
    #[inline(never)]
    fn emptied(&mut self) {
        self.patience = if self.indexed_max > LANES { PATIENCE } else { 0 };
        self.indexed_max = 0;
    }

    /// Records that an indexed receive was matched soon after it was posted.
    #[cold]
    #[inline(never)]
    fn taken_soon(&mut self) {
        self.patience = self.patience.saturating_sub(1);
    }

    /// Moves all receives from the lanes into the classes.
    #[cold]
    #[inline(never)]
    fn index_all(&mut self) {
        let PostedList { receives, short, slots, classes, work, .. } = self;
        for lane in short.lanes.in_order() {
            let envelope = short.lanes.envelope(lane);
            let shape = short.shape(lane);
            let class = classes.number_of(shape, work);
            let mut sequence = short.lanes.sequence(lane);
            let mut entry = std::mem::replace(&mut slots[lane], NIL);
            loop {
                let receive = receives.entry_mut(entry);
                let next = receive.link.next;
                receive.order = PostOrder::new(sequence, class);
                receive.tag = Word(envelope.tag);
                receive.link = ChainLink::alone(entry);
                receives.set_extra(entry, envelope.source);
                classes.add(receives, entry, shape, work);
                self.indexed += 1;
                if next == NIL {
                    break;
                }
                (entry, sequence) = (next, receives.entry(next).order.sequence());
            }
        }
        short.lanes.clear();
        self.sharing = 0;
    }

    /// Removes the first posted receive that accepts a message with this envelope. Costs one probe
    /// for each class in use.
    #[inline(always)]
    pub fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<T> {
        let message = TagSource { tag: tag.0, source: source.0 };
        if !self.classes.is_empty()
            && self.missed != Some(message)
            && let taken @ Some(_) = self.take_indexed(message)
        {
            return taken;
        }
        let lane = self.short.first(message)?;
        self.work.inspected += 1;
        Some(self.remove_oldest(lane))
    }

    /// Removes the oldest receive of a lane. The lane's sequence number stays valid for the next
    /// one: no receive of another lane was posted between those of this lane.
    #[inline(always)]
    fn remove_oldest(&mut self, lane: usize) -> T {
        let entry = self.slots[lane];
        let Receive { value, link: ChainLink { next, .. }, .. } = *self.receives.entry(entry);
        if next == NIL {
            self.short.lanes.remove(lane);
            if !self.receives.vacate(entry) {
                self.slots[lane] = NIL;
            }
            return value;
        }
        self.slots[lane] = next;
        self.sharing -= 1;
        self.receives.remove(entry).value
    }

    #[inline(never)]
    fn take_indexed(&mut self, message: TagSource) -> Option<T> {
        let PostedList { receives, classes, work, .. } = self;
        let entry = if classes.are_several() {
            classes.take_of_several(receives, message, work)
        } else {
            classes.take_of_one(receives, message, work)
        };
        if entry == NIL {
            self.missed = Some(message);
            return None;
        }
        Some(self.remove_matched(entry))
    }

    /// Frees the slot of a receive that a message has matched, and that has left the classes.
    #[inline]
    fn remove_matched(&mut self, entry: u32) -> T {
        if self.receives.entry(entry).order.word() >= self.next_sequence.saturating_sub(SOON) {
            self.taken_soon();
        }
        self.remove_indexed(entry)
    }

    /// Frees the slot of a receive that has left the classes.
    #[inline]
    fn remove_indexed(&mut self, entry: u32) -> T {
        self.indexed -= 1;
        if self.indexed == 0 {
            self.emptied();
        }
        self.receives.remove(entry).value
    }

    /// The first posted receive that accepts a message with this envelope, which stays posted.
    /// Costs one probe for each class in use.
    #[inline]
    #[must_use]
    pub fn first_match(&self, tag: Tag, source: SourceId) -> Option<PostedHandle> {
        let message = TagSource { tag: tag.0, source: source.0 };
        let entry = self.first_indexed(message).or_else(|| self.first_short(message))?;
        Some(PostedHandle(self.receives.handle(entry)))
    }

    #[inline(never)]
    fn first_indexed(&self, message: TagSource) -> Option<u32> {
        match self.classes.find(&self.receives, message, &mut 0) {
            FoundReceive::NONE => None,
            found => Some(self.classes.entry_of(found)),
        }
    }

    #[inline]
    fn first_short(&self, message: TagSource) -> Option<u32> {
        self.short.first(message).map(|lane| self.slots[lane])
    }

    /// Removes one receive. Constant.
    ///
    /// # Errors
    /// [`StaleHandle`] if it was matched or cancelled already; nothing changes.
    #[inline]
    pub fn cancel(&mut self, handle: PostedHandle) -> Result<T, StaleHandle> {
        let entry = self.receives.resolve(handle.0).ok_or(StaleHandle)?;
        Ok(self.remove(entry))
    }

    /// A receive's pattern and value, if it is still posted. Constant.
    #[must_use]
    pub fn get(&self, handle: PostedHandle) -> Option<(Pattern, T)> {
        let entry = self.receives.resolve(handle.0)?;
        Some((self.pattern(entry), self.receives.entry(entry).value))
    }

    /// Removes all receives that name this source, in post order. Any-source receives stay.
    ///
    /// This is for the end of a peer. The time is linear in the most receives that the list ever
    /// had.
    pub fn take_source(&mut self, source: SourceId) -> Vec<T> {
        let mut doomed: Vec<_> = (self.receives.indices())
            .filter(|&entry| self.pattern(entry).source() == Some(source))
            .collect();
        doomed.sort_unstable_by_key(|&entry| self.sequence(entry));
        doomed.into_iter().map(|entry| self.remove(entry)).collect()
    }

    /// All receives in post order. This sorts, and is for reports and tests.
    pub fn iter_in_order(&self) -> impl Iterator<Item = (PostedHandle, Pattern, T)> {
        let mut order: Vec<u32> = self.receives.indices().collect();
        order.sort_unstable_by_key(|&entry| self.sequence(entry));
        order.into_iter().map(|entry| {
            let handle = PostedHandle(self.receives.handle(entry));
            (handle, self.pattern(entry), self.receives.entry(entry).value)
        })
    }

    /// The contents of the list, and the work that it has done so far.
    #[must_use]
    pub fn stats(&self) -> MatchStats {
        MatchStats {
            entries: self.len(),
            bytes: self.receives.bytes() + self.classes.bytes(),
            classes: self.classes.indexed() + self.short.shapes(|shape| self.classes.have(shape)),
            scanned_entries: self.classes.scanned(),
            scans: self.work.scans,
            inspected: self.work.inspected,
            longest_probe: self.classes.longest_probe(),
            growths: self.work.growths,
            reseeds: self.work.reseeds,
            ..MatchStats::default()
        }
    }

    #[inline]
    fn remove(&mut self, entry: u32) -> T {
        if let Some(lane) = self.lane(entry) {
            if entry == self.slots[lane] {
                return self.remove_oldest(lane);
            }
            let ChainLink { prev, next } = self.receives.entry(entry).link;
            self.receives.set_next(prev, next);
            if next == NIL {
                self.youngest[lane] = prev;
            } else {
                self.receives.set_prev(next, prev);
            }
            self.sharing -= 1;
            return self.receives.remove(entry).value;
        }
        self.classes.remove(&mut self.receives, entry, &mut self.work);
        self.remove_indexed(entry)
    }

    /// The lane of a receive; `None` if it is indexed.
    #[inline]
    fn lane(&self, entry: u32) -> Option<usize> {
        let receive = self.receives.entry(entry);
        #[expect(clippy::cast_possible_truncation, reason = "a lane, as it was put in")]
        (receive.order.class() == SHORT).then_some(receive.tag.0 as usize)
    }

    fn sequence(&self, entry: u32) -> u64 {
        match self.lane(entry) {
            Some(lane) if entry == self.slots[lane] => self.short.lanes.sequence(lane),
            _ => self.receives.entry(entry).order.sequence(),
        }
    }

    fn pattern(&self, entry: u32) -> Pattern {
        let (tag, source, shape) = if let Some(lane) = self.lane(entry) {
            let TagSource { tag, source } = self.short.lanes.envelope(lane);
            (tag, source, self.short.shape(lane))
        } else {
            let shape = self.classes.shape_of(&self.receives, entry);
            (self.receives.entry(entry).tag.0, self.receives.extra(entry), shape)
        };
        let pattern = Pattern::new(Tag(tag), TagMask(shape.mask));
        if shape.source_mask == 0 { pattern } else { pattern.from_source(SourceId(source)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{InChain, Lookup};

    /// Situations that the tests of long lists count.
    impl<T: Copy> PostedList<T> {
        /// The result of a search for a message in each class in use.
        pub(crate) fn lookups(&self, tag: Tag, source: SourceId) -> Vec<(usize, Lookup)> {
            let message = TagSource { tag: tag.0, source: source.0 };
            let classes = self.classes.known().iter().enumerate();
            let in_use = classes.filter(|(_, class)| !class.is_empty());
            in_use.map(|(at, class)| (at, class.lookup(&self.receives, message).0)).collect()
        }

        /// The class of a receive, and its places there; `None` if it is gone or not indexed.
        pub(crate) fn standing(&self, handle: PostedHandle) -> Option<(usize, Lookup, InChain)> {
            let entry = self.receives.resolve(handle.0)?;
            let at = self.receives.entry(entry).order.class() as usize;
            let (lookup, in_chain) = self.classes.known().get(at)?.standing(&self.receives, entry);
            Some((at, lookup, in_chain))
        }
    }

    const LAST: Tag = Tag(u64::MAX);

    fn post_exact(list: &mut PostedList<u64>, tag: Tag) {
        list.post(Pattern::new(tag, TagMask::EXACT), tag.0);
    }

    fn post_and_take(list: &mut PostedList<u64>, tag: Tag) {
        post_exact(list, tag);
        assert_eq!(list.take_match(tag, SourceId(0)), Some(tag.0));
    }

    /// A long list whose youngest receives are in lanes.
    fn long_and_calm() -> PostedList<u64> {
        let mut list = PostedList::new(1);
        (0..100).for_each(|tag| post_exact(&mut list, Tag(tag)));
        assert!(list.short.lanes.is_empty());
        (0..PATIENCE).for_each(|_| post_and_take(&mut list, LAST));
        list
    }

    #[test]
    fn receives_that_match_soon_are_kept_in_lanes_beside_a_long_list() {
        let mut list = long_and_calm();
        post_exact(&mut list, LAST);
        assert_eq!((list.short.lanes.len(), list.indexed), (1, 100));
        assert_eq!(list.take_match(Tag(50), SourceId(0)), Some(50));
        assert_eq!(list.take_match(LAST, SourceId(0)), Some(LAST.0));
        assert_eq!((list.short.lanes.len(), list.indexed), (0, 99));
    }

    #[test]
    fn a_window_that_outgrows_the_lanes_is_indexed_whole() {
        const WINDOW: u64 = LANES as u64 + 8;
        let mut list = long_and_calm();
        for _ in 0..4 {
            (0..WINDOW).for_each(|number| post_exact(&mut list, Tag(LAST.0 - number)));
            assert_eq!((list.short.lanes.len(), list.indexed), (0, 100 + LANES + 8));
            for number in 0..WINDOW {
                let tag = Tag(LAST.0 - number);
                assert_eq!(list.take_match(tag, SourceId(0)), Some(tag.0));
            }
        }
    }

    #[test]
    fn equal_receives_share_a_lane_until_there_are_many() {
        let alike = Pattern::new(Tag(3), TagMask::EXACT);
        let post = |list: &mut PostedList<u64>, value| list.post(alike, value);
        let mut list = PostedList::new(1);
        let handles: Vec<_> = (0..5).map(|value| post(&mut list, value)).collect();
        post_exact(&mut list, Tag(9));
        post(&mut list, 5);
        assert_eq!((list.short.lanes.len(), list.sharing, list.len()), (3, 4, 7));
        // Three of the five that share a lane: the middle one, the last, and the first.
        for gone in [2, 4, 0] {
            assert_eq!(list.cancel(handles[gone]), Ok(gone as u64));
            assert!(list.cancel(handles[gone]).is_err());
        }
        let order: Vec<_> = list.iter_in_order().map(|(_, _, value)| value).collect();
        assert_eq!(order, [1, 3, 9, 5]);
        for value in [1, 3, 5] {
            assert_eq!(list.take_match(Tag(3), SourceId(0)), Some(value));
        }
        assert_eq!((list.short.lanes.len(), list.sharing, list.len()), (1, 0, 1));
        for value in 0..=SHARING_MAX as u64 {
            post(&mut list, value);
        }
        assert_eq!((list.short.lanes.len(), list.sharing), (2, SHARING_MAX));
        post(&mut list, 1000);
        assert_eq!((list.short.lanes.len(), list.sharing), (0, 0));
        assert_eq!((list.indexed, list.len()), (SHARING_MAX + 3, SHARING_MAX + 3));
        let order: Vec<_> = list.iter_in_order().map(|(_, _, value)| value).collect();
        let expected = [9].into_iter().chain(0..=SHARING_MAX as u64).chain([1000]);
        assert!(order.into_iter().eq(expected));
    }

    #[test]
    fn a_receive_joins_its_lane_after_the_youngest_was_cancelled() {
        let alike = Pattern::new(Tag(3), TagMask::EXACT);
        let mut list = PostedList::new(1);
        for gone in [2, 1] {
            let handles = [0, 1, 2].map(|value| list.post(alike, value));
            (gone..3).rev().for_each(|at| assert_eq!(list.cancel(handles[at]), Ok(at)));
            for value in [7, 8] {
                list.post(alike, value);
            }
            let order: Vec<_> = list.iter_in_order().map(|(_, _, value)| value).collect();
            let taken: Vec<_> =
                std::iter::from_fn(|| list.take_match(Tag(3), SourceId(0))).collect();
            assert_eq!(taken, (0..gone).chain([7, 8]).collect::<Vec<_>>());
            assert_eq!((order, list.sharing, list.len()), (taken, 0, 0));
        }
    }

    #[test]
    fn a_missed_message_is_searched_again_after_a_receive_is_indexed() {
        let mut list = long_and_calm();
        assert_eq!(list.take_match(LAST, SourceId(0)), None);
        (0..=LANES as u64).for_each(|number| post_exact(&mut list, Tag(LAST.0 - number)));
        assert_eq!((list.short.lanes.len(), list.indexed), (0, 100 + LANES + 1));
        assert_eq!(list.take_match(LAST, SourceId(0)), Some(LAST.0));
        assert_eq!(list.take_match(LAST, SourceId(0)), None);
        post_exact(&mut list, LAST);
        assert_eq!(list.take_match(LAST, SourceId(0)), Some(LAST.0));
    }

    #[test]
    fn an_older_receive_is_matched_first_wherever_it_is() {
        let mut list = long_and_calm();
        let first = list.post(Pattern::new(Tag(0), TagMask::ANY), 1000);
        assert_eq!(list.short.lanes.len(), 1);
        assert_eq!(list.take_match(Tag(7), SourceId(0)), Some(7));
        assert_eq!(list.first_match(Tag(7), SourceId(0)), Some(first));
        post_exact(&mut list, Tag(7));
        assert_eq!(list.take_match(Tag(7), SourceId(0)), Some(1000));
        assert_eq!(list.take_match(Tag(7), SourceId(0)), Some(7));
        assert_eq!(list.take_match(Tag(7), SourceId(0)), None);
    }
}
