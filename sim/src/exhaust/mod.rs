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
//! Delays are bounded by [`Scope::held_max`]: while that many completions are outstanding, nothing new is
//! begun. Without that bound a completion may come after everything else. A program ends, so every path
//! does; its longest is reported.
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

mod fold;
mod spec;
mod wire;
mod world;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::violation::{Rule, Violation};
use fold::Fold;
use world::{Choice, World};

type Plain = BuildHasherDefault<Fold>;

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
    /// With so many completions outstanding, of matches, messages, data and operations, no post, message
    /// or cancel begins. `usize::MAX` is no bound.
    pub held_max: usize,
    /// The second sender's messages come past the list.
    pub second_passes: bool,
    /// States that are come to again are looked at again: what can follow must be what followed.
    pub is_thorough: bool,
    /// A bug that is to be found.
    #[cfg(feature = "defects")]
    pub defect: Option<tagmatch_fallback::ShadowDefect>,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Steps from one to another.
    pub steps: u64,
    /// Different outcomes: lists of engine and NIC where nothing is left to be done.
    pub ends: u64,
    /// Steps of the longest path.
    pub longest: usize,
}

impl Explored {
    /// Adds what another thread explored.
    fn add(&mut self, other: &Explored) {
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
        let Scope { receives, messages, cancels, tags, slots, held_max, .. } = self;
        let way = if self.second_passes { "one's past the list" } else { "all through the list" };
        let bound = match *held_max {
            usize::MAX => "no bound on delays".into(),
            held_max => format!("{held_max} completions held back at most"),
        };
        write!(
            f,
            "{receives} receives, {messages} messages of 2 senders ({way}), {cancels} cancels, {tags} tags, \
             {slots} slots, {bound}"
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
    /// Everything with so many of each, all through the list, on a NIC of 2 slots.
    pub fn new(receives: usize, messages: u32, cancels: u32, tags: u8) -> Self {
        Scope {
            receives,
            messages,
            cancels,
            tags,
            slots: 2,
            held_max: usize::MAX,
            second_passes: false,
            is_thorough: false,
            #[cfg(feature = "defects")]
            defect: None,
        }
    }

    /// Visits every state, with so many threads.
    ///
    /// # Errors
    /// The first rule that is broken, and how.
    pub fn explore(&self, threads: usize) -> Result<Explored, Box<Failure>> {
        let shared = Shared::new();
        let found: Vec<_> = thread::scope(|scope| {
            let shared = &shared;
            let search = |turn| scope.spawn(move || Search::run(*self, turn, shared));
            let threads: Vec<_> = (0..threads.max(1)).map(search).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let mut explored = Explored::default();
        for found in found {
            explored.add(&found?);
        }
        let ends = shared.ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        explored.ends = ends.len() as u64;
        Ok(explored)
    }
}

/// What all threads know.
struct Shared {
    /// Digests of states that were come to, in parts with locks of their own.
    seen: [Mutex<HashSet<u64, Plain>>; 64],
    /// Digests of the lists where everything ends.
    ends: Mutex<HashSet<u64>>,
    /// By digest, what can follow: only if that is compared.
    follow: Mutex<HashMap<u64, u64>>,
    has_failed: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Shared {
            seen: std::array::from_fn(|_| Mutex::default()),
            ends: Mutex::default(),
            follow: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Whether a state is come to for the first time.
    fn is_new(&self, digest: u64) -> bool {
        let part = &self.seen[usize::from(digest.to_le_bytes()[0]) % self.seen.len()];
        part.lock().unwrap_or_else(PoisonError::into_inner).insert(digest)
    }

    /// Whether this is what could follow the last time.
    fn agrees(&self, digest: u64, next: u64) -> bool {
        let mut follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner);
        *follow.entry(digest).or_insert(next) == next
    }
}

/// One thread of a search.
struct Search<'a> {
    scope: Scope,
    /// Turns the order of choices, so that threads go different ways.
    turn: usize,
    shared: &'a Shared,
    never: Rc<File>,
    path: Vec<Choice>,
    explored: Explored,
}

impl<'a> Search<'a> {
    fn run(scope: Scope, turn: usize, shared: &'a Shared) -> Result<Explored, Box<Failure>> {
        let fails = |violation, path: &[Choice], explored| {
            shared.has_failed.store(true, Ordering::Relaxed);
            let path = path.iter().map(ToString::to_string).collect();
            Box::new(Failure { violation, path, explored })
        };
        let never = File::open("/dev/null")
            .map_err(|error| fails(fault(&error), &[], Explored::default()))?;
        let (never, path, explored) = (Rc::new(never), Vec::new(), Explored::default());
        let mut search = Search { scope, turn, shared, never, path, explored };
        // A panic is one of the things that can be found, too.
        let found = catch_unwind(AssertUnwindSafe(|| search.world().and_then(|w| search.visit(w))));
        let panicked = |_| Err(Violation::new(Rule::Panic, "the code under test panicked"));
        match found.unwrap_or_else(panicked) {
            Ok(()) => Ok(search.explored),
            Err(violation) => Err(fails(violation, &search.path, search.explored)),
        }
    }

    /// The state that the path leads to.
    fn world(&self) -> Result<World, Violation> {
        let mut world = World::new(&self.scope, &self.never).map_err(|error| fault(&error))?;
        self.path.iter().try_for_each(|choice| world.act(*choice))?;
        Ok(world)
    }

    fn visit(&mut self, world: World) -> Result<(), Violation> {
        let digest = world.digest();
        let is_new = self.shared.is_new(digest);
        if !is_new && !self.scope.is_thorough {
            return Ok(());
        }
        let mut choices = world.choices();
        if self.scope.is_thorough && !self.shared.agrees(digest, self.next(&choices)?) {
            let what = "the digest of a state leaves something out";
            return Err(Violation::new(Rule::Reference, what));
        }
        if !is_new || self.shared.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.explored.states += 1;
        self.explored.longest = self.explored.longest.max(self.path.len());
        if world.is_over() {
            let mut ends = self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner);
            ends.insert(world.digest_of_lists());
        }
        if self.path.len() > STEPS_MAX {
            return Err(Violation::new(Rule::Lost, "this never ends"));
        }
        let turns = self.turn.checked_rem(choices.len()).unwrap_or(0);
        choices.rotate_left(turns);
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

    /// A digest of what can follow.
    fn next(&self, choices: &[Choice]) -> Result<u64, Violation> {
        let state = &mut Fold::default();
        for choice in choices {
            let mut world = self.world()?;
            world.act(*choice)?;
            (choice, world.digest()).hash(state);
        }
        Ok(state.finish())
    }
}

fn fault(error: &dyn ToString) -> Violation {
    Violation::new(Rule::Fault, error.to_string())
}
