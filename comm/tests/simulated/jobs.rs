//! Two jobs that connect, on the simulated network. A process has different numbers in the two
//! jobs.

use std::cell::Cell;
use std::time::Duration;

use common::inter::kill_each;
use common::jobs::{By, Party, loose_meetings, meetings, run};
use common::turn;
use tagmatch::{Tag, TagLayout};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::net::heartbeat::{HeartbeatConfig, Heartbeats};
use tagmatch_comm::net::{Directory, FOREIGN_MAX, Net, NetError, ProcessId, ProcessName};
use tagmatch_comm::{Comm, Uniformity};
use tagmatch_comm::{Config, Error, ErrorClass, InterComm, PortName, Runtime, Source};
use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::{self, TestNet, join, plain};
use crate::heartbeats::Clock;

const SIZES: [[u32; 2]; 5] = [[1, 1], [1, 3], [2, 2], [3, 1], [4, 3]];

/// Runs a program on two jobs, with several seeds.
fn each<F: Future>(sizes: [u32; 2], seeds: u64, program: impl Fn(Party) -> F) {
    for seed in 0..seeds {
        run(sizes, seed, &[], &program).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

#[test]
fn two_jobs_meet_and_merge_with_any_uniformity() {
    for (sizes, by) in SIZES.into_iter().flat_map(|sizes| [(sizes, By::Accept), (sizes, By::Spawn)])
    {
        for uniformity in [Uniformity::None, Uniformity::Eventual, Uniformity::Strict] {
            each(sizes, 5, |party| async move {
                let before = party.runtime.free_ids();
                let inter = party.meet(uniformity, by).await.unwrap().unwrap();
                let other = sizes[usize::from(party.is_first)];
                assert_eq!(
                    (inter.size(), inter.remote_size()),
                    (party.runtime.world().size(), other)
                );
                // Each process sends to each process of the other job.
                let sends: Vec<_> =
                    (0..other).map(|to| inter.send_sync(to, 7, vec![9; 100])).collect();
                for from in 0..other {
                    let received = inter.recv(from, 7, vec![0; 100]).await.unwrap();
                    assert_eq!(received.data(), [9; 100]);
                }
                for send in sends {
                    send.await.unwrap();
                }
                let copy = inter.dup().await.unwrap();
                copy.barrier().await.unwrap();
                inter.local().unwrap().barrier().await.unwrap();
                let flags = inter.agree(if party.is_first { 5 } else { 6 }).await.unwrap().flags;
                assert_eq!(flags, if party.is_first { 6 } else { 5 });
                let all = inter.merge(!party.is_first).await.unwrap();
                assert_eq!(all.rank() < sizes[0], party.is_first);
                drop(copy);
                inter.disconnect().await.unwrap();
                as_one(&all).await;
                drop(all);
                assert_eq!(party.runtime.free_ids(), before);
            });
        }
    }
}

/// A communicator of two jobs works like any other.
async fn as_one(all: &Comm<TestNet>) {
    let rank = all.rank();
    let size = all.size();
    let numbers = all.allgather(to_bytes(&[rank])).await.unwrap();
    assert_eq!(from_bytes::<u32>(&numbers), (0..size).collect::<Vec<_>>());
    let any = all.recv(Source::Any, 3, vec![0; 1]);
    all.send((rank + 1) % size, 3, vec![1]).await.unwrap();
    assert_eq!(any.await.unwrap().status.source, Some((rank + size - 1) % size));
    // Communicators with members of both jobs.
    let copy = all.dup().await.unwrap();
    let part = copy.split(Some(rank % 2), -1).await.unwrap().unwrap();
    let sum = part.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await.unwrap();
    assert_eq!(from_bytes::<u32>(&sum), [(size + 1 - rank % 2) / 2]);
    let ranks: Vec<u32> = (0..size).rev().collect();
    let back = all.create_group(&all.group().include(&ranks).unwrap(), 1).start();
    let back = back.await.unwrap();
    assert_eq!(back.rank(), size - 1 - rank);
    assert_eq!(back.agree(!(1 << rank)).await.unwrap().flags, !((1 << size) - 1));
    // Machines are numbered within a job only.
    assert_eq!(all.intranode().unwrap().size(), 1);
    assert_eq!(all.internode().unwrap().unwrap().group(), all.group());
    // A revocation by one member ends the communicator at all. A shrink then keeps all members,
    // because none is down.
    if rank == size - 1 {
        back.revoke();
    }
    while !back.is_revoked() {
        // Handles the messages that have arrived.
        back.failed();
        turn().await;
    }
    assert_eq!(back.barrier().await, Err(Error::Revoked));
    let again = back.shrink().await.unwrap();
    assert_eq!(again.group(), back.group());
    again.barrier().await.unwrap();
}

#[test]
fn jobs_that_meet_have_one_result_at_all_survivors() {
    for (sizes, by, seeds) in [
        ([1, 1], By::Accept, 4),
        ([1, 1], By::Spawn, 4),
        ([2, 2], By::Accept, 2),
        ([1, 2], By::Spawn, 2),
        ([3, 2], By::Spawn, 1),
    ] {
        kill_each(sizes[0] + sizes[1], seeds, |seed, kills| meetings(sizes, by, seed, kills));
    }
}

#[test]
fn jobs_that_meet_end_whichever_process_dies() {
    for uniformity in [Uniformity::None, Uniformity::Eventual] {
        for (sizes, seeds) in [([1, 1], 4), ([2, 2], 1), ([3, 2], 1)] {
            kill_each(sizes[0] + sizes[1], seeds, |seed, kills| {
                loose_meetings(sizes, uniformity, seed, kills)
            });
        }
    }
}

#[test]
fn all_members_learn_that_no_process_could_be_started() {
    each([3, 1], 10, |party| async move {
        let world = party.runtime.world();
        if !party.is_first {
            return;
        }
        let before = party.runtime.free_ids();
        let fail = |_: &PortName| Err("no such command");
        let start = (world.rank() == 1).then_some(fail);
        let error = world.spawn(Uniformity::None, 1, start).await.unwrap_err();
        let why = (world.rank() == 1).then(|| "no such command".to_owned());
        assert_eq!(error, Error::NotStarted { why });
        assert_eq!(error.class(), ErrorClass::NotStarted);
        // The root passes no function that starts a job.
        let none = None::<fn(&PortName) -> Result<(), Error>>;
        let error = world.spawn(Uniformity::Strict, 2, none).await.unwrap_err();
        assert_eq!(error, Error::NotCreated { cause: Box::new(Error::NoPeer) });
        assert_eq!(party.runtime.free_ids(), before);
        world.barrier().await.unwrap();
    });
}

#[test]
fn a_job_meets_several_others() {
    for seed in 0..20 {
        let sim = Sim::of_jobs(SimConfig { seed, ..SimConfig::default() }, &[2, 1, 2, 1]);
        let board = Cell::new(None);
        let program = |number: u32| {
            let runtime = join(&sim, number);
            let board = &board;
            async move {
                let world = runtime.world();
                let mut met = Vec::new();
                if number < 2 {
                    let port = (number == 0).then(|| runtime.open_port().unwrap());
                    if let Some(port) = &port {
                        board.set(Some(port.name()));
                    }
                    for _ in 0..3 {
                        let next = world.accept(Uniformity::Strict, 0, port.as_ref()).await;
                        met.push(next.unwrap());
                    }
                } else {
                    while board.get().is_none() {
                        turn().await;
                    }
                    let inter = world.connect(Uniformity::Strict, 0, board.get()).await;
                    met.push(inter.unwrap());
                }
                let others: u32 = met.iter().map(InterComm::remote_size).sum();
                assert_eq!(others, if number < 2 { 4 } else { 2 });
                // All at the same time.
                let merges: Vec<_> =
                    met.iter().map(|inter| inter.merge(number >= 2).start()).collect();
                for merge in merges {
                    let merged = merge.await.unwrap();
                    merged.barrier().await.unwrap();
                }
            }
        };
        sim.run((0..6).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// The rank of a message's sender has two bits here.
#[test]
fn groups_too_large_for_a_tag_do_not_meet() {
    for (sizes, fits) in [([2, 2], true), ([2, 3], false), ([4, 1], false)] {
        let sim = Sim::of_jobs(SimConfig::default(), &sizes);
        let board = Cell::new(None);
        let program = |number: u32| {
            let tags = TagLayout::new(16, 2, 24).unwrap();
            let runtime = Runtime::new(plain(&sim, number), Config::default().tags(tags));
            let runtime = runtime.unwrap();
            let board = &board;
            async move {
                let world = runtime.world();
                let met = if number < sizes[0] {
                    let port = (number == 0).then(|| runtime.open_port().unwrap());
                    if let Some(port) = &port {
                        board.set(Some(port.name()));
                    }
                    world.accept(Uniformity::Strict, 0, port.as_ref()).await
                } else {
                    while board.get().is_none() {
                        turn().await;
                    }
                    world.connect(Uniformity::Strict, 0, board.get()).await
                };
                match met {
                    Ok(inter) => {
                        assert!(fits);
                        inter.merge(false).await.unwrap().barrier().await.unwrap();
                    }
                    Err(error) => {
                        assert!(!fits);
                        let cause = Box::new(Error::Members);
                        assert_eq!(error, Error::NotCreated { cause });
                    }
                }
            }
        };
        let all = sizes[0] + sizes[1];
        sim.run((0..all).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// A process of another job that shares no communicator with this process can revoke nothing here.
#[test]
fn a_process_without_a_common_communicator_revokes_nothing() {
    let sim = Sim::of_jobs(SimConfig::default(), &[2, 1]);
    let program = |number: u32| {
        let mut net = plain(&sim, number);
        let victim = sim.net(0).name(ProcessId(0)).unwrap();
        let name = net.name(net.own()).unwrap();
        async move {
            if number == 2 {
                // Forged revocations of the communicator with the world's key: with process names,
                // and with ranks as in the victim's own job.
                let tag = Tag(u64::MAX);
                let head = |code: u32, size: u32| {
                    [&code.to_le_bytes()[..], &[0; 12], &size.to_le_bytes()].concat()
                };
                let mut named = head(16, 2);
                for name in [victim, name] {
                    named.push(8);
                    named.extend_from_slice(name.as_bytes());
                }
                let ranks = [head(0, 2), vec![0, 0, 0, 0, 1, 0, 0, 0]].concat();
                let victim = net.admit(&victim).unwrap();
                for bytes in [named, ranks] {
                    net.inject(victim, tag, &bytes).unwrap();
                }
                return;
            }
            let world = Runtime::new(net, Config::default()).unwrap().world();
            for _ in 0..100 {
                world.barrier().await.unwrap();
                world.failed();
            }
            assert!(!world.is_revoked());
        }
    };
    sim.run((0..3).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    // The victim can't know that the communicator is not one of both jobs, so it passes the
    // revocation on, to the sender itself.
    assert_eq!(sim.unexpected(), 1);
}

/// A heartbeat of a process of another job does not count for a process of this job.
#[test]
fn a_beat_of_another_job_gives_up_no_process() {
    let sim = Sim::of_jobs(SimConfig::default(), &[2, 1]);
    let program = |number: u32| {
        let mut net = plain(&sim, number);
        let clock: Clock = Box::new(sim.clock());
        let victims = [0, 1].map(|rank| sim.net(0).name(ProcessId(rank)).unwrap());
        async move {
            if number == 2 {
                let tag = TagLayout::MPI.pack(control(), 0, 1).unwrap();
                for victim in victims {
                    let victim = net.admit(&victim).unwrap();
                    net.inject(victim, tag, &[0b11]).unwrap();
                }
                return;
            }
            let period = Duration::from_micros(10);
            let timeout = Duration::from_secs(9);
            let config = HeartbeatConfig::default().period(period).timeout(timeout);
            let net = Heartbeats::with_clock(net, config, clock).unwrap();
            let world = Runtime::new(net, Config::default()).unwrap().world();
            for _ in 0..100 {
                world.barrier().await.unwrap();
            }
        }
    };
    sim.run((0..3).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// The context id of control messages for failures, which follows the ids of ports.
fn control() -> u64 {
    let ids = IdLayout::BITS_16;
    let port = |number: u32| ids.dynamic(number).unwrap().bits();
    u64::from(port(ids.ids() - 2) + port(1) - port(0))
}

#[test]
fn invalid_names_are_refused() {
    let sim = Sim::of_jobs(SimConfig::default(), &[2, 3]);
    let mut ours = sim.net(1);
    let theirs = sim.net(3);
    assert_eq!((ours.own(), ours.processes()), (ProcessId(1), 2));
    assert_eq!((theirs.own(), theirs.processes()), (ProcessId(1), 3));
    let name = |net: &dyn Fn(ProcessId) -> Option<ProcessName>| net(ProcessId(1)).unwrap();
    let our = name(&|of| ours.name(of));
    let their = name(&|of| theirs.name(of));
    assert_ne!(our, their);
    assert_eq!(ours.admit(&our), Ok(ProcessId(1)));
    assert_eq!(ours.admit(&their), Ok(ProcessId(2)));
    assert_eq!(ours.admit(&their), Ok(ProcessId(2)));
    assert_eq!((ours.name(ProcessId(2)), ours.name(ProcessId(3))), (Some(their), None));
    assert_eq!(their.to_string().parse(), Ok(their));
    for bytes in [&[][..], &[0; 65]] {
        assert!(ProcessName::from_bytes(bytes).is_err());
    }
    for bytes in [&[1][..], &[0; 7], &[0; 9], &[9; 8]] {
        let name = ProcessName::from_bytes(bytes).unwrap();
        assert!(matches!(ours.admit(&name), Err(NetError::Other(_))), "{name}");
    }
    assert_eq!(ours.name(ProcessId(3)), None);
}

#[test]
fn processes_of_other_jobs_are_admitted_up_to_the_limit() {
    let sim = Sim::of_jobs(SimConfig::default(), &[1, FOREIGN_MAX + 1]);
    let mut ours = sim.net(0);
    let theirs = sim.net(1);
    let mut admit = |rank: u32| ours.admit(&theirs.name(ProcessId(rank)).unwrap());
    for rank in 0..FOREIGN_MAX {
        assert_eq!(admit(rank), Ok(ProcessId(1 + rank)));
    }
    assert!(matches!(admit(FOREIGN_MAX), Err(NetError::Other(_))));
    assert_eq!(admit(7), Ok(ProcessId(8)));
}
