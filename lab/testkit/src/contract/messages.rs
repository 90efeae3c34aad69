//! Messages between two workers, and to oneself.

use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use tagmatch_device::{
    Buffer, Device, DownReason, Flush, Outgoing, PeerId, ReadError, ReadRequest, Refused,
};

use super::{Fixture, expect_message};
use crate::device::{Owned, PATIENCE, connect, message, pattern, poll, wait_for};

/// Every length of header and payload arrives, up to the longest message.
///
/// # Panics
/// If the device breaks this promise.
pub fn every_size_arrives_with_and_without_immediate<F: Fixture>() {
    let mut a = F::narrow(4096);
    let mut b = F::narrow(4096);
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

/// While a peer sends as fast as it can, a message of another one arrives.
///
/// # Panics
/// If the device breaks this promise.
pub fn messages_of_one_peer_keep_none_of_another_back<F: Fixture>() {
    let mut devices = [F::usual(), F::usual(), F::usual()];
    let [a, b, c] = &mut devices;
    let (b_to_a, _) = connect(b, a);
    let (c_to_a, from_c) = connect(c, a);
    // Both are peers that the receiver has just heard of.
    b.send(b_to_a, message(b"first")).unwrap();
    c.send(c_to_a, message(b"first")).unwrap();
    let mut heard = 0;
    wait_for(&mut [&mut *a, &mut *b, &mut *c], "a message of each", |_, event| {
        assert!(matches!(event, Owned::Message(..)), "{event:?}");
        heard += 1;
        (heard == 2).then_some(())
    });
    let mut is_sent = false;
    let mut before = 0;
    let start = Instant::now();
    loop {
        is_sent = is_sent || c.send(c_to_a, message(b"of another")).is_ok();
        for _ in 0..100 {
            let sent = b.send(b_to_a, message(b"of many"));
            assert!(matches!(sent, Ok(()) | Err(Refused::Full)), "{sent:?}");
        }
        assert!(b.poll().is_none() && c.poll().is_none());
        match poll(a) {
            Some(Owned::Message(from, ..)) if from == from_c => return,
            Some(Owned::Message(..)) => before += usize::from(is_sent),
            None => {}
            Some(other) => panic!("{other:?}"),
        }
        assert!(before <= F::BEFORE_ANOTHER_MAX, "the other peer's message is late");
        assert!(start.elapsed() < PATIENCE, "the other peer's message does not come");
    }
}

/// Where there is no room, messages are refused, and those that were taken stay in order.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_full_way_refuses_messages_and_keeps_their_order<F: Fixture>() {
    let mut a = F::narrow(2048);
    let mut b = F::narrow(2048);
    let (to_b, from_a) = connect(&mut a, &mut b);
    let mut under_way = VecDeque::new();
    let mut number = 0;
    let mut refusals = 0;
    // How much is under way before the first refusal is the system's choice.
    while number < F::MESSAGES / 10 || refusals < 100 {
        let bytes = pattern(number, number * 7 % 2049);
        loop {
            match a.send(to_b, message(&bytes)) {
                Ok(()) => break,
                Err(Refused::Full) => {
                    refusals += 1;
                    // Messages that wait in the sender go out when it polls.
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
    let mut a = F::usual();
    let mut b = F::usual();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let run = |mut device: F::Device, peer: PeerId| {
        let size = |number: usize| {
            if number.is_multiple_of(64) { number % 16448 } else { number % 60 }
        };
        let mut sent = 0;
        let mut received = 0;
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
        // The last messages may wait in the device for room, and need its polls.
        let mut mark = None;
        while device.flush(peer, &mut mark) != Flush::Done {
            assert!(poll(&mut device).is_none() && start.elapsed() < 5 * PATIENCE);
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
    a.disconnect(PeerId::ONESELF);
    wait_for(&mut [&mut a], "the end", |_, event| match event {
        Owned::Down(PeerId::ONESELF, DownReason::Disconnected) => Some(()),
        other => panic!("{other:?}"),
    });
    assert_eq!(a.send(PeerId::ONESELF, message(b"late")), Err(Refused::Down));
}
