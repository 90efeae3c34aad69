//! Rules that hold for intercommunicators, also when processes die while they are made. A check
//! panics if its rule is broken.

use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;

use tagmatch_comm::{
    CollRequest, Comm, Config, Error, ErrorClass, InterComm, RemoteLeader, Runtime, Uniformity,
};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, Stuck};

use super::{Busy, Deaths, Sims, TestNet, plain, turn};

/// Two groups of a job: the ranks of the second group follow those of the first one.
pub(crate) struct Groups {
    pub(crate) sim: Sim,
    pub(crate) sizes: [u32; 2],
    members: Vec<Option<Member>>,
}

/// A survivor, and the result of its program.
type End<T> = Option<(Rc<Member>, T)>;

/// A process of one of the groups.
pub(crate) struct Member {
    pub(crate) runtime: Sims,
    /// The communicator of its group.
    pub(crate) part: Comm<TestNet>,
    pub(crate) is_first: bool,
    sizes: [u32; 2],
}

impl Member {
    /// The leaders are the last process of the first group and the first one of the second group.
    pub(crate) fn create(
        &self,
        uniformity: Uniformity,
    ) -> CollRequest<TestNet, InterComm<TestNet>> {
        let world = self.runtime.world();
        let (leader, remote) =
            if self.is_first { (self.sizes[0] - 1, self.sizes[0]) } else { (0, self.sizes[0] - 1) };
        let remote = RemoteLeader { peer: &world, rank: remote, tag: 3 };
        let remote = (self.part.rank() == leader).then_some(remote);
        self.part.create_inter(uniformity, leader, remote).start()
    }
}

/// The first group accepts, the second one connects. The first leader sends the port's name to the
/// second leader in a message.
pub(crate) async fn meet(
    member: &Member,
    uniformity: Uniformity,
) -> Result<InterComm<TestNet>, Error> {
    let world = member.runtime.world();
    let leaders = [member.sizes[0] - 1, member.sizes[0]];
    if member.is_first {
        let leader = leaders[0];
        let port = (world.rank() == leader).then(|| member.runtime.open_port().unwrap());
        if let Some(port) = &port {
            let name = port.name().to_string();
            world.send(leaders[1], 1, name.into_bytes()).await.map_err(|failed| failed.error)?;
        }
        return member.part.accept(uniformity, leader, port.as_ref()).await;
    }
    if world.rank() != leaders[1] {
        return member.part.connect(uniformity, 0, None).await;
    }
    // A leader that doesn't get the name passes no port to its group.
    let received = world.recv(leaders[0], 1, vec![0; 20]).await;
    let name = received.ok().map(|name| str::from_utf8(name.data()).unwrap().parse().unwrap());
    member.part.connect(uniformity, 0, name).await
}

/// Groups that meet at a port have the same result at all survivors. The leader that calls is never
/// killed: the leader that waits for a call could not learn of that death.
pub(crate) fn meetings(groups: &mut Groups, kills: &[Kill]) -> u64 {
    if kills.iter().any(|kill| kill.rank == groups.sizes[0]) {
        return 0;
    }
    let program = |member: Rc<Member>| async move {
        let before = member.runtime.free_ids();
        let made = meet(&member, Uniformity::Strict).await;
        let made = match made {
            Ok(inter) => {
                let _works = inter.disconnect().await;
                Ok(())
            }
            Err(error) => Err(error.class()),
        };
        assert_eq!(member.runtime.free_ids(), before);
        made
    };
    let (ends, steps) = groups.run_alike(kills, program);
    assert!(!kills.is_empty() || ends.iter().all(Result::is_ok), "{ends:?}");
    steps
}

impl Groups {
    pub(crate) fn new(sizes: [u32; 2], seed: u64) -> Self {
        Self::with(sizes, seed, Config::default)
    }

