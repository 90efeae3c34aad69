//! The list of unexpected messages: those that arrived before their receives.

use crate::class::{Keyed, ListWork, MaskClass, Shape, TagSource, key_of};
use crate::hash;
use crate::index::CellPlace;
use crate::link::{self, ChainLink, Links, NIL};
use crate::short::{LANES, LaneSet, Lanes};
use crate::slab::{Slab, StaleHandle, UnexpectedHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag};

/// The most classes with an index at a time.
const MAX_CLASSES: usize = 32;
/// Up to this many messages of an indexed list are searched one by one rather than through an
/// index.
const FEW: usize = 4;
/// The number of updates that a class may cost since its last search, in addition to the cost of
/// building it again.
const PATIENCE: usize = 64;

/// A message. Its source is the `extra` word of the slot.
#[derive(Clone, Copy, Debug)]
struct UnexpectedMessage<T> {
    tag: u64,
    value: T,
    /// The neighbours in order of arrival. In a short list, `prev` is the lane.
    arrival: ChainLink,
}

type Messages<T> = Slab<UnexpectedMessage<T>>;

const _: () = assert!(Messages::<u64>::SLOT_BYTES == 32);

/// The chain in order of arrival.
impl<T: Copy> Links for Messages<T> {
    #[inline]
    fn link(&self, entry: u32) -> &ChainLink {
        &self.entry(entry).arrival
    }

    #[inline]
    fn link_mut(&mut self, entry: u32) -> &mut ChainLink {
        &mut self.entry_mut(entry).arrival
    }
}

/// A class that receives have searched, and the chains of its keys, by slot.
#[derive(Clone, Debug)]
struct SearchedClass {
    class: MaskClass,
    links: Vec<ChainLink>,
    /// The number of insertions and removals since the last search of the class.
    upkeep: usize,
}

/// The messages with the chains of one class.
struct ClassView<'a, T> {
    messages: &'a Messages<T>,
    links: &'a mut Vec<ChainLink>,
}

impl<T: Copy> Links for ClassView<'_, T> {
    #[inline]
    fn link(&self, entry: u32) -> &ChainLink {
        &self.links[entry as usize]
    }

    #[inline]
    fn link_mut(&mut self, entry: u32) -> &mut ChainLink {
        &mut self.links[entry as usize]
    }
}

impl<T: Copy> Keyed for ClassView<'_, T> {
    #[inline]
    fn envelope(&self, entry: u32) -> TagSource {
        envelope(self.messages, entry)
    }
}

#[inline]
fn envelope<T: Copy>(messages: &Messages<T>, entry: u32) -> TagSource {
    TagSource { tag: messages.entry(entry).tag, source: messages.extra(entry) }
}

/// Unexpected messages: first arrived, first matched.
///
/// A list is short at first: its messages are in lanes, which are compared all at once. A list that
/// outgrows its lanes is indexed until it is empty again.
///
/// `T` is the caller's value for a message. A search of an indexed list uses the index of its
/// pattern's class. The index is built at the first search with a pattern of the class, and updated
/// with every new and removed message. It is dropped when the updates since its last search have
/// cost more than building it again would. The list allocates only when it grows or builds an
/// index.
///
/// ```
/// # mod tagmatch { pub use tagmatch_soft as soft; }
/// use tagmatch::soft::{Pattern, SourceId, Tag, TagMask, UnexpectedList};
///
/// let mut unexpected = UnexpectedList::new(0x5eed);
/// unexpected.push(Tag(0x17), SourceId(0), "first");
/// unexpected.push(Tag(0x27), SourceId(1), "second");
/// let low_digit = Pattern::new(Tag(7), TagMask(0xf));
/// assert_eq!(unexpected.take(&low_digit.from_source(SourceId(1))), Some("second"));
/// assert_eq!(unexpected.take(&low_digit), Some("first"));
/// assert_eq!(unexpected.take(&low_digit), None);
/// ```
#[derive(Clone, Debug)]
pub struct UnexpectedList<T: Copy> {
    messages: Messages<T>,
    /// All messages of a short list. An indexed list has none here: they are in the chain of
    /// arrivals and in the classes.
    short: Lanes,
    /// The slot of each lane's message, [`NIL`] before its first use.
    slots: [u32; LANES],
    /// The oldest message of an indexed list.
    first: u32,
    /// The number of messages of an indexed list.
    indexed: usize,
    next_sequence: u64,
    classes: Vec<SearchedClass>,
    work: ListWork,
    builds: u64,
    retirements: u64,
}

