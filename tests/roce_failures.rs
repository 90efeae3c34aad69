//! What the public API promises when the network or a process fails: two hosts with an RDMA device
//! each.
//!
//! `ci/test failures` starts two guests with soft-RoCE. The tests run in the first one, with worker
//! processes in both. Each worker process is this program again, with a role in its environment. It
//! sends and receives the same messages as the test, so both sides notice a message that is lost,
//! repeated, overtaken or changed.

mod roce;

use std::thread::sleep;
use std::time::{Duration, Instant};

use tagmatch::{Address, Error, Match, Peer, PeerFault, Worker};

use roce::bystander::{Bystander, SOON, soon};
use roce::devices::{HASTY, Over, PATIENT, Setup};
use roce::hosts::{Fault, Host, LIMIT, Limit, PARENT, Process, ROLE, say};
use roce::job;
use roce::traffic::{Kind, Stream, exchange, is_down, meet};

/// Longer than any test takes.
const ENDLESS: u64 = u64::MAX;
/// Longer than it takes to probe a silent peer, and to give it up if its device doesn't
/// acknowledge.
const LONG: Duration = Duration::from_secs(4);
/// Shorter than it takes to give a silent peer up.
const SHORT: Duration = Duration::from_millis(700);
/// Tags beside those of the streams: the last message of a process that sends everything, and a tag
/// that is never sent.
const SAID: u64 = 2000;
const ANYONE: u64 = 2001;
/// Bytes that take longer to read between emulated machines than it takes to kill a process.
const HUGE: usize = 64 << 20;

/// Plays a role, if there is one.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let _limit = Limit::new(&role, LIMIT);
    let (setup, role) = role.split_once(' ').unwrap();
    let worker = Setup::parse(setup).worker();
    say("address", worker.address());
    let parent: Address = std::env::var(PARENT).unwrap().parse().unwrap();
    let parent = worker.connect(&parent).unwrap();
    let words: Vec<_> = role.split(' ').collect();
    match words[..] {
        ["exchange", kinds, total] => {
            for kind in kinds.split('+').map(Kind::parse) {
                exchange(&worker, parent, kind, total.parse().unwrap()).unwrap();
            }
        }
        ["stream", kind] => {
            let mut stream = Stream::new(Kind::parse(kind), parent, ENDLESS);
            is_peer_down(stream.run_until(&worker, ENDLESS), parent);
            say("noticed", "");
            stream.end(&worker);
        }
        ["job", rank] => job::member(&worker, rank.parse().unwrap(), parent),
        ["echo"] => echo(&worker, parent),
        ["sender"] => send_everything(&worker, parent),
        ["silent"] => {
            meet(&worker, parent).unwrap();
            sleep(LIMIT);
        }
        _ => panic!("no role {role}"),
    }
    say("done", "");
}

/// Sends everything back, until a message of one byte.
fn echo(worker: &Worker, parent: Peer) {
    loop {
        let received = worker.recv(Match::any().from(parent), vec![0; 1 << 17]).wait().unwrap();
        let reply = received.data().to_vec();
        if reply.len() == 1 {
            return;
        }
        worker.send(parent, received.status.tag, reply).wait().unwrap();
    }
}

/// Sends one message of every kind and never sees them received.
fn send_everything(worker: &Worker, parent: Peer) {
    for tag in 0..10 {
        worker.send(parent, tag, Kind::Eager.payload(tag)).wait().unwrap();
    }
    let large: Vec<_> =
        (20..23).map(|tag| worker.send(parent, tag, Kind::Rendezvous.payload(tag))).collect();
    let sync = worker.send_sync(parent, 30, vec![1; 10]);
    let huge = worker.send(parent, 40, vec![7; HUGE]);
    worker.send(parent, SAID, vec![0; 1]).wait().unwrap();
    sleep(LIMIT);
    drop((large, sync, huge));
}

