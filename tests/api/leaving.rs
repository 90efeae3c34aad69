//! What was flushed arrives, whatever its sender does next; and a flush ends, whatever its peers
//! do. Other processes play their part by running the test `role`.

use std::time::{Duration, Instant};

use tagmatch::{Address, Config, Match, NotFlushed, Peer, PeerFault, SharedWorker, WhyUnsent};
use tagmatch::{WaitPolicy, Worker};
use tagmatch_testkit::device::{Other, hear_line, role, say};

use crate::common::fork::{exit_at_once, signal};
use crate::common::{config, takes_without_progress};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(180);
/// The limit of a flush that can't succeed.
const SHORT: Duration = Duration::from_millis(200);
/// Longer than any message that a device sends without asking, whole or in fragments.
const LARGE: usize = 100_000;
/// After this message, both workers are known to be connected.
const MET: u64 = 0x7fff;

/// As many messages as any device lets a peer send that has sent little before.
const FEW: u64 = 2;

fn payload(tag: u64) -> Vec<u8> {
    let length = if tag % 100 == 99 { LARGE } else { tag as usize % 300 };
    (0..length).map(|at| (at as u64 * 7 + tag) as u8).collect()
}

fn inject(worker: &Worker, peer: Peer, tags: std::ops::Range<u64>) {
    for tag in tags {
        worker.inject(peer, tag, &payload(tag)).unwrap();
    }
}

fn receive(worker: &Worker, tags: std::ops::Range<u64>) {
    for tag in tags {
        let mut receive = worker.recv(Match::tag(tag), vec![0; LARGE]);
        let received = receive.wait_timeout(PATIENCE);
        let lost = || panic!("message {tag} is lost: {:?}", worker.counters());
        let received = received.unwrap_or_else(lost).unwrap();
        assert_eq!(received.data(), payload(tag), "message {tag}");
    }
}

/// UCX goes on to set up a connection for a while after the first message.
fn settle(worker: &Worker) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        worker.progress();
    }
}

/// Ends this process from outside.
fn die() -> ! {
    signal(std::process::id(), libc::SIGKILL);
    unreachable!("killed")
}

/// Plays the role that this process has, if it has one.
#[test]
fn role_of_another_process() {
    let Some(role) = role() else { return };
    let worker = Worker::new(config().drain_timeout(PATIENCE)).unwrap();
    say(worker.address());
    let address: Address = hear_line().parse().unwrap();
    let meet = || {
        let peer = worker.connect(&address).unwrap();
        worker.send_sync(peer, MET, vec![]).wait().unwrap();
        peer
    };
    match role.as_str() {
        "returns" => inject(&worker, worker.connect(&address).unwrap(), 0..1000),
        "flushes and exits" | "flushes and is killed" => {
            let peer = worker.connect(&address).unwrap();
            inject(&worker, peer, 0..1000);
            worker.flush(PATIENCE).unwrap();
            if role == "flushes and exits" { exit_at_once() } else { die() }
        }
        "is killed while its peer rests" => {
            let peer = meet();
            settle(&worker);
            say("met");
            hear_line();
            inject(&worker, peer, 0..FEW);
            worker.flush(PATIENCE).unwrap();
            die();
        }
        "never polls" => drop(hear_line()),
        "receives when it is told" => {
            meet();
            say("met");
            hear_line();
            receive(&worker, 99..100);
            receive(&worker, 0..1);
        }
        other => panic!("no role {other}"),
    }
}

/// A worker, another process that plays a role, and the address of its worker.
fn with_role(role: &str, config: Config) -> (Worker, Other, Address) {
    let worker = Worker::new(config).unwrap();
    let mut other = Other::spawn("leaving::role_of_another_process", role);
    let address = other.hear_address();
    other.say(&worker.address().to_string());
    (worker, other, address)
}

/// As [`with_role`], with a process that connects and says so.
fn met(role: &str) -> (Worker, Other, Peer) {
    let (worker, mut other, _) = with_role(role, config());
    let receive = worker.recv(Match::tag(MET), vec![]).wait().unwrap();
    settle(&worker);
    assert_eq!(other.hear(), "met");
    (worker, other, receive.status.source)
}

