//! Connections: both at once, in vain, with those who disagree, with those who break the rules.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use tagmatch_hw::matching::{MatchingDevice, MatchingEvent};
use tagmatch_hw::{Address, DeviceError, DownReason, PeerId, Ucx, UcxConfig};

use super::support::{
    config, connect, down, exactly, expect, pair, receive, send_of, transports, ucx, ucx_with, wait,
};

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn both_begin_at_once_and_meet_in_one_connection() {
    for tls in transports() {
        let (mut a, mut b) = (ucx(&tls), ucx(&tls));
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = b.connect(&a.address()).unwrap();
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        let own = a.address();
        assert_eq!(a.connect(&own).unwrap(), PeerId::ONESELF);
        a.send(send_of(to_b, 1, b"one way")).unwrap();
        b.send(send_of(to_a, 1, b"the other")).unwrap();
        receive(&mut a, exactly(1), 16, 1);
        receive(&mut b, exactly(1), 16, 1);
        let (mut ups, mut messages) = (0, 0);
        wait(&mut [&mut a, &mut b], "both messages", |_, event| {
            match event {
                MatchingEvent::PeerUp { peer: PeerId(1) } => ups += 1,
                MatchingEvent::Received { result: Ok(_), .. } => messages += 1,
                MatchingEvent::Sent { result: Ok(()), .. } => {}
                other => panic!("{other:?}"),
            }
            (ups == 2 && messages == 2).then_some(())
        });
        assert_eq!(a.peer_address(to_b), Some(b.address()));
        assert_eq!(b.connect(&a.address()).unwrap(), to_a);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn sends_wait_for_their_peer_in_order() {
    for tls in transports() {
        let (mut a, mut b) = (ucx(&tls), ucx(&tls));
        let to_b = a.connect(&b.address()).unwrap();
        for number in 0..100u8 {
            let length = if number % 2 == 0 { 1 } else { 20_000 };
            assert!(a.send(send_of(to_b, 5, &vec![number; length])).unwrap().is_none());
        }
        for number in 0..100u8 {
            receive(&mut b, exactly(5), 20_000, number.into());
            assert_eq!(expect(&mut a, &mut b, number.into()).1[0], number, "{tls}");
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn nobody_there_is_told_with_the_sends() {
    for tls in transports() {
        let mut a = ucx(&tls);
        let gone = ucx(&tls).address();
        let peer = a.connect(&gone).unwrap();
        let sent = a.send(send_of(peer, 5, b"in vain"));
        assert!(matches!(sent, Ok(None) | Err(_)));
        let reason = down(&mut [&mut a], 0, peer);
        assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED }, "{tls}");
        let (_, unfit) = a.send(send_of(peer, 5, b"in vain")).unwrap_err();
        assert_eq!(unfit, tagmatch_hw::matching::Unfit::Down);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn those_who_carry_tags_in_another_way_are_refused() {
    let tls = &transports()[0];
    let mut a = ucx(tls);
    let settings: [UcxConfig; 2] = [
        UcxConfig { source: 0x7f00_0000, ..config(tls) },
        UcxConfig { own_source: Some(1), ..config(tls) },
    ];
    for other in settings {
        let mut b = ucx_with(other);
        let to_a = b.connect(&a.address()).unwrap();
        let reason = down(&mut [&mut a, &mut b], 1, to_a);
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
        assert!(a.poll().is_none());
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn two_peers_with_one_number_are_one_too_many() {
    let tls = &transports()[0];
    let numbered = |own| ucx_with(UcxConfig { own_source: Some(own), ..config(tls) });
    let (mut a, mut b, mut c) = (numbered(1), numbered(2), numbered(2));
    connect(&mut b, &mut a);
    let to_a = c.connect(&a.address()).unwrap();
    let reason = down(&mut [&mut a, &mut c], 1, to_a);
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    let mut d = numbered(1);
    let to_a = d.connect(&a.address()).unwrap();
    assert!(matches!(down(&mut [&mut a, &mut d], 1, to_a), DownReason::Misbehaved { .. }));
    assert!(a.poll().is_none());
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn no_more_peers_than_the_source_field_numbers() {
    let tls = &transports()[0];
    let small = || ucx_with(UcxConfig { used: 7, source: 1, ..config(tls) });
    let (mut a, mut b, mut c) = (small(), small(), small());
    connect(&mut b, &mut a);
    let error = a.connect(&c.address()).unwrap_err();
    assert!(matches!(error, DeviceError::Exhausted { limit: 2, .. }), "{error}");
    let to_a = c.connect(&a.address()).unwrap();
    let reason = down(&mut [&mut a, &mut c], 1, to_a);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::EUSERS });
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn addresses_of_others_are_refused() {
    let mut a = ucx(&transports()[0]);
    for bytes in [&b"x"[..], b"TMux", &[0; 64], &a.address().as_bytes()[..10]] {
        let error = a.connect(&Address::from_bytes(bytes).unwrap()).unwrap_err();
        assert!(matches!(error, DeviceError::BadAddress { .. }), "{error}");
    }
}

/// Connections to both kinds of sockets of a device.
fn doors(device: &Ucx) -> Vec<Box<dyn Stream>> {
    let address = device.address();
    let bytes = address.as_bytes();
    let nonce: String = bytes[5..21].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = SocketAddr::from_abstract_name(format!("tagmatch-ucx-{nonce}")).unwrap();
    let local = UnixStream::connect_addr(&name).unwrap();
    local.set_nonblocking(true).unwrap();
    let port = u16::from_le_bytes([bytes[21], bytes[22]]);
    let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tcp.set_nonblocking(true).unwrap();
    vec![Box::new(local), Box::new(tcp)]
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// A greeting with `wanted` in it, of someone who isn't there, with `length` bytes of a worker's address
/// that is none.
fn greeting(wanted: &[u8], number: u64, length: usize) -> Vec<u8> {
    let mut body = b"TMux\x01\x01".to_vec();
    body.extend_from_slice(wanted);
    for word in [0x7fff_ffffu64, 0x7fff_0000, number] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.extend_from_slice(&[0; 9]);
    let mut address = b"TMux\x01".to_vec();
    address.extend_from_slice(&[3; 18]);
    body.push(address.len() as u8);
    body.extend_from_slice(&address);
    body.resize(body.len() + length, 0xee);
    body
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn hostile_bytes_harm_nobody() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        let nonce = b.address().as_bytes()[5..21].to_vec();
        let attacks: Vec<Vec<u8>> = vec![
            vec![],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            u32::MAX.to_le_bytes().to_vec(),
            framed(b""),
            framed(b"TMux"),
            framed(b"TMux\x01\x02"),
            framed(b"TMux\x01\x03\x63"),
            framed(b"TMux\x02\x01"),
            framed(&greeting(&[0; 16], 1, 64)),
            framed(&greeting(&nonce, u64::MAX, 64)),
            framed(&greeting(&nonce, 1, 3)),
            framed(&greeting(&nonce, 1, 1 << 17)),
            framed(&greeting(&nonce, 1, 64))[..70].to_vec(),
            (0..100_000u32).map(|n| (n * 7) as u8).collect(),
        ];
        for attack in &attacks {
            let mut open = doors(&b);
            for stream in &mut open {
                // It may have hung up already.
                let _ = stream.write_all(attack);
            }
            for _ in 0..200 {
                assert!(b.poll().is_none(), "{tls} {attack:?}");
            }
            drop(open);
        }
        // More strangers than are listened to.
        let crowd: Vec<_> = (0..80).flat_map(|_| doors(&b)).collect();
        for _ in 0..3000 {
            assert!(b.poll().is_none());
        }
        drop(crowd);
        a.send(send_of(to_b, 1, b"unharmed")).unwrap();
        receive(&mut b, exactly(1), 8, 1);
        assert_eq!(expect(&mut a, &mut b, 1).1, b"unharmed");
        let mut c = ucx(&tls);
        connect(&mut c, &mut b);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_stranger_who_says_nothing_is_sent_away() {
    let tls = &transports()[0];
    let connect_timeout = Duration::from_millis(20);
    let mut a = ucx_with(UcxConfig { connect_timeout, ..config(tls) });
    let mut open = doors(&a);
    for stream in &mut open {
        let mut ended = false;
        let start = std::time::Instant::now();
        while !ended {
            assert!(a.poll().is_none() && start.elapsed() < crate::common::PATIENCE);
            ended = matches!(stream.read(&mut [0; 8]), Ok(0));
        }
    }
}

/// A listener in the place of a device that has gone answers with something else.
#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn an_impostor_is_not_believed() {
    let tls = &transports()[0];
    let address = ucx(tls).address();
    let nonce: String = address.as_bytes()[5..21].iter().map(|b| format!("{b:02x}")).collect();
    let name = SocketAddr::from_abstract_name(format!("tagmatch-ucx-{nonce}")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind_addr(&name).unwrap();
    for answer in [&greeting(&[1; 16], 1, 64)[..], b"TMux\x01\x02", b"nonsense"] {
        let mut a = ucx(tls);
        let peer = a.connect(&address).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&framed(answer)).unwrap();
        let reason = down(&mut [&mut a], 0, peer);
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    }
}
