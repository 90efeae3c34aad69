//! The contract of a [`Device`], written once: what its users may rely on, whatever carries the
//! bytes. Each function is a promise, and each device makes tests of them with
//! [`device_contract!`](crate::device_contract).
//!
//! A device may do its work between two polls, as a NIC does: whatever is expected is waited for.

use std::collections::VecDeque;
use std::fs;
use std::thread;
use std::time::Instant;

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, DownReason, Outgoing, PeerId, ReadError, ReadRequest,
    Refused,
};

use crate::device::{
    Other, Owned, PATIENCE, connect, message, pattern, poll, role, send, wait_for,
};
use crate::process::may_have_descriptors;

/// How a test makes devices of one kind.
pub trait Fixture {
    /// The kind of device. It can be moved to another thread.
    type Device: Device + Send + 'static;
    /// Messages that two workers exchange in each direction in some seconds.
    const MESSAGES: usize;
    /// Connections that are made one after the other in some seconds.
    const CONNECTIONS: usize;
    /// Messages to oneself that wait, at least.
    const TO_ONESELF_MIN: usize;

    /// A device with the usual settings, which has reported that it is connected to itself.
    fn usual() -> Self::Device;

    /// A device whose longest message has so many bytes, and which has room for few messages.
    fn narrow(message_max: u32) -> Self::Device;
}

/// Makes a test of each promise that is named, for one device.
#[macro_export]
macro_rules! device_contract {
    ($fixture:ty: $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                $crate::contract::$promise::<$fixture>();
            }
        )*
    };
}

