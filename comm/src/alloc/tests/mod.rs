mod explore;

use std::thread;

use proptest::prelude::*;

use self::explore::{ExploredScope, Start, Use, explore, rounds_when_fair};
use super::shared_mask::SharedMask;
use super::*;
use crate::net::ProcessId;

/// Prefixes in the eager word, which has 2 to 31.
const EAGER: [u32; 3] = [5, 4, 3];
const BASE: [u32; 3] = [40, 39, 38];

fn tiny() -> IdLayout {
    IdLayout::new(1, true, 2).unwrap()
}

/// A rank whose free ids are these.
fn rank(left: &[u32]) -> SharedMask {
    let mut shared = SharedMask::new(tiny(), 1).unwrap();
    for prefix in (2..64).filter(|prefix| !left.contains(prefix)) {
        shared.free.take(prefix).unwrap();
    }
    shared
}

fn priority(parent: u32) -> Priority {
    Priority { parent: tiny().id(parent).unwrap(), tag: 0 }
}

const MEMBER: Option<Role> = Some(Role::Member);

/// The roles of each rank in an allocation, and its priority.
type Calls = Vec<(Priority, Vec<Option<Role>>)>;

fn scope(ranks: Vec<SharedMask>, calls: Calls) -> ExploredScope {
    let (after, used, sent) = Default::default();
    ExploredScope { ranks, calls, may_fail: false, after, used, settles: false, sent }
}

/// Two allocations of all ranks, which have the same free ids.
fn two_calls(ranks: usize, left: &[u32]) -> ExploredScope {
    let calls = vec![(priority(0), vec![MEMBER; ranks]), (priority(9), vec![MEMBER; ranks])];
    scope(vec![rank(left); ranks], calls)
}

/// Allocations of all ranks, one after the other. The first `users` ranks use an id, in which they
/// have sent to each other, and free it at any time.
fn settling(ranks: usize, users: usize, calls: usize, left: &[u32]) -> ExploredScope {
    let call = |at| (priority(u32::try_from(at).unwrap()), vec![MEMBER; ranks]);
    let mut scope = scope(vec![rank(left); ranks], (0..calls).map(call).collect());
    for user in 0..users {
        scope.ranks[user].free.take(40);
        scope.used.push((user, 40, true));
        scope.sent.push((user, (user + 1) % users));
    }
    let turns = (1..calls).flat_map(|call| (0..ranks).map(move |rank| (call, rank, call - 1)));
    ExploredScope { settles: true, after: turns.collect(), ..scope }
}

/// Lets first rounds hold one id if another one is free.
fn with_plenty(mut scope: ExploredScope) -> ExploredScope {
    for shared in &mut scope.ranks {
        (shared.held_max, shared.plenty) = (1, 2);
    }
    scope
}

/// Both ranks allocate in the first call, and rank 0 alone in the other calls. Rank 1 waits for
/// those before it begins.
fn alone_while_the_other_waits(left: &[u32], alone: usize) -> ExploredScope {
    let mut calls = vec![(priority(0), vec![MEMBER; 2])];
    calls.extend(
        (0..alone).map(|at| (priority(1 + u32::try_from(at).unwrap()), vec![MEMBER, None])),
    );
    let after = (1..=alone).map(|call| (0, 1, call)).collect();
    ExploredScope { after, ..scope(vec![rank(left); 2], calls) }
}

/// Three allocations, one for each two of three ranks.
fn ring(left: &[u32]) -> ExploredScope {
    let calls = (0..3).map(|out| {
        let roles = (0..3).map(|rank| (rank != out).then_some(Role::Member)).collect();
        (priority(9 - u32::try_from(out).unwrap()), roles)
    });
    let after = Vec::new();
    ExploredScope {
        ranks: vec![rank(left); 3],
        calls: calls.collect(),
        may_fail: false,
        after,
        used: Vec::new(),
        settles: false,
        sent: Vec::new(),
    }
}

/// Whether each rank has used up the right number of ids.
type Check = &'static dyn Fn(&[u32]) -> bool;