/// The result of a search.
#[derive(Clone, Copy)]
struct FoundMessage {
    /// [`NIL`] if there is none.
    entry: u32,
    /// The class whose index was searched, or [`NO_CLASS`].
    class: usize,
    /// The cell of that index.
    at: CellPlace,
}

const NO_CLASS: usize = usize::MAX;

impl FoundMessage {
    #[inline]
    fn unindexed(entry: u32) -> Self {
        FoundMessage { entry, class: NO_CLASS, at: CellPlace::default() }
    }
}

impl<T: Copy> UnexpectedList<T> {
    /// An empty list. The seed prevents senders from choosing tags with equal hashes: take it from
    /// a source of randomness, or from a simulator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut work = ListWork::new(seed);
        let class = MaskClass::new(Shape::FULL, &mut work.seeds);
        UnexpectedList {
            messages: Slab::new(),
            short: Lanes::new(),
            slots: [NIL; LANES],
            first: NIL,
            indexed: 0,
            next_sequence: 0,
            classes: vec![SearchedClass { class, links: Vec::new(), upkeep: 0 }],
            work,
            builds: 0,
            retirements: 0,
        }
    }

    /// Number of messages.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexed + self.short.len()
    }

    /// Whether there is no message.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indexed == 0 && self.short.is_empty()
    }

    /// Adds a message after all others. Amortised constant for each class with an index.
    ///
    /// # Panics
    /// If the list holds 2^30 messages already, which takes more than 32 GiB.
    #[inline]
    pub fn push(&mut self, tag: Tag, source: SourceId, value: T) -> UnexpectedHandle {
        let message = TagSource { tag: tag.0, source: source.0 };
        if self.indexed != 0 || self.short.is_full() {
            return self.push_indexed(message, value);
        }
        let lane = self.short.add(message, self.next_sequence);
        self.next_sequence += 1;
        let mut entry = self.slots[lane];
        if entry == NIL {
            entry = self.reserve_slot(lane, value);
        }
        UnexpectedHandle(self.messages.occupy(entry, |message| message.value = value))
    }

    /// Reserves a slot for a lane.
    #[cold]
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "a lane")]
    fn reserve_slot(&mut self, lane: usize, value: T) -> u32 {
        let arrival = ChainLink { prev: lane as u32, next: NIL };
        let entry = self.messages.reserve(UnexpectedMessage { tag: 0, value, arrival });
        self.slots[lane] = entry;
        entry
    }

    #[inline(never)]
    fn push_indexed(&mut self, message: TagSource, value: T) -> UnexpectedHandle {
        if !self.short.is_empty() {
            self.index_all();
        }
        let TagSource { tag, source } = message;
        let waiting = |entry| UnexpectedMessage { tag, value, arrival: ChainLink::alone(entry) };
        let handle = self.messages.insert(source, waiting);
        self.index_one(handle.index, message);
        self.drop_unused_classes();
        UnexpectedHandle(handle)
    }

    /// Moves all messages from the lanes into the classes.
    #[cold]
    #[inline(never)]
    fn index_all(&mut self) {
        for lane in self.short.in_order() {
            let message = self.short.envelope(lane);
            let entry = std::mem::replace(&mut self.slots[lane], NIL);
            let waiting = self.messages.entry_mut(entry);
            waiting.tag = message.tag;
            waiting.arrival = ChainLink::alone(entry);
            self.messages.set_extra(entry, message.source);
            self.index_one(entry, message);
        }
        self.short.clear();
    }

    #[inline]
    fn index_one(&mut self, entry: u32, message: TagSource) {
        if self.first == NIL {
            self.first = entry;
        } else {
            link::append(&mut self.messages, self.first, entry);
        }
        for class in 0..self.classes.len() {
            self.insert_into(class, entry, message);
        }
        self.indexed += 1;
    }

    /// The oldest message that the pattern accepts, which stays. Constant once the pattern's class
    /// has an index.
    #[inline]
    pub fn find(&mut self, pattern: &Pattern) -> Option<UnexpectedHandle> {
        let entry = if self.indexed == 0 {
            let found = self.find_short(pattern);
            if found.is_empty() {
                return None;
            }
            self.slots[self.short.oldest(found)]
        } else {
            self.search(pattern).entry
        };
        (entry != NIL).then(|| UnexpectedHandle(self.messages.handle(entry)))
    }

    /// Removes the oldest message that the pattern accepts. Constant for each class with an index,
    /// once the pattern's own has one.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<T> {
        if self.indexed != 0 {
            return self.take_indexed(pattern);
        }
        let found = self.find_short(pattern);
        if found.is_empty() {
            return None;
        }
        self.work.inspected += 1;
        Some(self.remove_short(self.short.oldest(found)))
    }

    #[inline]
    fn find_short(&self, pattern: &Pattern) -> LaneSet {
        let (wanted, shape) = key_of(pattern);
        self.short.accepted_by(wanted, shape)
    }

    #[inline]
    fn remove_short(&mut self, lane: usize) -> T {
        self.short.remove(lane);
        let entry = self.slots[lane];
        if !self.messages.vacate(entry) {
            self.slots[lane] = NIL;
        }
        self.messages.entry(entry).value
    }

    #[inline(never)]
    fn take_indexed(&mut self, pattern: &Pattern) -> Option<T> {
        let found = self.search(pattern);
        (found.entry != NIL).then(|| self.unlink(found))
    }

    /// Removes one message. Constant for each class with an index.
    ///
    /// # Errors
    /// [`StaleHandle`] if it was taken or removed already; nothing changes.
    #[inline]
    pub fn remove(&mut self, handle: UnexpectedHandle) -> Result<T, StaleHandle> {
        let entry = self.messages.resolve(handle.0).ok_or(StaleHandle)?;
        Ok(match self.lane(entry) {
            Some(lane) => self.remove_short(lane),
            None => self.unlink(FoundMessage::unindexed(entry)),
        })
    }

    /// A message's tag, source and value, if it is still here. Constant.
    #[must_use]
    pub fn get(&self, handle: UnexpectedHandle) -> Option<(Tag, SourceId, T)> {
        let entry = self.messages.resolve(handle.0)?;
        Some(self.message(entry))
    }

    /// All messages in order of arrival.
    pub fn iter_in_order(&self) -> impl Iterator<Item = (UnexpectedHandle, Tag, SourceId, T)> {
        let short = self.short.in_order().into_iter().map(|lane| self.slots[lane]);
        short.chain(self.in_order()).map(|entry| {
            let (tag, source, value) = self.message(entry);
            (UnexpectedHandle(self.messages.handle(entry)), tag, source, value)
        })
    }

    /// The contents of the list, and the work that it has done so far.
    #[must_use]
    pub fn stats(&self) -> MatchStats {
        let probes = self.classes.iter().map(|asked| asked.class.longest_probe());
        let of_class = |asked: &SearchedClass| {
            asked.class.bytes() + asked.links.capacity() * size_of::<ChainLink>()
        };
        MatchStats {
            entries: self.len(),
            bytes: self.messages.bytes() + self.classes.iter().map(of_class).sum::<usize>(),
            classes: self.classes.len(),
            scanned_entries: 0,
            scans: self.work.scans,
            inspected: self.work.inspected,
            longest_probe: probes.max().unwrap_or(0),
            growths: self.work.growths,
            reseeds: self.work.reseeds,
            builds: self.builds,
            retirements: self.retirements,
        }
    }

    /// The lane of a message; `None` if the list is indexed.
    #[inline]
    fn lane(&self, entry: u32) -> Option<usize> {
        (self.indexed == 0).then(|| self.messages.entry(entry).arrival.prev as usize)
    }

    fn message(&self, entry: u32) -> (Tag, SourceId, T) {
        let TagSource { tag, source } = match self.lane(entry) {
            Some(lane) => self.short.envelope(lane),
            None => envelope(&self.messages, entry),
        };
        (Tag(tag), SourceId(source), self.messages.entry(entry).value)
    }

    /// All messages of an indexed list, in order of arrival.
    fn in_order(&self) -> impl Iterator<Item = u32> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let entry = next;
            (entry != NIL).then(|| {
                next = self.messages.next(entry);
                entry
            })
        })
    }

    /// Searches an indexed list.
    #[inline]
    fn search(&mut self, pattern: &Pattern) -> FoundMessage {
        let (wanted, shape) = key_of(pattern);
        if shape == Shape::ANY {
            return FoundMessage::unindexed(self.first);
        }
        if self.indexed <= FEW {
            return self.scan(shape, wanted);
        }
        let class = match self.classes.iter().position(|asked| asked.class.shape == shape) {
            Some(class) => class,
            None => match self.build(shape) {
                Some(class) => class,
                None => return self.scan(shape, wanted),
            },
        };
        let index = &mut self.classes[class];
        index.upkeep = 0;
        let view = ClassView { messages: &self.messages, links: &mut index.links };
        let probe = index.class.find(&view, wanted, hash::spread(wanted.source));
        self.work.inspected += probe.steps;
        FoundMessage { entry: probe.entry, class, at: probe.at }
    }

    #[cold]
    #[inline(never)]
    fn scan(&mut self, shape: Shape, wanted: TagSource) -> FoundMessage {
        self.work.scans += 1;
        let mut entry = self.first;
        while entry != NIL {
            self.work.inspected += 1;
            if shape.same(envelope(&self.messages, entry), wanted) {
                break;
            }
            entry = self.messages.next(entry);
        }
        FoundMessage::unindexed(entry)
    }

    /// Builds the index of a class; `None` if there are [`MAX_CLASSES`] already.
    #[cold]
    #[inline(never)]
    fn build(&mut self, shape: Shape) -> Option<usize> {
        let class = self.classes.len();
        if class == MAX_CLASSES {
            return None;
        }
        let order: Vec<u32> = self.in_order().collect();
        self.classes.push(SearchedClass {
            class: MaskClass::new(shape, &mut self.work.seeds),
            links: Vec::new(),
            upkeep: 0,
        });
        for entry in order {
            let envelope = envelope(&self.messages, entry);
            self.insert_into(class, entry, envelope);
        }
        self.builds += 1;
        Some(class)
    }

    #[inline]
    fn insert_into(&mut self, class: usize, entry: u32, envelope: TagSource) {
        let SearchedClass { class, links, upkeep } = &mut self.classes[class];
        *upkeep += 1;
        if links.len() <= entry as usize {
            make_room(links, entry as usize);
        }
        links[entry as usize] = ChainLink::alone(entry);
        let mut view = ClassView { messages: &self.messages, links };
        class.insert(&mut view, entry, envelope, &mut self.work);
    }

    #[inline]
    fn unlink(&mut self, found: FoundMessage) -> T {
        let entry = found.entry;
        for (class, asked) in self.classes.iter_mut().enumerate() {
            asked.upkeep += 1;
            let mut view = ClassView { messages: &self.messages, links: &mut asked.links };
            if class == found.class {
                asked.class.remove_found(&mut view, found.at, entry);
            } else {
                asked.class.remove(&mut view, entry, &mut self.work);
            }
        }
        if entry == self.first {
            self.first = link::remove_first(&mut self.messages, entry);
        } else {
            link::remove_later(&mut self.messages, self.first, entry);
        }
        self.indexed -= 1;
        let value = self.messages.remove(entry).value;
        self.drop_unused_classes();
        value
    }

    #[inline]
    fn drop_unused_classes(&mut self) {
        let worth = self.indexed + PATIENCE;
        if self.classes.iter().any(|asked| asked.upkeep > worth) {
            let before = self.classes.len();
            self.classes.retain(|asked| asked.upkeep <= worth);
            self.retirements += (before - self.classes.len()) as u64;
        }
    }
}

