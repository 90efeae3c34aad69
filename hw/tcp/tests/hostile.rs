//! Peers that know the secret and break the rules of frames: each goes down, with the reason, and
//! no other peer is affected.

mod common;

use std::io::Read;
use std::time::Duration;

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Device, DownReason, Exposure, PeerId, PublishedRegion,
    ReadRequest, RegionAccess, RegionPlace, RegionSpan, RemoteSpan,
};
use tagmatch_tcp::Tcp;

use common::raw::{ANSWER, Raw, frame, invented};
use common::{
    Owned, READER, config, connect, exchange, next_up, poll, read_end, secret, tcp, wait_down,
    wait_for,
};

const MESSAGE: u8 = 1;
const READ_REQUEST: u8 = 3;
const READ_DATA: u8 = 4;
const READ_END: u8 = 5;
const READ_FAILED: u8 = 6;
const BYE: u8 = 7;
const GET: u8 = 9;
const PUT: u8 = 10;
const PUT_DATA: u8 = 11;
const PUT_DONE: u8 = 12;
const PUT_FAILED: u8 = 13;

/// The key of the region in the tests.
const KEY: u64 = 77;

/// A get or a put: a frame that names bytes of a region.
fn of_region(kind: u8, key: u64, offset: u64, length: u64) -> Vec<u8> {
    let words = [key, offset, length].map(u64::to_le_bytes);
    frame(kind, 5, &words.concat())
}

/// A region of the device.
fn publish(tcp: &mut Tcp, memory: &Buffer) {
    let region =
        PublishedRegion { key: KEY, base: None, memory, reads: true, writes: true, changes: false };
    assert!(!tcp.publish(&region).is_none());
}

/// A peer made by hand that is up.
fn hostile(tcp: &mut Tcp, byte: u8) -> (Raw, PeerId) {
    let raw = Raw::greet(tcp, &secret(7), &invented(byte));
    let peer = next_up(tcp);
    assert_eq!(raw.hear(tcp, ANSWER).unwrap()[0], 0, "accepted");
    (raw, peer)
}

fn request(id: u32, span: RemoteSpan) -> Vec<u8> {
    let bytes =
        [&span.address.to_le_bytes()[..], &span.length.to_le_bytes(), &span.key.to_le_bytes()];
    frame(READ_REQUEST, id, &bytes.concat())
}

#[test]
fn a_peer_that_breaks_a_rule_goes_down_with_the_reason_and_no_other() {
    let mut a = tcp(config().message_max(1000));
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let nowhere = RemoteSpan { address: 1, key: 2, length: 3 };
    let many: Vec<u8> = (0..65).flat_map(|id| request(id, nowhere)).collect();
    let mut long = frame(MESSAGE, 0, &[]);
    long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases = [
        ("longer than the announced", frame(MESSAGE, 0, &[0; 1001])),
        ("longer than the announced", long),
        ("unknown kind", frame(0, 0, &[])),
        ("unknown kind", frame(99, 0, &[])),
        ("unknown flags", b"\0\0\0\0\x01\0\x01\0\0\0\0\0".to_vec()),
        ("length is impossible", frame(READ_REQUEST, 0, &[0; 19])),
        ("length is impossible", frame(BYE, 0, b"x")),
        ("not requested", frame(READ_DATA, 0, b"abc")),
        ("not requested", frame(READ_END, 7, &[])),
        ("not requested", frame(READ_FAILED, 7, &[])),
        ("too long", frame(READ_DATA, 0, &[0; (512 << 10) + 1])),
        ("length is impossible", frame(GET, 0, &[0; 23])),
        ("length is impossible", frame(PUT, 0, &[0; 25])),
        ("length is impossible", frame(PUT_DONE, 0, b"x")),
        ("has no bytes", of_region(PUT, KEY, 0, 0)),
        ("begins in another", [of_region(PUT, 1, 0, 9), of_region(PUT, 1, 0, 9)].concat()),
        ("bytes of no put", frame(PUT_DATA, 0, b"abc")),
        ("or none", [of_region(PUT, 1, 0, 9), frame(PUT_DATA, 0, b"")].concat()),
        ("more than it has", [of_region(PUT, 1, 0, 2), frame(PUT_DATA, 0, b"abc")].concat()),
        ("no put that was sent", frame(PUT_DONE, 0, &[])),
        ("no put that was sent", frame(PUT_FAILED, 0, &[])),
    ];
    for (byte, (what, bytes)) in (0..).zip(cases) {
        let (raw, peer) = hostile(&mut a, byte);
        raw.say(&bytes);
        let reason = wait_down(&mut a, peer);
        assert!(
            matches!(reason, DownReason::Misbehaved { what: found } if found.contains(what)),
            "{what}: {reason:?}"
        );
        assert!(raw.is_closed_by(&mut a));
        exchange(&mut a, to_b, &mut b);
    }
    // Reads that fail are answered and use up nothing.
    let (raw, _) = hostile(&mut a, 100);
    raw.say(&many);
    for id in 0..65u8 {
        let answer = raw.hear(&mut a, 12).unwrap();
        assert_eq!((answer[4], answer[8]), (READ_FAILED, id));
    }
    exchange(&mut a, to_b, &mut b);
}

