//! Context ids that are given out again: no message of the earlier communicator is received in the
//! later one. A check panics if this rule is broken.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::{
    Comm, Config, Error, ErrorClass, InterComm, RemoteLeader, Runtime, Source, TagChoice,
    Uniformity,
};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, Stuck};

use super::inter::{Groups, Member, kill_each};
use super::{Deaths, Sims, TestNet, linger, plain, turn};

/// The number of ids with [`config`].
pub(crate) const IDS: u32 = 33;

/// A layout with so few ids that they are soon given out again.
pub(crate) fn config() -> Config<TestNet> {
    let ids = IdLayout::new(1, true, 31).unwrap();
    Config::default().ids(ids).eager_words(1)
}

/// Runs a program on each process, with long delays of messages.
fn run<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    program: impl Fn(Sims) -> F,
) -> (Sim, Result<Ran<F::Output>, Stuck>) {
    run_with(processes, seed, kills, config, program)
}

/// As [`run`], with other settings.
fn run_with<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    config: fn() -> Config<TestNet>,
    program: impl Fn(Sims) -> F,
) -> (Sim, Result<Ran<F::Output>, Stuck>) {
    let delay_max = [5, 50, 400][usize::try_from(seed % 3).unwrap()];
    let sim = Sim::new(SimConfig {
        processes,
        seed,
        delay_max,
        turns_in_vain: 4000,
        ..SimConfig::default()
    });
    let busy = Rc::new(Cell::new(processes));
    let start = |rank| {
        let runtime = Runtime::new(plain(&sim, rank), config()).unwrap();
        linger(runtime.clone(), &busy, program(runtime))
    };
    let ran = sim.run((0..processes).map(start), kills);
    (sim, ran)
}

/// Duplicates a communicator until this number of ids is left.
pub(crate) fn leave(runtime: &Sims, left: u32) -> Vec<Comm<TestNet>> {
    let mut taken = Vec::new();
    while runtime.free_ids() > left {
        let mut copy = runtime.oneself().dup().start();
        while copy.test().is_none_or(|copy| {
            taken.push(copy.unwrap());
            false
        }) {
            runtime.progress();
        }
    }
    taken
}

/// Receives the first message that arrives. It belongs to this communicator, unless a member
/// revokes the communicator before.
async fn any(comm: &Comm<TestNet>, name: u8) {
    loop {
        match comm.recv(Source::Any, TagChoice::Any, vec![0; 8]).await {
            Ok(received) => return assert_eq!(received.data(), [name]),
            Err(failed) if failed.error == Error::ProcessFailedPending => {
                comm.acknowledge(comm.failed().size());
            }
            Err(failed) => return assert_eq!(failed.error, Error::Revoked),
        }
    }
}

/// A message is not received before its communicator is revoked. Then there are two other
/// communicators, of which the second one has the same id.
pub(crate) fn revoked(deaths: Deaths, processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let _taken = leave(&runtime, 2);
        let first = world.dup().await;
        let have_all = world.agree(u64::from(first.is_ok())).await.unwrap().flags == 1;
        let Some(first) = first.ok().filter(|_| have_all) else { return };
        let id = first.id();
        if first.rank() == 0 {
            for to in 0..first.size() {
                drop(first.send(to, 1, vec![1]));
            }
        }
        if first.rank() == 1 {
            first.revoke();
        }
        let Ok(second) = first.shrink().await else { return };
        drop(first);
        if second.rank() == 0 {
            second.revoke();
        }
        let third = second.shrink().await.unwrap();
        assert_eq!(third.id(), id);
        drop(second);
        // A message that can be received if there is no other.
        drop(third.send(third.rank(), 1, vec![3]));
        any(&third, 3).await;
    };
    for seed in 0..seeds {
        deaths.each(processes, seed, |kills| {
            let ran = run(processes, seed, kills, program).1;
            ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}")).steps
        });
    }
}

/// Random numbers that a seed determines, the same in all processes.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }
}