    pub(crate) fn with(sizes: [u32; 2], seed: u64, config: impl Fn() -> Config<TestNet>) -> Self {
        let processes = sizes[0] + sizes[1];
        let sim = Sim::new(SimConfig { processes, seed, ..SimConfig::default() });
        let members = Vec::new();
        let mut groups = Groups { sim, sizes, members };
        let start = |rank: u32| {
            let runtime = Runtime::new(plain(&groups.sim, rank), config()).unwrap();
            let is_first = rank < sizes[0];
            async move {
                let part = runtime.world().split(Some(u32::from(is_first)), 0).await.unwrap();
                Member { runtime, part: part.unwrap(), is_first, sizes }
            }
        };
        let ran = groups.sim.run((0..processes).map(start), &[]).unwrap();
        groups.members = ran.ends;
        groups
    }

    /// Runs a program on each process. A process whose program has ended makes progress until all
    /// others have ended or died.
    pub(crate) fn run<F: Future>(
        &mut self,
        kills: &[Kill],
        program: impl Fn(Rc<Member>) -> F,
    ) -> Result<Ran<End<F::Output>>, Stuck> {
        let busy = Rc::new(Cell::new(self.sizes[0] + self.sizes[1]));
        let run = |member: Option<Member>| {
            let own = Busy(Rc::clone(&busy));
            let busy = Rc::clone(&busy);
            let member = member.map(Rc::new);
            let program = member.clone().map(&program);
            async move {
                let end = program?.await;
                drop(own);
                let member = member?;
                while busy.get() > 0 {
                    member.runtime.progress();
                    turn().await;
                }
                Some((member, end))
            }
        };
        self.sim.run(std::mem::take(&mut self.members).into_iter().map(run), kills)
    }

    /// Runs a program that has the same result at all survivors, on each process. Returns the
    /// results of the survivors, and the number of steps.
    fn run_alike<F: Future<Output: PartialEq + Debug>>(
        &mut self,
        kills: &[Kill],
        program: impl Fn(Rc<Member>) -> F,
    ) -> (Vec<F::Output>, u64) {
        let ran = self.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
        let ends: Vec<_> = living(ran.ends, kills).map(|(_, end)| end).collect();
        assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
        (ends, ran.steps)
    }
}

/// Runs a creation without deaths; then once for each rank and each step of that run, and kills the
/// rank there; then with pairs of ranks: one is killed at each step, the other at a step that the
/// seed chooses, before or after.
pub(crate) fn kill_everywhere(
    sizes: [u32; 2],
    seeds: u64,
    check: impl Fn(&mut Groups, &[Kill]) -> u64,
) {
    kill_each(sizes[0] + sizes[1], seeds, |seed, kills| {
        check(&mut Groups::new(sizes, seed), kills)
    });
}

/// Runs a creation once for each pair of processes and each pair of steps, and kills them there.
pub(crate) fn kill_all_pairs(sizes: [u32; 2], check: impl Fn(&mut Groups, &[Kill]) -> u64) {
    Deaths::AllPairs.each(sizes[0] + sizes[1], 0, |kills| check(&mut Groups::new(sizes, 0), kills));
}

/// As [`kill_everywhere`], for any run that a seed and kills determine, and that returns the number
/// of its steps.
pub(crate) fn kill_each(processes: u32, seeds: u64, run: impl Fn(u64, &[Kill]) -> u64) {
    for seed in 0..seeds {
        let run = |kills: &[Kill]| run(seed, kills);
        let steps = run(&[]);
        for (step, rank) in (0..steps).flat_map(|step| (0..processes).map(move |rank| (step, rank)))
        {
            let first = Kill { rank, step };
            run(&[first]);
            // The pairs take turns, so that each pair dies in each part of the run.
            let apart = 1 + u32::try_from((step + seed) % u64::from(processes - 1)).unwrap();
            let other = (step * 31 + seed * 7 + u64::from(rank) * 17) % steps;
            run(&[first, Kill { rank: (rank + apart) % processes, step: other }]);
        }
    }
}

/// The results of the processes that are not killed. A killed process may have a result, too, if it
/// had ended before.
pub(crate) fn living<T>(ends: Vec<Option<Option<T>>>, kills: &[Kill]) -> impl Iterator<Item = T> {
    let is_killed = |rank: u32| kills.iter().any(|kill| kill.rank == rank);
    (0..).zip(ends).filter_map(move |(rank, end)| end.flatten().filter(|_| !is_killed(rank)))
}

