//! Blocking calls with a time limit, and how another thread ends them.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::{Cancel, Config, Error, Match, SharedWorker, WaitPolicy, Worker};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every way in which a call can wait.
fn policies() -> impl Iterator<Item = Config> {
    let policy = |spin, yields, sleep| WaitPolicy::default().spin(spin).yields(yields).sleep(sleep);
    [
        WaitPolicy::default(),
        policy(0, 0, true),
        policy(0, 0, false),
        policy(u32::MAX, 0, true),
        policy(0, u32::MAX, true),
    ]
    .into_iter()
    .map(|wait| Config::default().wait(wait))
}

#[test]
fn a_wait_with_a_limit_ends_and_its_request_goes_on() {
    for config in policies() {
        let worker = Worker::new(config).unwrap();
        let me = worker.oneself();
        let mut receive = worker.recv(Match::tag(1), vec![0; 8]);
        for limit in [Duration::ZERO, Duration::from_millis(3)] {
            assert!(receive.wait_timeout(limit).is_none());
        }
        worker.inject(me, 1, &[7; 8]).unwrap();
        let received = receive.wait_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(received.data(), [7; 8]);
        let again = receive.wait_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(matches!(again.error, Error::AlreadyTaken));
        let mut cancelled = worker.recv(Match::tag(1), vec![0; 8]);
        assert!(cancelled.wait_timeout(Duration::from_millis(1)).is_none());
        assert!(matches!(cancelled.cancel_wait().unwrap(), Cancel::Cancelled(_)));
        let mut inbox = [0; 8];
        worker.scope(|scope| {
            let mut receive = scope.recv(Match::tag(2), &mut inbox);
            assert!(receive.wait_timeout(Duration::from_millis(1)).is_none());
            scope.send(me, 2, &[9; 8]).wait_timeout(PATIENCE).unwrap().unwrap();
            assert_eq!(receive.wait_timeout(PATIENCE).unwrap().unwrap().length, 8);
        });
        assert_eq!(inbox, [9; 8]);
    }
}

/// A worker that ends panics if a call has left its waker behind.
#[test]
fn a_call_that_the_waker_of_another_thread_has_ended_by_a_panic_leaves_nothing_behind() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as planned");
        }
    }
    let wait = WaitPolicy::default().spin(0).yields(0);
    let a = SharedWorker::new(Config::default()).unwrap();
    let b = SharedWorker::new(Config::default().wait(wait)).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let _moves_by_itself = a.progress_thread().unwrap();
    a.inject(to_b, 0, &[]).unwrap();
    b.recv_blocking(Match::tag(0), &mut []).unwrap();
    let mut receive = Box::pin(b.recv(Match::tag(1), vec![0; 8]));
    let waker = Waker::from(Arc::new(Panics));
    assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    thread::scope(|scope| {
        scope.spawn(|| {
            // So long that the other thread falls asleep.
            thread::sleep(Duration::from_millis(100));
            a.inject(to_b, 1, &[7; 8]).unwrap();
        });
        let probe = AssertUnwindSafe(|| b.probe_blocking(Match::tag(2)));
        assert!(catch_unwind(probe).is_err());
    });
}

#[test]
fn a_probe_with_a_limit_ends_and_takes_nothing() {
    for config in policies() {
        let worker = Worker::new(config).unwrap();
        let short = Duration::from_millis(3);
        assert!(worker.probe_timeout(Match::tag(1), short).unwrap().is_none());
        assert!(worker.mprobe_timeout(Match::tag(1), short).unwrap().is_none());
        worker.inject(worker.oneself(), 1, &[7; 8]).unwrap();
        assert_eq!(worker.probe_timeout(Match::tag(1), PATIENCE).unwrap().unwrap().length, 8);
        let message = worker.mprobe_timeout(Match::tag(1), PATIENCE).unwrap().unwrap();
        assert_eq!(message.recv(vec![0; 8]).wait().unwrap().data(), [7; 8]);
    }
}

#[test]
fn a_blocked_thread_is_woken_from_another() {
    for config in policies() {
        let (tell, told) = channel();
        let blocked = thread::spawn(move || {
            let worker = Worker::new(config).unwrap();
            tell.send(Some(worker.interrupter())).unwrap();
            let mut receive = worker.recv(Match::tag(1), vec![0; 8]);
            assert!(receive.wait_timeout(Duration::MAX).is_none());
            tell.send(None).unwrap();
            assert!(worker.mprobe_timeout(Match::tag(1), Duration::MAX).unwrap().is_none());
            tell.send(None).unwrap();
        });
        let interrupter = told.recv().unwrap().unwrap();
        // The interrupt may come before the call, while it polls, or while it sleeps.
        thread::sleep(Duration::from_millis(20));
        interrupter.interrupt();
        assert!(told.recv_timeout(PATIENCE).expect("never woken").is_none());
        interrupter.interrupt();
        assert!(told.recv_timeout(PATIENCE).expect("never woken").is_none());
        blocked.join().unwrap();
    }
}

