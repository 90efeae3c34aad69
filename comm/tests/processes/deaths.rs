//! Deaths: the survivors revoke, agree, shrink and go on. And memory, which must not grow however
//! often a call is repeated.

use std::thread;
use std::time::Duration;

use tagmatch::Local;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Comm, Error, ErrorClass, Runtime};

use crate::job::{Job, join, say};

type Process = Runtime<WorkerNet<Local>>;

/// `role`: `cycles`, `leftovers`, or `loop` with the way in which ranks die and their numbers.
pub(crate) fn play(role: &str) {
    let runtime = join::<Local>();
    let mut words = role.split(' ');
    let first = words.next();
    let how = words.next();
    let dying: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
    match first {
        Some("cycles") => cycles(&runtime),
        Some("leftovers") => leftovers(&runtime),
        Some("loop") => go_on(&runtime, how == Some("exit"), &dying),
        other => panic!("no role {other:?}"),
    }
}

fn count(comm: &Comm<WorkerNet<Local>>) -> Result<u64, Error> {
    comm.allreduce(to_bytes(&[1u64]), &Op::sum::<u64>())
        .wait()
        .map(|sum| from_bytes::<u64>(&sum)[0])
}

/// Repeats a sum with the survivors, and a hundred times more once no other rank is to die. A rank
/// that exits does so in the middle, with operations under way.
fn go_on(runtime: &Process, exits: bool, dying: &[u32]) {
    let world = runtime.world();
    let own = world.rank();
    let left = world.size() - u32::try_from(dying.len()).unwrap();
    let mut comm = world;
    comm.barrier().wait().unwrap();
    say("met", "");
    let mut turn = 0;
    let mut last = 0;
    while last < 100 {
        turn += 1;
        if exits && dying.contains(&own) && turn > 20 + own {
            let _under_way = comm.allreduce(to_bytes(&[1u64]), &Op::sum::<u64>()).start();
            std::process::exit(1);
        }
        match count(&comm) {
            Ok(sum) => {
                assert_eq!(sum, comm.size().into());
                last += u32::from(comm.size() == left);
            }
            Err(error) => {
                let is_failure =
                    matches!(error.class(), ErrorClass::ProcessFailed | ErrorClass::Revoked);
                assert!(is_failure, "rank {own}: {error:?}");
                comm.revoke();
                let agreed = comm.agree(!(1 << own)).wait().unwrap();
                assert_eq!(agreed.flags & 1 << own, 0);
                assert!(agreed.unacknowledged.iter().all(|rank| *rank < comm.size()));
                comm = comm.shrink().wait().unwrap();
            }
        }
    }
    drop(comm);
    assert_eq!(runtime.free_ids(), 2046);
    // A process that leaves its job counts as down for processes that still wait for its answers.
    let end = runtime.world().shrink().wait().unwrap();
    end.barrier().wait().unwrap();
    end.barrier().wait().unwrap();
}

/// Runs a job for each pair of ranks. Both ranks are killed at about the same time, or exit by
/// themselves.
fn each_two_die(ranks: usize, how: &str) {
    for first in 0..ranks {
        for second in first + 1..ranks {
            let mut job = Job::start(&format!("deaths: loop {how} {first} {second}"), ranks);
            (0..ranks).for_each(|rank| drop(job.hear(rank, "met")));
            if how == "kill" {
                // The first rank dies anywhere in its loop, the second one while the others handle
                // the first death.
                thread::sleep(Duration::from_micros(500 * (first + 2 * second) as u64));
                job.kill(first);
                thread::sleep(Duration::from_micros(150 * second as u64));
                job.kill(second);
            }
            job.finish(&[first, second]);
        }
    }
}

#[test]
fn each_pair_of_four_is_killed() {
    each_two_die(4, "kill");
}

#[test]
fn each_pair_of_four_exits() {
    each_two_die(4, "exit");
}

#[test]
fn some_of_five_to_eight_die() {
    for (ranks, dead) in [(5, vec![0, 4]), (8, vec![0, 1, 2, 5])] {
        for how in ["kill", "exit"] {
            let words: Vec<String> = dead.iter().map(usize::to_string).collect();
            let mut job = Job::start(&format!("deaths: loop {how} {}", words.join(" ")), ranks);
            (0..ranks).for_each(|rank| drop(job.hear(rank, "met")));
            if how == "kill" {
                dead.iter().for_each(|rank| job.kill(*rank));
            }
            job.finish(&dead);
        }
    }
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Makes and frees duplicates. No ids, tables or memory are lost.
fn cycles(runtime: &Process) {
    let world = runtime.world();
    let cycle = |times: u32| {
        for _ in 0..times {
            drop(world.dup().wait().unwrap());
        }
        world.barrier().wait().unwrap();
    };
    cycle(10_000);
    let before = resident();
    cycle(100_000);
    assert_eq!((runtime.free_ids(), runtime.tables()), (2046, 1));
    // Less than eleven bytes in each cycle.
    let grown = resident().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes more after 100,000 duplicates");
}

/// Sends messages that no process receives, in communicators that are revoked and freed: enough to
/// fill every pool and ring.
fn leftovers(runtime: &Process) {
    let world = runtime.world();
    for _ in 0..130 {
        let copy = world.dup().wait().unwrap();
        if copy.rank() == 0 {
            (0..1000).for_each(|_| drop(copy.send(1, 1, vec![1; 64])));
        }
        copy.revoke();
        copy.shrink().wait().unwrap().barrier().wait().unwrap();
    }
    for tag in 0..1000 {
        let hello = (world.rank() == 0).then(|| world.send(1, tag, vec![2; 64]));
        if world.rank() == 1 {
            let received = world.recv(0, tag, vec![0; 64]).wait().unwrap();
            assert_eq!(received.data(), [2; 64]);
        }
        hello.map(|hello| hello.wait().unwrap());
    }
    world.barrier().wait().unwrap();
}

#[test]
fn messages_left_in_revoked_communicators_stop_no_process() {
    Job::start("deaths: leftovers", 2).finish(&[]);
}

#[test]
fn duplicates_leak_nothing() {
    Job::start("deaths: cycles", 2).finish(&[]);
}
