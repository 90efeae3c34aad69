//! A process that runs out of descriptors: connections are made once there are some again, and what
//! is lacking is reported, and not taken for a fault of the peer.

mod common;
#[allow(dead_code, reason = "one test has callers made by hand")]
mod hostile_peer;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device, DownReason, Shortage};
use tagmatch_shm::fuzzing::{HandshakePacket, HelloRefusal};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::process::Descriptors;

use common::{
    Owned, a_device_without_descriptors_names_the_limit, accepting_end_reports_its_shortage,
    connect, next_down, next_message, next_up, poll, shm, wait_for, wait_up,
};
use hostile_peer::{DOORBELL_BYTES, RawSocket, SEALS, hello, invented, memfd};

/// A worker needs fewer descriptors for a connection.
const NEEDED_MAX: usize = 8;

fn impatient() -> ShmConfig {
    ShmConfig::default().connect_timeout(Duration::from_millis(200))
}

/// Polls both for a while in which neither reports anything.
fn stay_silent(a: &mut Shm, b: &mut Shm) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(60) {
        assert!(poll(a).is_none() && poll(b).is_none());
    }
}

#[test]
fn a_worker_without_descriptors_connects_once_it_has_some() {
    let descriptors = Descriptors::alone();
    for free in 0..NEEDED_MAX {
        let mut a = shm(ShmConfig::default());
        let mut b = shm(ShmConfig::default());
        let held = descriptors.leave(free);
        let to_b = a.connect(&b.address()).unwrap();
        let start = Instant::now();
        let mut ups = 0;
        while ups < 2 && start.elapsed() < Duration::from_millis(60) {
            for device in [&mut a, &mut b] {
                match poll(device) {
                    None => {}
                    Some(Owned::Up(..)) => ups += 1,
                    other => panic!("{free} free: {other:?}"),
                }
            }
        }
        assert!(ups == 0 || free >= 2, "{free} descriptors were enough for {ups} ends");
        drop(held);
        if ups < 2 {
            wait_for(&mut [&mut a, &mut b], "the connection", |_, event| match event {
                Owned::Up(..) => {
                    ups += 1;
                    (ups == 2).then_some(())
                }
                other => panic!("{free} free: {other:?}"),
            });
        }
        a.send(to_b, common::message(b"there")).unwrap();
        next_message(&mut [&mut b]);
    }
}

#[test]
fn an_answer_waits_for_the_descriptors_to_accept_it() {
    let descriptors = Descriptors::alone();
    for free in 0..2 {
        let mut a = shm(ShmConfig::default());
        let mut b = shm(ShmConfig::default());
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = next_up(&mut b);
        // The peer counts the connection as made, and may send.
        b.send(to_a, common::message(b"early")).unwrap();
        let held = descriptors.leave(free);
        stay_silent(&mut a, &mut b);
        drop(held);
        wait_for(&mut [&mut a, &mut b], "the message", |index, event| match (index, event) {
            (0, Owned::Up(peer, _)) if peer == to_b => None,
            (0, Owned::Message(_, _, bytes)) => {
                assert_eq!(bytes, b"early");
                Some(())
            }
            other => panic!("{free} free: {other:?}"),
        });
    }
}

#[test]
fn a_shortage_that_lasts_is_reported_by_the_end_that_connects() {
    let descriptors = Descriptors::alone();
    // Without a descriptor for a socket, and without those for the answer.
    for is_answered in [false, true] {
        let mut a = shm(impatient());
        let mut b = shm(impatient());
        let address = b.address();
        let (to_b, held);
        if is_answered {
            to_b = a.connect(&address).unwrap();
            next_up(&mut b);
            held = descriptors.leave(0);
        } else {
            held = descriptors.leave(0);
            to_b = a.connect(&address).unwrap();
        }
        let down = wait_for(&mut [&mut a], "the report", |_, event| Some(event));
        let shortage = DownReason::Shortage(Shortage::Descriptors);
        assert!(
            matches!(&down, Owned::Down(peer, reason) if (*peer, *reason) == (to_b, shortage)),
            "{down:?}"
        );
        drop(held);
        if is_answered {
            assert_eq!(next_down(&mut b).1, DownReason::Gone);
        }
        connect(&mut shm(impatient()), &mut b);
    }
}

#[test]
fn a_shortage_that_lasts_is_reported_by_the_end_that_accepts() {
    let descriptors = Descriptors::alone();
    // Long enough for a busy machine: who doesn't try for so long begins anew.
    let connect_timeout = Duration::from_secs(1);
    let [mut a, mut b] =
        [(); 2].map(|()| shm(ShmConfig::default().connect_timeout(connect_timeout)));
    let to_b = a.connect(&b.address()).unwrap();
    // The process has what `a` needs in order to try again, and not what `b` needs in order to
    // accept.
    let _held = descriptors.leave(2);
    accepting_end_reports_its_shortage(&mut a, &mut b, to_b);
}