/// All survivors have the same result, and no id stays in use. The intercommunicator that they have
/// works, or its operations end with an error.
pub(crate) fn strict(groups: &mut Groups, kills: &[Kill]) -> u64 {
    let program = |member: Rc<Member>| async move {
        let before = member.runtime.free_ids();
        let made = member.create(Uniformity::Strict).await;
        let made = match made {
            Ok(inter) => {
                assert_eq!(member.runtime.free_ids(), before - 1);
                let _works = inter.barrier().await;
                Ok(())
            }
            Err(error) => Err(error.class()),
        };
        assert_eq!(member.runtime.free_ids(), before);
        made
    };
    let (ends, steps) = groups.run_alike(kills, program);
    let is_end = |end: &Result<(), ErrorClass>| match end {
        Ok(()) => true,
        Err(class) => *class == ErrorClass::NotCreated && !kills.is_empty(),
    };
    assert!(ends.iter().all(is_end), "{kills:?}: {ends:?}");
    steps
}

/// Without uniformity, nothing hangs and no id stays in use. A merge has the same result at all
/// survivors.
pub(crate) fn merges(groups: &mut Groups, kills: &[Kill]) -> u64 {
    let program = |member: Rc<Member>| async move {
        let before = member.runtime.free_ids();
        let plain = member.create(Uniformity::None).await;
        let strict = member.create(Uniformity::Strict).await.ok();
        let merged = match &strict {
            Some(inter) => {
                let merge = inter.merge(false).start();
                let copy = inter.dup().start();
                let _same_or_not = copy.await;
                let merged = merge.await;
                Some(merged.map(|comm| (comm.id(), comm.group().clone())).ok())
            }
            None => None,
        };
        drop((plain, strict));
        assert_eq!(member.runtime.free_ids(), before);
        merged
    };
    let (ends, steps) = groups.run_alike(kills, program);
    assert!(!kills.is_empty() || ends.iter().all(|end| matches!(end, Some(Some(_)))));
    steps
}

/// All survivors of a group have the same result. If the other group has another result, the
/// intercommunicator is revoked in the end.
pub(crate) fn eventual(groups: &mut Groups, kills: &[Kill]) -> u64 {
    let sizes = groups.sizes;
    let program = |member: Rc<Member>| async move { member.create(Uniformity::Eventual).await };
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    // Until all messages that were in flight have arrived.
    let settle = |end: End<Result<InterComm<TestNet>, Error>>| async move {
        let (member, made) = end?;
        for _ in 0..50 {
            // Each call handles the messages that have arrived.
            member.runtime.world().failed();
            turn().await;
        }
        let is_live = made.is_ok_and(|inter| !inter.is_revoked());
        assert_eq!(member.runtime.free_ids(), 2045);
        Some(is_live)
    };
    let result = |end: &Option<Option<(_, Result<_, _>)>>| {
        end.as_ref().map(|end| end.as_ref().map(|(_, made)| made.is_ok()))
    };
    let results: Vec<Option<Option<bool>>> = ran.ends.iter().map(result).collect();
    for is_first in [true, false] {
        let is_of_group = |rank: usize| (rank < sizes[0] as usize) == is_first;
        let of_group =
            results.iter().enumerate().map(|(rank, made)| made.filter(|_| is_of_group(rank)));
        let of_group: Vec<bool> = living(of_group.collect(), kills).collect();
        assert!(of_group.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {results:?}");
    }
    let ends = groups.sim.run(ran.ends.into_iter().map(Option::flatten).map(settle), &[]);
    let ends = ends.unwrap_or_else(|stuck| panic!("{kills:?}: then {stuck}")).ends;
    let live: Vec<bool> = living(ends, kills).collect();
    assert!(live.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {live:?}, {results:?}");
    assert!(!kills.is_empty() || live.iter().all(|is_live| *is_live), "{results:?}");
    ran.steps
}