/// Polls the devices until the last one has this message, which must be the only event of all.
fn expect_message<D: Device>(
    devices: &mut [&mut D],
    from: PeerId,
    immediate: Option<u32>,
    bytes: &[u8],
) {
    let last = devices.len() - 1;
    wait_for(devices, "a message", |index, event| match event {
        Owned::Message(peer, got_immediate, got) => {
            assert_eq!(index, last);
            assert_eq!((peer, got_immediate, got.len()), (from, immediate, bytes.len()));
            assert!(got == bytes);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

/// Every length of header and payload arrives, up to the longest message.
///
/// # Panics
/// If the device breaks this promise.
pub fn every_size_arrives_with_and_without_immediate<F: Fixture>() {
    let (mut a, mut b) = (F::narrow(4096), F::narrow(4096));
    let (to_b, from_a) = connect(&mut a, &mut b);
    for length in (0..300).chain((300..=4096).step_by(61)).chain([4095, 4096]) {
        let bytes = pattern(length, length);
        let (header, payload) = bytes.split_at(length.min(length % 65));
        for immediate in [None, Some(u32::try_from(length).unwrap())] {
            let outgoing = Outgoing { header, payload, immediate };
            while a.send(to_b, outgoing) == Err(Refused::Full) {
                assert!(a.poll().is_none() && b.poll().is_none());
            }
            expect_message(&mut [&mut a, &mut b], from_a, immediate, &bytes);
        }
    }
    let long = pattern(0, 4097);
    assert_eq!(a.send(to_b, message(&long)), Err(Refused::TooLong));
    let header = Outgoing { header: &long[..65], payload: &[], immediate: None };
    assert_eq!(a.send(to_b, header), Err(Refused::TooLong));
    assert_eq!(a.send(PeerId(99), message(&[])), Err(Refused::Down));
}

/// Where there is no room, messages are refused, and those that were taken stay in order.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_full_way_refuses_messages_and_keeps_their_order<F: Fixture>() {
    let (mut a, mut b) = (F::narrow(2048), F::narrow(2048));
    let (to_b, from_a) = connect(&mut a, &mut b);
    let mut under_way = VecDeque::new();
    let (mut number, mut refusals) = (0, 0);
    // How much is under way before the first refusal is the system's choice.
    while number < F::MESSAGES / 10 || refusals < 100 {
        let bytes = pattern(number, number * 7 % 2049);
        loop {
            match a.send(to_b, message(&bytes)) {
                Ok(()) => break,
                Err(Refused::Full) => {
                    refusals += 1;
                    // What waits goes out when the sender polls.
                    assert!(a.poll().is_none());
                    if let Some(Owned::Message(_, _, got)) = poll(&mut b) {
                        assert!(got == under_way.pop_front().unwrap());
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        under_way.push_back(bytes);
        number += 1;
    }
    for bytes in under_way {
        expect_message(&mut [&mut a, &mut b], from_a, None, &bytes);
    }
}

/// Two threads send to each other as fast as they can.
///
/// # Panics
/// If the device breaks this promise.
pub fn messages_go_both_ways_at_once<F: Fixture>() {
    let (mut a, mut b) = (F::usual(), F::usual());
    let (to_b, to_a) = connect(&mut a, &mut b);
    let run = |mut device: F::Device, peer: PeerId| {
        let size = |number: usize| {
            if number.is_multiple_of(64) { number % 16448 } else { number % 60 }
        };
        let (mut sent, mut received) = (0, 0);
        let start = Instant::now();
        while sent < F::MESSAGES || received < F::MESSAGES {
            if sent < F::MESSAGES {
                let bytes = pattern(sent, size(sent));
                sent += usize::from(device.send(peer, message(&bytes)).is_ok());
            }
            if let Some(event) = poll(&mut device) {
                let Owned::Message(from, None, bytes) = event else { panic!("{event:?}") };
                assert!(from == peer && bytes == pattern(received, size(received)));
                received += 1;
            }
            assert!(start.elapsed() < 5 * PATIENCE);
        }
        device
    };
    let other = thread::spawn(move || run(b, to_a));
    let _a = run(a, to_b);
    // Both workers live until both are done.
    drop(other.join().unwrap());
}

/// Messages to oneself, and reads of memory that is exposed to oneself.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_worker_sends_messages_to_itself<F: Fixture>() {
    let mut a = F::usual();
    let address = a.address();
    assert_eq!(a.connect(&address).unwrap(), PeerId::ONESELF);
    let mut sent = 0;
    while a.send(PeerId::ONESELF, message(&pattern(sent, sent))).is_ok() {
        sent += 1;
    }
    assert!(sent >= F::TO_ONESELF_MIN, "{sent}");
    for number in 0..sent {
        expect_message(&mut [&mut a], PeerId::ONESELF, None, &pattern(number, number));
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
        Owned::ReadDone(2, _, Err(ReadError::BadSpan)) => Some(()),
        other => panic!("{other:?}"),
    });
}

/// Both workers begin, at various points of the handshake.
///
/// # Panics
/// If the device breaks this promise.
pub fn workers_that_connect_at_once_get_one_connection<F: Fixture>() {
    for round in 0..F::CONNECTIONS {
        let (mut a, mut b) = (F::usual(), F::usual());
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
                assert_eq!(most, message_max);
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
        let (a, b) = (F::usual(), F::usual());
        let addresses = (a.address(), b.address());
        let meet = |mut device: F::Device, address| {
            let peer = device.connect(&address).unwrap();
            let (mut is_up, mut has_heard) = (false, false);
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
    let mut heard = vec![vec![0usize; COUNT]; COUNT];
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
    let (mut a, mut b) = (F::usual(), F::usual());
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

/// A hundred workers connect to one that does not poll meanwhile.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_connection_to_a_busy_listener_is_tried_again<F: Fixture>() {
    // The server doesn't accept while the clients connect. All clients are accepted in the end.
    let mut server = F::usual();
    let mut clients: Vec<F::Device> = (0..100).map(|_| F::usual()).collect();
    for client in &mut clients {
        client.connect(&server.address()).unwrap();
    }
    let mut all: Vec<&mut F::Device> = clients.iter_mut().chain([&mut server]).collect();
    let mut ups = 0;
    wait_for(&mut all, "all clients", |_, event| match event {
        Owned::Up(..) => {
            ups += 1;
            (ups == 200).then_some(())
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