/// Grows the links of a class so that they include an entry, with a quarter of spare room.
#[cold]
#[inline(never)]
fn make_room(links: &mut Vec<ChainLink>, entry: usize) {
    let len = entry + entry / 4 + LANES;
    links.reserve_exact(len - links.len());
    links.resize(len, ChainLink::alone(NIL));
}

/// Situations that the tests of long lists count.
#[cfg(test)]
mod situations {
    use super::*;
    use crate::class::{InChain, Lookup};

    impl<T: Copy> UnexpectedList<T> {
        /// The result of a search for a pattern in its class; `None` if the class has no index.
        pub(crate) fn lookup(&self, pattern: &Pattern) -> Option<Lookup> {
            let (wanted, shape) = key_of(pattern);
            let index = self.classes.iter().find(|index| index.class.shape == shape)?;
            let view = ClassView { messages: &self.messages, links: &mut index.links.clone() };
            Some(index.class.lookup(&view, wanted).0)
        }

        /// The places of a message in each class with an index.
        pub(crate) fn standings(&self, handle: UnexpectedHandle) -> Vec<(Lookup, InChain)> {
            let Some(entry) = self.messages.resolve(handle.0) else { return Vec::new() };
            let standing = |index: &SearchedClass| {
                let view = ClassView { messages: &self.messages, links: &mut index.links.clone() };
                index.class.standing(&view, entry)
            };
            self.classes.iter().filter(|_| self.indexed != 0).map(standing).collect()
        }
    }
}