/// Explores the scopes that have to end right in every order. Returns the first fault.
fn explore_all() -> Result<(), String> {
    let both: Check = &|burnt| burnt.iter().all(|ids| *ids == 2);
    let mut scopes: Vec<(&str, ExploredScope, Check)> = vec![
        ("eager words", two_calls(2, &EAGER), both),
        ("base", two_calls(2, &BASE), both),
        ("the last id of each part", two_calls(2, &[5, 40]), both),
        ("the last two eager ids", two_calls(2, &[5, 4]), both),
        ("one id for two", two_calls(2, &[40]), &|burnt| burnt == [1, 1]),
        ("one eager id for two", two_calls(2, &[5]), &|burnt| burnt == [1, 1]),
        ("none", two_calls(2, &[]), &|burnt| burnt == [0, 0]),
    ];
    let mut ignored = two_calls(2, &[5, 40]);
    ignored.calls[0].1[1] = Some(Role::Ignored);
    scopes.push(("ignored", ignored, &|burnt| burnt == [2, 1]));
    let mut failing = two_calls(2, &[5, 40]);
    failing.may_fail = true;
    scopes.push(("failing", failing, &|burnt| burnt[0] == burnt[1]));
    for (name, left, check) in [
        ("first rounds hold eager ids", &EAGER[..], both),
        ("first rounds hold one of two", &[5, 40], both),
        ("first rounds hold one of two eager ids", &[5, 4], both),
    ] {
        scopes.push((name, with_plenty(two_calls(2, left)), check));
    }
    let alone: [(&str, &[u32], usize, Check); 5] = [
        ("one waits for one alone: eager words", &EAGER, 1, &|burnt| burnt == [2, 1]),
        ("one waits for one alone: base", &BASE, 1, &|burnt| burnt == [2, 1]),
        ("one waits for two alone", &EAGER, 2, &|burnt| burnt == [3, 1]),
        ("one waits for one alone: one id", &[5], 1, &|burnt| burnt == [1, 0]),
        ("one waits for three alone: three ids", &EAGER, 3, &|burnt| burnt == [3, 0]),
    ];
    for (name, left, alone, check) in alone {
        scopes.push((name, alone_while_the_other_waits(left, alone), check));
    }
    // Both ranks free the id that they use, or one of them does not.
    let both_use = [(0, 40, true), (1, 40, true)];
    let freed: [(&str, Vec<Use>, Check); 3] = [
        ("freed by both", both_use.to_vec(), &|burnt| burnt == [1, 1]),
        ("freed by one", vec![(0, 40, true), (1, 40, false)], &|burnt| burnt == [0, 0]),
        ("used by one, free in the other", vec![(0, 40, true)], &|burnt| burnt == [1, 1]),
    ];
    for (name, used, check) in freed {
        let mut scope = two_calls(2, &[40]);
        scope.calls.truncate(1);
        for (rank, prefix, _) in &used {
            scope.ranks[*rank].free.take(*prefix);
        }
        scope.used = used;
        scopes.push((name, scope, check));
    }
    // A first round holds one of the ids, so the other calls can't get it. They end with an error.
    let held = with_plenty(alone_while_the_other_waits(&EAGER, 3));
    scopes.push(("one waits for more than are left", held, &|burnt| burnt[0] == 3));
    // Last, since most of the states are here, and a fault of the small scopes is found sooner.
    scopes.push(("three ranks", two_calls(3, &[5, 40]), &|burnt| burnt == [2, 2, 2]));
    for (name, scope, check) in scopes {
        let explored = explore(&scope, Start::Idle, check);
        let states = explored.map_err(|fault| format!("{name}: {fault}"))?.states;
        println!("{name}: {states} states");
    }
    Ok(())
}

#[test]
fn every_order_of_small_scopes_ends_right() {
    assert_eq!(explore_all(), Ok(()));
}

#[test]
fn every_order_of_a_ring_ends_right() {
    let scope = ring(&[5, 40, 39]);
    let states = explore(&scope, Start::Begun, |burnt| burnt == [2, 2, 2]).map(|end| end.states);
    assert!(states.is_ok(), "{states:?}");
}

