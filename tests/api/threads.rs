//! Workers that several threads use, and workers that sleep.

use std::time::Duration;

use tagmatch::{Match, SendMode, SendOptions, SharedWorker, WaitPolicy, Worker};

use crate::common::{Ability, config, has};
use crate::pair::{bytes, pair};

#[test]
fn two_threads_never_take_the_same_message() {
    let worker = SharedWorker::new(config()).unwrap();
    let me = worker.oneself();
    let total = 4000u32;
    let taken: Vec<Vec<u32>> = std::thread::scope(|threads| {
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let worker = worker.clone();
                threads.spawn(move || {
                    let mut mine = Vec::new();
                    loop {
                        let message = worker.mprobe_blocking(Match::any()).unwrap();
                        let received = message.recv(vec![0; 4]).wait().unwrap();
                        let number = u32::from_le_bytes(received.data().try_into().unwrap());
                        if number == u32::MAX {
                            return mine;
                        }
                        mine.push(number);
                    }
                })
            })
            .collect();
        for i in (0..total).chain([u32::MAX, u32::MAX]) {
            worker.send(me, 1, i.to_le_bytes().to_vec()).wait().unwrap();
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    assert!(taken.iter().all(|mine| mine.is_sorted()), "a thread saw messages out of order");
    let mut all: Vec<u32> = taken.concat();
    all.sort_unstable();
    assert_eq!(all, (0..total).collect::<Vec<_>>());
}

#[test]
fn threads_wait_asleep_and_wake_each_other() {
    let wait = WaitPolicy::SLEEP;
    let config = config().wait(wait);
    let a = SharedWorker::new(config.clone()).unwrap();
    let b = SharedWorker::new(config).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    std::thread::scope(|threads| {
        for t in 0..3u64 {
            let a = a.clone();
            let b = b.clone();
            threads.spawn(move || {
                for i in 0..300u64 {
                    let receive = a.recv(Match::tag(100 + t), vec![0; 8]);
                    a.send(to_b, t, i.to_le_bytes().to_vec()).wait().unwrap();
                    assert_eq!(receive.wait().unwrap().data(), i.to_le_bytes());
                }
            });
            threads.spawn(move || {
                for _ in 0..300 {
                    let received = b.recv(Match::tag(t), vec![0; 8]).wait().unwrap();
                    b.send(to_a, 100 + t, received.buffer).wait().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_progress_thread_serves_a_worker_that_does_nothing() {
    let a = Worker::new(config()).unwrap();
    let b = SharedWorker::new(config()).unwrap();
    let to_b = a.connect(&b.address()).unwrap();
    let thread = b.progress_thread().unwrap();
    let mode = if has(Ability::Delivered) { SendMode::Delivered } else { SendMode::Synchronous };
    for round in 0..20 {
        // Only the progress thread can receive this message and acknowledge it.
        let receive = b.recv(Match::tag(1), vec![0; 100_000]);
        let options = SendOptions::default().mode(mode).immediate(None);
        a.send_with(to_b, 1, bytes(100_000), options).wait().unwrap();
        assert_eq!(receive.wait().unwrap().data(), bytes(100_000));
        if round % 5 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    drop(thread);
}

#[test]
fn the_descriptor_tells_when_there_is_something_to_do() {
    let p = pair();
    let readable = |worker: &Worker, time| {
        let events = [worker.event_descriptor()];
        tagmatch_os::sleep::sleep_until_readable(&events, Duration::from_millis(time)).unwrap()
    };
    // A timer of the device may end the first sleeps.
    let falls_asleep = || {
        (0..100).any(|_| {
            while !p.b.arm() {
                p.b.progress();
            }
            let sleeps = !readable(&p.b, 10);
            if !sleeps {
                p.b.disarm();
            }
            sleeps
        })
    };
    assert!(falls_asleep());
    p.a.inject(p.to_b, 1, b"wake").unwrap();
    assert!(readable(&p.b, 10_000));
    p.b.disarm();
    assert_eq!(p.ok(p.b.recv(Match::tag(1), vec![0; 4])).data(), b"wake");
    assert!(falls_asleep());
}