/// Communicators are made, revoked, shrunk and freed, by each process at a time of its own. They
/// have messages that no process receives.
pub(crate) fn random(processes: u32, seeds: u64) {
    for seed in 0..seeds {
        let program = |runtime: Sims| async move {
            let _taken = leave(&runtime, 5);
            let mut choices = Draws(seed);
            let mut comms = vec![(runtime.world(), 0)];
            for name in 1..40 {
                let at = choices.below(u32::try_from(comms.len()).unwrap()) as usize;
                let kind = choices.below(6);
                let whose = choices.below(processes);
                let from = choices.below(processes);
                let to = choices.below(processes);
                let (comm, named) = comms[at].clone();
                let receives = comm.rank() == to && kind == 3;
                match kind {
                    0 | 1 if comms.len() < 4 => comms.push((comm.dup().await.unwrap(), name)),
                    // No process receives this message.
                    2 if comm.rank() == from && at > 0 => drop(comm.send(to, 1, vec![named])),
                    3 if comm.rank() == from => drop(comm.send(to, 1, vec![named])),
                    4 if at > 0 => drop(comms.remove(at)),
                    5 if at > 0 => {
                        let mut small = comm.shrink().start();
                        if comm.rank() == whose {
                            comm.revoke();
                        }
                        comms[at] = ((&mut small).await.unwrap(), name);
                    }
                    _ => {}
                }
                if receives {
                    any(&comm, named).await;
                }
            }
        };
        run(processes, seed, &[], program).1.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// A process has not taken the communicator yet that the others have freed, or frees it later, and
/// sends in it after that.
pub(crate) fn late(seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let _taken = leave(&runtime, 3);
        let pair = (world.rank() < 2).then(|| world.group().include(&[0, 1]).unwrap());
        let mut first = world.dup().start();
        let second = world.dup().start();
        if world.rank() == 2 {
            let second = second.await.unwrap();
            // Until the others have made other communicators with the ids that they have freed.
            for _ in 0..2 {
                world.recv(Source::Any, 9, vec![0; 8]).await.unwrap();
            }
            let first = first.await.unwrap();
            for to in 0..2 {
                first.send(to, 1, vec![1]).await.unwrap();
                second.send(to, 1, vec![2]).await.unwrap();
            }
            world.send(0, 8, vec![]).await.unwrap();
            world.send(1, 8, vec![]).await.unwrap();
            return;
        }
        drop(((&mut first).await.unwrap(), second.await.unwrap()));
        let third = world.create_group(&pair.unwrap(), 1).await.unwrap();
        let fourth = world.create_group(third.group(), 1).await;
        assert!(fourth.is_err(), "ids that the other process uses are taken");
        world.send(2, 9, vec![]).await.unwrap();
        world.recv(2, 8, vec![]).await.unwrap();
        third.send(1 - third.rank(), 1, vec![3]).await.unwrap();
        any(&third, 3).await;
        let fourth = loop {
            // In the end the other process has freed its ids.
            match world.create_group(third.group(), 1).await {
                Ok(fourth) => break fourth,
                Err(error) => {
                    assert!(matches!(error, Error::Exhausted { .. } | Error::Fragmented { .. }))
                }
            }
        };
        fourth.send(1 - fourth.rank(), 1, vec![4]).await.unwrap();
        any(&fourth, 4).await;
    };
    for seed in 0..seeds {
        run(3, seed, &[], program).1.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// Some processes free a communicator while their operations in it are under way. The operations
/// go on, and the other processes get their results.
pub(crate) fn under_way(processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let own = runtime.world().rank();
        let comm = world.dup().await.unwrap();
        let barrier = comm.barrier().start();
        let all = comm.allgather(vec![u8::try_from(own).unwrap()]).start();
        drop(comm);
        if own % 2 == 1 {
            barrier.await.unwrap();
            assert_eq!(all.await.unwrap().len(), processes as usize);
        }
    };
    for seed in 0..seeds {
        let ran = run(processes, seed, &[], program).1;
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// Receives the first message of any sender of an intercommunicator. It belongs to that
/// intercommunicator.
async fn any_of(inter: &InterComm<TestNet>, name: u8) {
    let received = inter.recv(Source::Any, TagChoice::Any, vec![0; 8]).await.unwrap();
    assert_eq!(received.data(), [name]);
}

/// Two groups make intercommunicators by creation, duplication, merge and shrink, and free them
/// with messages in them that no process receives. There are few ids.
pub(crate) fn groups(sizes: [u32; 2], seeds: u64) {
    for seed in 0..seeds {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let is_first = world.rank() < sizes[0];
            let part = world.split(Some(is_first.into()), 0).await.unwrap().unwrap();
            let _taken = leave(&runtime, 4);
            let mut choices = Draws(seed);
            let mut copies = Vec::new();
            let remote = if is_first { sizes[0] } else { 0 };
            for name in (0..60).step_by(4) {
                let kind = choices.below(4);
                let to_all = |inter: &InterComm<TestNet>, name: u8| {
                    for to in 0..inter.remote_size() {
                        drop(inter.send(to, 1, vec![name]));
                    }
                };
                let leader = RemoteLeader { peer: &world, rank: remote, tag: 3 };
                let leader = (part.rank() == 0).then_some(leader);
                let inter = part.create_inter(Uniformity::None, 0, leader).await.unwrap();
                to_all(&inter, name);
                any_of(&inter, name).await;
                match kind {
                    0 => {
                        let copy = inter.dup().await.unwrap();
                        to_all(&copy, name + 1);
                        any_of(&copy, name + 1).await;
                    }
                    1 => {
                        let merged = inter.merge(is_first).await.unwrap();
                        drop(merged.send(0, 1, vec![name + 1]));
                        drop(merged.send(merged.rank(), 1, vec![name + 1]));
                        any(&merged, name + 1).await;
                    }
                    2 => {
                        let local = inter.local().unwrap();
                        drop(local.send(0, 1, vec![name + 1]));
                        // All have received the messages that they wait for. Another process may
                        // have revoked the intercommunicator already.
                        let _ended = inter.barrier().await;
                        inter.revoke();
                        let small = inter.shrink().await.unwrap();
                        to_all(&small, name + 2);
                        any_of(&small, name + 2).await;
                    }
                    // The first group uses all of its ids before the second group has freed them.
                    _ if is_first => {
                        drop(inter);
                        while copies.len() < 4 {
                            let copy = match part.dup().await {
                                Ok(copy) => copy,
                                // The second group uses the last intercommunicator.
                                Err(error) => {
                                    assert_eq!(error.class(), ErrorClass::Resource);
                                    continue;
                                }
                            };
                            let name = name + 1;
                            let next = (copy.rank() + 1) % copy.size();
                            drop(copy.send(next, 1, vec![name]));
                            any(&copy, name).await;
                            copies.push(copy);
                        }
                        copies.clear();
                    }
                    _ => {
                        for _ in 0..50 {
                            runtime.progress();
                            turn().await;
                        }
                        to_all(&inter, name + 3);
                    }
                }
            }
        };
        let (_, ran) = run(sizes[0] + sizes[1], seed, &[], program);
        ran.unwrap_or_else(|stuck| panic!("{sizes:?}: {stuck}"));
    }
}

/// No message waits that was sent in a communicator that was revoked or freed.
pub(crate) fn leftovers(processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let copy = world.dup().await.unwrap();
        let kept = world.dup().await.unwrap();
        for _ in 0..100 {
            for to in 0..processes {
                drop(copy.send(to, 1, vec![1; 8]));
                drop(kept.send(to, 1, vec![2; 8]));
            }
        }
        if world.rank() == 0 {
            kept.revoke();
        }
        drop(copy);
        // Until all messages that were in flight have arrived.
        for _ in 0..3000 {
            runtime.progress();
            turn().await;
        }
        kept
    };
    for seed in 0..seeds {
        let (sim, ran) = run(processes, seed, &[], program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
        assert_eq!(sim.unexpected(), 0, "messages that no process will receive");
    }
}

/// All ids are in use, or were freed in one process only. The error is the same at all members.
pub(crate) fn exhaustion(seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let mut all = Vec::new();
        let error = loop {
            match world.dup().await {
                Ok(comm) => all.push(comm),
                Err(error) => break error,
            }
        };
        assert_eq!((all.len(), error), (IDS as usize, Error::Exhausted { ids: 64 }));
        for _ in 0..10 {
            // All members have freed the communicator before they make another one.
            all.remove(0);
            all.push(world.dup().await.unwrap());
        }
        let others: Vec<_> = (0..3).map(|_| world.dup().start()).collect();
        for other in others {
            assert_eq!(other.await.map(drop), Err(Error::Exhausted { ids: 64 }));
        }
        all.truncate(20);
        let again: Vec<_> = (0..13).map(|_| world.dup().start()).collect();
        for comm in again {
            all.push(comm.await.unwrap());
        }
        world.barrier().await.unwrap();
    };
    for seed in 0..seeds {
        run(3, seed, &[], program).1.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// A group calls a closed port more often than there are ids. Its leader alone also calls an open
/// port, and gives up. No other process learns of the ids that they have allocated.
pub(crate) fn calls_in_vain(seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        if world.rank() == 0 {
            let [closed, open] = [(); 2].map(|()| runtime.open_port().unwrap());
            for port in [&closed, &open] {
                world.send(1, 1, port.name().to_string().into_bytes()).await.unwrap();
            }
            drop(closed);
            world.recv(1, 2, vec![]).await.unwrap();
            return;
        }
        let mut names = Vec::new();
        while world.rank() == 1 && names.len() < 2 {
            let name = world.recv(0, 1, vec![0; 40]).await.unwrap();
            names.push(str::from_utf8(name.data()).unwrap().parse().unwrap());
        }
        let callers = world.group().include(&[1, 2]).unwrap();
        let part = world.create_group(&callers, 1).await.unwrap();
        for _ in 0..IDS {
            let closed = part.connect(Uniformity::None, 0, names.first().copied()).start();
            assert_eq!(closed.await.err(), Some(Error::Port));
            if let Some(open) = names.get(1) {
                let alone = runtime.oneself().dup().await.unwrap();
                let given_up = alone.connect(Uniformity::None, 0, Some(*open)).start();
                for _ in 0..9 {
                    runtime.progress();
                    turn().await;
                }
                alone.revoke();
                assert_eq!(given_up.await.err(), Some(Error::Revoked));
            }
        }
        if world.rank() == 1 {
            world.send(0, 2, vec![]).await.unwrap();
        }
    };
    for seed in 0..seeds {
        run(3, seed, &[], program).1.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// The leader of a group dies while an intercommunicator is made. The other group may have the
/// intercommunicator, and sends in an id that the first group doesn't know to be in use. None of
/// these messages waits.
pub(crate) fn lost() {
    let program = |member: Rc<Member>| async move {
        let made = member.create(Uniformity::None).await.ok().filter(|_| !member.is_first);
        if let Some(inter) = &made {
            for _ in 0..50 {
                drop(inter.send(0, 1, vec![1; 8]));
            }
        }
        for _ in 0..60 {
            // Each call handles the messages that have arrived.
            member.runtime.world().failed();
            turn().await;
        }
        drop(made);
    };
    kill_each(3, 2, |seed, kills| {
        let mut groups = Groups::new([2, 1], seed);
        if kills.iter().any(|kill| kill.rank != 1) {
            return 0;
        }
        let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
        // There may be a few messages of the dead process.
        assert!(groups.sim.unexpected() < 10, "{kills:?}: {}", groups.sim.unexpected());
        ran.steps.min(80)
    });
}

/// A communicator that a process frees after some more calls.
struct HeldComm {
    comm: Comm<TestNet>,
    calls_left: u32,
}

/// Communicators of all processes, of halves and of random groups are made and freed, by each
/// process at a time of its own, with messages in them that no process receives. There are many
/// ids, so that later allocations settle the freed ones.
pub(crate) fn in_any_order(processes: u32, seeds: u64) {
    for seed in 0..seeds {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let half = world.split(Some(world.rank() % 2), 0).await.unwrap().unwrap();
            let mut choices = Draws(seed);
            let mut own = Draws(seed << 8 | u64::from(world.rank()));
            let mut held: Vec<HeldComm> = Vec::new();
            for name in 0..60 {
                let parent = choices.below(3);
                let group: Vec<u32> = (0..processes).filter(|_| choices.below(2) == 0).collect();
                let made = match parent {
                    0 => Some(world.dup().await.unwrap()),
                    1 => Some(half.dup().await.unwrap()),
                    _ if group.contains(&world.rank()) => {
                        let group = world.group().include(&group).unwrap();
                        Some(world.create_group(&group, name.into()).await.unwrap())
                    }
                    _ => None,
                };
                if let Some(comm) = made {
                    // No process receives some of these messages.
                    drop(comm.send(own.below(comm.size()), 1, vec![name]));
                    if own.below(3) == 0 {
                        drop(comm.barrier().start());
                    }
                    drop(comm.send(comm.rank(), 1, vec![name]));
                    any(&comm, name).await;
                    held.push(HeldComm { comm, calls_left: own.below(9) });
                }
                held.retain_mut(|held| {
                    held.calls_left = held.calls_left.saturating_sub(1);
                    held.comm.size() > 0 && held.calls_left > 0
                });
            }
        };
        run_with(processes, seed, &[], Config::default, program)
            .1
            .unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// Members die while communicators are made and freed, and the others go on without them.
pub(crate) fn deaths_between(deaths: Deaths, processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let mut comm = runtime.world();
        for name in 0..9 {
            let made = comm.dup().await;
            let have_all = comm.agree(u64::from(made.is_ok())).await.unwrap().flags == 1;
            let Some(copy) = made.ok().filter(|_| have_all) else {
                let Ok(small) = comm.shrink().await else { return };
                comm = small;
                continue;
            };
            drop(copy.send((copy.rank() + 1) % copy.size(), 1, vec![name]));
            drop(copy.send(copy.rank(), 1, vec![name]));
            any(&copy, name).await;
        }
    };
    for seed in 0..seeds {
        deaths.each(processes, seed, |kills| {
            let ran = run_with(processes, seed, kills, Config::default, program).1;
            ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}")).steps
        });
    }
}
