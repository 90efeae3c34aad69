//! Long lists with many keys in each class, compared with plain lists that are searched from the
//! front.
//!
//! The code that a search runs depends on where a table has a key, and on the other classes with an
//! entry for the same message. So the tests count these situations, and fail if one of them hardly
//! occurred.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;

use tagmatch_testkit::random::Random;

use crate::class::{InChain, Lookup};
use crate::{
    Pattern, PostedHandle, PostedList, SourceId, Tag, TagMask, UnexpectedHandle, UnexpectedList,
};

/// The number of keys that fill a table of 64 buckets almost to the point at which it grows: some
/// of its buckets overflow.
const KEYS: u64 = 440;
/// The first of the bits of a tag that tell the classes apart.
const FIELD: u32 = 40;
/// The number of classes whose home buckets a search reads together.
const TOGETHER: usize = 4;
/// The least number of times that each situation must occur.
const MET_MIN: u64 = 3;

/// A message with this key. A class accepts it if its mask leaves out the bits that are set in its
/// field.
fn message(random: &mut Random, key: u64) -> (Tag, SourceId) {
    let field = if random.chance(1, 2) { 0 } else { random.below(8) };
    (Tag(key | field << FIELD), SourceId(u32::from(random.below(8) != 0)))
}

/// A pattern of one of 64 classes, every second of which names a source.
fn pattern(class: usize, key: u64) -> Pattern {
    let pattern = Pattern::new(Tag(key), TagMask(!((class as u64) << FIELD)));
    if class.is_multiple_of(2) { pattern } else { pattern.from_source(SourceId(1)) }
}

/// How often each situation occurred.
struct Met<S>(BTreeMap<S, u64>);

impl<S: Copy + Debug + Ord> Met<S> {
    fn count(&mut self, situation: S) {
        *self.0.entry(situation).or_default() += 1;
    }

    fn assert_all(&self, situations: impl IntoIterator<Item = S>) {
        let met = |situation: &S| self.0.get(situation).copied().unwrap_or(0);
        let few: Vec<_> = situations.into_iter().filter(|s| met(s) < MET_MIN).collect();
        assert!(few.is_empty(), "hardly occurred: {few:?}\nall: {:#?}", self.0);
    }
}

/// The result of a search of posted receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Winner {
    /// A receive of a class with an index.
    Indexed(Lookup),
    /// A receive that is in no index.
    Unindexed,
    /// No receive. `farther`: the home bucket of the message's key has overflowed in some class.
    Nothing { farther: bool },
}

/// Whether one class is searched before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SearchOrder {
    Before,
    Together,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Situation {
    /// A message, with one, two, or more (3) classes in use.
    Message(usize, Winner),
    /// The place of the oldest receive, the place of a younger one of another class, and whether
    /// the search reads the oldest before that one. More than two classes are in use.
    Older(Lookup, Lookup, SearchOrder),
    /// An indexed receive was cancelled.
    Cancelled(Lookup, InChain),
    /// A receive that is in no index was cancelled.
    CancelledUnindexed,
}

struct PostedRun {
    list: PostedList<u64>,
    /// The receives in post order.
    oracle: Vec<(PostedHandle, Pattern, u64)>,
    posted: u64,
    random: Random,
    classes: usize,
    keys: u64,
    /// Keys that were not in their home buckets in several classes when the list was full. They are
    /// rare, so their messages are drawn more often than others.
    far_keys: Vec<u64>,
}

impl PostedRun {
    fn post(&mut self, class: usize, key: u64) {
        self.posted += 1;
        let pattern = pattern(class, key);
        let handle = self.list.post(pattern, self.posted);
        self.oracle.push((handle, pattern, self.posted));
    }

    fn cancel(&mut self, met: &mut Met<Situation>) {
        if self.oracle.is_empty() {
            return;
        }
        let (handle, _, value) = self.oracle.remove(self.random.index(self.oracle.len()));
        met.count(match self.list.standing(handle) {
            Some((_, lookup, in_chain)) => Situation::Cancelled(lookup, in_chain),
            None => Situation::CancelledUnindexed,
        });
        assert_eq!(self.list.cancel(handle), Ok(value));
    }

