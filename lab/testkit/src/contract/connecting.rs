//! How workers connect, and how connections end.

use std::time::Instant;
use std::{fs, thread};

use rustix::io::Errno;
use tagmatch_device::{
    Address, Buffer, Device, DeviceError, DownReason, Flush, PeerId, ReadMode, Refused,
};

use super::{Fixture, expect_message};
use crate::device::{
    Other, Owned, PATIENCE, connect, message, pattern, poll, role, send, wait_for,
};
use crate::process::may_have_descriptors;

/// Both workers begin, at various points of the handshake.
///
/// # Panics
/// If the device breaks this promise.
pub fn workers_that_connect_at_once_get_one_connection<F: Fixture>() {
    for round in 0..F::CONNECTIONS {
        let mut a = F::usual();
        let mut b = F::usual();
        let message_max = a.limits().message_max;
        let to_b = a.connect(&b.address()).unwrap();
        // The second worker connects at various points of the handshake.
        for _ in 0..round % 7 {
            assert!(a.poll().is_none());
        }
        let to_a = b.connect(&a.address()).unwrap();
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        let mut ups = [0, 0];
        wait_for(&mut [&mut a, &mut b], "both connections", |index, event| match event {
            Owned::Up(peer, most) => {
                assert!(most >= message_max);
                assert_eq!(peer, [to_b, to_a][index]);
                ups[index] += 1;
                (ups == [1, 1]).then_some(())
            }
            other => panic!("{other:?}"),
        });
        a.send(to_b, message(b"to b")).unwrap();
        b.send(to_a, message(b"to a")).unwrap();
        expect_message(&mut [&mut b], to_a, None, b"to b");
        expect_message(&mut [&mut a], to_b, None, b"to a");
        for _ in 0..2000 {
            assert!(a.poll().is_none() && b.poll().is_none());
        }
    }
}

/// Both workers begin, each in a thread of its own.
///
/// # Panics
/// If the device breaks this promise.
pub fn workers_on_two_threads_may_connect_at_once<F: Fixture>() {
    for _ in 0..F::CONNECTIONS / 2 {
        let a = F::usual();
        let b = F::usual();
        let addresses = (a.address(), b.address());
        let meet = |mut device: F::Device, address| {
            let peer = device.connect(&address).unwrap();
            let mut is_up = false;
            let mut has_heard = false;
            wait_for(&mut [&mut device], "the connection", |_, event| {
                match event {
                    Owned::Up(up, _) if !is_up && up == peer => is_up = true,
                    Owned::Message(from, None, _) if is_up && from == peer => has_heard = true,
                    other => panic!("{other:?}"),
                }
                Some(())
            });
            device.send(peer, message(b"hello")).unwrap();
            if !has_heard {
                wait_for(&mut [&mut device], "a message", |_, event| match event {
                    Owned::Message(..) => Some(()),
                    other => panic!("{other:?}"),
                });
            }
            device
        };
        let other = thread::spawn(move || meet(b, addresses.0));
        let a = meet(a, addresses.1);
        drop((a, other.join().unwrap()));
    }
}

