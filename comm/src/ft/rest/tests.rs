//! An id rests while a communicator or an operation has it, here or in another process.

use std::sync::Arc;

use tagmatch::Worker;

use crate::alloc::{OwnedId, Progress, Role};
use crate::ft::control::ASK_MAX;
use crate::ids::IdLayout;
use crate::life::Life;
use crate::net::ProcessId;
use crate::net::worker::WorkerNet;
use crate::runtime::{Config, Runtime};

type Process = Runtime<WorkerNet>;

/// A job of two processes.
fn job() -> [Process; 2] {
    let workers = [(); 2].map(|()| Worker::new(tagmatch::Config::default()).unwrap());
    let addresses = workers.each_ref().map(Worker::address).to_vec();
    let mut ranks = 0..;
    workers.map(|worker| {
        let net = WorkerNet::new(worker, addresses.clone(), ranks.next().unwrap()).unwrap();
        Runtime::new(net, Config::default()).unwrap()
    })
}

/// An id for a communicator of both processes.
fn allocate(process: &Process) -> OwnedId {
    allocate_for(process, 7)
}

/// An id for the creation of this name.
fn allocate_for(process: &Process, name: u64) -> OwnedId {
    let world = process.world();
    let allocation = process.driver().allocator.begin(world.id(), 0, Role::Member);
    let mut allocation = allocation.for_members([name, name], &world.inner.info.group);
    loop {
        let offered = allocation.offer();
        match allocation.conclude(&offered) {
            Ok(Progress::Done(Some(id))) => return id,
            Ok(Progress::Again) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Whether an id of the first process rests after all processes have answered its questions.
fn rests(job: &[Process; 2]) -> bool {
    let allocator = &job[0].driver().allocator;
    let sweep = allocator.with_rest(|rest| rest.want());
    for _ in 0..100_000 {
        job.iter().for_each(Process::progress);
        let state = allocator.with_rest(|rest| (rest.is_settled(Some(sweep)), rest.count()));
        if let (true, count) = state {
            return count > 0;
        }
    }
    panic!("the sweep doesn't end");
}

/// An operation keeps a communicator's life when the communicator has given up its id.
#[test]
fn an_id_rests_while_a_process_has_an_operation_in_it() {
    for whose in [0, 1] {
        let job = job();
        let ids = job.each_ref().map(allocate);
        let id = ids[0].id();
        let group = job[0].world().inner.info.group.clone();
        let rank = group.rank(ProcessId(whose)).unwrap();
        let life = Arc::new(Life::new(id, 7, &group, rank));
        job[whose as usize].driver().register(&life);
        drop(ids);
        for _ in 0..3 {
            assert!(rests(&job), "process {whose} has an operation in it");
        }
        drop(life);
        assert!(!rests(&job));
    }
}

/// The process that has asked no longer counts the use when it settles ids with others.
#[test]
fn an_id_that_another_process_asks_about_is_a_stray() {
    let job = job();
    let ids = job.each_ref().map(allocate);
    let prefix = IdLayout::BITS_16.prefix(ids[0].id());
    drop(ids);
    job.iter().for_each(Process::progress);
    let strays =
        || job.each_ref().map(|one| one.driver().allocator.with_rest(|rest| rest.is_stray(prefix)));
    assert_eq!(strays(), [false, false]);
    assert!(!rests(&job));
    assert_eq!(strays(), [false, true]);
}

/// A question has room for so many ids, and there are more: no id is taken for asked about that is
/// not.
#[test]
fn all_ids_are_asked_about_however_many_there_are() {
    let job = job();
    let names = 7..8 + 2 * ASK_MAX as u64;
    let both = |name| job.each_ref().map(|process| allocate_for(process, name));
    let ids: Vec<_> = names.map(both).collect();
    drop(ids);
    assert!(!rests(&job));
}