    fn message(&mut self, met: &mut Met<Situation>) {
        let key = match self.far_keys.as_slice() {
            far @ [_, ..] if self.random.below(4) == 0 => far[self.random.index(far.len())],
            _ => self.random.below(self.keys),
        };
        let (tag, source) = message(&mut self.random, key);
        let oldest = self.oracle.iter().position(|(_, p, _)| p.matches(tag, source));
        let expected = oldest.map(|at| self.oracle.remove(at));
        self.count_message(tag, source, expected.map(|(handle, ..)| handle), met);
        assert_eq!(self.list.first_match(tag, source), expected.map(|(handle, ..)| handle));
        assert_eq!(self.list.take_match(tag, source), expected.map(|(.., value)| value));
    }

    fn count_message(
        &self,
        tag: Tag,
        source: SourceId,
        oldest: Option<PostedHandle>,
        met: &mut Met<Situation>,
    ) {
        let lookups = self.list.lookups(tag, source);
        let in_use = lookups.len().min(3);
        let standing = oldest.and_then(|handle| self.list.standing(handle));
        let winner = match (oldest, standing) {
            (_, Some((_, lookup, _))) => Winner::Indexed(lookup),
            (Some(_), None) => Winner::Unindexed,
            (None, None) => {
                let farther = lookups.iter().any(|(_, lookup)| *lookup == Lookup::MissingFarther);
                Winner::Nothing { farther }
            }
        };
        met.count(Situation::Message(in_use, winner));
        let Some((class, of_oldest, _)) = standing.filter(|_| in_use > 2) else { return };
        for &(other, lookup) in lookups.iter().filter(|(other, _)| *other != class) {
            if matches!(lookup, Lookup::Home | Lookup::Farther) {
                let order = match (class / TOGETHER).cmp(&(other / TOGETHER)) {
                    Ordering::Less => SearchOrder::Before,
                    Ordering::Equal => SearchOrder::Together,
                    Ordering::Greater => SearchOrder::After,
                };
                met.count(Situation::Older(of_oldest, lookup, order));
            }
        }
    }
}

/// Fills a list, then matches, cancels and posts at random, then empties the list.
fn posted_history(classes: usize, keys: u64, seed: u64, met: &mut Met<Situation>) {
    let list = PostedList::new(seed);
    let oracle = Vec::new();
    let far_keys = Vec::new();
    let random = Random::new(seed);
    let mut run = PostedRun { list, oracle, posted: 0, random, classes, keys, far_keys };
    let mut all: Vec<_> = (0..classes).flat_map(|c| (0..keys).map(move |key| (c, key))).collect();
    run.random.shuffle(&mut all);
    for &(class, key) in &all {
        let alike = if run.random.below(8) == 0 { 3 } else { 1 };
        (0..alike).for_each(|_| run.post(class, key));
    }
    let is_far = |key: &u64| {
        let lookups = run.list.lookups(Tag(*key), SourceId(1));
        lookups.iter().filter(|(_, lookup)| *lookup == Lookup::Farther).count() > 1
    };
    run.far_keys = (0..keys).filter(is_far).collect();
    for step in 0..all.len() * 2 {
        match run.random.below(10) {
            0 => run.cancel(met),
            1..4 if step < all.len() => {
                let class = run.random.index(run.classes);
                let key = run.random.below(run.keys);
                run.post(class, key);
            }
            _ => run.message(met),
        }
        assert_eq!(run.list.len(), run.oracle.len());
    }
    assert!(run.list.iter_in_order().eq(run.oracle.iter().copied()));
    while !run.oracle.is_empty() {
        run.cancel(met);
    }
    assert!(run.list.is_empty());
}

#[test]
fn long_lists_of_posted_receives_are_plain_lists_in_every_situation() {
    let mut met = Met(BTreeMap::new());
    for seed in 0..160 {
        // Keys outside of their home buckets in two classes are rare, so most histories have seven
        // classes.
        for classes in if seed < 20 { 1..=7 } else { 7..=7 } {
            posted_history(classes, KEYS, seed, &mut met);
        }
    }
    posted_history(40, 100, 0, &mut met);
    let places = [Lookup::Home, Lookup::Farther];
    for in_use in 1..=3 {
        let found = places.map(Winner::Indexed);
        let nothing = [false, true].map(|farther| Winner::Nothing { farther });
        let winners = found.into_iter().chain(nothing);
        met.assert_all(winners.map(|winner| Situation::Message(in_use, winner)));
    }
    for (oldest, other) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
        let orders = [SearchOrder::Before, SearchOrder::Together, SearchOrder::After];
        met.assert_all(orders.map(|order| Situation::Older(oldest, other, order)));
    }
    for lookup in places {
        let in_chain = [InChain::Only, InChain::Oldest, InChain::Middle, InChain::Youngest];
        met.assert_all(in_chain.map(|in_chain| Situation::Cancelled(lookup, in_chain)));
    }
    met.assert_all([Situation::Message(3, Winner::Unindexed), Situation::CancelledUnindexed]);
}

