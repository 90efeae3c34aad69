//! Sleeping on the one descriptor, and being woken.

mod common;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, DownReason, Flush, Outgoing, PeerId, ReadRequest, Refused};
use tagmatch_tcp::{Tcp, TcpConfig};

use common::{
    Other, Owned, READER, config, connect, exchange, message, pattern, place, poll, role, say,
    send, sleep, sleep_for_event, tcp, wait_up,
};

/// Arms a device that has nothing to do.
fn arm(tcp: &mut Tcp) {
    let start = Instant::now();
    while !tcp.arm(&[]) {
        assert!(poll(tcp).is_none());
        assert!(start.elapsed() < common::PATIENCE);
    }
}

#[test]
fn an_idle_worker_is_not_woken() {
    let (mut a, mut b) = (tcp(config()), tcp(config()));
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, to_b, &mut b);
    exchange(&mut b, to_a, &mut a);
    // What was sent is looked at once more, to see whether the other machine has acknowledged it.
    arm(&mut a);
    sleep(&a, Duration::from_millis(1500));
    a.disarm();
    arm(&mut a);
    assert!(!sleep(&a, Duration::from_millis(1500)), "something keeps the descriptor busy");
    a.disarm();
    for _ in 0..10_000 {
        assert!(a.poll().is_none());
    }
}

#[test]
fn a_message_to_oneself_and_a_connection_wake_a_sleeping_worker() {
    let mut a = tcp(config());
    arm(&mut a);
    assert!(!sleep(&a, Duration::from_millis(50)));
    a.send(PeerId::ONESELF, message(b"hello")).unwrap();
    assert!(a.has_work(), "the caller must not sleep");
    a.disarm();
    assert!(matches!(poll(&mut a), Some(Owned::Message(_, _, bytes)) if bytes == b"hello"));
    let address = a.address();
    let other = std::thread::spawn(move || {
        let mut b = tcp(config());
        b.connect(&address).unwrap();
        let up = sleep_for_event(&mut b);
        assert!(matches!(up, Owned::Up(..)), "{up:?}");
        b
    });
    let up = sleep_for_event(&mut a);
    assert!(matches!(up, Owned::Up(..)), "{up:?}");
    drop(other.join().unwrap());
    let down = sleep_for_event(&mut a);
    assert!(matches!(down, Owned::Down(_, DownReason::Left)), "{down:?}");
}

#[test]
fn every_exchange_wakes_a_sleeping_worker() {
    const ROUNDS: u32 = 2000;
    let (mut a, mut b) = (tcp(config()), tcp(config()));
    let (to_b, to_a) = connect(&mut a, &mut b);
    let exposure = a.expose(READER, Buffer::from(pattern(4, 8 << 20))).unwrap();
    let other = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let Owned::Message(peer, Some(number), _) = sleep_for_event(&mut b) else {
                panic!("no message");
            };
            assert_eq!((peer, number), (to_a, round));
            if round % 500 == 0 {
                let (remote, into) = (exposure.span, Buffer::zeroed(8 << 20));
                b.read(ReadRequest { peer, remote, into, token: 5 }).unwrap();
                let Owned::ReadDone(5, into, Ok(())) = sleep_for_event(&mut b) else {
                    panic!("no read");
                };
                assert!(into[..] == pattern(4, 8 << 20)[..]);
            }
            let outgoing = Outgoing { header: &[], payload: b"back", immediate: Some(round) };
            b.send(peer, outgoing).unwrap();
        }
        b
    });
    for round in 0..ROUNDS {
        let outgoing = Outgoing { header: b"h", payload: &[], immediate: Some(round) };
        a.send(to_b, outgoing).unwrap();
        match sleep_for_event(&mut a) {
            Owned::Message(_, Some(number), _) => assert_eq!(number, round),
            other => panic!("{other:?}"),
        }
    }
    drop(other.join().unwrap());
}

/// A sleeping worker sends what waits in its outbox, and is woken when there is room for a message
/// that was refused.
#[test]
fn a_sleeping_worker_sends_what_waits_and_is_woken_for_room() {
    let (mut a, mut b) = (tcp(config()), tcp(config()));
    let (to_b, _) = connect(&mut a, &mut b);
    let bytes = pattern(1, 60_000);
    let mut sent = 0;
    while a.send(to_b, message(&bytes)) != Err(Refused::Full) {
        sent += 1;
    }
    let other = std::thread::spawn(move || {
        for _ in 0..=sent {
            let event = sleep_for_event(&mut b);
            assert!(matches!(event, Owned::Message(_, _, got) if got.len() == 60_000));
        }
        b
    });
    let start = Instant::now();
    while a.send(to_b, message(&bytes)) == Err(Refused::Full) {
        if a.arm(&[to_b]) {
            assert!(sleep(&a, common::PATIENCE), "no room was reported");
            a.disarm();
        }
        assert!(poll(&mut a).is_none());
        assert!(start.elapsed() < common::PATIENCE);
    }
    let mut mark = None;
    while a.flush(to_b, &mut mark) != Flush::Done {
        assert!(poll(&mut a).is_none());
        if a.arm(&[]) {
            assert!(sleep(&a, common::PATIENCE), "a flush was not woken");
            a.disarm();
        }
    }
    drop(other.join().unwrap());
}

#[test]
fn a_death_wakes_a_sleeping_worker() {
    if role().is_some() {
        let mut tcp = tcp(config());
        say(tcp.address());
        loop {
            poll(&mut tcp);
        }
    }
    let mut other = Other::spawn("a_death_wakes_a_sleeping_worker", "peer");
    let mut a = tcp(config());
    let peer = a.connect(&other.hear_address()).unwrap();
    wait_up(&mut a, peer);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.kill();
    });
    let down = sleep_for_event(&mut a);
    assert!(matches!(down, Owned::Down(down, DownReason::Gone) if down == peer), "{down:?}");
    killer.join().unwrap();
}

/// A process that connects and says nothing wakes the worker when it comes and when its time is
/// over, and not between.
#[test]
fn a_silent_stranger_does_not_keep_a_worker_awake() {
    let mut a = tcp(TcpConfig { connect_timeout: Duration::from_secs(1), ..config() });
    let stranger = TcpStream::connect(place(&a.address())).unwrap();
    let start = Instant::now();
    let mut wakes = 0;
    while start.elapsed() < Duration::from_millis(1600) {
        assert!(poll(&mut a).is_none());
        if a.arm(&[]) {
            wakes += usize::from(sleep(&a, Duration::from_millis(100)));
            a.disarm();
        }
    }
    assert!((1..10).contains(&wakes), "{wakes}");
    stranger.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let end = std::io::Read::read(&mut &stranger, &mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}: its time is over");
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    send(&mut a, to_b, message(b"x"), || {});
}
