//! The search: depth first, each state once, several threads on one set of states.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::fold::Fold;
use super::scope::{Explored, Failure, Scope};
use super::world::{Choice, ScopeWorld};
use crate::violation::{Rule, Violation};

/// The most steps of one path. A program that ends has fewer.
const STEPS_MAX: usize = 200;

type BuildFold = BuildHasherDefault<Fold>;

/// The data that all threads share.
pub(super) struct SharedStates {
    /// Digests of the states that were reached, in parts with a lock each.
    seen: [Mutex<HashSet<u64, BuildFold>>; 64],
    /// Digests of the final states.
    pub(super) ends: Mutex<HashSet<u64, BuildFold>>,
    /// For each state, a digest of its successors. Used only by a thorough search.
    follow: Mutex<HashMap<u64, u64>>,
    has_failed: AtomicBool,
}

impl SharedStates {
    pub(super) fn new() -> Self {
        SharedStates {
            seen: std::array::from_fn(|_| Mutex::default()),
            ends: Mutex::default(),
            follow: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Whether a state is reached for the first time.
    fn is_new(&self, digest: u64) -> bool {
        let part = &self.seen[usize::from(digest.to_le_bytes()[0]) % self.seen.len()];
        part.lock().unwrap_or_else(PoisonError::into_inner).insert(digest)
    }

    /// Whether the state had the same successors the last time.
    fn agrees(&self, digest: u64, next: u64) -> bool {
        let mut follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner);
        *follow.entry(digest).or_insert(next) == next
    }
}

/// One thread of a search.
pub(super) struct Search<'a> {
    scope: Scope,
    /// The number by which the order of choices is rotated, so that threads take different paths.
    turn: usize,
    shared: &'a SharedStates,
    path: Vec<Choice>,
    explored: Explored,
}

impl<'a> Search<'a> {
    pub(super) fn run(
        scope: Scope,
        turn: usize,
        shared: &'a SharedStates,
    ) -> Result<Explored, Box<Failure>> {
        let path = Vec::new();
        let explored = Explored::default();
        let mut search = Search { scope, turn, shared, path, explored };
        // A panic of the code under test is a failure, too.
        let found = catch_unwind(AssertUnwindSafe(|| search.begin()));
        let panicked = |_| Err(Violation::new(Rule::Panic, "the code under test panicked"));
        let Search { path, explored, .. } = search;
        found.unwrap_or_else(panicked).map(|()| explored).map_err(|violation| {
            shared.has_failed.store(true, Ordering::Relaxed);
            let path = path.iter().map(ToString::to_string).collect();
            Box::new(Failure { violation, path, explored })
        })
    }

    fn begin(&mut self) -> Result<(), Violation> {
        let fault = |error: &dyn ToString| Violation::new(Rule::Fault, error.to_string());
        let mut world = ScopeWorld::new(&self.scope).map_err(|error| fault(&error))?;
        self.visit(&mut world)
    }

    /// Visits a state and all states after it. The world is in one of these states afterwards.
    fn visit(&mut self, world: &mut ScopeWorld) -> Result<(), Violation> {
        let digest = world.digest();
        let is_new = self.shared.is_new(digest);
        if !is_new && !self.scope.is_thorough {
            return Ok(());
        }
        let mut choices = world.choices();
        if self.scope.is_thorough && !self.shared.agrees(digest, next(world, &choices)?) {
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
            ends.insert(world.digest_of_end());
        }
        if self.path.len() > STEPS_MAX {
            return Err(Violation::new(Rule::Lost, "the path doesn't end"));
        }
        let turns = self.turn.checked_rem(choices.len()).unwrap_or(0);
        choices.rotate_left(turns);
        let last = choices.pop();
        choices.into_iter().try_for_each(|choice| self.go(&mut world.clone(), choice))?;
        last.map_or(Ok(()), |choice| self.go(world, choice))
    }

    fn go(&mut self, world: &mut ScopeWorld, choice: Choice) -> Result<(), Violation> {
        self.path.push(choice);
        world.step(choice)?;
        self.explored.steps += 1;
        self.visit(world)?;
        self.path.pop();
        Ok(())
    }
}

/// A digest of a state's successors.
fn next(world: &ScopeWorld, choices: &[Choice]) -> Result<u64, Violation> {
    let state = &mut Fold::default();
    for choice in choices {
        let mut next = world.clone();
        next.step(*choice)?;
        (choice, next.digest()).hash(state);
    }
    Ok(state.finish())
}