/// Calls a device again and again in the name of `claimed`, for longer than connecting may take.
/// Returns the last answer, and what the device has reported.
fn call(victim: &mut Shm, claimed: Address) -> (HelloRefusal, Vec<Owned>) {
    let start = Instant::now();
    let mut answer = None;
    let mut reported = Vec::new();
    while start.elapsed() < Duration::from_millis(600) {
        let caller = RawSocket::connect(&victim.address()).unwrap();
        let memory = memfd(4096, 0);
        assert!(caller.send(&hello(claimed).emit(), &[memory.as_raw_fd(); 2]));
        drop(memory);
        while !caller.is_hung_up() {
            reported.extend(poll(victim));
        }
        let (bytes, _) = caller.receive().unwrap();
        match HandshakePacket::parse(&bytes) {
            Ok(HandshakePacket::Refusal(refusal)) => answer = Some(refusal),
            other => panic!("{other:?}"),
        }
    }
    (answer.unwrap(), reported)
}

#[test]
fn a_shortage_is_reported_for_the_process_alone_that_has_called() {
    let descriptors = Descriptors::alone();
    let mut victim = shm(impatient());
    let of_this_process = invented(&victim.address(), 3);
    let mut bytes = of_this_process.as_bytes().to_vec();
    // The address ends with the number of the process.
    *bytes.iter_mut().nth_back(3).unwrap() ^= 1;
    let of_another = Address::from_bytes(&bytes).unwrap();
    // For the caller's socket and its memory, or for the device's end of the connection.
    let _held = descriptors.leave(2);
    let (answer, reported) = call(&mut victim, of_another);
    assert_eq!((answer, reported.len()), (HelloRefusal::Invalid, 0));
    let (_, reported) = call(&mut victim, of_this_process);
    let shortage = DownReason::Shortage(Shortage::Descriptors);
    assert!(
        matches!(&reported[..], [Owned::Down(peer, reason)]
            if *reason == shortage && victim.peer_address(*peer) == Some(of_this_process)),
        "{reported:?}"
    );
}

/// The program takes each descriptor as soon as it is free.
#[test]
fn callers_are_answered_by_a_process_that_never_has_a_free_descriptor() {
    let descriptors = Descriptors::alone();
    let mut victim = shm(impatient());
    let mut held = descriptors.leave(0);
    for number in 1..4 {
        while let Ok(file) = File::open("/proc/self/exe") {
            held.push(file.into());
        }
        held.pop();
        let caller = RawSocket::connect(&victim.address()).unwrap();
        assert!(caller.send(&hello(invented(&victim.address(), number)).emit(), &[]));
        let start = Instant::now();
        while !caller.is_hung_up() {
            assert!(poll(&mut victim).is_none() && start.elapsed() < common::PATIENCE);
        }
        assert!(caller.receive().is_some(), "call {number} has no answer");
        held.push(caller.0);
    }
}

#[test]
fn the_numbers_of_shortages_are_those_of_the_system() {
    let all = [
        (libc::EMFILE, Shortage::Descriptors),
        (libc::ENFILE, Shortage::DescriptorsOfMachine),
        (libc::ENOMEM, Shortage::Memory),
        (libc::ENOBUFS, Shortage::Memory),
        (libc::ENOSPC, Shortage::Space),
        (libc::EADDRNOTAVAIL, Shortage::Ports),
    ];
    for (errno, shortage) in all {
        assert_eq!(Shortage::of_errno(errno), Some(shortage));
    }
    assert_eq!(Shortage::of_errno(libc::ECONNREFUSED), None);
    assert!(Shortage::Descriptors.to_string().contains("ulimit -n"));
}

#[test]
fn a_worker_that_lacks_a_descriptor_is_not_made_and_names_the_limit() {
    a_device_without_descriptors_names_the_limit(|| Shm::new(ShmConfig::default()));
}

/// While the answer waits, its socket is not watched.
#[test]
fn a_socket_whose_answer_has_waited_is_watched_as_others_are() {
    let descriptors = Descriptors::alone();
    let mut victim = shm(ShmConfig::default());
    let liar = invented(&victim.address(), 60);
    let listener = RawSocket::listen(&liar);
    let peer = victim.connect(&liar).unwrap();
    let socket = listener.accept();
    assert!(socket.receive().is_some(), "its hello");
    let doorbell = memfd(DOORBELL_BYTES, SEALS);
    let held = descriptors.leave(0);
    assert!(socket.send(&hello(liar).emit(), &[doorbell.as_raw_fd()]));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(60) {
        assert!(poll(&mut victim).is_none());
    }
    drop(held);
    wait_up(&mut victim, peer);
    assert!(socket.send(b"nonsense", &[]));
    wait_for(&mut [&mut victim], "the end", |_, event| {
        matches!(event, Owned::Down(down, DownReason::Misbehaved { .. }) if down == peer)
            .then_some(())
    });
}