/// Forty workers of one process, each with each. A flood of one keeps no other away, and an end is
/// seen by all.
///
/// # Panics
/// If the device breaks this promise.
pub fn forty_workers_exchange_messages<F: Fixture>() {
    if !may_have_descriptors(4096) {
        return;
    }
    const COUNT: usize = 40;
    let mut workers: Vec<F::Device> = (0..COUNT).map(|_| F::narrow(256)).collect();
    let addresses: Vec<_> = workers.iter().map(Device::address).collect();
    for (at, worker) in workers.iter_mut().enumerate() {
        for (other, address) in addresses.iter().enumerate() {
            if other != at {
                worker.connect(address).unwrap();
            }
        }
    }
    let mut ups = 0;
    let mut all: Vec<&mut F::Device> = workers.iter_mut().collect();
    wait_for(&mut all, "all connections", |_, event| match event {
        Owned::Up(..) => {
            ups += 1;
            (ups == COUNT * (COUNT - 1)).then_some(())
        }
        other => panic!("{other:?}"),
    });
    let rounds = 5usize;
    let mut counts = vec![vec![0usize; COUNT]; COUNT];
    for round in 0..rounds {
        for (at, worker) in workers.iter_mut().enumerate() {
            for other in (0..COUNT).filter(|other| *other != at) {
                let peer = worker.connect(&addresses[other]).unwrap();
                let bytes = [u8::try_from(at).unwrap(), u8::try_from(round).unwrap()];
                worker.send(peer, message(&bytes)).unwrap();
            }
        }
        let mut left = COUNT * (COUNT - 1);
        let mut all: Vec<&mut F::Device> = workers.iter_mut().collect();
        wait_for(&mut all, "all messages", |index, event| {
            let Owned::Message(_, _, bytes) = event else { panic!("{event:?}") };
            let from = usize::from(bytes[0]);
            assert_eq!(counts[index][from], usize::from(bytes[1]));
            counts[index][from] += 1;
            left -= 1;
            (left == 0).then_some(())
        });
    }
    // A worker that floods its peer doesn't keep other workers' messages from arriving.
    let loud = workers[0].connect(&addresses[1]).unwrap();
    let quiet = workers[39].connect(&addresses[1]).unwrap();
    workers[39].send(quiet, message(b"quiet")).unwrap();
    let mut polls = 0;
    loop {
        let _ = workers[0].send(loud, message(b"loud"));
        if let Some(Owned::Message(_, _, bytes)) = poll(&mut workers[1])
            && bytes == b"quiet"
        {
            break;
        }
        polls += 1;
        assert!(polls < 1000, "a flood keeps another worker's message from arriving");
    }
    drop(workers.pop());
    let mut downs = 0;
    let mut all: Vec<&mut F::Device> = workers.iter_mut().collect();
    wait_for(&mut all, "all reports of the end", |_, event| {
        downs += usize::from(matches!(event, Owned::Down(_, DownReason::Left)));
        (downs == COUNT - 1).then_some(())
    });
}

/// A disconnect is seen by both sides, after the last message, and is final.
///
/// # Panics
/// If the device breaks this promise.
pub fn both_sides_see_a_disconnect_and_it_is_final<F: Fixture>() {
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    a.send(to_b, message(b"last")).unwrap();
    a.disconnect(to_b);
    a.disconnect(to_b);
    assert_eq!(a.send(to_b, message(b"later")), Err(Refused::Down));
    let mut events = Vec::new();
    wait_for(&mut [&mut a, &mut b], "both ends", |index, event| {
        events.push((index, format!("{event:?}")));
        (events.len() == 3).then_some(())
    });
    let of = |index| events.iter().filter(move |(i, _)| *i == index).map(|(_, e)| e.as_str());
    assert!(of(0).eq([format!("Down({to_b:?}, Disconnected)")]), "{events:?}");
    assert!(of(1).next_back().unwrap().contains("Left"), "{events:?}");
    assert_eq!(a.connect(&b.address()).unwrap(), to_b);
    assert_eq!(b.send(to_a, message(b"x")), Err(Refused::Down));
}

/// An address of another kind of device is an error.
///
/// # Panics
/// If the device breaks this promise.
pub fn addresses_of_other_devices_are_refused<F: Fixture>() {
    let mut a = F::usual();
    let other = Address::from_bytes(b"ucx:whatever").unwrap();
    assert!(matches!(a.connect(&other), Err(DeviceError::BadAddress { .. })));
}

