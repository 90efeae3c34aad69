//! All calls of communicators between two to eight ranks, also with a rank that is killed by
//! SIGKILL.

use std::thread;

use tagmatch::{Access, Buffer, Local, Shared};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::ft::Agreed;
use tagmatch_comm::net::ProcessId;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Error, ErrorClass, Runtime, Source, TagChoice};

use crate::job::{Job, join, say};

/// The length of a message that the receiver reads out of the sender's memory, in bytes.
const LARGE: usize = 1 << 20;

pub(crate) fn play(role: &str) {
    match role {
        "all" => everything(&join::<Local>()),
        "all shared" => everything(&join::<Shared>()),
        "exhaust" => exhaust(&join::<Local>()),
        "threads" => threads(&join::<Shared>()),
        "victim" => victim(&join::<Local>()),
        "survivor" => survivor(&join::<Local>()),
        other => panic!("no role {other}"),
    }
}

type Process<A> = Runtime<WorkerNet<A>>;

fn everything<A: Access + 'static>(runtime: &Process<A>) {
    let world = runtime.world();
    let rank = world.rank();
    let size = world.size();
    world.barrier().wait().unwrap();
    let sum = |comm: &tagmatch_comm::Comm<WorkerNet<A>>, value: u64| {
        from_bytes::<u64>(&comm.allreduce(to_bytes(&[value]), &Op::sum::<u64>()).wait().unwrap())[0]
    };
    assert_eq!(sum(&world, u64::from(rank)), u64::from(size * (size - 1) / 2));
    let large = if rank == 1 { vec![9; 1 << 20] } else { vec![0; 1 << 20] };
    assert_eq!(world.broadcast(1, large).wait().unwrap(), vec![9; 1 << 20]);
    let byte = u8::try_from(rank).unwrap();
    assert_eq!(
        world.allgather(vec![byte]).wait().unwrap(),
        (0..=u8::MAX).take(size as usize).collect::<Vec<_>>()
    );
    let part = world.split((rank != 0).then_some(7), -rank.cast_signed()).wait().unwrap();
    assert_eq!(part.as_ref().map(|part| part.rank()), (rank != 0).then(|| size - 1 - rank));
    for _ in 0..200 {
        let copy = world.dup().wait().unwrap();
        assert_eq!(sum(&copy, 1), u64::from(size));
    }
    drop(part);
    world.barrier().wait().unwrap();
    assert_eq!(runtime.free_ids(), 2046);
    point_to_point(runtime);
    world.barrier().wait().unwrap();
}

/// Each rank sends to the next one, short and long messages. Some are probed before they are
/// received.
fn point_to_point<A: Access + 'static>(runtime: &Process<A>) {
    let world = runtime.world();
    let rank = world.rank();
    let size = world.size();
    let right = (rank + 1) % size;
    let left = (rank + size - 1) % size;
    for length in [0, 100, 100_000] {
        let sync = world.send_sync(right, 1, vec![1; length]);
        let standard = world.send(right, 2, vec![2; length]);
        let message = world.mprobe_blocking(Source::Any, 2).unwrap();
        assert_eq!((message.status().source, message.status().length), (Some(left), length));
        let slices = Buffer::from_slices([vec![0; length / 2], vec![0; length - length / 2]]);
        let received = message.recv(slices).wait().unwrap();
        assert_eq!(received.buffer.into_vec(), vec![2; length]);
        let status = world.probe_blocking(left, TagChoice::Any).unwrap();
        assert_eq!((status.tag, status.length), (Some(1), length));
        let received = world.recv(Source::Any, TagChoice::Any, vec![0; 10]).wait();
        match received {
            Ok(received) => assert_eq!(received.data(), vec![1; length]),
            Err(failed) => {
                assert_eq!(failed.error, Error::Truncated { length, room: 10 });
                assert_eq!(failed.buffer[..], [1; 10]);
            }
        }
        sync.wait().unwrap();
        standard.wait().unwrap();
        // All ranks have their messages, so that none receives a message of the next round.
        world.barrier().wait().unwrap();
    }
    runtime.attach_buffer(10_000).unwrap();
    world.send_buffered(right, 3, &[3; 5000]).unwrap();
    assert!(matches!(world.send_buffered(right, 3, &[3; 5000]), Err(Error::BufferFull { .. })));
    assert_eq!(world.recv(left, 3, vec![0; 5000]).wait().unwrap().data(), [3; 5000]);
    assert_eq!(runtime.detach_buffer(), 10_000);
}

/// Makes 2046 duplicates, gets errors for the next ones, and makes another one after freeing them.
/// Each of the next ones takes several rounds: a rank may be about to sleep when one has to begin.
fn exhaust(runtime: &Process<Local>) {
    let world = runtime.world();
    let copies: Vec<_> = (0..2046).map(|_| world.dup().wait().unwrap()).collect();
    for _ in 0..50 {
        assert!(matches!(world.dup().wait(), Err(Error::Exhausted { ids: 2048 })));
    }
    copies[2045].barrier().wait().unwrap();
    drop(copies);
    world.dup().wait().unwrap().barrier().wait().unwrap();
    world.barrier().wait().unwrap();
}

