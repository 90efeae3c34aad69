//! Intercommunicators, on the simulated network.

use std::collections::HashSet;
use std::rc::Rc;

use common::inter::{Groups, Member, eventual, kill_everywhere, meet, meetings, merges, strict};
use common::transport::{Altered, Changes, Lie};
use common::turn;
use tagmatch::TagLayout;
use tagmatch_comm::net::{Net, ProcessId};
use tagmatch_comm::{Config, Error, InterAgreed, InterRoot, Likeness, OpenPort, PortName, Runtime};
use tagmatch_comm::{RemoteLeader, Source, TagChoice, Uniformity};
use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::{self, join, plain};

/// Runs a program on two groups, with several seeds.
fn each<F: Future>(sizes: [u32; 2], seeds: u64, program: impl Fn(Rc<Member>) -> F) {
    for seed in 0..seeds {
        let ran = Groups::new(sizes, seed).run(&[], &program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

const SIZES: [[u32; 2]; 5] = [[1, 1], [1, 3], [2, 2], [3, 1], [4, 3]];

/// Each member of either group gets the error. The process that is in both groups gets it twice.
#[test]
fn groups_with_a_process_in_common_make_no_intercommunicator() {
    for seed in 0..10 {
        let sim = Sim::new(SimConfig { processes: 4, seed, ..SimConfig::default() });
        let program = |rank: u32| {
            let runtime = join(&sim, rank);
            async move {
                let world = runtime.world();
                // The process 1 is in both groups; the leaders are the processes 0 and 2.
                let mut attempts = Vec::new();
                for (ranks, remote) in [([0, 1], 2), ([2, 1], 0)] {
                    if !ranks.contains(&rank) {
                        continue;
                    }
                    let group = world.group().include(&ranks).unwrap();
                    let part = world.create_group(&group, remote).await.unwrap();
                    let remote = RemoteLeader { peer: &world, rank: remote, tag: 3 };
                    let remote = (rank != 1).then_some(remote);
                    let made = part.create_inter(Uniformity::None, 0, remote).start();
                    attempts.push((part, made));
                }
                let mut results = Vec::new();
                for (_part, made) in attempts {
                    results.push(made.await.map(drop));
                }
                results
            }
        };
        let ran = sim.run((0..4).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
        let results: Vec<_> = ran.ends.into_iter().flat_map(Option::unwrap).collect();
        assert_eq!(results, vec![Err(Error::Overlap); 4]);
    }
}

/// A leader describes a group that it is not in itself, so that the other group would send to
/// processes that know nothing of it; or it claims the side of the other group.
#[test]
fn a_leader_that_describes_a_foreign_group_or_side_gets_no_intercommunicator() {
    for (seed, lie) in (0..10).flat_map(|seed| [(seed, Lie::Name), (seed, Lie::Side)]) {
        let sim = Sim::new(SimConfig { processes: 4, seed, ..SimConfig::default() });
        let lying = Changes { lie: Some(lie), ..Changes::NONE };
        let program = |rank: u32| {
            let runtime =
                Runtime::new(Altered::new(sim.net(rank), lying), Config::default()).unwrap();
            async move {
                let world = runtime.world();
                let (ranks, remote) = match rank {
                    0 | 1 => (&[0, 1][..], 2),
                    2 => (&[2][..], 0),
                    _ => return None,
                };
                let group = world.group().include(ranks).unwrap();
                let part = world.create_group(&group, 7).await.unwrap();
                let remote = RemoteLeader { peer: &world, rank: remote, tag: 3 };
                let remote = (rank != 1).then_some(remote);
                Some(part.create_inter(Uniformity::None, 0, remote).await.map(drop))
            }
        };
        let ran = sim.run((0..4).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
        let results: Vec<_> = ran.ends.into_iter().flat_map(Option::unwrap).collect();
        assert_eq!(results[..2], [Err(Error::Leader), Err(Error::Leader)]);
    }
}

#[test]
fn messages_go_from_one_group_to_the_other() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let inter = member.create(Uniformity::None).await.unwrap();
            let rank = inter.rank();
            let size = inter.size();
            let others = inter.remote_size();
            assert_eq!([size, others], if member.is_first { sizes } else { [sizes[1], sizes[0]] });
            assert_eq!(inter.group().compare(member.part.group()), Likeness::Identical);
            assert_eq!(inter.group().intersection(inter.remote_group()).size(), 0);
            // Each process sends its rank to each remote process, in a short and in a long message.
            let own = u8::try_from(rank).unwrap();
            let sends: Vec<_> = (0..others)
                .flat_map(|to| [1, 100].map(|length| inter.send_sync(to, 7, vec![own; length])))
                .collect();
            for from in 0..others {
                let byte = u8::try_from(from).unwrap();
                let received = inter.recv(from, TagChoice::Any, vec![0; 1]).await.unwrap();
                assert_eq!((received.status.source, received.data()), (Some(from), &[byte][..]));
            }
            for _ in 0..others {
                let message = loop {
                    if let Some(message) = inter.mprobe(Source::Any, 7).unwrap() {
                        break message;
                    }
                    turn().await;
                };
                let byte = u8::try_from(message.status().source.unwrap()).unwrap();
                let received = message.recv(vec![0; 100]).await.unwrap();
                assert_eq!(received.data(), vec![byte; 100]);
            }
            for send in sends {
                send.await.unwrap();
            }
            let beyond = inter.send(others, 1, vec![]).await.unwrap_err().error;
            assert_eq!(beyond, Error::Rank { rank: others, size: others });
        });
    }
}

#[test]
fn duplicates_merges_and_locals_are_apart_and_come_to_an_end() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let before = member.runtime.free_ids();
            let inter = member.create(Uniformity::None).await.unwrap();
            let copy = inter.dup().await.unwrap();
            assert_ne!(copy.id(), inter.id());
            let local = inter.local().unwrap();
            let of_copy = copy.local().unwrap();
            assert!(local.is(&inter.local().unwrap()) && !local.is(&of_copy));
            // All at the same time, each with its own intercommunicator.
            let mine = inter.recv(0, 1, vec![0; 1]);
            let of_dup = copy.recv(0, 1, vec![0; 1]);
            let merged = inter.merge(!member.is_first).start();
            let again = inter.merge(member.is_first).start();
            let barriers = [
                inter.barrier().start(),
                copy.barrier().start(),
                local.barrier().start(),
                of_copy.barrier().start(),
            ];
            if inter.rank() == 0 {
                for to in 0..inter.remote_size() {
                    copy.send(to, 1, vec![2]).await.unwrap();
                    inter.send(to, 1, vec![1]).await.unwrap();
                }
            }
            assert_eq!(mine.await.unwrap().data(), [1]);
            assert_eq!(of_dup.await.unwrap().data(), [2]);
            let merged = merged.await.unwrap();
            let again = again.await.unwrap();
            for barrier in barriers {
                barrier.await.unwrap();
            }
            // The first group is low, then high.
            let first = if member.is_first { inter.group() } else { inter.remote_group() };
            let second = if member.is_first { inter.remote_group() } else { inter.group() };
            assert_eq!(*merged.group(), first.union(second));
            assert_eq!(*again.group(), second.union(first));
            merged.barrier().await.unwrap();
            again.barrier().await.unwrap();
            assert_eq!(inter.merge(false).await.unwrap().group(), merged.group());
            // The context id is free when the last communicator that uses it is dropped.
            drop((copy, merged, again, inter));
            assert_eq!(member.runtime.free_ids(), before - 2);
            local.barrier().await.unwrap();
            drop((local, of_copy));
            assert_eq!(member.runtime.free_ids(), before);
        });
    }
}

