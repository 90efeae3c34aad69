//! Collective operations of two groups, each with its result by definition, computed in the
//! simplest way.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::coll::{Collective, Op};
use tagmatch_comm::ids::ContextId;
use tagmatch_comm::net::{Net, ProcessId};
use tagmatch_comm::{Error, ErrorClass, Group, InterComm, InterRoot, Uniformity};
use tagmatch_comm_sim::{Kill, Ran};

use super::inter::{Groups, Member, living};
use super::{TestNet, linger};

/// The arguments and results of one process of two groups. The groups are 0 and 1.
#[derive(Clone, Copy)]
pub(crate) struct View {
    group: u32,
    rank: u32,
    sizes: [u32; 2],
    /// All lengths are multiples of this number.
    scale: usize,
}

impl View {
    pub(crate) fn new<N: Net>(inter: &InterComm<N>, is_first: bool, scale: usize) -> Self {
        let own = inter.size();
        let other = inter.remote_size();
        let sizes = if is_first { [own, other] } else { [other, own] };
        View { group: u32::from(!is_first), rank: inter.rank(), sizes, scale }
    }

    fn other(self) -> u32 {
        1 - self.group
    }

    /// The ranks of a group.
    fn ranks(self, group: u32) -> std::ops::Range<u32> {
        0..self.sizes[group as usize]
    }

    fn own_size(self) -> usize {
        self.sizes[self.group as usize] as usize
    }

    fn root(self, (group, rank): (u32, u32)) -> InterRoot {
        match (group == self.group, rank == self.rank) {
            (true, true) => InterRoot::Own,
            (true, false) => InterRoot::Local,
            (false, _) => InterRoot::Remote(rank),
        }
    }

    fn is_root(self, root: (u32, u32)) -> bool {
        root == (self.group, self.rank)
    }

    /// The length of the block of each member of a group, in bytes.
    fn block(self, group: u32) -> usize {
        (2 + 3 * group as usize) * self.scale
    }

    /// The length of the block that a process of a group sends to a remote one, in bytes. Some
    /// blocks are empty.
    fn length(self, group: u32, from: u32, to: u32) -> usize {
        (group + 3 * from + to) as usize % 5 * self.scale
    }

    /// The block that a process of a group sends to a remote one.
    fn uneven(self, group: u32, from: u32, to: u32) -> Vec<u8> {
        bytes(group, from, 90 + to, self.length(group, from, to))
    }

    /// The lengths of the blocks that a process of this group receives, by remote rank.
    fn lengths_to(self, to: u32) -> Vec<usize> {
        self.ranks(self.other()).map(|from| self.length(self.other(), from, to)).collect()
    }

    /// The lengths of the blocks that a process of this group sends, by remote rank.
    fn lengths_from(self, from: u32) -> Vec<usize> {
        self.ranks(self.other()).map(|to| self.length(self.group, from, to)).collect()
    }

    /// The values of a process for a reduction: at least 7.
    fn values(self, group: u32, rank: u32) -> Vec<u8> {
        bytes(group, rank, 7, 2 * 7 * self.scale)
    }

    /// The values of all members of a group, composed in the order of ranks.
    fn composed(self, group: u32) -> Vec<u8> {
        let values = self.ranks(group).map(|rank| self.values(group, rank));
        let compose = |left: Vec<u8>, right: Vec<u8>| {
            let pairs = left.chunks_exact(2).zip(right.chunks_exact(2));
            pairs.flat_map(|(left, right)| composition(left, right)).collect()
        };
        values.reduce(compose).unwrap()
    }

    fn added(self, group: u32) -> Vec<u8> {
        let values = self.ranks(group).map(|rank| self.values(group, rank));
        let add =
            |a: Vec<u8>, b: Vec<u8>| a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
        values.reduce(add).unwrap()
    }

    /// The length of each member's part of the result in bytes, by local rank. The sum is the same
    /// in both groups.
    fn parts(self) -> Vec<usize> {
        let all = 7 * self.scale;
        let size = self.own_size();
        (0..size).map(|rank| 2 * (all * (rank + 1) / size - all * rank / size)).collect()
    }