/// A peer that knows the whole span of what was exposed to another, since it was told or has
/// guessed it, gets none of the bytes and loses its connection. The other one reads on.
#[test]
fn memory_that_is_exposed_to_another_peer_is_not_read() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, to_a) = connect(&mut a, &mut b);
    let Exposure { span, .. } = a.expose(to_b, Buffer::from(vec![7; 5000])).unwrap();
    let (raw, peer) = hostile(&mut a, 1);
    raw.say(&request(0, span));
    let reason = wait_down(&mut a, peer);
    assert!(
        matches!(reason, DownReason::Misbehaved { what } if what.contains("another peer")),
        "{reason:?}"
    );
    assert!(raw.is_closed_by(&mut a), "not a byte has come");
    b.read(ReadRequest { peer: to_a, remote: span, into: Buffer::zeroed(5000), token: 1 }).unwrap();
    let into = read_end(&mut [&mut a, &mut b]).0;
    assert!(into[..] == [7; 5000]);
}

/// Nobody proves that a name is its own, but a name that is in use can't be taken over: not from a
/// peer that is up, not from the worker itself.
#[test]
fn a_name_that_is_in_use_is_refused_and_its_connection_goes_on() {
    const KNOWN: u8 = 3;
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, to_a) = connect(&mut a, &mut b);
    for name in [b.address(), a.address()] {
        let raw = Raw::greet(&mut a, &secret(7), &name);
        assert_eq!(raw.hear(&mut a, ANSWER).unwrap()[0], KNOWN);
        assert!(raw.is_closed_by(&mut a));
        exchange(&mut a, to_b, &mut b);
        exchange(&mut b, to_a, &mut a);
    }
    assert_eq!(a.peer_address(to_b), Some(b.address()));
}