#[test]
fn each_group_gets_what_the_other_gives() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let inter = member.create(Uniformity::Strict).await.unwrap();
            for root in 0..sizes[0] {
                let root = match (member.is_first, inter.rank() == root) {
                    (true, true) => InterRoot::Own,
                    (true, false) => InterRoot::Local,
                    (false, _) => InterRoot::Remote(root),
                };
                let own = if root == InterRoot::Own { vec![5; 100] } else { vec![0; 100] };
                let all = inter.broadcast(root, own).await.unwrap();
                assert_eq!(all[0], if root == InterRoot::Local { 0 } else { 5 });
            }
            inter.barrier().await.unwrap();
            let own = if member.is_first { !1 << 8 } else { !2 };
            let flags = if member.is_first { !2 } else { !1 << 8 };
            let agreed = inter.agree(own).await.unwrap();
            assert_eq!(agreed, InterAgreed { flags, unacknowledged: inter.failed() });
            assert_eq!(inter.failed().size(), 0);
            let any = inter.recv(Source::Any, 1, vec![0; 1]);
            if member.is_first && inter.rank() == 0 {
                inter.revoke();
            }
            assert_eq!(any.await.unwrap_err().error, Error::Revoked);
            assert!(inter.is_revoked());
            // The next intercommunicator may have the same context ids.
            drop(inter);
            let next = member.create(Uniformity::Eventual).await.unwrap();
            next.barrier().await.unwrap();
            assert!(!next.is_revoked());
        });
    }
}