/// Four threads make duplicates at once, each of a communicator of its own, in different orders.
fn threads(runtime: &Process<Shared>) {
    let world = runtime.world();
    let mut own: Vec<_> = (0..4).map(|_| world.dup().wait().unwrap()).collect();
    if world.rank() % 2 == 1 {
        own.reverse();
    }
    let work = |comm: tagmatch_comm::Comm<WorkerNet<Shared>>| {
        move || {
            for _ in 0..50 {
                comm.dup().wait().unwrap().barrier().wait().unwrap();
            }
        }
    };
    let threads: Vec<_> = own.into_iter().map(|comm| thread::spawn(work(comm))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    world.barrier().wait().unwrap();
    assert_eq!(runtime.free_ids(), 2046);
}

/// The last rank sends no more, and is killed then.
fn victim(runtime: &Process<Local>) {
    let world = runtime.world();
    let last = world.size() - 1;
    world.barrier().wait().unwrap();
    say("met", "");
    if world.rank() == last {
        let _never_read = world.send(0, 9, vec![1; LARGE]);
        world.send(0, 10, vec![]).wait().unwrap();
        say("sent", "");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    if world.rank() == 0 {
        // This message is probed while its sender lives, and received after the sender's death.
        let message = world.mprobe_blocking(last, 9).unwrap();
        world.recv(last, 10, vec![]).wait().unwrap();
        say("taken", "");
        while world.probe(last, 11).is_ok() {}
        let failed = message.recv(vec![0; LARGE]).wait().unwrap_err();
        assert_eq!(failed.error, Error::ProcessFailed { rank: Some(last) });
    }
    let named = world.recv(last, 1, vec![0; 8]).wait().unwrap_err();
    assert_eq!(named.error, Error::ProcessFailed { rank: Some(last) });
    let failed = world.allreduce(vec![1; 8], &Op::bor()).wait().unwrap_err();
    assert_eq!(failed.class(), ErrorClass::ProcessFailed);
    assert!(world.probe_blocking(last, TagChoice::Any).is_err());
    // The survivors go on.
    let living = world.group().exclude(&[last]).unwrap();
    let next = world.create_group(&living, 1).wait().unwrap();
    next.barrier().wait().unwrap();
    assert_eq!(next.size(), last);
}

/// The last rank is killed. The first rank learns of that and revokes the communicator, so that the
/// others, which wait for each other, learn of it, too.
fn survivor(runtime: &Process<Local>) {
    let world = runtime.world();
    let rank = world.rank();
    let last = world.size() - 1;
    assert_eq!(
        world.agree(!(1 << rank)).wait().unwrap(),
        Agreed { flags: !((1 << world.size()) - 1), unacknowledged: Vec::new() }
    );
    say("met", "");
    if rank == last {
        // This rank makes progress until it is killed, because the others may need its part in the
        // agreement.
        loop {
            runtime.progress();
            thread::yield_now();
        }
    }
    let mut any = world.recv(Source::Any, 1, vec![0; 8]);
    if rank == 0 {
        let failed = any.wait_mut().unwrap_err();
        assert_eq!(failed.error, Error::ProcessFailedPending);
        assert_eq!(world.failed().processes(), [ProcessId(last)]);
        world.revoke();
        assert_eq!(any.wait_mut().unwrap_err().error, Error::Revoked);
    } else {
        // A receive from a rank that lives and sends nothing.
        let named = world.recv(rank - 1, 1, vec![0; 8]);
        assert_eq!(named.wait().unwrap_err().error, Error::Revoked);
    }
    assert_eq!(world.barrier().wait(), Err(Error::Revoked));
    assert_eq!(world.agree(rank.into()).wait().unwrap().unacknowledged, [last]);
    assert_eq!(world.acknowledge(1), 1);
    let agreed = world.agree(u64::MAX).wait().unwrap();
    assert_eq!(agreed, Agreed { flags: u64::MAX, unacknowledged: Vec::new() });
    let next = world.shrink().wait().unwrap();
    assert_eq!((next.size(), next.rank()), (last, rank));
    let sum = next.allreduce(to_bytes(&[1u64]), &Op::sum::<u64>()).wait().unwrap();
    assert_eq!(from_bytes::<u64>(&sum), [u64::from(last)]);
    drop((any, next));
    // A process that leaves its job counts as down for processes that still wait for its answers.
    let end = world.shrink().wait().unwrap();
    end.barrier().wait().unwrap();
    end.barrier().wait().unwrap();
}

#[test]
fn survivors_of_a_kill_go_on() {
    for ranks in [2, 3, 4] {
        let mut job = Job::start("everything: survivor", ranks);
        for rank in 0..ranks {
            job.hear(rank, "met");
        }
        job.kill(ranks - 1);
        job.finish(&[ranks - 1]);
    }
}

#[test]
fn two_to_eight_ranks_do_everything() {
    for ranks in [2, 3, 4, 5, 8] {
        Job::start("everything: all", ranks).finish(&[]);
    }
    Job::start("everything: all shared", 3).finish(&[]);
}

#[test]
fn all_ids_can_be_in_use() {
    for ranks in [2, 5] {
        Job::start("everything: exhaust", ranks).finish(&[]);
    }
}

#[test]
fn threads_duplicate_at_once() {
    Job::start("everything: threads", 2).finish(&[]);
}

#[test]
fn a_rank_is_killed() {
    for ranks in [2, 3, 4] {
        let mut job = Job::start("everything: victim", ranks);
        for rank in 0..ranks {
            job.hear(rank, "met");
        }
        job.hear(ranks - 1, "sent");
        job.hear(0, "taken");
        job.kill(ranks - 1);
        job.finish(&[ranks - 1]);
    }
}