/// A peer that answers a read with more or fewer bytes than were asked for, or asks for more reads
/// at a time than it may.
#[test]
fn reads_are_bounded_by_what_was_asked_for() {
    for case in 0..4u8 {
        let mut a = tcp(config());
        let (raw, peer) = hostile(&mut a, case);
        let remote = RemoteSpan { address: 4096, key: 1, length: 10 };
        a.read(ReadRequest { peer, remote, into: Buffer::zeroed(20), token: 1 }).unwrap();
        let bytes = raw.hear(&mut a, 32).unwrap();
        assert_eq!(bytes[4], READ_REQUEST);
        match case {
            0 => raw.say(&frame(READ_DATA, 0, &[9; 11])),
            1 => raw.say(&frame(READ_END, 0, &[])),
            2 => raw.say(&[frame(READ_DATA, 0, &[9; 10]), frame(READ_DATA, 0, b"x")].concat()),
            _ => {
                let exposure = a.expose(READER, Buffer::zeroed(64 << 20)).unwrap();
                let Exposure { span, .. } = exposure;
                raw.say(&(0..65).flat_map(|id| request(id, span)).collect::<Vec<_>>());
            }
        }
        let mut back = None;
        let reason = wait_for(&mut [&mut a], "the peer's end", |_, event| match event {
            Owned::ReadDone(1, into, Err(_)) => {
                back = Some(into);
                None
            }
            Owned::Down(_, reason) => Some(reason),
            other => panic!("{other:?}"),
        });
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{case}: {reason:?}");
        assert_eq!(back.unwrap()[10..], [0; 10], "nothing lies behind the bytes of the read");
    }
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_received_and_half_a_frame_is_never_reported() {
    let mut a = tcp(config());
    let (raw, peer) = hostile(&mut a, 1);
    let bytes = frame(2, 77, b"slowly");
    for (at, byte) in bytes.iter().enumerate() {
        raw.say(&[*byte]);
        if at + 1 < bytes.len() {
            assert!(raw.is_left_open_by(&mut a, Duration::from_millis(2)));
        }
    }
    wait_for(&mut [&mut a], "the message", |_, event| match event {
        Owned::Message(from, Some(77), bytes) if from == peer => {
            assert_eq!(bytes, b"slowly");
            Some(())
        }
        other => panic!("{other:?}"),
    });
    raw.say(&bytes[..bytes.len() - 1]);
    drop(raw);
    assert_eq!(wait_down(&mut a, peer), DownReason::Gone);
}

/// A peer that asks for reads and receives nothing makes the device hold a bounded number of bytes.
#[test]
fn answers_to_a_peer_that_does_not_receive_are_bounded() {
    let mut a = tcp(config());
    let (raw, peer) = hostile(&mut a, 1);
    let nowhere = request(1, RemoteSpan { address: 1, key: 2, length: 3 });
    let many = nowhere.repeat(2000);
    let mut received = 0;
    let reason = loop {
        match std::io::Write::write(&mut &raw.0, &many) {
            Ok(count) => received += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break wait_down(&mut a, peer),
        }
        match poll(&mut a) {
            Some(Owned::Down(_, reason)) => break reason,
            None => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?} after {received} bytes");
    let mut rest = [0; 4096];
    while (&raw.0).read(&mut rest).is_ok_and(|count| count > 0) {}
}

/// What a peer may not write is received, dropped, and answered, and what it may not read fails: a
/// wrong key, or bytes of which one lies outside.
#[test]
fn puts_and_gets_that_a_region_does_not_allow_change_nothing_and_the_connection_goes_on() {
    let mut a = tcp(config());
    let memory = Buffer::zeroed(100);
    publish(&mut a, &memory);
    let (raw, peer) = hostile(&mut a, 1);
    let wrong = [
        (KEY ^ 1, 0, 10),
        (KEY, 91, 10),
        (KEY, 100, 1),
        (KEY, u64::MAX, 1),
        (KEY, u64::MAX - 4, 10),
        (KEY, 0, 101),
    ];
    for (key, offset, length) in wrong {
        let bytes = vec![9; usize::try_from(length).unwrap()];
        raw.say(&[of_region(PUT, key, offset, length), frame(PUT_DATA, 0, &bytes)].concat());
        assert_eq!(raw.hear(&mut a, 12).unwrap()[4], PUT_FAILED, "{key} {offset} {length}");
        raw.say(&of_region(GET, key, offset, length));
        assert_eq!(raw.hear(&mut a, 12).unwrap()[4], READ_FAILED, "{key} {offset} {length}");
    }
    assert!(memory.iter().all(|byte| *byte == 0), "a put that isn't allowed has written");
    // A long one comes in many parts, with a message between its pieces.
    raw.say(&of_region(PUT, KEY, 50, 200_000));
    let piece = frame(PUT_DATA, 0, &[9; 50_000]);
    let message = frame(MESSAGE, 0, b"between");
    for part in [&piece, &piece, &message, &piece, &piece].map(|part| part.chunks(9000)) {
        for bytes in part {
            raw.say(bytes);
            for _ in 0..10 {
                match poll(&mut a) {
                    Some(Owned::Message(from, _, bytes)) if from == peer => {
                        assert_eq!(bytes, b"between");
                    }
                    None => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!(raw.hear(&mut a, 12).unwrap()[4], PUT_FAILED);
    assert!(memory.iter().all(|byte| *byte == 0), "a put that isn't allowed has written");
    // The right ones are done.
    raw.say(&[of_region(PUT, KEY, 97, 3), frame(PUT_DATA, 0, b"end")].concat());
    assert_eq!(raw.hear(&mut a, 12).unwrap()[4], PUT_DONE);
    raw.say(&of_region(GET, KEY, 96, 4));
    assert_eq!(raw.hear(&mut a, 28).unwrap()[12..16], *b"\0end");
    assert!(a.unpublish(KEY));
    assert_eq!((&memory[..97], &memory[97..]), (&[0; 97][..], &b"end"[..]));
}

/// Bytes of a put come one by one, and the region is closed, or the peer dies, in the middle.
#[test]
fn a_put_that_is_cut_short_leaves_the_region_to_its_owner() {
    for dies in [false, true] {
        let mut a = tcp(config());
        let memory = Buffer::zeroed(20);
        publish(&mut a, &memory);
        let (raw, peer) = hostile(&mut a, 1);
        let bytes = [of_region(PUT, KEY, 5, 10), frame(PUT_DATA, 0, &[7; 10])].concat();
        let begun = bytes.len() - 4;
        for byte in &bytes[..begun] {
            raw.say(&[*byte]);
            assert!(raw.is_left_open_by(&mut a, Duration::from_millis(1)));
        }
        assert_eq!(memory[..], [[0; 5], [7; 5], [7, 0, 0, 0, 0], [0; 5]].concat());
        if dies {
            drop(raw);
            assert_eq!(wait_down(&mut a, peer), DownReason::Gone);
            assert!(a.unpublish(KEY));
        } else {
            assert!(a.unpublish(KEY));
            raw.say(&bytes[begun..]);
            assert_eq!(raw.hear(&mut a, 12).unwrap()[4], PUT_FAILED);
        }
        assert_eq!(memory[11..], [0; 9], "a closed region was written");
    }
}

/// A peer that puts and receives no answers makes the device keep a bounded number of these.
#[test]
fn answers_to_puts_of_a_peer_that_does_not_receive_are_bounded() {
    let mut a = tcp(config().outbox_bytes(4096));
    let (raw, peer) = hostile(&mut a, 1);
    let put = [of_region(PUT, KEY, 0, 1), frame(PUT_DATA, 0, b"x")].concat().repeat(2000);
    let reason = loop {
        match std::io::Write::write(&mut &raw.0, &put) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break wait_down(&mut a, peer),
        }
        match poll(&mut a) {
            Some(Owned::Down(_, reason)) => break reason,
            None => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
}

/// An owner that answers a put before it was sent, or sends more or less bytes than a get has.
#[test]
fn a_put_and_a_get_are_bounded_by_what_was_asked_for() {
    for case in 0..4u8 {
        let mut a = tcp(config());
        let (raw, peer) = hostile(&mut a, case);
        let of = RegionSpan { key: KEY, place: RegionPlace::BY_KEY, offset: 3 };
        let is_put = case == 0;
        let kind = if is_put { AccessKind::Write } else { AccessKind::Read };
        let length = if is_put { 64 << 20 } else { 10 };
        let buffer = Buffer::zeroed(length);
        a.access(RegionAccess { peer, of, kind, buffer }).unwrap();
        let begun = raw.hear(&mut a, 36).unwrap();
        let named = of_region(begun[4], KEY, 3, length as u64);
        assert_eq!((begun[4], &begun[12..]), (if is_put { PUT } else { GET }, &named[12..]));
        match case {
            0 => raw.say(&frame(PUT_DONE, 0, &[])),
            1 => raw.say(&frame(READ_DATA, 0, &[9; 11])),
            2 => raw.say(&frame(READ_END, 0, &[])),
            _ => raw.say(&[frame(READ_DATA, 0, &[9; 10]), frame(READ_DATA, 0, b"x")].concat()),
        }
        let mut back = None;
        let reason = wait_for(&mut [&mut a], "the peer's end", |_, event| match event {
            Owned::AccessDone(AccessEnd { buffer, is_done: false, .. }) => {
                back = Some(buffer.len());
                None
            }
            Owned::Down(_, reason) => Some(reason),
            other => panic!("{other:?}"),
        });
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{case}: {reason:?}");
        assert_eq!(back, Some(length));
    }
}
