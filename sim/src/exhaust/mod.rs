//! Small scopes, completely: every interleaving of a few receives, messages and cancels.
//!
//! The code under test is what ships: the engine, its shadow, and the model NIC, which is
//! [driven by hand](tagmatch_hw::model::Nic::by_hand). What is chosen, in every order:
//!
//! - which receive is posted (exact, any source, any tag), which message is sent by whom, what is
//!   cancelled, and when;
//! - when the NIC takes up each operation, and whether an agreeing count wakes inactive entries;
//! - when each completion is shown: answers, matches with unexpected messages, and data, each in the
//!   order that the [contract](tagmatch_hw::TagList) gives them. Software takes each when it is shown: one
//!   that lies there unseen is one that was not shown;
//! - in another scope, messages of one sender that come past the list.
//!
//! Delays have no other bound than the scope: a completion may come after everything else. A
//! program ends, so every path does; its longest is reported.
//!
//! # The search
//! Depth first, each state visited once. An engine can't be copied; a state that is come back to is made
//! again from the start, by the choices that led there. States are the same if a digest of all that later
//! behaviour depends on is; [`Scope::is_thorough`] checks that: what can follow the same digest must be
//! the same. Senders and tags that were not named yet are alike, and only the first is tried.
//!
//! # What is checked
//! In each state: no fault of the NIC, no event that the shadow calls impossible, and receives ended only
//! as MPI allows ([`spec`]). Whenever nothing moves any more: nothing lost, no pair that
//! matches is left, no slot is lost, and the NIC holds what it has room for.

mod spec;
mod wire;
mod world;

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use crate::violation::{Rule, Violation};
use world::{Choice, World};

/// Steps of one path; a program that ends has fewer.
const STEPS_MAX: usize = 200;

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
    /// The second sender's messages come past the list.
    pub second_passes: bool,
    /// States that are come to again are looked at again: what can follow must be what followed.
    pub is_thorough: bool,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Steps from one to another.
    pub steps: u64,
    /// States in which nothing is left to be done.
    pub ends: u64,
    /// Steps of the longest path.
    pub longest: usize,
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

impl Scope {
    /// Visits every state.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn explore(&self) -> Result<Explored, Box<Failure>> {
        let mut search = Search {
            scope: *self,
            never: None,
            path: Vec::new(),
            seen: HashMap::new(),
            explored: Explored::default(),
        };
        search.run().map(|()| search.explored).map_err(|violation| {
            let path = search.path.iter().map(ToString::to_string).collect();
            Box::new(Failure { violation, path, explored: search.explored })
        })
    }
}

struct Search {
    scope: Scope,
    never: Option<Rc<File>>,
    path: Vec<Choice>,
    /// Digests of states, and of what follows them.
    seen: HashMap<u64, u64>,
    explored: Explored,
}

impl Search {
    fn run(&mut self) -> Result<(), Violation> {
        let world = self.world()?;
        self.visit(world)
    }

    /// The state that the path leads to.
    fn world(&mut self) -> Result<World, Violation> {
        let system = |error: &dyn ToString| Violation::new(Rule::Fault, error.to_string());
        let never = match &self.never {
            Some(never) => Rc::clone(never),
            None => Rc::new(File::open("/dev/null").map_err(|error| system(&error))?),
        };
        let mut world = World::new(&self.scope, &never).map_err(|error| system(&error))?;
        self.never = Some(never);
        self.path.iter().try_for_each(|choice| world.step(*choice))?;
        Ok(world)
    }

    fn visit(&mut self, world: World) -> Result<(), Violation> {
        let digest = world.digest();
        let choices = world.choices();
        if self.seen.contains_key(&digest) {
            return self.compare(digest, &choices);
        }
        let next = self.next(&choices)?;
        self.seen.insert(digest, next);
        self.explored.states += 1;
        self.explored.longest = self.explored.longest.max(self.path.len());
        self.explored.ends += u64::from(choices.is_empty());
        if self.path.len() > STEPS_MAX {
            return Err(Violation::new(Rule::Lost, "this never ends"));
        }
        let mut world = Some(world);
        for choice in choices {
            let mut world = world.take().map_or_else(|| self.world(), Ok)?;
            self.path.push(choice);
            world.step(choice)?;
            self.explored.steps += 1;
            self.visit(world)?;
            self.path.pop();
        }
        Ok(())
    }

    /// A digest of what can follow, if that is asked for.
    fn next(&mut self, choices: &[Choice]) -> Result<u64, Violation> {
        let state = &mut DefaultHasher::new();
        if self.scope.is_thorough {
            for choice in choices {
                let mut world = self.world()?;
                self.path.push(*choice);
                world.step(*choice)?;
                self.path.pop();
                (choice, world.digest()).hash(state);
            }
        }
        Ok(state.finish())
    }

    fn compare(&mut self, digest: u64, choices: &[Choice]) -> Result<(), Violation> {
        let next = self.next(choices)?;
        match self.seen.entry(digest) {
            Entry::Occupied(seen) if *seen.get() != next => {
                Err(Violation::new(Rule::Reference, "the digest of a state leaves something out"))
            }
            _ => Ok(()),
        }
    }
}
