//! The list of messages that came before their receives.

use crate::class::{Entries, Envelope, MaskClass, Shape, Work};
use crate::hash;
use crate::index::Place;
use crate::link::{self, Link, Links, NIL};
use crate::slab::{Slab, StaleHandle, UnexpectedHandle};
use crate::stats::MatchStats;
use crate::tag::{Pattern, SourceId, Tag};

/// Most classes that have an index at a time.
const MAX_CLASSES: usize = 32;
/// Up to this many messages are searched one by one rather than through an index.
const SHORT: usize = 4;
/// Upkeep that a class may cost since it was last asked, beyond what building it anew would.
const PATIENCE: usize = 64;

/// A message; its source is the slot's extra word.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    tag: u64,
    value: T,
}

const _: () = assert!(Slab::<Entry<u64>>::SLOT_BYTES == 24);

type Messages<T> = Slab<Entry<T>>;

/// A class that somebody asked for, and the chains of its keys, by slot.
#[derive(Clone, Debug)]
struct AskedClass {
    class: MaskClass,
    links: Vec<Link>,
    /// Insertions and removals since the class was last asked.
    upkeep: usize,
}

/// A class's view of the messages.
struct View<'a, T> {
    messages: &'a Messages<T>,
    links: &'a mut Vec<Link>,
}

impl<T: Copy> Links for View<'_, T> {
    #[inline]
    fn prev(&self, entry: u32) -> u32 {
        self.links.prev(entry)
    }

    #[inline]
    fn next(&self, entry: u32) -> u32 {
        self.links.next(entry)
    }

    #[inline]
    fn set_prev(&mut self, entry: u32, prev: u32) {
        self.links.set_prev(entry, prev);
    }

    #[inline]
    fn set_next(&mut self, entry: u32, next: u32) {
        self.links.set_next(entry, next);
    }
}

impl<T: Copy> Entries for View<'_, T> {
    #[inline]
    fn envelope(&self, entry: u32) -> Envelope {
        envelope(self.messages, entry)
    }
}

#[inline]
fn envelope<T: Copy>(messages: &Messages<T>, entry: u32) -> Envelope {
    Envelope { tag: messages.entry(entry).tag, source: messages.extra(entry) }
}

/// Messages without a receive yet: first arrived, first matched.
///
/// `T` is what the caller wants to know a message by. Each search goes through the index of its
/// pattern's class, which is built when such a pattern first asks, kept up with every arrival and
/// removal, and given up when that has cost more than building it again would. Allocates only when
/// it grows or builds.
///
/// ```
/// use tagmatch_soft::{Pattern, SourceId, Tag, TagMask, UnexpectedList};
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
    /// All messages in order of arrival, by slot.
    arrival: Vec<Link>,
    first: u32,
    classes: Vec<AskedClass>,
    work: Work,
    builds: u64,
    retirements: u64,
}

/// The message that a search found.
#[derive(Clone, Copy)]
struct Found {
    /// [`NIL`] if there is none.
    entry: u32,
    /// The class whose index was asked, or [`NO_CLASS`].
    class: usize,
    /// Where that index has it.
    at: Place,
}

const NO_CLASS: usize = usize::MAX;

impl Found {
    #[inline]
    fn unindexed(entry: u32) -> Self {
        Found { entry, class: NO_CLASS, at: Place::default() }
    }
}

