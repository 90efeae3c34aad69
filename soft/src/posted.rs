//! The list of posted receives.

use crate::class::{Envelope, Shape, Work};
#[cfg(test)]
use crate::class::{InChain, Lookup};
use crate::link::{self, Link, Links, NIL};
use crate::receives::{Classes, Found, Order, Receive, Receives, SHORT, Word};
use crate::short::{LANES, ShortPosted};
use crate::slab::{PostedHandle, StaleHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag, TagMask};

/// See [`PostedList::patience`].
const PATIENCE: u32 = 64;
/// Most receives that share lanes with others: what is moved at once if the list grows beyond its lanes.
const BEHIND_MAX: usize = 128;
/// A receive is taken soon if fewer than this many sequence numbers were given out since its own: that of a
/// third of the lanes.
const SOON: u64 = LANES as u64 / 3 * Order::STEP;

/// Posted receives: first posted, first matched.
///
/// A short list is searched as a whole. One that outgrows that is indexed, and so is what comes then, until
/// the list is empty or receives are taken again soon after they were posted: then it goes on as a short
/// list behind the indexed one, so that what is posted long in advance costs little more than a look.
///
/// `T` is what the caller wants to know a receive by. Entries are indexed per *mask class* (which
/// bits of the tag are looked at, and whether the source is): see the crate's opening for the
/// costs. Allocates only when it grows; never gives memory back before it is dropped.
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
    /// The youngest receives, each younger than all in the classes.
    short: ShortPosted,
    /// The slot that each lane of the short list holds, [`NIL`] before its first use. Receives that were posted
    /// one after the other and are alike share a lane: it holds the oldest, from which there is a chain to the
    /// others.
    held: [u32; LANES],
    /// Receives that share a lane with an older one.
    behind: usize,
    classes: Classes,
    /// Receives in the classes.
    indexed: usize,
    /// The most of them since there were none.
    most: usize,
    /// A message that none of them accepts, if there is one: the next is likely to be like it.
    missed: Option<Envelope>,
    /// Receives are to be taken soon after they were posted this many times before they go to the lanes again.
    /// The lanes were full before, so they would be again: windows of receives come one like the other,
    /// and moving each from the lanes into the classes would be paid every time.
    patience: u32,
    next_sequence: u64,
    work: Work,
}