#[test]
fn a_strict_creation_has_one_result_at_all_survivors() {
    for (sizes, seeds) in [([1, 1], 6), ([2, 2], 2), ([1, 3], 2), ([3, 2], 1)] {
        kill_everywhere(sizes, seeds, strict);
    }
}

#[test]
fn an_eventual_creation_has_one_result_in_the_end() {
    for (sizes, seeds) in [([1, 1], 6), ([2, 2], 2), ([1, 3], 2), ([3, 2], 1)] {
        kill_everywhere(sizes, seeds, eventual);
    }
}

#[test]
fn a_merge_has_one_result_at_all_survivors_and_nothing_hangs() {
    for (sizes, seeds) in [([1, 1], 4), ([2, 2], 2), ([2, 3], 1)] {
        kill_everywhere(sizes, seeds, merges);
    }
}

#[test]
fn groups_that_meet_at_a_port_have_one_result_at_all_survivors() {
    for (sizes, seeds) in [([1, 1], 4), ([2, 2], 3), ([3, 2], 1)] {
        kill_everywhere(sizes, seeds, meetings);
    }
}

#[test]
fn a_port_takes_one_group_after_the_other_and_names_are_checked() {
    each([1, 3], 20, |member| async move {
        let world = member.runtime.world();
        if member.is_first {
            let port = member.runtime.open_port().unwrap();
            let other = member.runtime.open_port().unwrap();
            assert_ne!(port.name(), other.name());
            drop(other);
            for to in 1..4 {
                world.send(to, 1, port.name().to_string().into_bytes()).await.unwrap();
            }
            // Each process connects alone, in any order.
            let mut met = Vec::new();
            for _ in 1..4 {
                let inter = member.part.accept(Uniformity::Eventual, 0, Some(&port)).await.unwrap();
                inter.send(0, 1, vec![8]).await.unwrap();
                met.push(inter.remote_group().process(0).unwrap().0);
                inter.disconnect().await.unwrap();
            }
            met.sort_unstable();
            assert_eq!(met, [1, 2, 3]);
            return;
        }
        let own = member.runtime.oneself();
        let name = world.recv(0, 1, vec![0; 20]).await.unwrap();
        let name: PortName = str::from_utf8(name.data()).unwrap().parse().unwrap();
        let inter = own.connect(Uniformity::Eventual, 0, Some(name)).await.unwrap();
        assert_eq!(inter.recv(0, 1, vec![0; 1]).await.unwrap().data(), [8]);
        let any = inter.recv(Source::Any, 2, vec![]);
        assert!(inter.clone().disconnect().await == Err(Error::InUse));
        drop(any);
        inter.disconnect().await.unwrap();
        for name in
            ["", "0a", "0a:", ":1", "0a:x", "0a:+1", "0a:2:3", "1:0", "0a:18446744073709551616"]
        {
            assert_eq!(name.parse::<PortName>(), Err(Error::Port), "{name}");
        }
        // The name of this process's own port, of a process that does not exist, and of a number
        // that no port has.
        let mine = member.runtime.open_port().unwrap().name();
        let process = name.to_string().split(':').next().unwrap().to_owned();
        let others = ["0a:0".to_owned(), format!("{process}:9999999")];
        let others = others.map(|name| name.parse().unwrap());
        for name in others.into_iter().chain([mine]) {
            let name = Some(name);
            let error = own.connect(Uniformity::None, 0, name).await.unwrap_err();
            assert_eq!(error, Error::Port);
        }
        let lost = own.connect(Uniformity::Strict, 0, None).await.unwrap_err();
        assert_eq!(lost, Error::NotCreated { cause: Box::new(Error::NoPeer) });
    });
}