#[test]
fn in_whatever_order_allocations_begin_the_ends_are_the_same() {
    for left in [&EAGER[..], &BASE, &[5, 40], &[40], &[5], &[]] {
        let scope = two_calls(2, left);
        let idle = explore(&scope, Start::Idle, |_| true).unwrap();
        let begun = explore(&scope, Start::Begun, |_| true).unwrap();
        assert_eq!(idle.burnt, begun.burnt);
        assert!(begun.states < idle.states, "{} of {}", begun.states, idle.states);
    }
}

/// Ids that ranks free at any time, and settle by their allocations.
fn explore_settling() -> Result<(), String> {
    let any: Check = &|_| true;
    let mut scopes: Vec<(&str, ExploredScope, Check)> = vec![
        ("two", settling(2, 2, 3, &EAGER), &|burnt| burnt == [3, 3]),
        ("two of three", settling(3, 2, 2, &EAGER), &|burnt| burnt == [2, 2, 2]),
        ("the only id", settling(2, 2, 1, &[]), any),
    ];
    let mut failing = settling(2, 2, 2, &EAGER);
    failing.may_fail = true;
    scopes.push(("failing", failing, any));
    for (name, scope, check) in scopes {
        let explored = explore(&scope, Start::Idle, check);
        let states = explored.map_err(|fault| format!("{name}: {fault}"))?.states;
        println!("{name}: {states} states");
    }
    Ok(())
}

#[test]
fn no_id_is_settled_while_a_message_may_arrive() {
    assert_eq!(explore_settling(), Ok(()));
}

/// If all threads run, allocations end after a few rounds, in whatever order the threads run.
fn rounds_are_bounded() -> Result<(), String> {
    for (name, scope, max) in [
        ("eager words", two_calls(2, &EAGER), 5),
        ("base", two_calls(2, &BASE), 3),
        ("the last of each part", two_calls(2, &[5, 40]), 4),
        ("none", two_calls(2, &[]), 5),
    ] {
        let rounds = rounds_when_fair(&scope, max).map_err(|fault| format!("{name}: {fault}"))?;
        println!("{name}: {rounds} rounds");
    }
    Ok(())
}

#[test]
fn rounds_are_bounded_when_all_threads_run() {
    assert_eq!(rounds_are_bounded(), Ok(()));
}

/// Carries out an allocation on all of these allocators, round by round.
fn allocate(allocators: &[Allocator], roles: &[Role]) -> Vec<Result<Option<OwnedId>, Error>> {
    let begin =
        |(allocator, role): (&Allocator, &Role)| allocator.begin(tiny().world(), u32::MAX, *role);
    together(allocators.iter().zip(roles).map(begin).collect())
}

fn together(mut allocations: Vec<Allocation>) -> Vec<Result<Option<OwnedId>, Error>> {
    loop {
        let offers: Vec<_> = allocations.iter_mut().map(Allocation::offer).collect();
        let mut all = offers[0].clone();
        offers[1..].iter().for_each(|offer| combine(offer, &mut all));
        let ends: Vec<_> = allocations.iter_mut().map(|one| one.conclude(&all)).collect();
        if !matches!(ends[0], Ok(Progress::Again)) {
            let id = |end| match end {
                Ok(Progress::Done(id)) => Ok(id),
                Ok(Progress::Again) => panic!("not uniform"),
                Err(error) => Err(error),
            };
            return ends.into_iter().map(id).collect();
        }
    }
}

/// The processes of some allocators, which make communicators of all.
struct AllocatorPair {
    allocators: [Allocator; 2],
    group: Arc<Group>,
}

impl AllocatorPair {
    fn make(&self, name: u64) -> [OwnedId; 2] {
        let begin = |allocator: &Allocator| {
            let allocation = allocator.begin(tiny().world(), 0, Role::Member);
            allocation.over(&self.group).for_members([name; 2], &self.group)
        };
        let ids = together(self.allocators.iter().map(begin).collect());
        let ids: Vec<_> = ids.into_iter().map(|id| id.unwrap().unwrap()).collect();
        ids.try_into().unwrap()
    }

