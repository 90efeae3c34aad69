//! The size of a search, and its results.

use std::fmt;

use crate::violation::Violation;

/// The size of an exhaustive search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The number of receives, at most 4.
    pub receives: usize,
    /// Messages of both senders together, at most 4.
    pub messages: u32,
    /// The number of cancels.
    pub cancels: u32,
    /// The number of different tags, at least 1.
    pub tags: u8,
    /// Slots of the NIC's list.
    pub slots: u32,
    /// The most operations that the NIC takes without having answered them.
    pub operations: u32,
    /// The number of unexpected messages by which the NIC's count may be ahead of the count that
    /// it was told. At 3, the NIC is told of each message at once; at more, later, or with the next
    /// operation.
    pub sync_limit: u16,
    /// While this many completions (of matches, messages, data and operations) are outstanding, no
    /// receive is posted, no message is sent, and nothing is cancelled. `usize::MAX` means no
    /// bound.
    pub held_max: usize,
    /// Whether messages of the second sender arrive past the list.
    pub second_passes: bool,
    /// Whether all senders and tags are tried, even those that are alike.
    pub all_names: bool,
    /// Whether all orders are tried, and states that are reached again must have the same
    /// successors.
    pub is_thorough: bool,
}

/// The figures of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// The number of different states.
    pub states: u64,
    /// The number of steps between states.
    pub steps: u64,
    /// The number of different outcomes: the receives and messages left at the end, and the NIC's
    /// share.
    pub ends: u64,
    /// The number of steps of the longest path.
    pub longest: usize,
}

impl Explored {
    /// Adds the figures of another thread.
    pub(super) fn add(&mut self, other: &Explored) {
        self.states += other.states;
        self.steps += other.steps;
        self.longest = self.longest.max(other.longest);
    }
}

/// A violation, and the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The violation.
    pub violation: Violation,
    /// All steps from the start.
    pub path: Vec<String>,
    /// The figures up to the failure.
    pub explored: Explored,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope {
            receives,
            messages,
            cancels,
            tags,
            slots,
            operations,
            sync_limit,
            held_max,
            ..
        } = self;
        let way =
            if self.second_passes { "one sender's past the list" } else { "all through the list" };
        let bound = match *held_max {
            usize::MAX => "no bound on delays".into(),
            held_max => format!("nothing new while {held_max} completions are outstanding"),
        };
        write!(
            f,
            "{receives} receives, {messages} messages of 2 senders ({way}), {cancels} cancels, {tags} tags; \
             {slots} slots, {operations} operations, counts apart by up to {sync_limit}, {bound}"
        )
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { states, steps, ends, longest } = self;
        write!(f, "{states} states, {steps} steps, {ends} ends, longest path {longest}")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { violation, path, explored } = self;
        write!(f, "{violation}\n  after {explored}; on the way")?;
        path.iter().enumerate().try_for_each(|(at, step)| write!(f, "\n  {:3} {step}", at + 1))
    }
}

impl Scope {
    /// A scope with these numbers. All messages pass through the list of a NIC with 2 slots.
    pub const fn new(receives: usize, messages: u32, cancels: u32, tags: u8) -> Self {
        Scope {
            receives,
            messages,
            cancels,
            tags,
            slots: 2,
            operations: 6,
            sync_limit: 3,
            held_max: usize::MAX,
            second_passes: false,
            all_names: false,
            is_thorough: false,
        }
    }
}
