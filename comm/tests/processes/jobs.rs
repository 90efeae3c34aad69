//! Two jobs, each with its own addresses, that connect by the name of a port. One test kills a
//! process with SIGKILL.

use tagmatch::{Config as WorkerConfig, Local, Tag, TagMask, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::net::{Directory, Net, NetError, Pattern, ProcessId, ProcessName};
use tagmatch_comm::{Comm, Error, InterComm, PortName, Runtime, Source, TagChoice, Uniformity};

use crate::job::{Job, join, say, told};

type Process = Runtime<WorkerNet<Local>>;
type Inter = InterComm<WorkerNet<Local>>;

pub(crate) fn play(role: &str) {
    let runtime = join::<Local>();
    match role {
        "accepts" => everything(&runtime, |uniformity| accept(&runtime, uniformity).unwrap()),
        "accepts once" => say("error", accept(&runtime, Uniformity::None).unwrap_err()),
        "connects" => everything(&runtime, |uniformity| connect(&runtime, uniformity)),
        "survives accepting" => survive(&accept(&runtime, Uniformity::Strict).unwrap()),
        "survives connecting" => survive(&connect(&runtime, Uniformity::Strict)),
        "spawns" => spawn(&runtime),
        "is spawned" => child(&runtime),
        other => panic!("no role {other}"),
    }
}

fn accept(runtime: &Process, uniformity: Uniformity) -> Result<Inter, Error> {
    let world = runtime.world();
    let leader = world.size() - 1;
    let port = (world.rank() == leader).then(|| runtime.open_port().unwrap());
    if let Some(port) = &port {
        say("port", port.name());
    }
    world.accept(uniformity, leader, port.as_ref()).wait()
}

fn connect(runtime: &Process, uniformity: Uniformity) -> Inter {
    let world = runtime.world();
    let name: Option<PortName> = (world.rank() == 0).then(|| told().parse().unwrap());
    world.connect(uniformity, 0, name).wait().unwrap()
}

fn everything(runtime: &Process, meet: impl Fn(Uniformity) -> Inter) {
    let before = runtime.free_ids();
    for uniformity in [Uniformity::None, Uniformity::Eventual, Uniformity::Strict] {
        let inter = meet(uniformity);
        for length in [3, 200_000] {
            let sends: Vec<_> = (0..inter.remote_size())
                .map(|to| inter.send_sync(to, 4, vec![7; length]))
                .collect();
            for _ in 0..inter.remote_size() {
                let received = inter.recv(Source::Any, TagChoice::Any, vec![0; length]);
                assert_eq!(received.wait().unwrap().data(), vec![7; length]);
            }
            for send in sends {
                send.wait().unwrap();
            }
            inter.barrier().wait().unwrap();
        }
        let all = inter.merge(false).wait().unwrap();
        inter.disconnect().wait().unwrap();
        count(&all);
        let part = all.split(Some(all.rank() % 2), 0).wait().unwrap().unwrap();
        count(&part);
        // No operation is under way that this could end.
        let copy = part.dup().wait().unwrap();
        copy.revoke();
        let again = copy.shrink().wait().unwrap();
        count(&again);
    }
    // The ids are free once all processes have dropped the communicators.
    runtime.world().barrier().wait().unwrap();
    assert_eq!(runtime.free_ids(), before);
}

/// Checks that all members take part in an agreement and in a sum.
fn count(all: &Comm<WorkerNet<Local>>) {
    assert_eq!(all.agree(!(1 << all.rank())).wait().unwrap().flags, !((1 << all.size()) - 1));
    let sum = all.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).wait().unwrap();
    assert_eq!(from_bytes::<u32>(&sum), [all.size()]);
}

/// The test kills one process. The others go on without it.
fn survive(inter: &Inter) {
    let all = inter.merge(false).wait().unwrap();
    count(&all);
    say("merged", "");
    while all.barrier().wait().is_ok() {}
    all.revoke();
    let small = all.shrink().wait().unwrap();
    assert_eq!(small.size(), all.size() - 1);
    count(&small);
    // Both groups know of the death.
    let agreed = inter.agree(u32::MAX).wait().unwrap();
    assert_eq!(agreed.unacknowledged.size(), 1);
    small.barrier().wait().unwrap();
}