/// The flush of one peer has failed.
fn failed(result: Result<(), NotFlushed>, peer: Peer) -> (usize, WhyUnsent) {
    let failed = result.expect_err("flushed");
    assert_eq!(failed.peers.len(), 1, "{failed}");
    assert_eq!(failed.peers[0].peer, peer, "{failed}");
    (failed.peers[0].messages, failed.peers[0].why)
}

fn quickly<T>(call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    result
}

#[test]
fn a_program_that_injects_and_returns_loses_nothing() {
    for round in 0..10 {
        let start = Instant::now();
        let (worker, mut other, _) = with_role("returns", config());
        receive(&worker, 0..1000);
        // Over TCP, UCX's acknowledgements need this side's progress.
        while !other.has_ended() {
            worker.progress();
        }
        other.wait();
        println!("round {round}: {:?}", start.elapsed());
    }
}

#[test]
fn what_was_flushed_arrives_though_its_sender_exits_at_once() {
    for role in ["flushes and exits", "flushes and is killed"] {
        let (worker, _other, _) = with_role(role, config());
        receive(&worker, 0..1000);
    }
}

#[test]
fn what_was_flushed_arrives_though_its_receiver_takes_it_only_after_the_senders_death() {
    let (worker, mut other, peer) = met("is killed while its peer rests");
    other.say("go");
    let start = Instant::now();
    while !other.has_ended() {
        if !takes_without_progress() {
            worker.progress();
        }
        assert!(start.elapsed() < PATIENCE, "its flush doesn't end");
    }
    receive(&worker, 0..FEW);
    while worker.peer_fault(peer).unwrap().is_none() {
        worker.progress();
        assert!(start.elapsed() < PATIENCE, "its end goes unnoticed");
    }
}

#[test]
fn a_peer_that_makes_no_progress_is_not_waited_for_longer_than_the_timeout() {
    let config = config().drain_timeout(SHORT);
    let (worker, mut other, address) = with_role("never polls", config);
    let peer = worker.connect(&address).unwrap();
    inject(&worker, peer, 0..3);
    quickly(|| {
        for _ in 0..2 {
            let (messages, why) = failed(worker.flush(SHORT), peer);
            assert_eq!((messages, why), (3, WhyUnsent::NotConnected));
        }
        assert_eq!(worker.unsent().len(), 1);
        failed(worker.flush(Duration::ZERO), peer);
        failed(worker.close(SHORT), peer);
    });
    other.say("end");
    other.wait();
}

#[test]
fn a_stopped_peer_is_not_waited_for_longer_than_the_timeout() {
    let (worker, mut other, peer) = met("receives when it is told");
    worker.flush(PATIENCE).unwrap();
    signal(other.pid(), libc::SIGSTOP);
    inject(&worker, peer, 99..100);
    quickly(|| assert_eq!(failed(worker.flush(SHORT), peer), (1, WhyUnsent::NotTaken)));
    signal(other.pid(), libc::SIGCONT);
    other.say("go");
    worker.flush(PATIENCE).unwrap();
    assert!(worker.unsent().is_empty());
    inject(&worker, peer, 0..1);
    worker.close(PATIENCE).unwrap();
    other.wait();
}

/// A job that goes on after a crash flushes its living peers, and need not look at what was lost.
#[test]
fn a_flush_of_living_peers_says_nothing_of_a_dead_one() {
    let (worker, mut dead, peer) = met("receives when it is told");
    inject(&worker, peer, 99..100);
    dead.kill();
    while worker.peer_fault(peer).unwrap().is_none() {
        worker.progress();
    }
    let living = Worker::new(config()).unwrap();
    let to_living = worker.connect(&living.address()).unwrap();
    let connected = worker.send_sync(to_living, MET, vec![]);
    let mut connects = living.recv(Match::tag(MET), vec![]);
    while connects.test().is_none() {
        worker.progress();
    }
    drop(connected);
    // It waits for the living one, which does not receive.
    inject(&worker, to_living, 99..100);
    let failed = worker.flush(SHORT).unwrap_err();
    let named = |failed: &NotFlushed| failed.peers.iter().map(|of| of.peer).collect::<Vec<_>>();
    assert_eq!(named(&failed), [peer, to_living]);
    assert_eq!(named(&failed.only_living().unwrap_err()), [to_living]);
    drop(living);
    let lost = quickly(|| worker.flush(PATIENCE)).unwrap_err();
    assert_eq!(lost.only_living(), Ok(()));
    quickly(|| worker.flush(PATIENCE)).unwrap();
}