    fn own_part(self, all: &[u8]) -> Vec<u8> {
        let parts = self.parts();
        let own = self.rank as usize;
        let start: usize = parts[..own].iter().sum();
        all[start..start + parts[own]].to_vec()
    }
}

/// Bytes that differ for each process.
fn bytes(group: u32, rank: u32, salt: u32, length: usize) -> Vec<u8> {
    let first = (group * 101 + rank * 37 + salt * 11) as usize;
    (0..length).map(|at| u8::try_from((first + at * 3) % 251).unwrap()).collect()
}

/// The composition of functions `x -> ax + b` modulo 256. It is associative, and not commutative.
fn composition(left: &[u8], right: &[u8]) -> [u8; 2] {
    let sum = right[0].wrapping_mul(left[1]).wrapping_add(right[1]);
    [right[0].wrapping_mul(left[0]), sum]
}

pub(crate) fn compose() -> Op {
    Op::new(2, false, |left, right| {
        for (left, right) in left.chunks_exact(2).zip(right.chunks_exact_mut(2)) {
            right.copy_from_slice(&composition(left, right));
        }
    })
    .unwrap()
}

type CallOf<N> = Box<dyn for<'a> Fn(&'a InterComm<N>) -> Collective<'a, N>>;

/// An operation, and its result.
pub(crate) struct Case<N: Net> {
    pub(crate) name: String,
    pub(crate) call: CallOf<N>,
    pub(crate) expected: Vec<u8>,
}

macro_rules! case {
    ($expected:expr, $call:ident, $($argument:expr),*) => {
        Case {
            name: stringify!($call).to_owned(),
            call: Box::new(move |inter| inter.$call($($argument),*)),
            expected: $expected,
        }
    };
}

/// All operations. An operation with a root is listed once for each process of both groups.
pub(crate) fn cases<N: Net>(v: View) -> Vec<Case<N>> {
    let roots = [0, 1].into_iter().flat_map(|group| v.ranks(group).map(move |rank| (group, rank)));
    let mut cases: Vec<Case<N>> = roots.flat_map(|root| rooted(v, root)).collect();
    cases.extend(of_all(v));
    cases
}

fn rooted<N: Net>(v: View, root: (u32, u32)) -> Vec<Case<N>> {
    let own = v.group;
    let other = v.other();
    let rank = v.rank;
    let is_root = v.is_root(root);
    let is_across = root.0 == other;
    let at_root = |all: Vec<u8>| if is_root { all } else { vec![] };
    let across = |block: Vec<u8>| if is_across { block } else { vec![] };
    let given = move |group: u32, rank: u32| bytes(group, rank, 1, v.block(group));
    // The root's blocks for all members of the other group.
    let blocks = move |of: (u32, u32)| -> Vec<u8> {
        v.ranks(1 - of.0).flat_map(|to| bytes(of.0, of.1, 50 + to, v.block(1))).collect()
    };
    let unevens = move |of: (u32, u32)| -> Vec<u8> {
        v.ranks(1 - of.0).flat_map(|to| v.uneven(of.0, of.1, to)).collect()
    };
    let broadcast = move |group: u32, rank: u32| bytes(group, rank, 3, 5 * v.scale);
    let copy = if is_across { broadcast(root.0, root.1) } else { broadcast(own, rank) };
    let gathered = v.ranks(other).flat_map(|from| given(other, from)).collect();
    let uneven = v.ranks(other).flat_map(|from| v.uneven(other, from, root.1)).collect();
    vec![
        case!(copy, broadcast, v.root(root), broadcast(own, rank)),
        case!(at_root(v.composed(other)), reduce, v.root(root), v.values(own, rank), &compose()),
        case!(at_root(v.added(other)), reduce, v.root(root), v.values(own, rank), &Op::sum::<u8>()),
        case!(at_root(gathered), gather, v.root(root), given(own, rank), v.block(other)),
        case!(
            at_root(uneven),
            gatherv,
            v.root(root),
            v.uneven(own, rank, root.1),
            &v.lengths_to(rank)
        ),
        case!(
            across(bytes(root.0, root.1, 50 + rank, v.block(1))),
            scatter,
            v.root(root),
            blocks((own, rank)),
            v.block(1)
        ),
        case!(
            across(v.uneven(root.0, root.1, rank)),
            scatterv,
            v.root(root),
            unevens((own, rank)),
            &v.lengths_from(rank),
            v.length(root.0, root.1, rank)
        ),
    ]
}