#[test]
fn groups_meet_whatever_their_sizes() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let inter = meet(&member, Uniformity::None).await.unwrap();
            let copy = inter.dup().await.unwrap();
            copy.barrier().await.unwrap();
            let merged = inter.merge(member.is_first).await.unwrap();
            assert_eq!(merged.size(), sizes[0] + sizes[1]);
            inter.disconnect().await.unwrap();
        });
    }
}

/// A caller gets an error if the port is closed, or closes while the call is in its queue, even if
/// the port's process makes no call about ports and has another port open.
#[test]
fn a_caller_at_a_closed_port_has_an_error() {
    for uniformity in [Uniformity::None, Uniformity::Eventual, Uniformity::Strict] {
        each([1, 2], 5, |member| async move {
            let world = member.runtime.world();
            let text = |port: &OpenPort| port.name().to_string().into_bytes();
            if member.is_first {
                let ports = [(); 3].map(|()| member.runtime.open_port().unwrap());
                let mut names: Vec<_> = ports.iter().map(text).collect();
                let [closed, closing, open] = ports;
                drop(closed);
                for at in 0..5 {
                    let other = member.runtime.open_port().unwrap();
                    assert!(!names.contains(&text(&other)), "{at}");
                    names.push(text(&other));
                }
                for name in &names[..3] {
                    world.send(1, 1, name.clone()).await.unwrap();
                }
                world.recv(1, 2, vec![]).await.unwrap();
                for _ in 0..40 {
                    member.runtime.progress();
                    turn().await;
                }
                drop(closing);
                member.part.accept(uniformity, 0, Some(&open)).await.unwrap();
                return;
            }
            let mut names = Vec::new();
            while member.part.rank() == 0 && names.len() < 3 {
                let name = world.recv(0, 1, vec![0; 40]).await.unwrap();
                names.push(str::from_utf8(name.data()).unwrap().parse::<PortName>().unwrap());
            }
            let expected = match uniformity {
                Uniformity::None => Error::Port,
                _ => Error::NotCreated { cause: Box::new(Error::Port) },
            };
            let connect =
                |at: usize| member.part.connect(uniformity, 0, names.get(at).copied()).start();
            assert_eq!(connect(0).await.err(), Some(expected.clone()));
            let closing = connect(1);
            if member.part.rank() == 0 {
                world.send(0, 2, vec![]).await.unwrap();
            }
            assert_eq!(closing.await.err(), Some(expected));
            assert!(connect(2).await.is_ok());
        });
    }
}

#[test]
fn a_caller_that_has_given_up_is_not_accepted() {
    each([1, 2], 40, |member| async move {
        let world = member.runtime.world();
        let own = member.runtime.oneself();
        if member.is_first {
            let port = member.runtime.open_port().unwrap();
            for to in [1, 2] {
                world.send(to, 1, port.name().to_string().into_bytes()).await.unwrap();
            }
            world.recv(1, 2, vec![]).await.unwrap();
            let met = own.accept(Uniformity::None, 0, Some(&port)).await.unwrap();
            assert_eq!(met.remote_group().processes(), [ProcessId(2)]);
            return;
        }
        let name = world.recv(0, 1, vec![0; 40]).await.unwrap();
        let name = str::from_utf8(name.data()).unwrap().parse().unwrap();
        let own = own.dup().await.unwrap();
        if world.rank() == 1 {
            let request = own.connect(Uniformity::None, 0, Some(name)).start();
            for _ in 0..30 {
                member.runtime.progress();
                turn().await;
            }
            world.send(2, 3, vec![]).await.unwrap();
            own.revoke();
            assert_eq!(request.await.err(), Some(Error::Revoked));
            world.send(0, 2, vec![]).await.unwrap();
        } else {
            world.recv(1, 3, vec![]).await.unwrap();
            own.connect(Uniformity::None, 0, Some(name)).await.unwrap();
        }
    });
}

