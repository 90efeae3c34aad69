//! Sleeping on the one descriptor, and being woken.

mod common;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tagmatch_device::{Device, Flush};

use common::raw::invented;
use common::{
    PATIENCE, config, connect, exchange, fall_asleep, message, moved, place, poll, send, sleep, tcp,
};

#[test]
fn an_idle_worker_is_not_woken() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, to_b, &mut b);
    exchange(&mut b, to_a, &mut a);
    // What was sent is looked at once more, to see whether the other machine has acknowledged it.
    fall_asleep(&mut a);
    sleep(&a, Duration::from_millis(1500));
    a.disarm();
    fall_asleep(&mut a);
    assert!(!sleep(&a, Duration::from_millis(1500)), "something keeps the descriptor busy");
    a.disarm();
    for _ in 0..10_000 {
        assert!(a.poll().is_none());
    }
}

/// A program with an event loop of its own need not disarm its worker.
#[test]
fn a_flush_that_has_ended_keeps_no_worker_awake_that_is_not_disarmed() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let bytes = vec![7; 4096];
    while a.send(to_b, message(&bytes)).is_ok() {}
    let mut mark = None;
    assert!(matches!(a.flush(to_b, &mut mark), Flush::Pending { .. }), "nobody has received yet");
    let start = Instant::now();
    while a.flush(to_b, &mut mark) != Flush::Done {
        assert!(start.elapsed() < PATIENCE, "not everything was acknowledged");
        poll(&mut a);
        while poll(&mut b).is_some() {}
    }
    let mut wakes = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert!(poll(&mut a).is_none());
        if a.arm(&[]) {
            wakes += usize::from(sleep(&a, Duration::from_millis(100)));
        }
    }
    assert!(wakes < 20, "{wakes}");
}

/// A process that connects and says nothing wakes the worker when it comes and when its time is
/// over, and not between.
#[test]
fn a_silent_stranger_does_not_keep_a_worker_awake() {
    let mut a = tcp(config().connect_timeout(Duration::from_secs(1)));
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
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = Read::read(&mut &stranger, &mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}: its time is over");
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    send(&mut a, to_b, message(b"x"), || {});
}

/// Nobody takes the connections of a listener, so that the worker's is made late, as on a slow
/// network. The worker sleeps meanwhile, with nothing else to do for an hour.
#[test]
fn a_sleeper_goes_on_once_its_connection_is_made() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // SAFETY: `listener` owns the socket, and the call takes no pointer.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let here = listener.local_addr().unwrap();
    let first = TcpStream::connect(here).unwrap();
    let mut a = tcp(config().connect_timeout(Duration::from_secs(3600)));
    a.connect(&moved(&invented(9), here)).unwrap();
    fall_asleep(&mut a);
    assert!(!sleep(&a, Duration::from_millis(300)), "the connection was made too early");
    drop(first);
    drop(listener.accept().unwrap());
    let (mut caller, _) = listener.accept().unwrap();
    assert!(sleep(&a, PATIENCE), "the connection is made");
    a.disarm();
    assert!(poll(&mut a).is_none());
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    caller.read_exact(&mut [0; 8]).unwrap();
}