/// A closed worker refuses further connections, and keeps those that it has.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_closed_worker_refuses_connections<F: Fixture>() {
    let mut a = F::usual();
    let mut b = F::usual();
    let mut late = F::usual();
    let (to_b, from_a) = connect(&mut a, &mut b);
    a.close();
    let to_a = late.connect(&a.address()).unwrap();
    wait_for(&mut [&mut a, &mut late], "the refusal", |index, event| match (index, event) {
        (1, Owned::Down(peer, DownReason::Unreachable { errno })) => {
            assert_eq!((peer, errno), (to_a, Errno::CONNREFUSED.raw_os_error()));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    send(&mut a, to_b, message(b"still here"), || panic!("full"));
    expect_message(&mut [&mut a, &mut b], from_a, None, b"still here");
}

/// Forty workers connect to one that does not poll meanwhile. With some nine descriptors each, they
/// leave room for the tests beside this one where a process may have 1024.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_connection_to_a_busy_listener_is_tried_again<F: Fixture>() {
    // The server doesn't accept while the clients connect. All clients are accepted in the end.
    let mut server = F::usual();
    let mut clients: Vec<F::Device> = (0..40).map(|_| F::usual()).collect();
    for client in &mut clients {
        client.connect(&server.address()).unwrap();
    }
    let mut all: Vec<&mut F::Device> = clients.iter_mut().chain([&mut server]).collect();
    let mut ups = 0;
    wait_for(&mut all, "all clients", |_, event| match event {
        Owned::Up(..) => {
            ups += 1;
            (ups == 80).then_some(())
        }
        other => panic!("{other:?}"),
    });
}

/// Connections that have ended leave no descriptor open, and no file in `/dev/shm`.
///
/// # Panics
/// If the device breaks this promise.
pub fn connections_that_end_leave_no_descriptors<F: Fixture>() {
    ended_connections_leave_nothing::<F>("connections_that_end_leave_no_descriptors", 0, || {
        let entries = |folder: &str| fs::read_dir(folder).map_or(0, Iterator::count);
        entries("/proc/self/fd") + entries("/dev/shm")
    });
}

/// Connections that have ended leave no memory mapped.
///
/// # Panics
/// If the device breaks this promise.
pub fn connections_that_end_leave_no_mappings<F: Fixture>() {
    ended_connections_leave_nothing::<F>("connections_that_end_leave_no_mappings", 4, || {
        fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    });
}

/// Makes and ends connections, in a process of its own, because other tests use descriptors and
/// memory as well. `count` may grow by `slack`.
fn ended_connections_leave_nothing<F: Fixture>(test: &str, slack: usize, count: fn() -> usize) {
    if role().is_none() {
        Other::spawn(test, "alone").wait();
        return;
    }
    let mut a = F::usual();
    let mut before = 0;
    for round in 0..F::CONNECTIONS {
        let mut b = F::usual();
        let (to_b, _) = connect(&mut a, &mut b);
        send(&mut a, to_b, message(&pattern(round, 5000)), || panic!("full"));
        if round % 2 == 1 {
            a.disconnect(to_b);
        }
        drop(b);
        wait_for(&mut [&mut a], "the peer's end", |_, event| {
            matches!(event, Owned::Down(..)).then_some(())
        });
        // The end of a connection that was disconnected may be noticed by a later poll.
        for _ in 0..10 {
            assert!(a.poll().is_none());
        }
        if round == 10 {
            before = count();
        }
    }
    let start = Instant::now();
    while count() > before + slack {
        assert!(a.poll().is_none());
        assert!(start.elapsed() < PATIENCE, "{} are left, {before} before", count());
    }
}

/// A forgotten peer's number is given to the next one, with another generation. The old number is
/// none any more.
///
/// # Panics
/// If the device breaks this promise.
pub fn the_number_of_a_forgotten_peer_is_given_again_and_the_old_one_is_none<F: Fixture>() {
    let mut a = F::usual();
    let mut old = PeerId::ONESELF;
    for round in 0..u32::try_from(F::CONNECTIONS / 2).unwrap() {
        let mut b = F::usual();
        let (to_b, _) = connect(&mut a, &mut b);
        let address = b.address();
        assert_eq!((to_b.index(), to_b.generation()), (1, round));
        assert!(!a.forget(to_b), "it is up");
        drop(b);
        wait_for(&mut [&mut a], "the end of the peer", |_, event| {
            matches!(event, Owned::Down(peer, DownReason::Left) if peer == to_b).then_some(())
        });
        assert_eq!(a.connect(&address).unwrap(), to_b, "it is remembered");
        assert!(a.forget(to_b) && !a.forget(to_b));
        old = to_b;
    }
    assert!(!a.forget(PeerId::ONESELF));
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert_eq!((to_b.index(), a.peer_address(old)), (1, None));
    assert_eq!(a.read_mode(old), ReadMode::Unknown);
    assert_eq!(a.flush(old, &mut None), Flush::Done);
    let exposure = a.expose(old, Buffer::zeroed(10)).unwrap();
    a.disconnect(old);
    b.send(to_a, message(b"still here")).unwrap();
    expect_message(&mut [&mut b, &mut a], to_b, None, b"still here");
    a.send(to_b, message(b"still here")).unwrap();
    expect_message(&mut [&mut a, &mut b], to_a, None, b"still here");
    assert!(a.withdraw(to_b, exposure.id).is_none());
}