fn is_peer_down(result: Result<(), Error>, who: Peer) {
    match result {
        Err(Error::PeerDown { peer, .. }) => assert_eq!(peer, who),
        other => panic!("{other:?}"),
    }
}

/// Traffic goes on while the bystander answers, until the peer is known to be down, which must be
/// soon.
fn until_down(worker: &Worker, stream: &mut Stream, peer: Peer, bystander: &mut Bystander) {
    let start = Instant::now();
    let mut next = start;
    let error = loop {
        if let Err(error) = stream.step(worker) {
            break error;
        }
        assert!(start.elapsed() < SOON, "the peer's end is not noticed");
        if Instant::now() >= next {
            bystander.ask(worker);
            next = Instant::now() + Duration::from_millis(100);
        }
    };
    println!("noticed after {:?}: {error}", start.elapsed());
    is_peer_down(Err(error), peer);
}

/// Everything that depends on the peer that is down ends with an error at once, without another
/// call.
fn stays_down(worker: &Worker, peer: Peer, address: &Address) {
    assert!(worker.peer_fault(peer).unwrap().is_some());
    is_down(soon(worker.send(peer, 0, vec![0; 8])), peer);
    is_down(soon(worker.send(peer, 0, vec![0; 100_000])), peer);
    is_down(soon(worker.recv(Match::any().from(peer), vec![0; 8])), peer);
    is_peer_down(worker.inject(peer, 0, &[]), peer);
    assert_eq!(worker.connect(address).unwrap(), peer, "it stays the same peer");
    assert_eq!(worker.counters().peer_faults, 1);
}

