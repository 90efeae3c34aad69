//! Intercommunicators, also with a leader that is killed by SIGKILL.

use tagmatch::Local;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{CollRequest, Comm, ErrorClass, InterComm, InterRoot, RemoteLeader, Runtime};
use tagmatch_comm::{Source, TagChoice, Uniformity};

use crate::common::inter_coll::{Case, View, cases};
use crate::job::{Job, join, say};

type Process = Runtime<WorkerNet<Local>>;

pub(crate) fn play(role: &str) {
    let runtime = join::<Local>();
    match role {
        "everything" => everything(&runtime),
        "leader dies" => leader_dies(&runtime),
        other => panic!("no role {other}"),
    }
}

/// Creates an intercommunicator of the even and the odd ranks. The leaders are the first rank of
/// each group, and the world's communicator connects them.
fn create(
    world: &Comm<WorkerNet<Local>>,
    part: &Comm<WorkerNet<Local>>,
    uniformity: Uniformity,
) -> CollRequest<WorkerNet<Local>, InterComm<WorkerNet<Local>>> {
    let remote = RemoteLeader { peer: world, rank: 1 - world.rank() % 2, tag: 1 };
    part.create_inter(uniformity, 0, Some(remote)).start()
}

fn everything(runtime: &Process) {
    let world = runtime.world();
    let is_even = world.rank().is_multiple_of(2);
    let rank = world.rank();
    let part = world.split(Some(rank % 2), 0).wait().unwrap().unwrap();
    let before = runtime.free_ids();
    for uniformity in [Uniformity::None, Uniformity::Eventual, Uniformity::Strict] {
        let inter = create(&world, &part, uniformity).wait().unwrap();
        assert_eq!((inter.rank(), inter.size()), (part.rank(), part.size()));
        traffic(&inter);
        let copy = inter.dup().wait().unwrap();
        traffic(&copy);
        collectives(&inter, is_even);
        copy.barrier().wait().unwrap();
        let own = vec![u8::from(is_even); 5000];
        let root = match (is_even, inter.rank() == 0) {
            (true, true) => InterRoot::Own,
            (true, false) => InterRoot::Local,
            (false, _) => InterRoot::Remote(0),
        };
        assert_eq!(inter.broadcast(root, own).wait().unwrap(), vec![1; 5000]);
        parts(&copy);
        let merged = inter.merge(is_even).wait().unwrap();
        let number = merged.allgather(to_bytes(&[rank])).wait().unwrap();
        let all: Vec<u32> = (0..world.size()).collect();
        let (even, odd): (Vec<u32>, Vec<u32>) = all.iter().partition(|rank| *rank % 2 == 0);
        assert_eq!(from_bytes::<u32>(&number), [odd, even].concat());
        let local = inter.local().unwrap();
        let sum = local.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).wait().unwrap();
        assert_eq!(from_bytes::<u32>(&sum), [part.size()]);
        inter.barrier().wait().unwrap();
    }
    meet(runtime, &part);
    assert_eq!(runtime.free_ids(), before);
    world.barrier().wait().unwrap();
}

/// Splits by parity of the rank, then creates one of the first rank of each group: blocking,
/// started, awaited.
fn parts(inter: &InterComm<WorkerNet<Local>>) {
    let color = inter.rank() % 2;
    let of_color = |size: u32| (0..size).filter(|rank| rank % 2 == color).collect::<Vec<_>>();
    let groups = [inter.group(), inter.remote_group()];
    let due = groups.map(|group| group.include(&of_color(group.size())).unwrap());
    let part = inter.split(Some(color), 0).wait().unwrap();
    assert_eq!(part.is_some(), due[1].size() > 0);
    if let Some(part) = &part {
        assert_eq!([part.group(), part.remote_group()], [&due[0], &due[1]]);
        traffic(part);
        part.barrier().wait().unwrap();
    }
    let none = inter.split((inter.rank() > 0).then_some(color), 0).start();
    let first = inter.group().include(&[0]).unwrap();
    let pair = inter.create(&first).start();
    drop(none.wait().unwrap());
    let pair = pair.wait().unwrap();
    assert_eq!(pair.is_some(), inter.rank() == 0);
    if let Some(pair) = &pair {
        assert_eq!((pair.size(), pair.remote_size()), (1, 1));
        traffic(pair);
    }
}

