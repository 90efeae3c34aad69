//! Messages between workers of one process, and the ways in which workers connect.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

mod common;

use std::collections::VecDeque;
use std::time::Instant;

use tagmatch_device::{
    Buffer, Device, DeviceError, DownReason, Outgoing, PeerId, ReadRequest, Refused,
};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::process::may_have_descriptors;

use common::{Owned, PATIENCE, connect, message, pattern, poll, role, send, shm, wait_for};

fn expect_message(shm: &mut Shm, from: PeerId, immediate: Option<u32>, bytes: &[u8]) {
    wait_for(&mut [shm], "a message", |_, event| match event {
        Owned::Message(peer, got_immediate, got) => {
            assert_eq!((peer, got_immediate, got.len()), (from, immediate, bytes.len()));
            assert!(got == bytes);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn a_worker_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Shm>();
}

#[test]
fn every_size_arrives_with_and_without_immediate() {
    let config = ShmConfig { ring_bytes: 8192, message_max: 4096, ..ShmConfig::default() };
    let (mut a, mut b) = (shm(config.clone()), shm(config));
    let (to_b, from_a) = connect(&mut a, &mut b);
    for length in (0..300).chain((300..=4096).step_by(61)).chain([4095, 4096]) {
        let bytes = pattern(length, length);
        let (header, payload) = bytes.split_at(length.min(length % 65));
        for immediate in [None, Some(length as u32)] {
            let outgoing = Outgoing { header, payload, immediate };
            // At most half of the ring is filled, since the reader publishes its progress in steps.
            send(&mut a, to_b, outgoing, || assert!(b.poll().is_none()));
            expect_message(&mut b, from_a, immediate, &bytes);
        }
    }
    let long = pattern(0, 4097);
    assert_eq!(a.send(to_b, message(&long)), Err(Refused::TooLong));
    let header = Outgoing { header: &long[..65], payload: &[], immediate: None };
    assert_eq!(a.send(to_b, header), Err(Refused::TooLong));
    assert_eq!(a.send(PeerId(99), message(&[])), Err(Refused::Down));
}

#[test]
fn a_full_ring_refuses_messages_and_keeps_their_order() {
    let config =
        ShmConfig { ring_slots: 8, ring_bytes: 4096, message_max: 2048, ..ShmConfig::default() };
    let (mut a, mut b) = (shm(config.clone()), shm(config));
    let (to_b, from_a) = connect(&mut a, &mut b);
    let mut under_way = VecDeque::new();
    let mut refusals = 0;
    for number in 0..3000usize {
        let bytes = pattern(number, number * 7 % 2049);
        loop {
            match a.send(to_b, message(&bytes)) {
                Ok(()) => break,
                Err(Refused::Full) => {
                    refusals += 1;
                    if let Some(Owned::Message(_, _, got)) = poll(&mut b) {
                        assert!(got == under_way.pop_front().unwrap());
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        under_way.push_back(bytes);
    }
    assert!(refusals > 100);
    for bytes in under_way {
        expect_message(&mut b, from_a, None, &bytes);
    }
}

#[test]
fn messages_go_both_ways_at_once() {
    let (mut a, mut b) = (shm(ShmConfig::default()), shm(ShmConfig::default()));
    let (to_b, to_a) = connect(&mut a, &mut b);
    let run = |mut shm: Shm, peer: PeerId| {
        const COUNT: usize = 200_000;
        let size = |number: usize| {
            if number.is_multiple_of(64) { number % 16448 } else { number % 60 }
        };
        let (mut sent, mut received) = (0, 0);
        let start = Instant::now();
        while sent < COUNT || received < COUNT {
            if sent < COUNT {
                let bytes = pattern(sent, size(sent));
                sent += usize::from(shm.send(peer, message(&bytes)).is_ok());
            }
            if let Some(event) = poll(&mut shm) {
                let Owned::Message(from, None, bytes) = event else { panic!("{event:?}") };
                assert!(from == peer && bytes == pattern(received, size(received)));
                received += 1;
            }
            assert!(start.elapsed() < 5 * PATIENCE);
        }
        shm
    };
    let other = std::thread::spawn(move || run(b, to_a));
    let _a = run(a, to_b);
    // Both workers live until both are done.
    drop(other.join().unwrap());
}

#[test]
fn a_worker_sends_messages_to_itself() {
    let mut a = shm(ShmConfig::default());
    let address = a.address();
    assert_eq!(a.connect(&address).unwrap(), PeerId::ONESELF);
    let mut sent = 0;
    while a.send(PeerId::ONESELF, message(&pattern(sent, sent))).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 256);
    for number in 0..sent {
        expect_message(&mut a, PeerId::ONESELF, None, &pattern(number, number));
    }
    let exposure = a.expose(PeerId::ONESELF, Buffer::from(pattern(3, 100_000))).unwrap();
    let into = Buffer::zeroed(200_000);
    let remote = exposure.span;
    a.read(ReadRequest { peer: PeerId::ONESELF, remote, into, token: 1 }).unwrap();
    wait_for(&mut [&mut a], "a read", |_, event| match event {
        Owned::ReadDone(1, into, Ok(())) => {
            assert!(into[..100_000] == pattern(3, 100_000));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(a.withdraw(PeerId::ONESELF, exposure.id).unwrap().len(), 100_000);
    let into = Buffer::zeroed(200_000);
    a.read(ReadRequest { peer: PeerId::ONESELF, remote, into, token: 2 }).unwrap();
    wait_for(&mut [&mut a], "a failed read", |_, event| match event {
        Owned::ReadDone(2, _, Err(tagmatch_device::ReadError::BadSpan)) => Some(()),
        other => panic!("{other:?}"),
    });
}

#[test]
fn workers_that_connect_at_once_get_one_connection() {
    for round in 0..200 {
        let (mut a, mut b) = (shm(ShmConfig::default()), shm(ShmConfig::default()));
        let to_b = a.connect(&b.address()).unwrap();
        // The second worker connects at various points of the handshake.
        for _ in 0..round % 7 {
            assert!(a.poll().is_none());
        }
        let to_a = b.connect(&a.address()).unwrap();
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        let mut ups = [0, 0];
        wait_for(&mut [&mut a, &mut b], "both connections", |index, event| match event {
            Owned::Up(peer, 16448) => {
                assert_eq!(peer, [to_b, to_a][index]);
                ups[index] += 1;
                (ups == [1, 1]).then_some(())
            }
            other => panic!("{other:?}"),
        });
        a.send(to_b, message(b"to b")).unwrap();
        b.send(to_a, message(b"to a")).unwrap();
        expect_message(&mut b, to_a, None, b"to b");
        expect_message(&mut a, to_b, None, b"to a");
        for _ in 0..2000 {
            assert!(a.poll().is_none() && b.poll().is_none());
        }
    }
}

#[test]
fn workers_on_two_threads_may_connect_at_once() {
    for _ in 0..100 {
        let (a, b) = (shm(ShmConfig::default()), shm(ShmConfig::default()));
        let addresses = (a.address(), b.address());
        let meet = |mut shm: Shm, address| {
            let peer = shm.connect(&address).unwrap();
            let (mut is_up, mut has_heard) = (false, false);
            wait_for(&mut [&mut shm], "the connection", |_, event| {
                match event {
                    Owned::Up(up, _) if !is_up && up == peer => is_up = true,
                    Owned::Message(from, None, _) if is_up && from == peer => has_heard = true,
                    other => panic!("{other:?}"),
                }
                Some(())
            });
            shm.send(peer, message(b"hello")).unwrap();
            if !has_heard {
                wait_for(&mut [&mut shm], "a message", |_, event| match event {
                    Owned::Message(..) => Some(()),
                    other => panic!("{other:?}"),
                });
            }
            shm
        };
        let other = std::thread::spawn(move || meet(b, addresses.0));
        let a = meet(a, addresses.1);
        drop((a, other.join().unwrap()));
    }
}

#[test]
fn forty_workers_exchange_messages() {
    if !may_have_descriptors(4096) {
        return;
    }
    const COUNT: usize = 40;
    let small =
        ShmConfig { ring_slots: 8, ring_bytes: 4096, message_max: 256, ..ShmConfig::default() };
    let mut workers: Vec<Shm> = (0..COUNT).map(|_| shm(small.clone())).collect();
    let addresses: Vec<_> = workers.iter().map(Shm::address).collect();
    for (at, worker) in workers.iter_mut().enumerate() {
        for (other, address) in addresses.iter().enumerate() {
            if other != at {
                worker.connect(address).unwrap();
            }
        }
    }
    let mut ups = 0;
    let mut all: Vec<&mut Shm> = workers.iter_mut().collect();
    wait_for(&mut all, "all connections", |_, event| match event {
        Owned::Up(..) => {
            ups += 1;
            (ups == COUNT * (COUNT - 1)).then_some(())
        }
        other => panic!("{other:?}"),
    });
    let rounds = 5usize;
    let mut heard = vec![vec![0usize; COUNT]; COUNT];
    for round in 0..rounds {
        for (at, worker) in workers.iter_mut().enumerate() {
            for other in (0..COUNT).filter(|other| *other != at) {
                let peer = worker.connect(&addresses[other]).unwrap();
                let bytes = [at as u8, round as u8];
                worker.send(peer, message(&bytes)).unwrap();
            }
        }
        let mut left = COUNT * (COUNT - 1);
        let mut all: Vec<&mut Shm> = workers.iter_mut().collect();
        wait_for(&mut all, "all messages", |index, event| {
            let Owned::Message(_, _, bytes) = event else { panic!("{event:?}") };
            let from = usize::from(bytes[0]);
            assert_eq!(heard[index][from], usize::from(bytes[1]));
            heard[index][from] += 1;
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
    let mut all: Vec<&mut Shm> = workers.iter_mut().collect();
    wait_for(&mut all, "all reports of the end", |_, event| {
        downs += usize::from(matches!(event, Owned::Down(_, DownReason::Left)));
        (downs == COUNT - 1).then_some(())
    });
}

#[test]
fn both_sides_see_a_disconnect_and_it_is_final() {
    let (mut a, mut b) = (shm(ShmConfig::default()), shm(ShmConfig::default()));
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

#[test]
fn addresses_of_other_devices_are_refused() {
    let mut a = shm(ShmConfig::default());
    let other = tagmatch_device::Address::from_bytes(b"ucx:whatever").unwrap();
    assert!(matches!(a.connect(&other), Err(DeviceError::BadAddress { .. })));
}

#[test]
fn the_limit_on_peers_holds() {
    let mut a = shm(ShmConfig { peers_max: 2, ..ShmConfig::default() });
    let mut others: Vec<Shm> = (0..3).map(|_| shm(ShmConfig::default())).collect();
    connect(&mut a, &mut others[0]);
    let (_, second) = connect(&mut a, &mut others[1]);
    let address = others[2].address();
    assert!(matches!(a.connect(&address), Err(DeviceError::Exhausted { .. })));
    let refused = others[2].connect(&a.address()).unwrap();
    wait_for(&mut [&mut a, &mut others[2]], "a refusal", |index, event| match (index, event) {
        (1, Owned::Down(peer, DownReason::Unreachable { .. })) if peer == refused => Some(()),
        other => panic!("{other:?}"),
    });
    // A peer that leaves makes room for another one.
    others[1].disconnect(second);
    wait_for(&mut [&mut a], "the peer's end", |_, event| {
        matches!(event, Owned::Down(..)).then_some(())
    });
    let mut fourth = shm(ShmConfig::default());
    connect(&mut a, &mut fourth);
}

#[test]
fn a_connection_to_a_busy_listener_is_tried_again() {
    // The server doesn't accept while the clients connect. All clients are accepted in the end.
    let mut server = shm(ShmConfig::default());
    let mut clients: Vec<Shm> = (0..100).map(|_| shm(ShmConfig::default())).collect();
    for client in &mut clients {
        client.connect(&server.address()).unwrap();
    }
    let mut all: Vec<&mut Shm> = clients.iter_mut().chain([&mut server]).collect();
    let mut ups = 0;
    wait_for(&mut all, "all clients", |_, event| match event {
        Owned::Up(..) => {
            ups += 1;
            (ups == 200).then_some(())
        }
        other => panic!("{other:?}"),
    });
}

/// Runs in a process of its own, because other tests open descriptors as well.
#[test]
fn connections_that_end_leave_no_descriptors_or_mappings() {
    if role().is_none() {
        common::Other::spawn("connections_that_end_leave_no_descriptors_or_mappings", "alone")
            .wait();
        return;
    }
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let mut a = shm(ShmConfig::default());
    let (mut fds, mut mapped) = (0, 0);
    let files = count("/dev/shm");
    for round in 0..200 {
        let mut b = shm(ShmConfig::default());
        let (to_b, _) = connect(&mut a, &mut b);
        send(&mut a, to_b, message(&pattern(round, 5000)), || panic!("full"));
        if round % 2 == 0 {
            drop(b);
        } else {
            a.disconnect(to_b);
        }
        wait_for(&mut [&mut a], "the peer's end", |_, event| {
            matches!(event, Owned::Down(..)).then_some(())
        });
        if round == 10 {
            (fds, mapped) = (count("/proc/self/fd"), maps());
        }
    }
    assert_eq!(count("/proc/self/fd"), fds);
    assert!(maps() <= mapped + 4, "{} mappings, {mapped} before", maps());
    assert_eq!(count("/dev/shm"), files);
}
