//! The operations that the benchmarks run, and what they compare with.

#![allow(dead_code, reason = "each benchmark uses a part")]

pub(crate) mod bare;
pub(crate) mod traces;

use tagmatch_soft::{Pattern, SourceId, Tag, TagLayout, TagMask};
use tagmatch_testkit::random::Random;

/// Entries are numbered modulo this. A list holds fewer, so no number is in it twice.
const NUMBERS: u32 = 1 << 24;

/// The masks of the classes. The first is for receives that name a source, the second for any
/// source. The next two have the wildcards of MPI: any source in the tag, any tag. The others
/// ignore a bit of the context id each.
const MASKS: [TagMask; 8] = {
    let layout = TagLayout::MPI;
    [
        TagMask::EXACT,
        TagMask::EXACT,
        TagMask(!layout.source_mask().0),
        TagMask(!layout.tag_mask().0),
        TagMask(!(1 << 54)),
        TagMask(!(1 << 55)),
        TagMask(!(1 << 56)),
        TagMask(!(1 << 57)),
    ]
};

/// The classes of the entries, and how far apart their tags are. Entries are numbers, which become
/// tags where they are used: so the benchmark's own data takes little room in the caches.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// How many classes there are, with equally many entries: a power of two up to 8.
    classes: u32,
    /// If given, in place of `classes`: this share of entries has any source or any tag, all others
    /// are exact.
    wild_percent: Option<u32>,
    /// The distance of tags, an odd number. 1021 is the size of the table of a well known library,
    /// which keeps all tags of this distance in one chain.
    stride: u32,
}

impl Mix {
    pub(crate) fn of_classes(classes: u32) -> Self {
        assert!(classes.is_power_of_two() && classes <= 8, "{classes} classes");
        Mix { classes, wild_percent: None, stride: 1 }
    }

    pub(crate) fn of_wildcards(percent: u32) -> Self {
        Mix { classes: 1, wild_percent: Some(percent), stride: 1 }
    }

    pub(crate) fn with_stride(self, stride: u32) -> Self {
        Mix { stride, ..self }
    }

    #[inline]
    fn class(self, number: u32) -> u32 {
        match self.wild_percent {
            None => number & (self.classes - 1),
            Some(percent) if number.wrapping_mul(41) % 100 < percent => 2 + (number >> 1 & 1),
            Some(_) => 0,
        }
    }

    /// The message with this number. Only the receive with the same number accepts it.
    #[inline]
    pub(crate) fn message(self, number: u32) -> (Tag, SourceId) {
        let id = u64::from(number.wrapping_mul(self.stride) % NUMBERS);
        let class = u64::from(self.class(number));
        (Tag(class << 48 | id << 24 | id), SourceId(number & 63))
    }

    /// The receive with this number.
    #[inline]
    pub(crate) fn receive(self, number: u32) -> Pattern {
        let (tag, source) = self.message(number);
        let class = self.class(number);
        let pattern = Pattern::new(tag, MASKS[class as usize & 7]);
        if class == 0 { pattern.from_source(source) } else { pattern }
    }
}

/// Which entry leaves the list next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The oldest.
    Forward,
    /// The youngest, which is the one that was added by the step before.
    Reverse,
    /// Any.
    Random,
}

/// The entry that is matched, and the one that takes its place.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) leaves: u32,
    pub(crate) comes: u32,
}

/// The entries of a list of constant depth, and the steps that keep it so.
pub(crate) struct Steps {
    queued: Vec<u32>,
    order: Order,
    next: u32,
    oldest: usize,
    random: Random,
    steps: Vec<Step>,
}

impl Steps {
    pub(crate) fn new(depth: usize, order: Order) -> Self {
        let next = u32::try_from(depth).expect("a depth");
        let queued = (0..next).collect();
        Steps { queued, order, next, oldest: 0, random: Random::new(1), steps: Vec::new() }
    }

    /// The entries before the first step.
    pub(crate) fn entries(&self) -> &[u32] {
        &self.queued
    }

    /// The next `count` steps. At depth 0 the entry that is added is the one that leaves.
    pub(crate) fn draw(&mut self, count: usize) -> &[Step] {
        self.steps.clear();
        for _ in 0..count {
            let comes = self.next % NUMBERS;
            self.next = comes + 1;
            let leaves = match self.place() {
                Some(at) => std::mem::replace(&mut self.queued[at], comes),
                None => comes,
            };
            self.steps.push(Step { leaves, comes });
        }
        &self.steps
    }

    fn place(&mut self) -> Option<usize> {
        let depth = self.queued.len();
        if depth == 0 {
            return None;
        }
        Some(match self.order {
            Order::Forward => {
                self.oldest = (self.oldest + 1) % depth;
                self.oldest
            }
            Order::Reverse => depth - 1,
            Order::Random => self.random.index(depth),
        })
    }
}
