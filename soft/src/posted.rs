//! The list of posted receives.

use crate::class::{Envelope, Shape, Work};
use crate::link::{Link, NIL};
use crate::receives::{Classes, Found, Order, Receive, Receives, SHORT, Word};
use crate::short::{LANES, ShortPosted};
use crate::slab::{PostedHandle, StaleHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag, TagMask};

/// Posted receives: first posted, first matched.
///
/// A short list is searched as a whole; one that has grown beyond that is indexed until it is empty
/// again, and from its first receive on if it was long the last time.
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
    receives: Receives<T>,
    /// All receives, or none: then they are in the classes.
    short: ShortPosted,
    /// The slot that each lane of the short list holds, [`NIL`] before its first use.
    held: [u32; LANES],
    classes: Classes,
    /// Receives in the classes.
    indexed: usize,
    /// The most of them since there were none.
    most: usize,
    /// The list was long before it was empty last, so it will be again: windows of receives come one
    /// like the other, and moving each from the lanes into the classes would be paid every time.
    is_mostly_long: bool,
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
            classes: Classes::new(),
            indexed: 0,
            most: 0,
            is_mostly_long: false,
            next_sequence: 0,
            work: Work::new(seed),
        }
    }

    /// Number of receives.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexed + self.short.lanes.len()
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
    #[inline]
    pub fn post(&mut self, pattern: Pattern, value: T) -> PostedHandle {
        let shape = Shape::of(&pattern);
        let source = pattern.source().map_or(0, |source| source.0);
        let envelope = Envelope { tag: pattern.tag().0, source };
        if self.classes.is_empty() && !self.short.lanes.is_full() && !self.is_mostly_long {
            self.post_short(envelope, shape, value)
        } else {
            self.post_indexed(envelope, shape, value)
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
    #[expect(clippy::cast_possible_truncation, reason = "a lane")]
    fn hold(&mut self, lane: usize, value: T) -> u32 {
        let link = Link { prev: lane as u32, next: NIL };
        let order = Order::new(0, SHORT);
        let entry = self.receives.hold(Receive { order, tag: Word(0), value, link });
        self.held[lane] = entry;
        entry
    }

    #[inline(never)]
    fn post_indexed(&mut self, envelope: Envelope, shape: Shape, value: T) -> PostedHandle {
        let sequence = self.next_sequence();
        if !self.short.lanes.is_empty() {
            self.index_all();
        }
        let class = self.classes.number_of(shape, &mut self.work);
        let Envelope { tag, source } = envelope;
        let (order, tag) = (Order::new(sequence, class), Word(tag));
        let receive = |entry| Receive { order, tag, value, link: Link::alone(entry) };
        let handle = self.receives.insert(source, receive);
        let PostedList { receives, classes, work, .. } = self;
        classes.add(receives, handle.index, envelope, class, shape, work);
        self.indexed += 1;
        self.most = self.most.max(self.indexed);
        PostedHandle(handle)
    }

    /// The last indexed receive is gone: decides how the next ones are kept.
    #[cold]
    #[inline(never)]
    fn emptied(&mut self) {
        self.is_mostly_long = self.most > LANES;
        self.most = 0;
    }

    /// The list is short no more.
    #[cold]
    #[inline(never)]
    fn index_all(&mut self) {
        let PostedList { receives, short, held, classes, work, .. } = self;
        for lane in short.lanes.in_order() {
            let (envelope, shape) = (short.envelope(lane), short.shape(lane));
            let class = classes.number_of(shape, work);
            let entry = std::mem::replace(&mut held[lane], NIL);
            let receive = receives.entry_mut(entry);
            receive.order = Order::new(short.lanes.sequence(lane), class);
            receive.tag = Word(envelope.tag);
            receive.link = Link::alone(entry);
            receives.set_extra(entry, envelope.source);
            classes.add(receives, entry, envelope, class, shape, work);
            self.indexed += 1;
        }
        short.lanes.clear();
    }

    /// Removes the first posted receive that accepts a message of this envelope. One probe for
    /// each class in use.
    #[inline]
    pub fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<T> {
        let message = Envelope { tag: tag.0, source: source.0 };
        if !self.classes.is_empty() {
            return if self.classes.are_several() {
                self.take_of_several(message)
            } else {
                self.take_of_one(message)
            };
        }
        let found = self.short.find(message);
        if found.is_empty() {
            return None;
        }
        self.work.inspected += 1;
        Some(self.remove_short(self.short.lanes.oldest(found)))
    }

    #[inline]
    fn remove_short(&mut self, lane: usize) -> T {
        self.short.lanes.remove(lane);
        let entry = self.held[lane];
        if !self.receives.vacate(entry) {
            self.held[lane] = NIL;
        }
        self.receives.entry(entry).value
    }

    #[inline(never)]
    fn take_of_one(&mut self, message: Envelope) -> Option<T> {
        let entry = self.classes.take_of_one(&mut self.receives, message, &mut self.work);
        (entry != NIL).then(|| self.remove_indexed(entry))
    }

    #[inline(never)]
    fn take_of_several(&mut self, message: Envelope) -> Option<T> {
        let entry = self.classes.take_of_several(&mut self.receives, message, &mut self.work);
        (entry != NIL).then(|| self.remove_indexed(entry))
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
        let found = self.short.find(message);
        let entry = if found.is_empty() {
            self.first_indexed(message)?
        } else {
            self.held[self.short.lanes.oldest(found)]
        };
        Some(PostedHandle(self.receives.handle(entry)))
    }

    #[inline(never)]
    fn first_indexed(&self, message: Envelope) -> Option<u32> {
        match self.classes.find(&self.receives, message, &mut 0) {
            Found::NONE => None,
            found => Some(self.classes.entry_of(found)),
        }
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
            classes: self.classes.indexed() + self.short.shapes(),
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
            return self.remove_short(lane);
        }
        self.classes.remove(&mut self.receives, entry, &mut self.work);
        self.remove_indexed(entry)
    }

    /// The lane that a receive is in, if the list is short.
    #[inline]
    fn lane(&self, entry: u32) -> Option<usize> {
        let receive = self.receives.entry(entry);
        (receive.order.class() == SHORT).then_some(receive.link.prev as usize)
    }

    fn sequence(&self, entry: u32) -> u64 {
        match self.lane(entry) {
            Some(lane) => self.short.lanes.sequence(lane),
            None => self.receives.entry(entry).order.word(),
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
