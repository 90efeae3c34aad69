//! A dropped worker delivers what it has accepted, the drop always ends, and leaving is not counted
//! as a fault. The workers are in one process, each with a thread of its own, on the device that
//! the environment names.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::{Address, Config, Match, Peer, PeerFault, WaitPolicy, Worker};

use common::config;

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of a drain that can't finish.
const SHORT: Duration = Duration::from_millis(200);

fn with(drain_timeout: Duration) -> Config {
    config().drain_timeout(drain_timeout)
}

/// A thread with a worker that connects to `address`, does `work`, and is dropped. Tells when that
/// is over.
fn visitor(
    config: Config,
    address: Address,
    work: impl FnOnce(&Worker, Peer) + Send + 'static,
) -> Receiver<thread::Result<()>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let visit = thread::spawn(move || {
            let worker = Worker::new(config).unwrap();
            let peer = worker.connect(&address).unwrap();
            work(&worker, peer);
        });
        tell.send(visit.join())
    });
    told
}

/// Lets a worker make progress until the thread of the other worker has ended.
fn see_off(worker: &Worker, visitor: &Receiver<thread::Result<()>>) -> thread::Result<()> {
    let start = Instant::now();
    loop {
        worker.progress();
        match visitor.try_recv() {
            Ok(result) => return result,
            Err(_) => assert!(start.elapsed() < PATIENCE, "dropping the worker never ended"),
        }
    }
}

fn payload(round: u64, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u64 * 7 + round) as u8).collect()
}

#[test]
fn what_was_injected_arrives_though_its_sender_is_dropped_at_first_contact() {
    let worker = Worker::new(config()).unwrap();
    let total = 3000;
    let visitor = visitor(with(Duration::MAX), worker.address(), move |visitor, peer| {
        for round in 0..total {
            visitor.inject(peer, round, &payload(round, round as usize % 2000)).unwrap();
        }
    });
    for round in 0..total {
        let mut receive = worker.recv(Match::tag(round), vec![0; 2000]);
        let received = receive.wait_timeout(PATIENCE).expect("a message is lost").unwrap();
        assert_eq!(received.data(), payload(round, round as usize % 2000));
    }
    see_off(&worker, &visitor).unwrap();
}

#[test]
fn large_messages_arrive_though_requests_and_sender_are_dropped_at_once() {
    let worker = Worker::new(config()).unwrap();
    let length = |round: u64| 100_000 * (round as usize % 3 + 1);
    let visitor = visitor(with(Duration::MAX), worker.address(), move |visitor, peer| {
        for round in 0..20 {
            drop(visitor.send(peer, round, payload(round, length(round))));
            drop(visitor.send_sync(peer, 100 + round, payload(round, 10)));
        }
    });
    // Received in reverse order, so that the waiting messages are unexpected.
    for tag in (0..20).rev().flat_map(|round| [round, 100 + round]) {
        let mut receive = worker.recv(Match::tag(tag), vec![0; 300_000]);
        let received = receive.wait_timeout(PATIENCE).expect("a message is lost").unwrap();
        let expected = if tag < 100 { length(tag) } else { 10 };
        assert_eq!(received.data(), payload(tag % 100, expected));
    }
    see_off(&worker, &visitor).unwrap();
}

#[test]
fn dropping_ends_though_its_peer_takes_nothing() {
    for is_met in [false, true] {
        let worker = Worker::new(config()).unwrap();
        let (tell, told) = channel();
        let visitor = visitor(with(SHORT), worker.address(), move |visitor, peer| {
            if is_met {
                visitor.send_sync(peer, 1, vec![]).wait().unwrap();
            }
            for _ in 0..5000 {
                visitor.inject(peer, 2, &[0; 1000]).unwrap();
            }
            drop(visitor.send(peer, 3, vec![0; 100_000]));
            tell.send(()).unwrap();
        });
        if is_met {
            worker.recv(Match::tag(1), vec![]).wait().unwrap();
        }
        told.recv().unwrap();
        // This side makes no progress meanwhile.
        visitor.recv_timeout(PATIENCE).expect("never ended").unwrap();
    }
}

/// It has waited as long as it was told, so no drain follows.
#[test]
fn closing_waits_as_long_as_it_is_told_and_no_longer() {
    let worker = Worker::new(config()).unwrap();
    let visitor = visitor(with(Duration::MAX), worker.address(), move |visitor, peer| {
        visitor.send_sync(peer, 1, vec![]).wait().unwrap();
        drop(visitor.send(peer, 3, vec![0; 10_000_000]));
    });
    worker.recv(Match::tag(1), vec![]).wait().unwrap();
    assert!(visitor.recv_timeout(SHORT).is_err(), "a dropped worker drains");
    drop(worker);
    visitor.recv_timeout(PATIENCE).expect("never ended").unwrap();
    let worker = Worker::new(config()).unwrap();
    let address = worker.address();
    let (tell, told) = channel();
    thread::spawn(move || {
        let visitor = Worker::new(with(Duration::MAX)).unwrap();
        let peer = visitor.connect(&address).unwrap();
        visitor.send_sync(peer, 1, vec![]).wait().unwrap();
        drop(visitor.send(peer, 3, vec![0; 10_000_000]));
        tell.send(visitor.close(SHORT).is_err()).unwrap();
    });
    worker.recv(Match::tag(1), vec![]).wait().unwrap();
    assert!(told.recv_timeout(PATIENCE).expect("never ended"), "all was flushed");
}

