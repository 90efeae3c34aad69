//! What has to hold of intercommunicators, also when processes die while they are made. Each check
//! panics where it does not.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::{CollRequest, Comm, Config, Error, ErrorClass, InterComm, Runtime, Uniformity};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, SimNet, Stuck};

use super::{Busy, Deaths, Sims, turn};

/// Two groups of a job, one after the other.
pub(crate) struct Groups {
    pub(crate) sim: Sim,
    pub(crate) sizes: [u32; 2],
    members: Vec<Option<Member>>,
}

/// A process that lives, and what its program ended with.
type End<T> = Option<(Rc<Member>, T)>;

/// A process of one of them.
pub(crate) struct Member {
    pub(crate) runtime: Sims,
    /// Its group.
    pub(crate) part: Comm<SimNet>,
    pub(crate) is_first: bool,
    sizes: [u32; 2],
}

impl Member {
    /// Leaders are the last of the first group and the first of the second.
    pub(crate) fn create(&self, uniformity: Uniformity) -> CollRequest<SimNet, InterComm<SimNet>> {
        let world = self.runtime.world();
        let (leader, remote) =
            if self.is_first { (self.sizes[0] - 1, self.sizes[0]) } else { (0, self.sizes[0] - 1) };
        let peer = (self.part.rank() == leader).then_some(&world);
        self.part.create_inter(uniformity, leader, peer, remote, 3).start()
    }
}

/// The first group accepts, the second one connects; the name goes from leader to leader as a
/// message.
pub(crate) async fn meet(
    member: &Member,
    uniformity: Uniformity,
) -> Result<InterComm<SimNet>, Error> {
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
    // Who never hears of it tells its group of no port.
    let heard = world.recv(leaders[0], 1, vec![0; 20]).await;
    let name = heard.ok().map(|name| str::from_utf8(name.data()).unwrap().parse().unwrap());
    member.part.connect(uniformity, 0, name).await
}

/// Groups that meet at a port have the same result, at all who live. The one who calls lives: that
/// it won't, the one who waits for a call can't know.
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
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    let ends: Vec<_> = living(ran.ends, kills).map(|(_, end)| end).collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
    assert!(!kills.is_empty() || ends.iter().all(Result::is_ok), "{ends:?}");
    ran.steps
}

impl Groups {
    pub(crate) fn new(sizes: [u32; 2], seed: u64) -> Self {
        let processes = sizes[0] + sizes[1];
        let sim = Sim::new(SimConfig { processes, seed, ..SimConfig::default() });
        let members = Vec::new();
        let mut groups = Groups { sim, sizes, members };
        let start = |rank: u32| {
            let runtime = Runtime::new(groups.sim.net(rank), Config::default()).unwrap();
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

    /// Runs a program on each that lives. Who has ended goes on to make progress until all have
    /// ended or died.
    pub(crate) fn run<F: Future>(
        &mut self,
        kills: &[Kill],
        program: impl Fn(Rc<Member>) -> F,
    ) -> Result<Ran<End<F::Output>>, Stuck> {
        let busy = Rc::new(Cell::new(self.sizes[0] + self.sizes[1]));
        let run = |member: Option<Member>| {
            let (own, busy) = (Busy(Rc::clone(&busy)), Rc::clone(&busy));
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
}

/// Runs a creation without deaths; then with each rank killed at each step of that; then with each
/// pair of ranks killed, one at each step and the other at one that the seed chooses, before or
/// after.
pub(crate) fn kill_everywhere(
    sizes: [u32; 2],
    seeds: u64,
    check: impl Fn(&mut Groups, &[Kill]) -> u64,
) {
    kill_each(sizes[0] + sizes[1], seeds, |seed, kills| {
        check(&mut Groups::new(sizes, seed), kills)
    });
}

/// The same with each two processes, killed at each two steps.
pub(crate) fn kill_all_pairs(sizes: [u32; 2], check: impl Fn(&mut Groups, &[Kill]) -> u64) {
    let run = |kills: &[Kill]| check(&mut Groups::new(sizes, 0), kills);
    let steps = run(&[]);
    Deaths::AllPairs.each(sizes[0] + sizes[1], 0, steps, |kills| {
        run(kills);
    });
}

/// The same, of anything that a seed and kills decide on, and that tells how many steps it took.
pub(crate) fn kill_each(processes: u32, seeds: u64, run: impl Fn(u64, &[Kill]) -> u64) {
    for seed in 0..seeds {
        let run = |kills: &[Kill]| run(seed, kills);
        let steps = run(&[]);
        for (step, rank) in (0..steps).flat_map(|step| (0..processes).map(move |rank| (step, rank)))
        {
            let first = Kill { rank, step };
            run(&[first]);
            // In turn, so that each pair comes at each part of the way.
            let apart = 1 + u32::try_from((step + seed) % u64::from(processes - 1)).unwrap();
            let other = (step * 31 + seed * 7 + u64::from(rank) * 17) % steps;
            run(&[first, Kill { rank: (rank + apart) % processes, step: other }]);
        }
    }
}

/// The ends of those whom nobody kills: one may have come to its end and be killed then.
pub(crate) fn living<T>(ends: Vec<Option<Option<T>>>, kills: &[Kill]) -> impl Iterator<Item = T> {
    let is_killed = |rank: u32| kills.iter().any(|kill| kill.rank == rank);
    (0..).zip(ends).filter_map(move |(rank, end)| end.flatten().filter(|_| !is_killed(rank)))
}

/// All who live have the same result, which leaves no id taken, and what they have works or ends
/// with an error.
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
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    let ends: Vec<_> = living(ran.ends, kills).map(|(_, end)| end).collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
    let is_end = |end: &Result<(), ErrorClass>| match end {
        Ok(()) => true,
        Err(class) => *class == ErrorClass::NotCreated && !kills.is_empty(),
    };
    assert!(ends.iter().all(is_end), "{kills:?}: {ends:?}");
    ran.steps
}

/// Nothing hangs, and no id stays taken, where no uniformity is asked for; all who live have the
/// same result of a merge.
pub(crate) fn merges(groups: &mut Groups, kills: &[Kill]) -> u64 {
    let program = |member: Rc<Member>| async move {
        let before = member.runtime.free_ids();
        let plain = member.create(Uniformity::None).await;
        let strict = member.create(Uniformity::Strict).await.ok();
        let merged = match &strict {
            Some(inter) => {
                let (merge, copy) = (inter.merge(false).start(), inter.dup().start());
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
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    let ends: Vec<_> = living(ran.ends, kills).map(|(_, end)| end).collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
    assert!(!kills.is_empty() || ends.iter().all(|end| matches!(end, Some(Some(_)))));
    ran.steps
}

/// All of a group who live have the same result. If it is not that of the other group, it is
/// revoked in the end.
pub(crate) fn eventual(groups: &mut Groups, kills: &[Kill]) -> u64 {
    let sizes = groups.sizes;
    let program = |member: Rc<Member>| async move { member.create(Uniformity::Eventual).await };
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    // Until all that was on its way has come.
    let settle = |end: End<Result<InterComm<SimNet>, Error>>| async move {
        let (member, made) = end?;
        for _ in 0..50 {
            // Looks for what has come, at each turn.
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