#[test]
fn what_a_dead_peer_has_not_taken_is_told_once() {
    let (worker, mut other, peer) = met("receives when it is told");
    inject(&worker, peer, 99..100);
    failed(worker.flush(SHORT), peer);
    other.kill();
    let (messages, why) = failed(worker.flush(PATIENCE), peer);
    assert_eq!(messages, 1);
    let WhyUnsent::Down(fault) = why else { panic!("{why}") };
    assert!(matches!(fault, PeerFault::Gone | PeerFault::Unreachable { .. }), "{fault}");
    assert!(worker.unsent().is_empty());
    for _ in 0..3 {
        assert!(worker.inject(peer, 1, &[]).is_err());
        quickly(|| worker.flush(PATIENCE)).unwrap();
    }
    quickly(|| worker.close(PATIENCE)).unwrap();
}

#[test]
fn closing_flushes_and_other_handles_stay() {
    let a = Worker::new(config()).unwrap();
    let b = SharedWorker::new(config()).unwrap();
    let peer = a.connect(&b.address()).unwrap();
    let takes = b.progress_thread().unwrap();
    inject(&a, peer, 0..10);
    a.close(PATIENCE).unwrap();
    drop(takes);
    for tag in 0..10 {
        let mut receive = b.recv(Match::tag(tag), vec![0; LARGE]);
        let received = receive.wait_timeout(PATIENCE).expect("a message is lost").unwrap();
        assert_eq!(received.data(), payload(tag), "message {tag}");
    }
    let one = SharedWorker::new(config()).unwrap();
    let two = one.clone();
    one.close(PATIENCE).unwrap();
    two.inject(two.oneself(), 1, &[]).unwrap();
    two.recv_blocking(Match::tag(1), &mut []).unwrap();
}

#[test]
fn a_flush_ends_though_other_threads_go_on_sending() {
    let wait = WaitPolicy::SLEEP.spin(100).yields(100);
    let with = || SharedWorker::new(config().wait(wait)).unwrap();
    let a = with();
    let b = with();
    let to_b = a.connect(&b.address()).unwrap();
    let _takes = b.progress_thread().unwrap();
    std::thread::scope(|threads| {
        let receiver = b.clone();
        threads.spawn(move || {
            while receiver.recv(Match::any(), vec![0; 64]).wait().unwrap().status.tag != 2.into() {}
        });
        let sender = a.clone();
        let task_data = std::sync::Arc::new(());
        let observer = std::sync::Arc::downgrade(&task_data);
        threads.spawn(move || {
            while observer.upgrade().is_some() {
                sender.send(to_b, 1, vec![0; 64]).wait().unwrap();
            }
        });
        for _ in 0..20 {
            a.inject(to_b, 1, &[0; 64]).unwrap();
            a.flush(PATIENCE).unwrap();
        }
        drop(task_data);
        a.send(to_b, 2, vec![]).wait().unwrap();
        // No thread of the sender makes progress any more.
        a.flush(PATIENCE).unwrap();
    });
}

#[test]
fn an_interrupt_ends_a_flush() {
    let config = config().drain_timeout(SHORT);
    let (worker, mut other, address) = with_role("never polls", config);
    let peer = worker.connect(&address).unwrap();
    inject(&worker, peer, 0..1);
    let interrupter = worker.interrupter();
    let interrupts = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        interrupter.interrupt();
    });
    quickly(|| failed(worker.flush(PATIENCE), peer));
    interrupts.join().unwrap();
    other.say("end");
    other.wait();
}