fn of_all<N: Net>(v: View) -> Vec<Case<N>> {
    let own = v.group;
    let other = v.other();
    let rank = v.rank;
    let given = move |group: u32, rank: u32| bytes(group, rank, 2, v.block(group));
    let for_each =
        move |group: u32, from: u32, to: u32| bytes(group, from, 60 + to, v.block(group));
    let sends =
        move || -> Vec<u8> { v.ranks(other).flat_map(|to| for_each(own, rank, to)).collect() };
    let unevens =
        move || -> Vec<u8> { v.ranks(other).flat_map(|to| v.uneven(own, rank, to)).collect() };
    let gathered = v.ranks(other).flat_map(|from| given(other, from)).collect();
    let first = move |from: u32| v.uneven(other, from, 0);
    let firsts = move || -> Vec<usize> { v.ranks(other).map(|from| first(from).len()).collect() };
    vec![
        case!(Vec::new(), allreduce, Vec::new(), &compose()),
        case!(v.composed(other), allreduce, v.values(own, rank), &compose()),
        case!(v.added(other), allreduce, v.values(own, rank), &Op::sum::<u8>()),
        case!(
            v.own_part(&v.composed(other)),
            reduce_scatter,
            v.values(own, rank),
            &v.parts(),
            &compose()
        ),
        case!(gathered, allgather, given(own, rank), v.block(other)),
        case!(
            v.ranks(other).flat_map(first).collect(),
            allgatherv,
            v.uneven(own, rank, 0),
            &firsts()
        ),
        case!(
            v.ranks(other).flat_map(|from| for_each(other, from, rank)).collect(),
            alltoall,
            sends(),
            v.block(other)
        ),
        case!(
            v.ranks(other).flat_map(|from| v.uneven(other, from, rank)).collect(),
            alltoallv,
            unevens(),
            &v.lengths_from(rank),
            &v.lengths_to(rank)
        ),
    ]
}

/// Runs a program on each process of two groups that have an intercommunicator. A process whose
/// program has ended makes progress until all others have ended or died.
pub(crate) fn run_on<F: Future>(
    sizes: [u32; 2],
    seed: u64,
    kills: &[Kill],
    program: impl Fn(Rc<Member>, InterComm<TestNet>) -> F,
) -> Ran<F::Output> {
    let mut groups = Groups::new(sizes, seed);
    let made =
        groups.run(&[], |member| async move { member.create(Uniformity::None).await.unwrap() });
    let made = made.unwrap_or_else(|stuck| panic!("{stuck}")).ends;
    let busy = Rc::new(Cell::new(sizes[0] + sizes[1]));
    let programs = made.into_iter().map(|made| {
        let (member, inter) = made.flatten().unwrap();
        linger(member.runtime.clone(), &busy, program(member, inter))
    });
    groups.sim.run(programs, kills).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"))
}

/// Checks the results of a run with these deaths. Returns the number of its steps.
type Check = fn([u32; 2], u64, &[Kill]) -> u64;

/// All operations at once, with long messages if the seed is odd. Each operation ends at all
/// survivors, with the right result or with an error about a failure.
pub(crate) fn all_at_once(sizes: [u32; 2], seed: u64, kills: &[Kill]) -> u64 {
    let scale = if seed.is_multiple_of(2) { 1 } else { 1000 };
    let program = |member: Rc<Member>, inter: InterComm<TestNet>| async move {
        let cases: Vec<Case<TestNet>> = cases(View::new(&inter, member.is_first, scale));
        let begun: Vec<_> = cases.iter().map(|case| (case.call)(&inter).start()).collect();
        for (Case { name, expected, .. }, request) in cases.iter().zip(begun) {
            match request.await {
                Ok(data) => assert_eq!(data, *expected, "{name}"),
                Err(error) => assert_eq!(error.class(), ErrorClass::ProcessFailed, "{name}"),
            }
        }
    };
    run_on(sizes, seed, kills, program).steps
}

