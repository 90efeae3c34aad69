//! Peers that know the secret and break the rules of frames: each goes down, with the reason, and
//! no other peer is affected.

mod common;

use std::io::Read;
use std::time::Duration;

use tagmatch_device::{Buffer, Device, DownReason, Exposure, PeerId, ReadRequest, RemoteSpan};
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