#[test]
fn a_worker_of_thread_local_storage_is_drained_when_its_thread_ends() {
    thread_local! {
        static WORKER: std::cell::OnceCell<Worker> = const { std::cell::OnceCell::new() };
    }
    let worker = Worker::new(config()).unwrap();
    let address = worker.address();
    let (tell, told) = channel();
    thread::spawn(move || {
        let wait = WaitPolicy::SLEEP;
        let config = with(Duration::MAX).wait(wait);
        WORKER.with(|worker| {
            let worker = worker.get_or_init(|| Worker::new(config).unwrap());
            let peer = worker.connect(&address).unwrap();
            // The thread sleeps once. The thread-local that it sleeps on is then younger than the
            // worker, and is destroyed before it.
            assert!(
                worker.mprobe_timeout(Match::any(), Duration::from_millis(5)).unwrap().is_none()
            );
            drop(worker.send(peer, 1, payload(1, 100_000)));
        });
        tell.send(()).unwrap();
    });
    told.recv().unwrap();
    let mut receive = worker.recv(Match::tag(1), vec![0; 100_000]);
    let received = receive.wait_timeout(PATIENCE).expect("a message is lost").unwrap();
    assert_eq!(received.data(), payload(1, 100_000));
    let start = Instant::now();
    while worker.peer_fault(received.status.source).unwrap().is_none() {
        worker.progress();
        assert!(start.elapsed() < PATIENCE, "dropping the worker never ended");
    }
}

#[test]
fn dropping_ends_when_the_peer_is_gone() {
    let (tell, told) = channel();
    let worker = Worker::new(config()).unwrap();
    let visitor = visitor(with(Duration::MAX), worker.address(), move |visitor, peer| {
        visitor.send_sync(peer, 1, vec![]).wait().unwrap();
        drop(visitor.send(peer, 2, vec![0; 100_000]));
        tell.send(()).unwrap();
    });
    worker.recv(Match::tag(1), vec![]).wait().unwrap();
    told.recv().unwrap();
    drop(worker);
    visitor.recv_timeout(PATIENCE).expect("never ended").unwrap();
}

#[test]
fn two_that_are_dropped_at_once_end_both() {
    // First with messages that the other worker receives, without a limit; then with messages that
    // it doesn't receive, within the limit.
    for (is_received, limit) in [(true, Duration::MAX), (false, SHORT)] {
        let (to_one, address_of_two) = channel();
        let (to_two, address_of_one) = channel();
        let both_sent = Arc::new(Barrier::new(2));
        let side = |tell: std::sync::mpsc::Sender<Address>, told: Receiver<Address>| {
            let both_sent = Arc::clone(&both_sent);
            let (finish, finished) = channel();
            thread::spawn(move || {
                let worker = Worker::new(with(limit)).unwrap();
                tell.send(worker.address()).unwrap();
                let other = worker.connect(&told.recv().unwrap()).unwrap();
                let received = is_received.then(|| worker.recv(Match::tag(1), vec![0; 100_000]));
                drop(worker.send(other, 1, vec![0; 100_000]));
                both_sent.wait();
                drop(worker);
                drop(received);
                finish.send(()).unwrap();
            });
            finished
        };
        let one = side(to_two, address_of_two);
        let two = side(to_one, address_of_one);
        for side in [one, two] {
            side.recv_timeout(PATIENCE).expect("never ended");
        }
    }
}

#[test]
fn a_worker_that_is_dropped_by_a_panic_waits_for_nothing() {
    let worker = Worker::new(config()).unwrap();
    let visitor = visitor(with(Duration::MAX), worker.address(), |visitor, peer| {
        visitor.send_sync(peer, 1, vec![]).wait().unwrap();
        drop(visitor.send(peer, 2, vec![0; 100_000]));
        panic!("as planned");
    });
    worker.recv(Match::tag(1), vec![]).wait().unwrap();
    assert!(see_off(&worker, &visitor).is_err());
}

#[test]
fn who_leaves_in_order_is_no_fault() {
    let worker = Worker::new(config()).unwrap();
    for round in 0..3u64 {
        let visitor = visitor(config(), worker.address(), move |visitor, peer| {
            visitor.inject(peer, round, &[]).unwrap();
            if round == 2 {
                visitor.send_sync(peer, 9, vec![]).wait().unwrap();
                visitor.disconnect(peer).unwrap();
            }
        });
        let mut first = worker.recv(Match::tag(round), vec![]);
        let first = first.wait_timeout(PATIENCE).expect("its message is lost").unwrap();
        let peer = first.status.source;
        if round == 2 {
            worker.recv(Match::tag(9), vec![]).wait().unwrap();
        }
        see_off(&worker, &visitor).unwrap();
        let start = Instant::now();
        while worker.peer_fault(peer).unwrap().is_none() {
            worker.progress();
            assert!(start.elapsed() < PATIENCE, "its end goes unnoticed");
        }
        assert_eq!(worker.peer_fault(peer).unwrap(), Some(PeerFault::Left));
    }
    assert_eq!(worker.counters().peer_faults, 0);
}
