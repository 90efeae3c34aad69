//! Communicators whose workers have NICs that match. The NICs are models.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tagmatch::model::ModelConfig;
use tagmatch::shm::ShmConfig;
use tagmatch::{Config as WorkerConfig, DeviceConfig, HwTags, Shared, SharedWorker};
use tagmatch_comm::coll::Op;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime, Source};

use crate::job::Job;

/// The number of receives that are counted, and their length in bytes. No other message here has
/// that length.
const RECEIVES: u32 = 100;
const LENGTH: usize = 256;

/// Runs a program in each of some ranks, on workers whose NICs have this number of slots. No rank
/// leaves before all have ended.
fn run_on_nics(
    ranks: u32,
    slots: u32,
    program: impl Fn(Runtime<WorkerNet<Shared>>, &SharedWorker) + Sync,
) {
    let model = ModelConfig::default().slots(slots);
    let hw_tags_threshold = LENGTH as u64;
    // Nothing goes past the model on a machine that has a network, too.
    let device = DeviceConfig::Shm(ShmConfig::default());
    let config = WorkerConfig::default()
        .device(device)
        .hw_tags(HwTags::Model(model))
        .hw_tags_threshold(hw_tags_threshold);
    let workers: Vec<_> = (0..ranks).map(|_| SharedWorker::new(config.clone()).unwrap()).collect();
    let addresses: Vec<_> = workers.iter().map(SharedWorker::address).collect();
    let done = Barrier::new(workers.len());
    let play = |rank: u32, worker: &SharedWorker| {
        let net = WorkerNet::new(worker.clone(), addresses.clone(), rank).unwrap();
        // Collective operations go by messages, so that there is something to match.
        let config = Config::default().shared_memory(false);
        let runtime = Runtime::new(net, config).unwrap();
        program(runtime.clone(), worker);
        runtime.world().barrier().wait().unwrap();
        done.wait();
    };
    thread::scope(|scope| {
        for (worker, rank) in workers.iter().zip(0..) {
            let play = &play;
            scope.spawn(move || play(rank, worker));
        }
    });
}

/// The number of receives from `from` that the NICs match, if they have this number of slots.
fn matched(slots: u32, from: Source) -> u64 {
    let matched = AtomicU64::new(0);
    run_on_nics(2, slots, |runtime, worker| {
        let world = runtime.world();
        if world.rank() == 0 {
            world.barrier().wait().unwrap();
            for tag in (0..RECEIVES).rev() {
                world.send(1, tag, vec![u8::try_from(tag).unwrap(); LENGTH]).wait().unwrap();
            }
            return;
        }
        let receives: Vec<_> =
            (0..RECEIVES).map(|tag| world.recv(from, tag, vec![0; LENGTH])).collect();
        // Until the NIC has taken up as many receives as it has room for.
        while (0..1000).any(|_| worker.progress() > 0) {}
        world.barrier().wait().unwrap();
        for (receive, tag) in receives.into_iter().zip(0..) {
            assert_eq!(receive.wait().unwrap().data(), [tag; LENGTH]);
        }
        matched.store(worker.counters().hardware, Ordering::Relaxed);
    });
    matched.into_inner()
}

#[test]
fn the_nic_matches_as_many_receives_that_name_a_rank_as_it_has_room_for() {
    assert_eq!(matched(127, Source::Rank(0)), 100);
    assert_eq!(matched(127, Source::Any), 100);
    assert!(matched(30, Source::Rank(0)) >= 30);
}

#[test]
fn the_nic_matches_what_collective_operations_receive() {
    run_on_nics(3, 127, |runtime, worker| {
        let world = runtime.world();
        let value = |rank: u32| vec![u8::try_from(rank).unwrap(); 4096];
        for _ in 0..100 {
            let sum = world.allreduce(value(world.rank()), &Op::bor()).wait().unwrap();
            assert_eq!(sum, vec![3; 4096]);
            assert_eq!(world.broadcast(1, value(world.rank())).wait().unwrap(), value(1));
        }
        world.barrier().wait().unwrap();
        let counters = worker.counters();
        let matched = counters.hardware;
        let named = counters.not_offloaded.source;
        assert!(matched > 0 && named == 0, "rank {}: {counters:?}", world.rank());
    });
}

#[test]
fn ranks_with_nics_do_everything() {
    for (role, ranks) in [
        ("everything: all", 2),
        ("everything: all", 5),
        ("everything: all shared", 3),
        ("everything: threads", 2),
        ("inter: everything", 3),
    ] {
        Job::on_nics(role, ranks).finish(&[]);
    }
    let mut jobs = [Job::on_nics("jobs: accepts", 2), Job::on_nics("jobs: connects", 3)];
    for _ in 0..3 {
        let port = jobs[0].hear(1, "port");
        jobs[1].tell(0, port);
    }
    for job in jobs {
        job.finish(&[]);
    }
}

#[test]
fn survivors_of_a_kill_with_nics_go_on() {
    let mut job = Job::on_nics("everything: survivor", 3);
    (0..3).for_each(|rank| drop(job.hear(rank, "met")));
    job.kill(2);
    job.finish(&[2]);
    let mut job = Job::on_nics("everything: victim", 3);
    (0..3).for_each(|rank| drop(job.hear(rank, "met")));
    job.hear(2, "sent");
    job.hear(0, "taken");
    job.kill(2);
    job.finish(&[2]);
    let mut job = Job::on_nics("deaths: loop kill 0 3", 4);
    (0..4).for_each(|rank| drop(job.hear(rank, "met")));
    thread::sleep(Duration::from_millis(20));
    job.kill(0);
    job.kill(3);
    job.finish(&[0, 3]);
}
