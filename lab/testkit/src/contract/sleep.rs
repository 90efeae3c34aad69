//! Sleeping on the event descriptor, and being woken.

use std::thread;
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, DownReason, Flush, Outgoing, PeerId, ReadRequest, Refused};

use super::{Fixture, expect_message};
use crate::device::{
    Other, Owned, PATIENCE, READER, connect, fall_asleep, message, pattern, poll, role, say, send,
    sleep, sleep_for_event, wait_for,
};

/// A message that a worker sends to itself wakes the worker, each time: another thread may have
/// sent it.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_message_to_oneself_wakes_a_sleeping_worker<F: Fixture>() {
    let mut a = F::usual();
    for round in 0..3 {
        fall_asleep(&mut a);
        assert!(!sleep(&a, Duration::from_millis(20)), "round {round}: nothing was sent");
        a.send(PeerId::ONESELF, message(b"hello")).unwrap();
        assert!(a.has_work() || sleep(&a, PATIENCE), "round {round}: the worker was not woken");
        a.disarm();
        wait_for(&mut [&mut a], "the message", |_, event| match event {
            Owned::Message(PeerId::ONESELF, None, bytes) if bytes == b"hello" => Some(()),
            other => panic!("{other:?}"),
        });
    }
    a.send(PeerId::ONESELF, message(b"before")).unwrap();
    assert!(!a.arm(&[]), "a worker that has a message fell asleep");
}

/// A worker that sleeps has nothing to do that was begun meanwhile, and a message wakes it. Once it
/// was disarmed and has taken the message, its descriptor is not readable.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_message_that_was_taken_wakes_no_worker<F: Fixture>() {
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, from_a) = connect(&mut a, &mut b);
    for _ in 0..2 {
        fall_asleep(&mut b);
        assert!(!b.has_work() && !sleep(&b, Duration::from_millis(20)), "there is no message");
        send(&mut a, to_b, message(b"wake up"), || panic!("full"));
        assert!(a.poll().is_none() && sleep(&b, PATIENCE), "the message does not wake the worker");
        b.disarm();
        expect_message(&mut [&mut a, &mut b], from_a, None, b"wake up");
        assert!(!sleep(&b, Duration::from_millis(20)), "the descriptor is readable");
    }
}

/// Two workers sleep for each message, and one of them for a read.
///
/// # Panics
/// If the device breaks this promise.
pub fn every_exchange_wakes_a_sleeping_worker<F: Fixture>() {
    const EXPOSED: usize = 1 << 20;
    let rounds = u32::try_from(F::MESSAGES / 60).unwrap();
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let exposure = a.expose(READER, Buffer::from(pattern(4, EXPOSED))).unwrap();
    let other = thread::spawn(move || {
        for round in 0..rounds {
            match sleep_for_event(&mut b) {
                Owned::Message(peer, Some(number), _) => {
                    assert_eq!((peer, number), (to_a, round));
                }
                other => panic!("{other:?}"),
            }
            if round == rounds / 2 {
                let remote = exposure.span;
                let into = Buffer::zeroed(EXPOSED);
                b.read(ReadRequest { peer: to_a, remote, into, token: 5 }).unwrap();
                match sleep_for_event(&mut b) {
                    Owned::ReadDone(5, into, Ok(())) => assert!(into[..] == pattern(4, EXPOSED)),
                    other => panic!("{other:?}"),
                }
            }
            let payload = pattern(0, round as usize % 100);
            b.send(to_a, Outgoing { header: &[], payload: &payload, immediate: Some(round) })
                .unwrap();
        }
        b
    });
    for round in 0..rounds {
        a.send(to_b, Outgoing { header: b"h", payload: &[], immediate: Some(round) }).unwrap();
        match sleep_for_event(&mut a) {
            Owned::Message(_, Some(number), _) => assert_eq!(number, round),
            other => panic!("{other:?}"),
        }
    }
    drop(other.join().unwrap());
}

/// A worker that sleeps learns that the messages it flushes have left.
///
/// # Panics
/// If the device breaks this promise.
pub fn the_end_of_a_flush_wakes_a_sleeping_worker<F: Fixture>() {
    const ROUNDS: usize = 10;
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, _) = connect(&mut a, &mut b);
    let other = thread::spawn(move || {
        for round in 0..ROUNDS {
            match sleep_for_event(&mut b) {
                Owned::Message(_, _, got) => assert!(got == pattern(round, 3000)),
                other => panic!("{other:?}"),
            }
        }
        b
    });
    for round in 0..ROUNDS {
        let start = Instant::now();
        while a.send(to_b, message(&pattern(round, 3000))) == Err(Refused::Full) {
            assert!(a.poll().is_none() && start.elapsed() < PATIENCE);
        }
        let mut mark = None;
        while a.flush(to_b, &mut mark) != Flush::Done {
            if a.arm(&[]) {
                assert!(a.has_work() || sleep(&a, PATIENCE), "nothing ends the sleep");
                a.disarm();
            }
            assert!(a.poll().is_none());
        }
    }
    drop(other.join().unwrap());
}

