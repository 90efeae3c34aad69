//! Sleeping on the event descriptor, and being woken.

mod common;
#[allow(dead_code, reason = "one test has a peer made by hand")]
mod hostile_peer;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tagmatch_device::{Device, DownReason, PeerId};
use tagmatch_shm::{Shm, ShmConfig};

use common::{
    Owned, connect, fall_asleep, message, next_down, next_up, poll, shm, sleep, sleep_for_event,
    wait_for,
};
use hostile_peer::{Bystanders, HostilePeer, RawSocket, invented};

/// With the timer that finds what a hostile peer has hidden; tests have none by default.
fn sweeping() -> ShmConfig {
    ShmConfig::default().sweep_interval(Duration::from_millis(200))
}

#[test]
fn an_idle_worker_is_not_woken() {
    let config = ShmConfig::default().sweep_interval(Duration::from_secs(3600));
    let mut a = shm(config.clone());
    let mut b = shm(config);
    connect(&mut a, &mut b);
    fall_asleep(&mut a);
    assert!(!sleep(&a, Duration::from_millis(50)));
    a.disarm();
    for _ in 0..10_000 {
        assert!(a.poll().is_none());
    }
}

#[test]
fn the_connect_timeout_wakes_a_sleeping_worker() {
    let connect_timeout = Duration::from_millis(200);
    let mut a = shm(ShmConfig::default().connect_timeout(connect_timeout));
    // The listener exists, and its queue is full of earlier connections.
    let address = invented(&a.address(), 1);
    let listener = RawSocket::listen(&address);
    let _before: Vec<RawSocket> = (0..6).map(|_| RawSocket::connect(&address).unwrap()).collect();
    let peer = a.connect(&address).unwrap();
    match sleep_for_event(&mut a) {
        Owned::Down(down, DownReason::Unreachable { errno: libc::EAGAIN }) => {
            assert_eq!(down, peer);
        }
        other => panic!("{other:?}"),
    }
    drop(listener);
}

#[test]
fn a_connection_waits_for_a_peer_that_does_not_poll() {
    let connect_timeout = Duration::from_millis(50);
    let mut a = shm(ShmConfig::default().connect_timeout(connect_timeout));
    let mut busy = shm(ShmConfig::default());
    let peer = a.connect(&busy.address()).unwrap();
    let start = Instant::now();
    while start.elapsed() < 4 * connect_timeout {
        if a.arm(&[]) {
            sleep(&a, Duration::from_millis(20));
            a.disarm();
        }
        match poll(&mut a) {
            None | Some(Owned::Up(PeerId::ONESELF, _)) => {}
            other => panic!("{other:?}"),
        }
    }
    // The peer polls at last.
    wait_for(&mut [&mut a, &mut busy], "the connection", |_, event| match event {
        Owned::Up(up, _) if up == peer => Some(()),
        _ => None,
    });
}

/// Rings become hot and cold again all the time in this test. If a doorbell is missed, only the
/// device's own sweep would end the sleep, and it comes too late.
#[test]
fn many_senders_wake_one_sleeping_worker() {
    const SENDERS: usize = 12;
    const COUNT: u32 = 3000;
    for membarrier in [true, false] {
        let sweep_interval = Duration::from_secs(3600);
        let config = ShmConfig::default().membarrier(membarrier).sweep_interval(sweep_interval);
        let mut receiver = shm(config.clone());
        let address = receiver.address();
        let (done, ends) = std::sync::mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        let senders: Vec<_> = (0..SENDERS)
            .map(|number| {
                let config = config.clone();
                let ends = ends.clone();
                std::thread::spawn(move || {
                    let mut sender = shm(config);
                    let peer = sender.connect(&address).unwrap();
                    next_up(&mut sender);
                    for at in 0..COUNT {
                        let bytes =
                            [&[u8::try_from(number).unwrap()][..], &at.to_le_bytes()].concat();
                        while sender.send(peer, message(&bytes)).is_err() {
                            assert!(poll(&mut sender).is_none());
                            std::thread::yield_now();
                        }
                        // Bursts and pauses of many lengths.
                        for _ in 0..(at.wrapping_mul(2_654_435_761) >> 20) % 300 {
                            std::hint::spin_loop();
                        }
                        if at % 512 == 511 {
                            std::thread::sleep(Duration::from_micros(300));
                        }
                    }
                    // The sender stays until all its messages were received.
                    let _ = ends.lock().unwrap().recv();
                    drop(sender);
                })
            })
            .collect();
        let mut next_of = [0u32; SENDERS];
        while next_of != [COUNT; SENDERS] {
            match poll(&mut receiver) {
                Some(Owned::Message(_, _, bytes)) => {
                    let (number, at) = bytes.split_at(1);
                    let expected = &mut next_of[usize::from(number[0])];
                    assert_eq!(at, expected.to_le_bytes());
                    *expected += 1;
                }
                Some(Owned::Up(..)) => {}
                Some(other) => panic!("{other:?}"),
                None => {
                    if receiver.arm(&[]) {
                        assert!(sleep(&receiver, common::PATIENCE), "a doorbell was missed");
                        receiver.disarm();
                    }
                }
            }
        }
        drop(done);
        for sender in senders {
            sender.join().unwrap();
        }
    }
}