impl<T: Copy> UnexpectedList<T> {
    /// An empty list. The seed keeps senders from choosing tags that the hash is bad at: take it
    /// from a source of randomness, or from a simulator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut work = Work::new(seed);
        let class = MaskClass::new(Shape::FULL, &mut work.seeds);
        UnexpectedList {
            messages: Slab::new(),
            arrival: Vec::new(),
            first: NIL,
            classes: vec![AskedClass { class, links: Vec::new(), upkeep: 0 }],
            work,
            builds: 0,
            retirements: 0,
        }
    }

    /// Number of messages.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is no message.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.len() == 0
    }

    /// Adds a message behind all others. Amortised constant for each class that is asked for.
    ///
    /// # Panics
    /// If the list holds 2^30 messages already, which takes more than 32 GiB.
    #[inline]
    pub fn push(&mut self, tag: Tag, source: SourceId, value: T) -> UnexpectedHandle {
        let handle = self.messages.insert(source.0, || Entry { tag: tag.0, value });
        let entry = handle.index;
        if self.arrival.len() <= entry as usize {
            self.arrival.resize(entry as usize + 1, Link::NONE);
        }
        if self.first == NIL {
            link::start(&mut self.arrival, entry);
            self.first = entry;
        } else {
            link::append(&mut self.arrival, self.first, entry);
        }
        let envelope = Envelope { tag: tag.0, source: source.0 };
        for class in 0..self.classes.len() {
            self.insert_into(class, entry, envelope);
        }
        self.retire_unasked();
        UnexpectedHandle(handle)
    }

    /// The oldest message that the pattern accepts; it stays. Constant, once the pattern's class
    /// has its index.
    #[inline]
    pub fn find(&mut self, pattern: &Pattern) -> Option<UnexpectedHandle> {
        if self.is_empty() {
            return None;
        }
        let found = self.search(pattern);
        (found.entry != NIL).then(|| UnexpectedHandle(self.messages.handle(found.entry)))
    }

    /// Removes the oldest message that the pattern accepts. Constant for each class that is asked
    /// for, once the pattern's own has its index.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let found = self.search(pattern);
        (found.entry != NIL).then(|| self.unlink(found))
    }

    /// Removes one message. Constant for each class that is asked for.
    ///
    /// # Errors
    /// [`StaleHandle`] if it was taken or removed already; nothing changes.
    #[inline]
    pub fn remove(&mut self, handle: UnexpectedHandle) -> Result<T, StaleHandle> {
        let entry = self.messages.resolve(handle.0).ok_or(StaleHandle)?;
        Ok(self.unlink(Found::unindexed(entry)))
    }

    /// A message's tag, source and value, if it is still here. Constant.
    #[must_use]
    pub fn get(&self, handle: UnexpectedHandle) -> Option<(Tag, SourceId, T)> {
        let entry = self.messages.resolve(handle.0)?;
        Some(self.message(entry))
    }

    /// All messages in order of arrival.
    pub fn iter_in_order(&self) -> impl Iterator<Item = (UnexpectedHandle, Tag, SourceId, T)> {
        self.in_order().map(|entry| {
            let (tag, source, value) = self.message(entry);
            (UnexpectedHandle(self.messages.handle(entry)), tag, source, value)
        })
    }

    /// What the list holds and has cost so far.
    #[must_use]
    pub fn stats(&self) -> MatchStats {
        let probes = self.classes.iter().map(|asked| asked.class.longest_probe());
        MatchStats {
            entries: self.len(),
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

    fn message(&self, entry: u32) -> (Tag, SourceId, T) {
        let Entry { tag, value } = *self.messages.entry(entry);
        (Tag(tag), SourceId(self.messages.extra(entry)), value)
    }

    fn in_order(&self) -> impl Iterator<Item = u32> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let entry = next;
            (entry != NIL).then(|| {
                next = self.arrival.next(entry);
                entry
            })
        })
    }

    fn search(&mut self, pattern: &Pattern) -> Found {
        let shape = Shape::of(pattern);
        if shape == Shape::ANY {
            return Found::unindexed(self.first);
        }
        let source = pattern.source().map_or(0, |source| source.0);
        let wanted = Envelope { tag: pattern.tag().0, source };
        if self.len() <= SHORT {
            return self.scan(shape, wanted);
        }
        let class = match self.classes.iter().position(|asked| asked.class.shape == shape) {
            Some(class) => class,
            None => match self.build(shape) {
                Some(class) => class,
                None => return self.scan(shape, wanted),
            },
        };
        let asked = &mut self.classes[class];
        asked.upkeep = 0;
        let view = View { messages: &self.messages, links: &mut asked.links };
        let probe = asked.class.find(&view, wanted, hash::spread(source));
        self.work.inspected += probe.steps;
        Found { entry: probe.entry, class, at: probe.at }
    }

    fn scan(&mut self, shape: Shape, wanted: Envelope) -> Found {
        self.work.scans += 1;
        let mut entry = self.first;
        while entry != NIL {
            self.work.inspected += 1;
            if shape.same(envelope(&self.messages, entry), wanted) {
                break;
            }
            entry = self.arrival.next(entry);
        }
        Found::unindexed(entry)
    }

    /// Builds the index of a class; `None` if there are too many already.
    #[cold]
    #[inline(never)]
    fn build(&mut self, shape: Shape) -> Option<usize> {
        let class = self.classes.len();
        if class == MAX_CLASSES {
            return None;
        }
        let order: Vec<u32> = self.in_order().collect();
        self.classes.push(AskedClass {
            class: MaskClass::new(shape, &mut self.work.seeds),
            links: vec![Link::NONE; self.arrival.len()],
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
    fn insert_into(&mut self, class: usize, entry: u32, envelope: Envelope) {
        let AskedClass { class, links, upkeep } = &mut self.classes[class];
        *upkeep += 1;
        if links.len() <= entry as usize {
            links.resize(entry as usize + 1, Link::NONE);
        }
        let mut view = View { messages: &self.messages, links };
        class.insert(&mut view, entry, envelope, &mut self.work);
    }

    #[inline]
    fn unlink(&mut self, found: Found) -> T {
        let entry = found.entry;
        for (class, asked) in self.classes.iter_mut().enumerate() {
            asked.upkeep += 1;
            let mut view = View { messages: &self.messages, links: &mut asked.links };
            if class == found.class {
                asked.class.remove_found(&mut view, found.at, entry);
            } else {
                asked.class.remove(&mut view, entry, &mut self.work);
            }
        }
        if entry == self.first {
            self.first = link::remove_first(&mut self.arrival, entry);
        } else {
            link::remove_later(&mut self.arrival, self.first, entry);
        }
        let value = self.messages.remove(entry).value;
        self.retire_unasked();
        value
    }

    #[inline]
    fn retire_unasked(&mut self) {
        let worth = self.len() + PATIENCE;
        if self.classes.iter().any(|asked| asked.upkeep > worth) {
            let before = self.classes.len();
            self.classes.retain(|asked| asked.upkeep <= worth);
            self.retirements += (before - self.classes.len()) as u64;
        }
    }
}