/// A sender that has no room sleeps until there is some. What it has sent goes out while it sleeps.
///
/// # Panics
/// If the device breaks this promise.
pub fn room_wakes_its_sender<F: Fixture>() {
    let rounds = F::MESSAGES / 60;
    let bytes = |round| pattern(round, round * 13 % 2049);
    let mut a = F::narrow(2048);
    let mut b = F::narrow(2048);
    let (to_b, _) = connect(&mut a, &mut b);
    let other = thread::spawn(move || {
        for round in 0..rounds {
            match sleep_for_event(&mut b) {
                Owned::Message(_, _, got) => assert!(got == bytes(round)),
                other => panic!("{other:?}"),
            }
            if round % 50 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        b
    });
    let start = Instant::now();
    let sleep_once = |a: &mut F::Device, waiting: &[PeerId]| {
        // Arming an armed device changes nothing.
        if a.arm(waiting) && a.arm(waiting) {
            assert!(sleep(a, PATIENCE), "nothing woke the sender");
            a.disarm();
        }
        assert!(poll(a).is_none());
        assert!(start.elapsed() < 3 * PATIENCE);
    };
    for round in 0..rounds {
        while a.send(to_b, message(&bytes(round))) == Err(Refused::Full) {
            sleep_once(&mut a, &[to_b]);
        }
    }
    let mut mark = None;
    while a.flush(to_b, &mut mark) != Flush::Done {
        sleep_once(&mut a, &[]);
    }
    drop(other.join().unwrap());
}

/// A worker that sleeps hears of a new peer, of its message, and of its end.
///
/// # Panics
/// If the device breaks this promise.
pub fn connections_messages_and_ends_wake_a_sleeping_worker<F: Fixture>() {
    let mut a = F::usual();
    let address = a.address();
    let other = thread::spawn(move || {
        let pause = || thread::sleep(Duration::from_millis(20));
        pause();
        let mut b = F::usual();
        let peer = b.connect(&address).unwrap();
        assert!(matches!(sleep_for_event(&mut b), Owned::Up(up, _) if up == peer));
        pause();
        send(&mut b, peer, message(b"hello"), || {});
        pause();
    });
    let events = [(); 3].map(|()| sleep_for_event(&mut a));
    assert!(
        matches!(
            &events,
            [Owned::Up(one, _), Owned::Message(two, ..), Owned::Down(three, DownReason::Left)]
                if one == two && two == three
        ),
        "{events:?}"
    );
    other.join().unwrap();
}

/// One thread of a worker sleeps, and another one ends a connection: the end wakes the sleeper, or
/// the device says that it has work.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_disconnect_is_told_to_a_sleeping_worker<F: Fixture>() {
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, _) = connect(&mut a, &mut b);
    fall_asleep(&mut a);
    a.disconnect(to_b);
    assert!(a.has_work() || sleep(&a, PATIENCE), "the worker was not woken");
    a.disarm();
    wait_for(&mut [&mut a], "the end", |_, event| match event {
        Owned::Down(peer, _) if peer == to_b => Some(()),
        other => panic!("{other:?}"),
    });
}

/// The process of a peer is killed while the worker sleeps.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_death_wakes_a_sleeping_worker<F: Fixture>() {
    if role().is_some() {
        let mut device = F::usual();
        say(device.address());
        loop {
            poll(&mut device);
        }
    }
    let test = format!("{}a_death_wakes_a_sleeping_worker", F::MODULE);
    let mut other = Other::spawn(&test, "peer");
    let mut a = F::usual();
    let peer = a.connect(&other.hear_address()).unwrap();
    assert!(matches!(sleep_for_event(&mut a), Owned::Up(up, _) if up == peer));
    fall_asleep(&mut a);
    other.kill();
    assert!(sleep(&a, PATIENCE), "the death woke nobody");
    a.disarm();
    match sleep_for_event(&mut a) {
        Owned::Down(down, reason) => assert_eq!((down, reason), (peer, F::KILLED)),
        other => panic!("{other:?}"),
    }
}