/// All collective operations: first one blocking call after the other, then all at once.
fn collectives(inter: &InterComm<WorkerNet<Local>>, is_first: bool) {
    for scale in [1, 1000] {
        let cases: Vec<Case<_>> = cases(View::new(inter, is_first, scale));
        for case in &cases {
            assert_eq!((case.call)(inter).wait().unwrap(), case.expected, "{}", case.name);
        }
        let begun: Vec<_> = cases.iter().map(|case| (case.call)(inter).start()).collect();
        for (case, request) in cases.iter().zip(begun) {
            assert_eq!(request.wait().unwrap(), case.expected, "{}", case.name);
        }
    }
}

/// The even ranks accept twice at one port. Its name is sent to the leader of the odd ranks as
/// text.
fn meet(runtime: &Process, part: &Comm<WorkerNet<Local>>) {
    let world = runtime.world();
    let port = (world.rank() == 0).then(|| runtime.open_port().unwrap());
    if let Some(port) = &port {
        world.send(1, 6, port.name().to_string().into_bytes()).wait().unwrap();
    }
    let name = (world.rank() == 1).then(|| {
        let name = world.recv(0, 6, vec![0; 200]).wait().unwrap();
        str::from_utf8(name.data()).unwrap().parse().unwrap()
    });
    for uniformity in [Uniformity::None, Uniformity::Strict] {
        let inter = if world.rank().is_multiple_of(2) {
            part.accept(uniformity, 0, port.as_ref()).wait().unwrap()
        } else {
            part.connect(uniformity, 0, name).wait().unwrap()
        };
        traffic(&inter);
        inter.disconnect().wait().unwrap();
    }
}

/// Each process sends to each remote one, short and long messages. Some are probed before they are
/// received.
fn traffic(inter: &InterComm<WorkerNet<Local>>) {
    for length in [3, 200_000] {
        let sends: Vec<_> =
            (0..inter.remote_size()).map(|to| inter.send_sync(to, 4, vec![7; length])).collect();
        for _ in 1..inter.remote_size() {
            let received = inter.recv(Source::Any, TagChoice::Any, vec![0; length]).wait().unwrap();
            assert_eq!(received.data(), vec![7; length]);
        }
        let message = inter.mprobe_blocking(Source::Any, 4).unwrap();
        assert_eq!(message.status().length, length);
        assert_eq!(message.recv(vec![0; length]).wait().unwrap().data(), vec![7; length]);
        for send in sends {
            send.wait().unwrap();
        }
        inter.barrier().wait().unwrap();
    }
}

/// The leader of the odd ranks dies before it has told its group anything, or after some creations.
fn leader_dies(runtime: &Process) {
    let world = runtime.world();
    let part = world.split(Some(world.rank() % 2), 0).wait().unwrap().unwrap();
    let before = runtime.free_ids();
    let made = create(&world, &part, Uniformity::Strict).wait().unwrap();
    assert_eq!(made.agree(u32::MAX).wait().unwrap().unacknowledged.size(), 0);
    say("made", "");
    let mut count = 0;
    let class = loop {
        match create(&world, &part, Uniformity::Strict).wait() {
            Ok(_) => count += 1,
            Err(error) => break error.class(),
        }
    };
    assert_eq!(class, ErrorClass::NotCreated);
    assert_eq!(runtime.free_ids(), before - 1);
    // All survivors have failed at the same creation: all report the same number of creations
    // before.
    say("failed", count);
    let agreed = made.agree(count).wait().unwrap();
    assert_eq!((agreed.flags, agreed.unacknowledged.size()), (count, 1));
    let small = made.shrink().wait().unwrap();
    assert_eq!(small.size() + small.remote_size(), 3);
    traffic(&small);
    collectives(&small, world.rank().is_multiple_of(2));
    let end = world.shrink().wait().unwrap();
    end.barrier().wait().unwrap();
    end.barrier().wait().unwrap();
}

#[test]
fn two_groups_do_everything() {
    for ranks in [2, 3, 4] {
        Job::start("inter: everything", ranks).finish(&[]);
    }
}

#[test]
fn after_a_leaders_death_all_survivors_fail_at_the_same_creation() {
    for leader in [0, 1] {
        let mut job = Job::start("inter: leader dies", 4);
        for rank in 0..4 {
            job.hear(rank, "made");
        }
        job.kill(leader);
        let living = (0..4).filter(|rank| *rank != leader);
        let counts: Vec<String> = living.map(|rank| job.hear(rank, "failed")).collect();
        assert!(counts.windows(2).all(|two| two[0] == two[1]), "{counts:?}");
        job.finish(&[leader]);
    }
}
