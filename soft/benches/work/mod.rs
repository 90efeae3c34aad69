//! What the benches give the matchers to do, and the two yardsticks beside them.

#![allow(dead_code, reason = "each bench uses a part")]

pub(crate) mod bare;
pub(crate) mod plain;
pub(crate) mod traces;

use tagmatch_soft::{Pattern, SourceId, Tag, TagLayout, TagMask};

/// Most different entries: a number that is queued doesn't come again before it has left.
const NUMBERS: u32 = 1 << 24;

/// Masks by class: exact with a source, exact from any, any source in the tag, any tag, and then masks
/// that miss one context bit each.
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

/// Of which classes entries are, and how far apart their tags: numbers are cheap to carry, and made into tags
/// where they are used, so that the bench's own data stays out of the caches.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// Classes in equal parts, a power of two up to 8.
    classes: u32,
    /// Instead, exact entries but for this share of any-source and any-tag ones.
    wild_percent: Option<u32>,
    /// Odd; 1021 is the size of the table of a well known library, so that all go into one of its chains.
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

    /// The message that the receive of this number alone accepts.
    #[inline]
    pub(crate) fn message(self, number: u32) -> (Tag, SourceId) {
        let id = u64::from(number.wrapping_mul(self.stride) % NUMBERS);
        let class = u64::from(self.class(number));
        (Tag(class << 48 | id << 24 | id), SourceId(number & 63))
    }

    /// The receive of this number.
    #[inline]
    pub(crate) fn receive(self, number: u32) -> Pattern {
        let (tag, source) = self.message(number);
        let class = self.class(number);
        let pattern = Pattern::new(tag, MASKS[class as usize & 7]);
        if class == 0 { pattern.from_source(source) } else { pattern }
    }
}

/// In which order queued entries leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The oldest first.
    Forward,
    /// The youngest first; as depth is constant, it is the one that has just come.
    Reverse,
    /// Any.
    Random,
}

/// One match and what takes its place: numbers of entries.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) leaves: u32,
    pub(crate) comes: u32,
}

/// A queue of constant depth, and the steps that keep it so.
pub(crate) struct Steps {
    queued: Vec<u32>,
    order: Order,
    next: u32,
    oldest: usize,
    random: u64,
    steps: Vec<Step>,
}

impl Steps {
    pub(crate) fn new(depth: usize, order: Order) -> Self {
        let next = u32::try_from(depth).expect("a depth");
        let queued = (0..next).collect();
        Steps { queued, order, next, oldest: 0, random: 0x9e37_79b9, steps: Vec::new() }
    }

    /// What is queued before the first step.
    pub(crate) fn queued(&self) -> &[u32] {
        &self.queued
    }

    /// The next `count` steps. At depth 0 whatever comes leaves at once.
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
            Order::Random => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                usize::try_from((self.random >> 11) % depth as u64).expect("below a depth")
            }
        })
    }
}
