//! A process that runs out of descriptors: connections are made once there are some again, and what
//! is lacking is reported, and not taken for a fault of the peer.

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tagmatch_device::{Device, DownReason, Shortage};
use tagmatch_tcp::{Tcp, TcpConfig};
use tagmatch_testkit::process::Descriptors;

use common::raw::{ANSWER, Raw, invented};
use common::{
    Owned, a_device_without_descriptors_names_the_limit, accepting_end_reports_its_shortage,
    config, connect, poll, secret, tcp, wait_for,
};

const LACKING: DownReason = DownReason::Shortage(Shortage::Descriptors);

fn impatient() -> TcpConfig {
    config().connect_timeout(Duration::from_millis(200))
}

#[test]
fn a_worker_without_descriptors_connects_once_it_has_some() {
    let descriptors = Descriptors::alone();
    // For the socket, for the one that the peer accepts, and some that the peer leaves.
    for free in [0, 1, 2, 4] {
        let mut a = tcp(config());
        let mut b = tcp(config());
        let held = descriptors.leave(free);
        let to_b = a.connect(&b.address()).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            assert!(poll(&mut a).is_none() && poll(&mut b).is_none(), "{free} free");
        }
        drop(held);
        let mut ups = 0;
        wait_for(&mut [&mut a, &mut b], "the connection", |index, event| match event {
            Owned::Up(peer, _) => {
                assert!(index == 1 || peer == to_b);
                ups += 1;
                (ups == 2).then_some(())
            }
            other => panic!("{free} free: {other:?}"),
        });
    }
}

#[test]
fn a_shortage_that_lasts_is_reported_by_the_end_that_connects() {
    let descriptors = Descriptors::alone();
    let mut a = tcp(impatient());
    let mut b = tcp(impatient());
    let held = descriptors.leave(0);
    let to_b = a.connect(&b.address()).unwrap();
    let down = wait_for(&mut [&mut a], "the report", |_, event| Some(event));
    assert!(matches!(down, Owned::Down(peer, LACKING) if peer == to_b), "{down:?}");
    drop(held);
    connect(&mut tcp(impatient()), &mut b);
}

#[test]
fn a_shortage_that_lasts_is_reported_by_the_end_that_accepts() {
    let descriptors = Descriptors::alone();
    let mut a = tcp(impatient());
    let mut b = tcp(impatient());
    // The caller has a descriptor, and the peer leaves the last ones to peers that it connects to.
    let held = descriptors.leave(4);
    let to_b = a.connect(&b.address()).unwrap();
    accepting_end_reports_its_shortage(&mut a, &mut b, to_b);
    drop(held);
}

/// The program takes each descriptor as soon as it is free. A caller that says nothing keeps no
/// other one from being told.
#[test]
fn callers_are_told_by_a_process_that_never_has_a_free_descriptor() {
    const BUSY: u8 = 5;
    let descriptors = Descriptors::alone();
    let mut a = tcp(config());
    let mut held = descriptors.leave(0);
    let fill = |held: &mut Vec<_>| {
        while let Ok(file) = File::open("/proc/self/exe") {
            held.push(file.into());
        }
    };
    held.pop();
    let _silent = Raw::connect(&a.address());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        assert!(poll(&mut a).is_none());
    }
    for number in 1..4 {
        fill(&mut held);
        held.pop();
        let caller = Raw::greet(&mut a, &secret(7), &invented(number));
        let answer = caller.hear(&mut a, ANSWER).expect("an answer");
        assert_eq!(answer[0], BUSY);
        held.push(OwnedFd::from(caller.0));
    }
}

#[test]
fn a_worker_that_lacks_a_descriptor_is_not_made_and_names_the_limit() {
    a_device_without_descriptors_names_the_limit(|| Tcp::new(config()));
}