/// The link goes down for good: each side gives up the other one, and no other peer.
///
/// The bystander is on this host. If this host's link is down and there is no shared memory, the
/// worker itself is the only bystander: where the link is down, soft-RoCE fails every send, also
/// within the host.
fn link_down_for_long(over: Over, kind: Kind, host: Host) {
    let name = format!("link down on the {host:?} host, {kind:?}, over {over:?}");
    let _limit = Limit::new(&name, LIMIT);
    let setup = HASTY.over(over);
    let worker = setup.worker();
    let process = Process::start(Host::Far, &format!("{setup} stream {kind:?}"), &worker.address());
    let address = process.address();
    let peer = worker.connect(&address).unwrap();
    let bystander = (host == Host::Far || over.has_shm()).then_some(Host::Near);
    let mut bystander = Bystander::new(bystander, &worker, setup);
    let anyone = worker.recv(Match::tag(ANYONE), vec![0; 8]);
    let mut stream = Stream::new(kind, peer, ENDLESS);
    stream.run_until(&worker, 30).unwrap();

    // A guest whose interface is down takes in no packet, so QEMU's wire would block, and this
    // guest with it.
    let wire = (host == Host::Far).then(|| Fault::netem(Host::Near, "loss 100%"));
    let link = Fault::link_down(host);
    until_down(&worker, &mut stream, peer, &mut bystander);
    let fault = worker.peer_fault(peer).unwrap();
    // The device refuses requests while its own link is down.
    let is_named = matches!(fault, Some(PeerFault::Unreachable { .. } | PeerFault::Failed { .. }));
    assert!(is_named, "{fault:?}");
    stream.end(&worker);
    stays_down(&worker, peer, &address);
    process.hear("done");
    drop((link, wire));
    // When the link is back, these two workers don't connect again, but others do.
    stays_down(&worker, peer, &address);
    let process =
        Process::start(Host::Far, &format!("{setup} exchange {kind:?} 30"), &worker.address());
    let peer = worker.connect(&process.address()).unwrap();
    exchange(&worker, peer, kind, 30).unwrap();
    process.hear("done");

    worker.send(worker.oneself(), ANYONE, vec![5; 8]).wait().unwrap();
    assert_eq!(soon(anyone).unwrap().data(), [5; 8]);
    bystander.finish(&worker);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_link_down_there_ends_eager_traffic_across_it() {
    link_down_for_long(Over::Verbs, Kind::Eager, Host::Far);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_link_down_there_ends_rendezvous_across_it() {
    link_down_for_long(Over::Verbs, Kind::Rendezvous, Host::Far);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_link_down_here_ends_all_traffic_across_it() {
    link_down_for_long(Over::Verbs, Kind::Mixed, Host::Near);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_link_down_there_leaves_shared_memory_here_untouched() {
    link_down_for_long(Over::ShmAndVerbs, Kind::Mixed, Host::Far);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_link_down_here_leaves_shared_memory_untouched() {
    link_down_for_long(Over::ShmAndVerbs, Kind::Mixed, Host::Near);
}

/// No packet reaches the other side for a while, but not for so long that a peer is given up.
///
/// The link stays up and all packets are lost: with the link down, soft-RoCE would fail every send
/// at once.
fn short_break(kind: Kind) {
    let _limit = Limit::new(&format!("short break, {kind:?}"), LIMIT);
    let worker = PATIENT.worker();
    let total = 200;
    let role = format!("{PATIENT} exchange {kind:?} {total}");
    let process = Process::start(Host::Far, &role, &worker.address());
    let peer = worker.connect(&process.address()).unwrap();
    let mut stream = Stream::new(kind, peer, total);
    stream.run_until(&worker, 30).unwrap();
    let fault = Fault::netem(Host::Near, "loss 100%");
    stream.run_for(&worker, SHORT).unwrap();
    assert!(!stream.is_over(), "it was over before it could be interrupted");
    drop(fault);
    stream.finish(&worker).unwrap();
    process.hear("done");
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_short_break_is_survived_by_eager_traffic() {
    short_break(Kind::Eager);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_short_break_is_survived_by_rendezvous() {
    short_break(Kind::Rendezvous);
}

/// A process on the first host is killed in the middle of traffic both ways, and a bystander on the
/// second host is not touched.
fn killed(over: Over, kind: Kind, [host, other]: [Host; 2]) {
    let _limit =
        Limit::new(&format!("killed on the {host:?} host, {kind:?}, over {over:?}"), LIMIT);
    let setup = HASTY.over(over);
    let worker = setup.worker();
    let process = Process::start(host, &format!("{setup} stream {kind:?}"), &worker.address());
    let address = process.address();
    let peer = worker.connect(&address).unwrap();
    let mut bystander = Bystander::new(Some(other), &worker, setup);
    let mut stream = Stream::new(kind, peer, ENDLESS);
    stream.run_until(&worker, 30).unwrap();
    process.signal("KILL");
    until_down(&worker, &mut stream, peer, &mut bystander);
    stream.end(&worker);
    stays_down(&worker, peer, &address);
    bystander.finish(&worker);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_death_ends_eager_traffic_with_the_dead() {
    killed(Over::Verbs, Kind::Eager, [Host::Far; 2]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_death_ends_rendezvous_with_the_dead() {
    killed(Over::Verbs, Kind::Rendezvous, [Host::Far; 2]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_death_there_leaves_shared_memory_here_untouched() {
    killed(Over::ShmAndVerbs, Kind::Mixed, [Host::Far, Host::Near]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_death_here_leaves_traffic_to_the_other_host_untouched() {
    killed(Over::ShmAndVerbs, Kind::Mixed, [Host::Near, Host::Far]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_killed_sender_leaves_what_was_complete_and_nothing_else() {
    let _limit = Limit::new("killed sender", LIMIT);
    let worker = HASTY.worker();
    let process = Process::start(Host::Far, &format!("{HASTY} sender"), &worker.address());
    let address = process.address();
    let peer = worker.connect(&address).unwrap();
    let mut bystander = Bystander::new(Some(Host::Far), &worker, HASTY);
    let anyone = worker.recv(Match::tag(ANYONE), vec![0; 8]);
    worker.recv(Match::tag(SAID), vec![0; 1]).wait().unwrap();
    let held = worker.mprobe(Match::tag(21)).unwrap().unwrap();
    let held_eager = worker.mprobe(Match::tag(5)).unwrap().unwrap();
    let named = worker.recv(Match::tag(ANYONE).from(peer), vec![0; 8]);
    let reading = worker.recv(Match::tag(40), vec![0; HUGE]);
    worker.progress();
    process.signal("KILL");

    match soon(reading) {
        Ok(received) => assert!(received.data().iter().all(|byte| *byte == 7)),
        Err(failed) => is_down(Err::<(), _>(failed), peer),
    }
    is_down(soon(named), peer);
    bystander.ask(&worker);
    is_down(soon(held.recv(vec![0; 100_000])), peer);
    for tag in [20, 22, 30] {
        assert!(
            worker.probe(Match::tag(tag)).unwrap().is_none(),
            "{tag} can't be received any more"
        );
    }
    assert_eq!(worker.counters().lost_rendezvous, 4, "these, and the one that was held");
    let complete = soon(held_eager.recv(vec![0; 4000])).unwrap();
    assert_eq!(complete.data(), Kind::Eager.payload(5));
    for tag in (0..10).filter(|tag| *tag != 5) {
        let received = soon(worker.recv(Match::tag(tag).from(peer), vec![0; 4000])).unwrap();
        assert_eq!(received.data(), Kind::Eager.payload(tag));
    }
    stays_down(&worker, peer, &address);
    worker.send(worker.oneself(), ANYONE, vec![5; 8]).wait().unwrap();
    assert_eq!(soon(anyone).unwrap().data(), [5; 8]);
    bystander.finish(&worker);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_killed_receiver_fails_the_sends_that_wait_for_it() {
    let _limit = Limit::new("killed receiver", LIMIT);
    let worker = HASTY.worker();
    let process = Process::start(Host::Far, &format!("{HASTY} silent"), &worker.address());
    let address = process.address();
    let peer = worker.connect(&address).unwrap();
    let mut bystander = Bystander::new(Some(Host::Far), &worker, HASTY);
    meet(&worker, peer).unwrap();
    soon(worker.send(peer, 1, vec![0; 8])).expect("complete when its buffer is free");
    let waiting = [
        worker.send(peer, 1, vec![0; 100_000]),
        worker.send_sync(peer, 1, vec![0; 8]),
        worker.send_delivered(peer, 1, vec![0; 8]),
    ];
    let flood: Vec<_> = (0..2000).map(|_| worker.send(peer, 2, vec![0; 1000])).collect();
    process.signal("KILL");
    for send in waiting {
        is_down(soon(send), peer);
        bystander.ask(&worker);
    }
    // Sends that were under way may have succeeded; none may hang.
    for send in flood {
        if let Err(failed) = soon(send) {
            is_down(Err::<(), _>(failed), peer);
        }
    }
    stays_down(&worker, peer, &address);
    bystander.finish(&worker);
}

/// A process that does nothing for a long time isn't taken for dead, since its device acknowledges.
fn stopped(kind: Kind) {
    let _limit = Limit::new(&format!("stopped, {kind:?}"), LIMIT);
    let worker = HASTY.worker();
    let total = 200;
    let role = format!("{HASTY} exchange {kind:?} {total}");
    let process = Process::start(Host::Far, &role, &worker.address());
    let peer = worker.connect(&process.address()).unwrap();
    let mut bystander = Bystander::new(Some(Host::Far), &worker, HASTY);
    let mut stream = Stream::new(kind, peer, total);
    stream.run_until(&worker, 30).unwrap();
    process.signal("STOP");
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        stream.step(&worker).unwrap();
        bystander.ask(&worker);
    }
    assert!(!stream.is_over(), "it was over before it could be stopped");
    process.signal("CONT");
    stream.finish(&worker).unwrap();
    process.hear("done");
    bystander.finish(&worker);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn eager_traffic_waits_for_a_stopped_process() {
    stopped(Kind::Eager);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn rendezvous_waits_for_a_stopped_process() {
    stopped(Kind::Rendezvous);
}