impl<T: Copy> PostedList<T> {
    /// An empty list. The seed keeps senders from choosing tags that the hash is bad at: take it
    /// from a source of randomness, or from a simulator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        PostedList {
            receives: Receives::new(),
            short: ShortPosted::new(),
            held: [NIL; LANES],
            behind: 0,
            classes: Classes::new(),
            indexed: 0,
            most: 0,
            missed: None,
            patience: 0,
            next_sequence: 0,
            work: Work::new(seed),
        }
    }

    /// Number of receives.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexed + self.short.lanes.len() + self.behind
    }

    /// Whether there is no receive.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indexed == 0 && self.short.lanes.is_empty()
    }

    /// Adds a receive behind all others. Amortised constant.
    ///
    /// # Panics
    /// If the list holds 2^30 receives already, which takes more than 32 GiB.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, value: T) -> PostedHandle {
        let shape = Shape::of(&pattern);
        let source = pattern.source().map_or(0, |source| source.0);
        let envelope = Envelope { tag: pattern.tag().0, source };
        if self.patience != 0 {
            return self.post_indexed(envelope, shape, value);
        }
        if self.short.may_be_like_latest(envelope) || self.short.lanes.is_full() {
            return self.post_otherwise(envelope, shape, value);
        }
        self.post_short(envelope, shape, value)
    }

    /// Adds a receive that is perhaps like the youngest one, or for which there is no lane.
    #[inline(never)]
    fn post_otherwise(&mut self, envelope: Envelope, shape: Shape, value: T) -> PostedHandle {
        match self.short.lane_of_like(envelope, shape) {
            Some(lane) if self.behind < BEHIND_MAX => self.post_behind(lane, value),
            None if !self.short.lanes.is_full() => self.post_short(envelope, shape, value),
            _ => self.post_indexed(envelope, shape, value),
        }
    }

    #[inline]
    fn next_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += Order::STEP;
        sequence
    }

    #[inline]
    fn post_short(&mut self, envelope: Envelope, shape: Shape, value: T) -> PostedHandle {
        let sequence = self.next_sequence();
        let lane = self.short.add(envelope, shape, sequence);
        let mut entry = self.held[lane];
        if entry == NIL {
            entry = self.hold(lane, value);
        }
        self.receives.entry_mut(entry).value = value;
        PostedHandle(self.receives.occupy(entry))
    }

    /// Gives a lane a slot.
    #[cold]
    #[inline(never)]
    fn hold(&mut self, lane: usize, value: T) -> u32 {
        let (order, tag) = (Order::new(0, SHORT), Word(lane as u64));
        let entry = self.receives.hold(Receive { order, tag, value, link: Link::alone(NIL) });
        self.receives.set_prev(entry, entry);
        self.held[lane] = entry;
        entry
    }

    /// Adds a receive like the youngest one, to the same lane.
    #[inline]
    fn post_behind(&mut self, lane: usize, value: T) -> PostedHandle {
        let (order, tag) = (Order::new(self.next_sequence(), SHORT), Word(lane as u64));
        let oldest = self.held[lane];
        let prev = self.receives.prev(oldest);
        let receive = |_| Receive { order, tag, value, link: Link { prev, next: NIL } };
        let handle = self.receives.insert(NIL, receive);
        link::append_linked(&mut self.receives, oldest, handle.index, prev);
        self.behind += 1;
        PostedHandle(handle)
    }

    #[inline(never)]
    fn post_indexed(&mut self, envelope: Envelope, shape: Shape, value: T) -> PostedHandle {
        let sequence = self.next_sequence();
        if !self.short.lanes.is_empty() {
            self.index_all();
            self.patience = PATIENCE;
        }
        let class = self.classes.number_of(shape, &mut self.work);
        let Envelope { tag, source } = envelope;
        let (order, tag) = (Order::new(sequence, class), Word(tag));
        let receive = |entry| Receive { order, tag, value, link: Link::alone(entry) };
        let handle = self.receives.insert(source, receive);
        let PostedList { receives, classes, work, .. } = self;
        classes.add(receives, handle.index, envelope, class, shape, work);
        self.missed = None;
        self.indexed += 1;
        self.most = self.most.max(self.indexed);
        PostedHandle(handle)
    }

    /// The last indexed receive is gone: decides how the next ones are kept.
    #[cold]
    #[inline(never)]
    fn emptied(&mut self) {
        self.patience = if self.most > LANES { PATIENCE } else { 0 };
        self.most = 0;
    }

    /// An indexed receive was among the youngest when it was taken.
    #[cold]
    #[inline(never)]
    fn taken_soon(&mut self) {
        self.patience = self.patience.saturating_sub(1);
    }

    /// The list is short no more.
    #[cold]
    #[inline(never)]
    fn index_all(&mut self) {
        let PostedList { receives, short, held, classes, work, .. } = self;
        for lane in short.lanes.in_order() {
            let (envelope, shape) = (short.envelope(lane), short.shape(lane));
            let class = classes.number_of(shape, work);
            let mut sequence = short.lanes.sequence(lane);
            let mut entry = std::mem::replace(&mut held[lane], NIL);
            loop {
                let receive = receives.entry_mut(entry);
                let next = receive.link.next;
                receive.order = Order::new(sequence, class);
                receive.tag = Word(envelope.tag);
                receive.link = Link::alone(entry);
                receives.set_extra(entry, envelope.source);
                classes.add(receives, entry, envelope, class, shape, work);
                self.indexed += 1;
                if next == NIL {
                    break;
                }
                (entry, sequence) = (next, receives.entry(next).order.sequence());
            }
        }
        short.lanes.clear();
        self.behind = 0;
    }

    /// Removes the first posted receive that accepts a message of this envelope. One probe for
    /// each class in use.
    #[inline]
    pub fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<T> {
        let message = Envelope { tag: tag.0, source: source.0 };
        if !self.classes.is_empty() && self.missed != Some(message) {
            let taken = if self.classes.are_several() {
                self.take_of_several(message)
            } else {
                self.take_of_one(message)
            };
            if taken.is_some() {
                return taken;
            }
            self.missed = Some(message);
        }
        let lane = self.short.first(message)?;
        self.work.inspected += 1;
        Some(self.remove_oldest(lane))
    }

    /// Removes the oldest receive of a lane. What the lane has as its sequence number stays good: no receive of
    /// another lane came between those of this one.
    #[inline]
    fn remove_oldest(&mut self, lane: usize) -> T {
        let entry = self.held[lane];
        let Receive { value, link: Link { next, .. }, .. } = *self.receives.entry(entry);
        if next == NIL {
            self.short.lanes.remove(lane);
            if !self.receives.vacate(entry) {
                self.held[lane] = NIL;
            }
            return value;
        }
        link::remove_first(&mut self.receives, entry);
        self.held[lane] = next;
        self.behind -= 1;
        self.receives.remove(entry).value
    }

    #[inline(never)]
    fn take_of_one(&mut self, message: Envelope) -> Option<T> {
        let entry = self.classes.take_of_one(&mut self.receives, message, &mut self.work);
        (entry != NIL).then(|| self.remove_matched(entry))
    }

    #[inline(never)]
    fn take_of_several(&mut self, message: Envelope) -> Option<T> {
        let entry = self.classes.take_of_several(&mut self.receives, message, &mut self.work);
        (entry != NIL).then(|| self.remove_matched(entry))
    }

    /// The same, of one that a message has matched.
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

    /// The first posted receive that accepts a message of this envelope; it stays. One probe for
    /// each class in use.
    #[inline]
    #[must_use]
    pub fn first_match(&self, tag: Tag, source: SourceId) -> Option<PostedHandle> {
        let message = Envelope { tag: tag.0, source: source.0 };
        let entry = self.first_indexed(message).or_else(|| self.first_short(message))?;
        Some(PostedHandle(self.receives.handle(entry)))
    }

    #[inline(never)]
    fn first_indexed(&self, message: Envelope) -> Option<u32> {
        match self.classes.find(&self.receives, message, &mut 0) {
            Found::NONE => None,
            found => Some(self.classes.entry_of(found)),
        }
    }

    #[inline]
    fn first_short(&self, message: Envelope) -> Option<u32> {
        self.short.first(message).map(|lane| self.held[lane])
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

    /// Removes all receives that name this source, in post order; those from any source stay.
    ///
    /// For the death of a peer: linear in the most receives that the list ever held.
    pub fn take_source(&mut self, source: SourceId) -> Vec<T> {
        let mut doomed: Vec<_> = (self.receives.indices())
            .filter(|&entry| self.pattern(entry).source() == Some(source))
            .collect();
        doomed.sort_unstable_by_key(|&entry| self.sequence(entry));
        doomed.into_iter().map(|entry| self.remove(entry)).collect()
    }

    /// All receives in post order. Sorts: for reports and tests.
    pub fn iter_in_order(&self) -> impl Iterator<Item = (PostedHandle, Pattern, T)> {
        let mut order: Vec<u32> = self.receives.indices().collect();
        order.sort_unstable_by_key(|&entry| self.sequence(entry));
        order.into_iter().map(|entry| {
            let handle = PostedHandle(self.receives.handle(entry));
            (handle, self.pattern(entry), self.receives.entry(entry).value)
        })
    }

    /// What the list holds and has cost so far.
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

    /// What a search for a message comes to in each class in use.
    #[cfg(test)]
    pub(crate) fn lookups(&self, tag: Tag, source: SourceId) -> Vec<(usize, Lookup)> {
        let message = Envelope { tag: tag.0, source: source.0 };
        let classes = self.classes.known().iter().enumerate();
        let in_use = classes.filter(|(_, class)| !class.is_empty());
        in_use.map(|(at, class)| (at, class.lookup(&self.receives, message).0)).collect()
    }

    /// Where a receive is; `None` if it is gone, or no class has an index for it.
    #[cfg(test)]
    pub(crate) fn standing(&self, handle: PostedHandle) -> Option<(usize, Lookup, InChain)> {
        let entry = self.receives.resolve(handle.0)?;
        let at = self.receives.entry(entry).order.class() as usize;
        let (lookup, in_chain) = self.classes.known().get(at)?.standing(&self.receives, entry);
        Some((at, lookup, in_chain))
    }

    #[inline]
    fn remove(&mut self, entry: u32) -> T {
        if let Some(lane) = self.lane(entry) {
            let oldest = self.held[lane];
            if entry == oldest {
                return self.remove_oldest(lane);
            }
            link::remove_later(&mut self.receives, oldest, entry);
            self.behind -= 1;
            return self.receives.remove(entry).value;
        }
        self.classes.remove(&mut self.receives, entry, &mut self.work);
        self.remove_indexed(entry)
    }

    /// The lane that a receive is in, if the list is short.
    #[inline]
    fn lane(&self, entry: u32) -> Option<usize> {
        let receive = self.receives.entry(entry);
        #[expect(clippy::cast_possible_truncation, reason = "a lane, as it was put in")]
        (receive.order.class() == SHORT).then_some(receive.tag.0 as usize)
    }

    fn sequence(&self, entry: u32) -> u64 {
        match self.lane(entry) {
            Some(lane) if entry == self.held[lane] => self.short.lanes.sequence(lane),
            _ => self.receives.entry(entry).order.sequence(),
        }
    }

    fn pattern(&self, entry: u32) -> Pattern {
        let (tag, source, shape) = if let Some(lane) = self.lane(entry) {
            let Envelope { tag, source } = self.short.envelope(lane);
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

    const LAST: Tag = Tag(u64::MAX);

    fn post_exact(list: &mut PostedList<u64>, tag: Tag) {
        list.post(Pattern::new(tag, TagMask::EXACT), tag.0);
    }

    fn post_and_take(list: &mut PostedList<u64>, tag: Tag) {
        post_exact(list, tag);
        assert_eq!(list.take_match(tag, SourceId(0)), Some(tag.0));
    }

    /// A list that is long, and whose youngest receives are taken soon.
    fn long_and_calm() -> PostedList<u64> {
        let mut list = PostedList::new(1);
        (0..100).for_each(|tag| post_exact(&mut list, Tag(tag)));
        assert!(list.short.lanes.is_empty());
        (0..PATIENCE).for_each(|_| post_and_take(&mut list, LAST));
        list
    }

    #[test]
    fn what_is_taken_soon_is_kept_short_behind_a_long_list() {
        let mut list = long_and_calm();
        post_exact(&mut list, LAST);
        assert_eq!((list.short.lanes.len(), list.indexed), (1, 100));
        assert_eq!(list.take_match(Tag(50), SourceId(0)), Some(50));
        assert_eq!(list.take_match(LAST, SourceId(0)), Some(LAST.0));
        assert_eq!((list.short.lanes.len(), list.indexed), (0, 99));
    }

    #[test]
    fn windows_that_outgrow_the_lanes_are_indexed_from_their_first_receive_on() {
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
    fn receives_that_are_alike_share_a_lane_until_there_are_many() {
        let alike = Pattern::new(Tag(3), TagMask::EXACT);
        let post = |list: &mut PostedList<u64>, value| list.post(alike, value);
        let mut list = PostedList::new(1);
        let handles: Vec<_> = (0..5).map(|value| post(&mut list, value)).collect();
        post_exact(&mut list, Tag(9));
        post(&mut list, 5);
        assert_eq!((list.short.lanes.len(), list.behind, list.len()), (3, 4, 7));
        // Of five that share a lane: one in the middle, the last, the first.
        for gone in [2, 4, 0] {
            assert_eq!(list.cancel(handles[gone]), Ok(gone as u64));
            assert!(list.cancel(handles[gone]).is_err());
        }
        let order: Vec<_> = list.iter_in_order().map(|(_, _, value)| value).collect();
        assert_eq!(order, [1, 3, 9, 5]);
        for value in [1, 3, 5] {
            assert_eq!(list.take_match(Tag(3), SourceId(0)), Some(value));
        }
        assert_eq!((list.short.lanes.len(), list.behind, list.len()), (1, 0, 1));
        for value in 0..=BEHIND_MAX as u64 {
            post(&mut list, value);
        }
        assert_eq!((list.short.lanes.len(), list.behind), (2, BEHIND_MAX));
        post(&mut list, 1000);
        assert_eq!((list.short.lanes.len(), list.behind), (0, 0));
        assert_eq!((list.indexed, list.len()), (BEHIND_MAX + 3, BEHIND_MAX + 3));
        let order: Vec<_> = list.iter_in_order().map(|(_, _, value)| value).collect();
        let expected = [9].into_iter().chain(0..=BEHIND_MAX as u64).chain([1000]);
        assert!(order.into_iter().eq(expected));
    }

    #[test]
    fn a_message_that_nothing_indexed_accepted_is_looked_for_again_once_there_is_more() {
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