    /// A process frees an id, and closes it.
    fn close(&self, process: usize, id: OwnedId, numbers: [u32; 2]) {
        let prefix = IdLayout::BITS_16.prefix(id.id());
        drop(id);
        self.allocators[process].with_rest(|rest| {
            let name = rest.take()[0].used.as_ref().unwrap().name();
            let group = &self.group;
            let weights = [3, 5];
            rest.close(prefix, || ClosedUse::new(name, group, weights, process == 0, numbers));
        });
    }

    /// How many processes know that an id is settled.
    fn settled(&self, id: ContextId) -> usize {
        let prefix = IdLayout::BITS_16.prefix(id);
        let knows = |one: &&Allocator| one.with_rest(|rest| rest.has_settled(prefix));
        self.allocators.iter().filter(knows).count()
    }
}

#[test]
fn the_second_allocation_after_all_have_closed_an_id_settles_it() {
    let allocators = [(); 2].map(|()| Allocator::new(IdLayout::BITS_16, 2).unwrap());
    let job = AllocatorPair { allocators, group: Arc::new(Group::new([0, 1].map(ProcessId))) };
    let ([a, b], [c, d]) = (job.make(1), job.make(2));
    let first = a.id();
    let second = c.id();
    // The processes free the ids in different orders. Process 0 has sent in the first one.
    job.close(0, a, [1, 0]);
    job.close(1, d, [0, 0]);
    let mut kept = Vec::from(job.make(3));
    kept.extend(job.make(4));
    assert_eq!([first, second].map(|id| job.settled(id)), [0, 0]);
    job.close(0, c, [0, 0]);
    // One allocation finds out that all have freed the id, and the next one settles it.
    kept.extend(job.make(5));
    assert_eq!(job.settled(second), 0);
    kept.extend(job.make(6));
    assert_eq!(job.settled(second), 2);
    job.close(1, b, [0, 0]);
    for name in 7..10 {
        kept.extend(job.make(name));
        assert_eq!(job.settled(first), 0, "a message in it may still arrive");
    }
    job.allocators[1].with_rest(|rest| rest.receive(1, 1));
    kept.extend(job.make(10));
    assert_eq!(job.settled(first), 2);
}

/// Another process may have learned from that round that nothing can arrive any more, and has
/// forgotten the use.
#[test]
fn an_id_in_a_round_that_has_failed_is_a_stray() {
    let allocators = [(); 2].map(|()| Allocator::new(IdLayout::BITS_16, 2).unwrap());
    let job = AllocatorPair { allocators, group: Arc::new(Group::new([0, 1].map(ProcessId))) };
    let ids = job.make(1);
    let prefix = IdLayout::BITS_16.prefix(ids[0].id());
    for (process, id) in ids.into_iter().enumerate() {
        job.close(process, id, [0, 0]);
    }
    let _kept = job.make(2);
    let begin = job.allocators[0].begin(tiny().world(), 0, Role::Member);
    let mut failing = begin.over(&job.group);
    failing.offer();
    drop(failing);
    assert_eq!(
        job.allocators.each_ref().map(|one| one.with_rest(|rest| rest.is_stray(prefix))),
        [true, false]
    );
}

#[test]
fn all_ids_then_the_same_error_then_recovery() {
    let allocators = [(); 2].map(|()| Allocator::new(IdLayout::BITS_16, 2).unwrap());
    let roles = [Role::Member; 2];
    let mut ids = Vec::new();
    for _ in 0..2046 {
        for end in allocate(&allocators, &roles) {
            ids.push(end.unwrap().unwrap());
        }
    }
    assert_eq!(ids[0].id().bits(), 496);
    for end in allocate(&allocators, &roles) {
        assert_eq!(end.map(|_| ()), Err(Error::Exhausted { ids: 2048 }));
    }
    drop(ids);
    assert_eq!(allocators.each_ref().map(Allocator::free_count), [2046; 2]);
    assert!(allocate(&allocators, &roles).iter().all(Result::is_ok));
}