/// The second part of a long group description arrives after its head, and before the sender's line
/// closes.
#[test]
fn groups_meet_although_their_descriptions_arrive_late() {
    for seed in 0..10 {
        let sim = Sim::new(SimConfig { seed, ..SimConfig::default() });
        let slow = Changes { late_from: 40, ..Changes::NONE };
        let program = |rank: u32| {
            let runtime = Runtime::new(Altered::new(sim.net(rank), slow), Config::default());
            let runtime = runtime.unwrap();
            async move {
                let world = runtime.world();
                let own = runtime.oneself();
                if rank == 0 {
                    let port = runtime.open_port().unwrap();
                    world.send(1, 1, port.name().to_string().into_bytes()).await.unwrap();
                    own.accept(Uniformity::None, 0, Some(&port)).await.unwrap();
                } else {
                    let name = world.recv(0, 1, vec![0; 40]).await.unwrap();
                    let name = str::from_utf8(name.data()).unwrap().parse().unwrap();
                    own.connect(Uniformity::None, 0, Some(name)).await.unwrap();
                }
                world.barrier().await.unwrap();
            }
        };
        sim.run((0..2).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// There are 2048 context ids, and ports use none of them.
#[test]
fn ports_use_up_no_context_ids() {
    let sim = Sim::new(SimConfig::default());
    let runtime = join(&sim, 0);
    let before = runtime.free_ids();
    let ports: Vec<_> = (0..5000).map(|_| runtime.open_port().unwrap()).collect();
    let names: HashSet<_> = ports.iter().map(OpenPort::name).collect();
    assert_eq!((names.len(), runtime.free_ids()), (5000, before));
}

/// An accept ignores malformed calls, and a caller that sends nothing after its call.
#[test]
fn malformed_calls_are_dropped() {
    for seed in 0..20 {
        let sim = Sim::new(SimConfig { processes: 3, seed, ..SimConfig::default() });
        let program = |rank: u32| {
            let mut net = plain(&sim, rank);
            async move {
                if rank == 2 {
                    // In the context id that follows those of ports: a message that is no letter, a
                    // letter of no known kind, calls to mailboxes that are not open, a message on a
                    // line that does not exist, and a call that nothing follows.
                    let context = 1 << 15 | 2047 << 4;
                    let tag = TagLayout::MPI.pack(context, 2, 0).unwrap();
                    let letter = |what: u32, to: u64, said: &[u8]| {
                        let head = [&32u32.to_le_bytes()[..], &what.to_le_bytes()].concat();
                        [&head, &to.to_le_bytes()[..], &77u64.to_le_bytes(), said].concat()
                    };
                    let letters = [
                        letter(0, 0, &[])[..23].to_vec(),
                        letter(3, 0, &[]),
                        letter(0, 0, &[1]),
                        letter(0, 9, &[]),
                        letter(0, u64::MAX, &[]),
                        letter(1, 0, &[1; 30]),
                        letter(2, 0, &[]),
                        letter(0, 0, &[]),
                    ];
                    for letter in letters {
                        net.inject(ProcessId(0), tag, &letter).unwrap();
                    }
                    // This message is sent last: when it has arrived, all others have arrived, too.
                    let world = Runtime::new(net, Config::default()).unwrap().world();
                    world.send(0, 1, vec![]).await.unwrap();
                    // Until the others have connected.
                    world.recv(0, 1, vec![]).await.unwrap();
                    return;
                }
                let runtime = Runtime::new(net, Config::default()).unwrap();
                let world = runtime.world();
                let own = runtime.oneself();
                let inter = if rank == 0 {
                    let port = runtime.open_port().unwrap();
                    world.recv(2, 1, vec![]).await.unwrap();
                    world.send(1, 1, port.name().to_string().into_bytes()).await.unwrap();
                    own.accept(Uniformity::None, 0, Some(&port)).await.unwrap()
                } else {
                    let name = world.recv(0, 1, vec![0; 20]).await.unwrap();
                    let name = str::from_utf8(name.data()).unwrap().parse().unwrap();
                    own.connect(Uniformity::None, 0, Some(name)).await.unwrap()
                };
                assert_eq!(inter.remote_group().processes(), [ProcessId(1 - rank)]);
                inter.disconnect().await.unwrap();
                if rank == 0 {
                    world.send(2, 1, vec![]).await.unwrap();
                }
            }
        };
        sim.run((0..3).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}