/// All survivors have the same intercommunicators or the same error. The intercommunicators have
/// all survivors, and no process whose death was known before. No id stays in use.
pub(crate) fn shrinks(sizes: [u32; 2], seed: u64, kills: &[Kill]) -> u64 {
    let program = |member: Rc<Member>, inter: InterComm<TestNet>| async move {
        let before = member.runtime.free_ids();
        let seen = inter.failed();
        if member.is_first && inter.rank() == 0 {
            inter.revoke();
        }
        let first = inter.shrink().await;
        let works = match &first {
            Ok(small) => small.barrier().await.is_ok(),
            Err(_) => false,
        };
        let mut made = vec![first];
        // Two shrinks at once, one of them of the new intercommunicator.
        let again = made[0].as_ref().ok().map(|inter| inter.shrink().start());
        made.push(inter.shrink().await);
        if let Some(again) = again {
            made.push(again.await);
        }
        let outcomes =
            made.iter().map(|made| outcome(made, member.is_first, &seen)).collect::<Vec<_>>();
        drop(made);
        assert_eq!(member.runtime.free_ids(), before);
        Some((outcomes, works))
    };
    let ran = run_on(sizes, seed, kills, program);
    let ends: Vec<_> = living(ran.ends, kills).collect();
    assert!(ends.windows(2).all(|two| two[0].0 == two[1].0), "{kills:?}: {ends:?}");
    let is_killed = |rank: u32| kills.iter().any(|kill| kill.rank == rank);
    for (outcomes, works) in &ends {
        for made in outcomes {
            let Ok((_, [first, second])) = made else {
                let groups = [0..sizes[0], sizes[0]..sizes[0] + sizes[1]];
                assert!(
                    groups.into_iter().any(|mut group| group.all(is_killed)),
                    "{kills:?}: {made:?}"
                );
                continue;
            };
            let all = first.union(second);
            let mut live = (0..sizes[0] + sizes[1]).filter(|rank| !is_killed(*rank));
            assert!(live.all(|rank| all.rank(ProcessId(rank)).is_some()), "{kills:?}: {all:?}");
        }
        assert!(*works || !kills.is_empty());
    }
    ran.steps
}

/// The ids and the members of the first and of the second group.
type ShrinkOutcome = Result<([ContextId; 2], [Group; 2]), Error>;

fn outcome(
    made: &Result<InterComm<TestNet>, Error>,
    is_first: bool,
    seen: &Group,
) -> ShrinkOutcome {
    let inter = made.as_ref().map_err(Error::clone)?;
    let mut ids = [inter.id(), inter.remote_id()];
    let mut groups = [inter.group().clone(), inter.remote_group().clone()];
    assert!(groups.iter().all(|group| group.intersection(seen).size() == 0));
    if !is_first {
        ids.reverse();
        groups.reverse();
    }
    Ok((ids, groups))
}

/// Runs a check without deaths. Then runs it once for each rank and every `stride`th step, and
/// kills the rank there, alone and with another rank that is killed at the same step or later.
pub(crate) fn deaths(sizes: [u32; 2], seeds: u64, stride: usize, check: Check) {
    let processes = sizes[0] + sizes[1];
    for seed in 0..seeds {
        let steps = check(sizes, seed, &[]);
        for (step, rank) in
            (0..steps).step_by(stride).flat_map(|step| (0..processes).map(move |rank| (step, rank)))
        {
            let first = Kill { rank, step };
            check(sizes, seed, &[first]);
            // The pairs take turns, so that each pair dies in each part of the run.
            let apart = 1 + u32::try_from((step + seed) % u64::from(processes - 1)).unwrap();
            let later = (step * 31 + seed * 7 + u64::from(rank) * 17) % 20;
            let second = Kill { rank: (rank + apart) % processes, step: step + later };
            check(sizes, seed, &[first, second]);
        }
    }
}