/// The next event of a device that has it already. A few polls find it, long before a sweep would.
fn at_once(shm: &mut Shm) -> Option<Owned> {
    (0..16).find_map(|_| poll(shm))
}

#[test]
fn a_message_whose_doorbell_bit_was_cleared_is_found_by_the_timer() {
    let mut bystanders = Bystanders::new(sweeping());
    let mut hostile = HostilePeer::connect(&mut bystanders, 21);
    let victim = &mut bystanders.victim;
    fall_asleep(victim);
    hostile.write_quietly(5, b"quiet");
    assert!(sleep(victim, common::PATIENCE), "the worker slept on");
    victim.disarm();
    let event = at_once(victim);
    assert!(matches!(&event, Some(Owned::Message(_, _, bytes)) if bytes == b"quiet"), "{event:?}");
    assert!(bystanders.exchange().is_empty());
}

/// A program's sleeps are often shorter than the time between two sweeps.
#[test]
fn sleeps_that_end_early_put_no_sweep_off() {
    let sweep_interval = Duration::from_millis(400);
    let mut bystanders = Bystanders::new(ShmConfig::default().sweep_interval(sweep_interval));
    let mut hostile = HostilePeer::connect(&mut bystanders, 24);
    let victim = &mut bystanders.victim;
    // Asleep, so that no poll looks at the ring by itself.
    fall_asleep(victim);
    hostile.write_quietly(5, b"quiet");
    let event = (0..200).find_map(|_| {
        sleep(victim, Duration::from_millis(20));
        victim.disarm();
        poll(victim).or_else(|| (!victim.arm(&[])).then(|| poll(victim)).flatten())
    });
    assert!(matches!(&event, Some(Owned::Message(_, _, bytes)) if bytes == b"quiet"), "{event:?}");
}

#[test]
fn a_hostile_peer_cannot_hide_a_message_to_oneself() {
    let mut victim = shm(sweeping());
    let hostile = HostilePeer::connect_to(&mut victim, 23);
    fall_asleep(&mut victim);
    // The peer clears all words of the doorbell, including the word that says that the victim
    // sleeps.
    for at in (0..hostile_peer::DOORBELL_BYTES).step_by(8) {
        HostilePeer::word(&hostile.doorbell, at).store(0, Ordering::SeqCst);
    }
    victim.send(PeerId::ONESELF, message(b"me")).unwrap();
    for at in (0..hostile_peer::DOORBELL_BYTES).step_by(8) {
        HostilePeer::word(&hostile.doorbell, at).store(0, Ordering::SeqCst);
    }
    assert!(sleep(&victim, common::PATIENCE), "the worker slept on");
    victim.disarm();
    let event = at_once(&mut victim);
    assert!(matches!(&event, Some(Owned::Message(_, _, bytes)) if bytes == b"me"), "{event:?}");
}

#[test]
fn messages_of_a_peer_that_hung_up_are_found_without_its_doorbell() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let mut hostile = HostilePeer::connect(&mut bystanders, 22);
    let victim = &mut bystanders.victim;
    fall_asleep(victim);
    hostile.write_quietly(4, b"last");
    drop(hostile);
    assert!(sleep(victim, common::PATIENCE), "the end of the peer woke nobody");
    victim.disarm();
    let event = at_once(victim);
    assert!(matches!(&event, Some(Owned::Message(_, _, bytes)) if bytes == b"last"), "{event:?}");
    assert_eq!(next_down(victim).1, DownReason::Gone);
    assert!(bystanders.exchange().is_empty());
}