#[test]
fn free_ids_that_are_not_common_are_fragmentation() {
    let ranks = [[5, 40], [4, 41]];
    let allocators = ranks.map(|left| Allocator::of(rank(&left)));
    for end in allocate(&allocators, &[Role::Member; 2]) {
        assert_eq!(end.map(|_| ()), Err(Error::Fragmented { ids: 64 }));
    }
    // If one process has no id at all, all get exhaustion.
    let mut three = allocators.to_vec();
    three.push(Allocator::of(rank(&[])));
    for end in allocate(&three, &[Role::Member; 3]) {
        assert_eq!(end.map(|_| ()), Err(Error::Exhausted { ids: 64 }));
    }
    let ignored = [Role::Member, Role::Ignored];
    let ends = allocate(&allocators, &ignored);
    assert!(matches!(ends[..], [Ok(Some(_)), Ok(None)]));
}

#[test]
fn an_impossible_result_is_refused_and_nothing_stays_held() {
    let allocator = Allocator::new(tiny(), 1).unwrap();
    let before = allocator.free_count();
    let wrong: [&[u32]; 5] =
        [&[], &[1], &[u32::MAX, 1, 1, 0, 0, 0], &[u32::MAX, 0, 7, 0], &[1, 0, 7, 0, 0]];
    for all in wrong {
        let mut allocation = allocator.begin(tiny().world(), 0, Role::Member);
        allocation.offer();
        assert!(matches!(allocation.conclude(all), Err(Error::NotOffered)), "{all:?}");
        assert!(allocator.shared().is_at_rest());
    }
    let mut allocation = allocator.begin(tiny().world(), 0, Role::Member);
    allocation.offer();
    drop(allocation);
    assert!(allocator.shared().is_at_rest());
    assert_eq!(allocator.free_count(), before);
    assert!(Allocator::new(tiny(), 2).is_err());
}

#[test]
fn threads_that_allocate_at_once_get_ids_of_their_own() {
    let allocator = Allocator::new(IdLayout::BITS_16, 2).unwrap();
    let run = |parent: u32| {
        let allocator = allocator.clone();
        move || {
            let parent = IdLayout::BITS_16.id(parent).unwrap();
            let allocate = |_| {
                let mut allocation = allocator.begin(parent, 0, Role::Member);
                loop {
                    let offer = allocation.offer();
                    thread::yield_now();
                    if let Progress::Done(id) = allocation.conclude(&offer).unwrap() {
                        return id.unwrap();
                    }
                }
            };
            (0..100).map(allocate).collect::<Vec<_>>()
        }
    };
    let threads: Vec<_> = (0..4).map(|parent| thread::spawn(run(parent))).collect();
    let owned: Vec<OwnedId> = threads.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let mut ids: Vec<_> = owned.iter().map(OwnedId::id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400);
    drop(owned);
    assert_eq!(allocator.free_count(), 2046);
}

proptest! {
    /// For any free ids of a few ranks: the id is the highest common bit of the lowest word that
    /// has one, or the error says why there is none.
    #[test]
    fn the_first_common_id(masks in prop::collection::vec(any::<u64>(), 1..5), ignored in 0usize..5) {
        let left = |bits: u64| (2..64).filter(|prefix| bits >> prefix & 1 == 1).collect::<Vec<_>>();
        let of_rank = |bits: &u64| Allocator::of(rank(&left(*bits)));
        let allocators: Vec<_> = masks.iter().map(of_rank).collect();
        let role = |rank| if rank == ignored && rank > 0 { Role::Ignored } else { Role::Member };
        let roles: Vec<_> = (0..masks.len()).map(role).collect();
        let members = || masks.iter().zip(&roles).filter(|(_, role)| **role == Role::Member);
        let common = members().fold(u64::MAX << 2, |all, (mask, _)| all & mask);
        let expected = match (common & 0xffff_ffff, common >> 32) {
            (0, 0) if members().any(|(mask, _)| mask >> 2 == 0) => Err(Error::Exhausted { ids: 64 }),
            (0, 0) => Err(Error::Fragmented { ids: 64 }),
            (0, high) => Ok(tiny().id(32 + high.ilog2())),
            (low, _) => Ok(tiny().id(low.ilog2())),
        };
        for (end, role) in allocate(&allocators, &roles).into_iter().zip(roles) {
            let expected = expected.clone().map(|id| id.filter(|_| role == Role::Member));
            prop_assert_eq!(end.map(|id| id.map(|own| own.id())), expected);
        }
    }
}