/// The situations of a long list of unexpected messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AskedSituation {
    /// A receive searched a class that has an index.
    Index(Lookup),
    /// A receive searched a class without an index, which was then built.
    Builds,
    /// A receive searched a class without an index, and there were too many classes to build one.
    Walks,
    /// A message was removed that had these places in an index.
    Removed(Lookup, InChain),
}

struct UnexpectedRun {
    list: UnexpectedList<u64>,
    /// The messages in order of arrival.
    oracle: Vec<(UnexpectedHandle, Tag, SourceId, u64)>,
    arrived: u64,
    random: Random,
    classes: usize,
    keys: u64,
}

impl UnexpectedRun {
    fn arrive(&mut self, key: u64) {
        self.arrived += 1;
        let (tag, source) = message(&mut self.random, key);
        let handle = self.list.push(tag, source, self.arrived);
        self.oracle.push((handle, tag, source, self.arrived));
    }

    fn remove(&mut self, met: &mut Met<AskedSituation>) {
        if self.oracle.is_empty() {
            return;
        }
        let (handle, .., value) = self.oracle.remove(self.random.index(self.oracle.len()));
        self.count_removed(handle, met);
        assert_eq!(self.list.remove(handle), Ok(value));
    }

    fn ask(&mut self, met: &mut Met<AskedSituation>) {
        let class = self.random.index(self.classes);
        let pattern = pattern(class, self.random.below(self.keys));
        let oldest = self.oracle.iter().position(|&(_, t, s, _)| pattern.matches(t, s));
        let builds = self.list.stats().builds;
        let lookup = self.list.lookup(&pattern);
        let expected = oldest.map(|at| self.oracle[at]);
        assert_eq!(self.list.find(&pattern), expected.map(|(handle, ..)| handle));
        met.count(match lookup {
            Some(lookup) => AskedSituation::Index(lookup),
            None if self.list.stats().builds > builds => AskedSituation::Builds,
            None => AskedSituation::Walks,
        });
        if let (Some(at), Some((handle, ..))) = (oldest, expected) {
            self.count_removed(handle, met);
            self.oracle.remove(at);
        }
        assert_eq!(self.list.take(&pattern), expected.map(|(.., value)| value));
    }

    fn count_removed(&self, handle: UnexpectedHandle, met: &mut Met<AskedSituation>) {
        for (lookup, in_chain) in self.list.standings(handle) {
            met.count(AskedSituation::Removed(lookup, in_chain));
        }
    }
}

fn unexpected_history(classes: usize, seed: u64, met: &mut Met<AskedSituation>) {
    let list = UnexpectedList::new(seed);
    let mut random = Random::new(seed);
    // The number of keys differs by class, since classes compare different bits. Some class has
    // just as many as fill its table.
    let keys = 80 + random.below(KEYS - 80);
    let mut run = UnexpectedRun { list, oracle: Vec::new(), arrived: 0, random, classes, keys };
    for key in (0..4).flat_map(|_| 0..keys) {
        run.arrive(key);
    }
    for step in 0..keys * 6 {
        match run.random.below(10) {
            0..2 => run.remove(met),
            2..5 if step < keys * 4 => {
                let key = run.random.below(keys);
                run.arrive(key);
            }
            _ => run.ask(met),
        }
        assert_eq!(run.list.len(), run.oracle.len());
    }
    assert!(run.list.iter_in_order().eq(run.oracle.iter().copied()));
    while !run.oracle.is_empty() {
        run.remove(met);
    }
    assert!(run.list.is_empty());
}

#[test]
fn long_lists_of_unexpected_messages_are_plain_lists_in_every_situation() {
    let mut met = Met(BTreeMap::new());
    for seed in 0..40 {
        for classes in 1..=7 {
            unexpected_history(classes, seed, &mut met);
        }
    }
    unexpected_history(40, 0, &mut met);
    let lookups = [Lookup::Home, Lookup::Farther, Lookup::Missing, Lookup::MissingFarther];
    met.assert_all(lookups.map(AskedSituation::Index));
    met.assert_all([AskedSituation::Builds, AskedSituation::Walks]);
    for lookup in [Lookup::Home, Lookup::Farther] {
        let in_chain = [InChain::Only, InChain::Oldest, InChain::Middle, InChain::Youngest];
        met.assert_all(in_chain.map(|in_chain| AskedSituation::Removed(lookup, in_chain)));
    }
}