#[test]
fn each_interrupt_is_seen_as_a_return_of_nothing_also_beside_ends() {
    let worker = SharedWorker::new(Config::default()).unwrap();
    let seen = AtomicU64::new(0);
    let all = 2000;
    let is_seen = |number| {
        let begin = Instant::now();
        while seen.load(Ordering::Acquire) < number {
            if begin.elapsed() > PATIENCE {
                return false;
            }
            thread::yield_now();
        }
        true
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            for number in 1..=all {
                worker.inject(worker.oneself(), 1, &[7; 8]).unwrap();
                worker.interrupter().interrupt();
                if !is_seen(number) {
                    return number;
                }
            }
            0
        });
        let mut ends = Vec::new();
        for _ in 0..all {
            worker.recv_queued(Match::tag(1), vec![0; 8], 1).unwrap();
            // Not for ever, so that a lost interrupt fails the test.
            while worker.ends_timeout(&mut ends, 16, 2 * PATIENCE) > 0 {
                ends.clear();
            }
            if other.is_finished() {
                break;
            }
            seen.fetch_add(1, Ordering::Release);
        }
        assert_eq!(other.join().unwrap(), 0, "an interrupt was lost");
    });
}

#[test]
fn an_interrupt_ends_all_calls_that_are_blocked_or_else_the_next_one() {
    let wait = WaitPolicy::SLEEP;
    let worker = SharedWorker::new(Config::default().wait(wait)).unwrap();
    let interrupter = worker.interrupter();
    interrupter.interrupt();
    interrupter.interrupt();
    let mut receive = worker.recv(Match::tag(1), vec![0; 8]);
    assert!(receive.wait_timeout(Duration::MAX).is_none(), "the next call is not interrupted");
    // An interrupt ends one call only: the next call ends with its message.
    let (tell, told) = channel();
    let waits = tell.clone();
    thread::spawn(move || waits.send(receive.wait_timeout(Duration::MAX).is_some()));
    thread::sleep(Duration::from_millis(20));
    worker.inject(worker.oneself(), 1, &[7; 8]).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
    for _ in 0..3 {
        let mut receive = worker.recv(Match::tag(2), vec![0; 8]);
        let waits = tell.clone();
        thread::spawn(move || waits.send(receive.wait_timeout(Duration::MAX).is_some()));
    }
    // All three calls are blocked by now, or a later interrupt ends them.
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(50));
        interrupter.interrupt();
    }
    for _ in 0..3 {
        assert_eq!(told.recv_timeout(PATIENCE), Ok(false), "never woken");
    }
}

#[test]
fn a_wait_for_one_of_several_requests_finds_the_one_that_ended() {
    for config in policies() {
        let worker = Worker::new(config).unwrap();
        let other = Worker::new(Config::default()).unwrap();
        let me = worker.oneself();
        let mut receives: Vec<_> =
            (0..5u64).map(|tag| worker.recv(Match::tag(tag), vec![0; 8])).collect();
        receives.push(other.recv(Match::tag(0), vec![0; 8]));
        assert_eq!(worker.wait_any_timeout(&receives, Duration::from_millis(3)), None);
        assert!(!worker.wait_all_timeout(&receives, Duration::from_millis(3)));
        for tag in [3, 0, 4, 1, 2u64] {
            worker.inject(me, tag, &[tag as u8; 8]).unwrap();
            let place = worker.wait_any(&receives).unwrap();
            assert_eq!(place, tag as usize);
            let received = receives[place].test().unwrap().unwrap();
            assert_eq!(received.data(), [tag as u8; 8]);
        }
        // Only results that were taken are left, and the request of another worker.
        assert_eq!(worker.wait_any(&receives), None);
        assert!(worker.wait_all_timeout(&receives, Duration::ZERO));
        // A send that is complete at once, and one that was refused, have ended.
        assert_eq!(worker.wait_any(&[worker.send(me, 9, vec![0; 8])]), Some(0));
        assert_eq!(worker.wait_any(&[worker.send(other.oneself(), 9, vec![0; 8])]), Some(0));
        let receives: Vec<_> =
            (20..25u64).map(|tag| worker.recv(Match::tag(tag), vec![0; 8])).collect();
        (20..25u64).rev().for_each(|tag| worker.inject(me, tag, &[tag as u8; 8]).unwrap());
        assert!(worker.wait_all_timeout(&receives, PATIENCE));
        let results = worker.wait_all(receives);
        assert_eq!(results.len(), 5);
        for (tag, received) in (20..).zip(results) {
            assert_eq!(received.unwrap().data(), [tag; 8]);
        }
    }
}

#[test]
fn a_thread_that_waits_for_several_requests_is_woken_by_the_progress_of_another() {
    let wait = WaitPolicy::SLEEP;
    let worker = SharedWorker::new(Config::default().wait(wait)).unwrap();
    let _moves = worker.progress_thread().unwrap();
    let (tell, told) = channel();
    let waits = worker.clone();
    thread::spawn(move || {
        for round in 0..50u64 {
            let tags = 3 * round..3 * round + 3;
            let receives: Vec<_> =
                tags.map(|tag| waits.recv(Match::tag(tag), vec![0; 8])).collect();
            tell.send(None).unwrap();
            tell.send(waits.wait_any(&receives)).unwrap();
        }
    });
    for round in 0..50u64 {
        assert_eq!(told.recv_timeout(PATIENCE), Ok(None));
        thread::sleep(Duration::from_millis(round % 3));
        worker.inject(worker.oneself(), 3 * round + round % 3, &[7; 8]).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Some((round % 3) as usize)), "never woken");
    }
}