fn spawn(runtime: &Process) {
    let world = runtime.world();
    let mut children = None;
    let start = |port: &PortName| {
        let mut job = Job::start("jobs: is spawned", 2);
        (0..2).for_each(|rank| job.tell(rank, port));
        children = Some(job);
        Ok::<(), std::io::Error>(())
    };
    let inter =
        world.spawn(Uniformity::Strict, 1, (world.rank() == 1).then_some(start)).wait().unwrap();
    assert_eq!(inter.remote_size(), 2);
    let all = inter.merge(false).wait().unwrap();
    count(&all);
    inter.disconnect().wait().unwrap();
    all.barrier().wait().unwrap();
    if let Some(job) = children {
        job.finish(&[]);
    }
    let fail = |_: &PortName| Err(std::io::Error::other("nothing to start"));
    let error = world.spawn(Uniformity::None, 1, (world.rank() == 1).then_some(fail)).wait();
    let text = error.unwrap_err().to_string();
    assert_eq!(text.contains("nothing to start"), world.rank() == 1, "{text}");
}

fn child(runtime: &Process) {
    let world = runtime.world();
    let inter = world.connect(Uniformity::Strict, 0, Some(told().parse().unwrap())).wait().unwrap();
    assert_eq!((world.size(), inter.remote_size()), (2, 3));
    let all = inter.merge(true).wait().unwrap();
    assert_eq!(all.rank(), 3 + world.rank());
    count(&all);
    inter.disconnect().wait().unwrap();
    all.barrier().wait().unwrap();
}

#[test]
fn a_process_of_another_job_gets_a_number_with_its_first_message() {
    let [ours, theirs] = [(); 2].map(|()| Worker::new(WorkerConfig::default()).unwrap());
    let job = |worker: Worker| {
        let addresses = vec![worker.address()];
        WorkerNet::new(worker, addresses, 0).unwrap()
    };
    let mut ours = job(ours);
    let mut theirs = job(theirs);
    let own = ours.name(ProcessId(0)).unwrap();
    assert_eq!((ours.admit(&own), ours.name(ProcessId(1))), (Ok(ProcessId(0)), None));
    let unreachable = ProcessName::from_bytes(&[1]).unwrap();
    assert!(matches!(ours.admit(&unreachable), Err(NetError::Other(_))));
    // A process that sends a message is admitted by that alone.
    let called = theirs.admit(&own).unwrap();
    theirs.inject(called, Tag(5), &[7]).unwrap();
    let pattern = Pattern { tag: Tag(5), mask: TagMask::EXACT, from: None };
    let envelope = loop {
        theirs.progress();
        ours.progress();
        if let Some(envelope) = ours.probe(pattern) {
            break envelope;
        }
    };
    assert_eq!(envelope.from, Some(ProcessId(1)));
    assert_eq!(ours.processes(), 1);
    assert_eq!(ours.name(ProcessId(1)), theirs.name(ProcessId(0)));
    // Its death is noticed, too.
    drop(theirs);
    let mut down = Vec::new();
    while down.is_empty() {
        ours.progress();
        down = ours.take_down();
    }
    assert_eq!((down, ours.is_down(ProcessId(1))), (vec![ProcessId(1)], true));
}

#[test]
fn two_jobs_do_everything() {
    for [first, second] in [[1, 1], [2, 1], [2, 3]] {
        let mut jobs = [Job::start("jobs: accepts", first), Job::start("jobs: connects", second)];
        for _ in 0..3 {
            let port = jobs[0].hear(first - 1, "port");
            jobs[1].tell(0, port);
        }
        for job in jobs {
            job.finish(&[]);
        }
    }
}

#[test]
fn both_jobs_go_on_without_a_killed_process() {
    for (killed, rank) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut jobs =
            [Job::start("jobs: survives accepting", 2), Job::start("jobs: survives connecting", 2)];
        let port = jobs[0].hear(1, "port");
        jobs[1].tell(0, port);
        for job in &mut jobs {
            (0..2).for_each(|rank| drop(job.hear(rank, "merged")));
        }
        jobs[killed].kill(rank);
        for (at, job) in jobs.into_iter().enumerate() {
            let dead: &[usize] = if at == killed { &[rank] } else { &[] };
            job.finish(dead);
        }
    }
}

#[test]
fn a_job_spawns_another() {
    Job::start("jobs: spawns", 3).finish(&[]);
}
