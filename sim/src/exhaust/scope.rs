//! What is explored, and what comes out of it.

use std::fmt;

use crate::violation::Violation;

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Receives, at most 4.
    pub receives: usize,
    /// Messages of both senders together, at most 4.
    pub messages: u32,
    /// Calls of cancel.
    pub cancels: u32,
    /// Different tags, at least 1.
    pub tags: u8,
    /// Slots of the NIC's list.
    pub slots: u32,
    /// Operations that the NIC takes without answers.
    pub operations: u32,
    /// Unexpected messages by which the NIC's count may be ahead of the one that it is told. At 3, each
    /// message is told at once; at more, later, or with the next operation.
    pub sync_limit: u16,
    /// With so many completions outstanding, of matches, messages, data and operations, no post, message
    /// or cancel begins. `usize::MAX` is no bound.
    pub held_max: usize,
    /// The second sender's messages come past the list.
    pub second_passes: bool,
    /// All senders and tags are tried, also where they are alike.
    pub all_names: bool,
    /// All orders are tried, and states that are come to again are looked at again: what can follow must
    /// be what followed.
    pub is_thorough: bool,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Steps from one to another.
    pub steps: u64,
    /// Different outcomes: what is left on the lists, and how much of it in the NIC, where nothing moves.
    pub ends: u64,
    /// Steps of the longest path.
    pub longest: usize,
}

impl Explored {
    /// Adds what another thread explored.
    pub(super) fn add(&mut self, other: &Explored) {
        self.states += other.states;
        self.steps += other.steps;
        self.longest = self.longest.max(other.longest);
    }
}

/// A broken rule, and the way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub violation: Violation,
    /// All steps from the start.
    pub path: Vec<String>,
    /// What was explored before.
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
        let way = if self.second_passes { "one's past the list" } else { "all through the list" };
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
    /// A scope with these numbers of each. All messages pass through the list of a NIC with 2 slots.
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
