//! Connections: both at once, in vain, with those who disagree.

use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{Address, DeviceError, DownReason, PeerId};
use tagmatch_secret::Secret;
use tagmatch_ucx::UcxConfig;

use super::support::{
    config, connect, down, exactly, expect, receive, send_of, transports, ucx, ucx_with, wait,
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
        assert_eq!(unfit, tagmatch_device::matching::Unfit::Down);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn workers_of_one_job_reach_each_other_and_no_others() {
    let secret = |byte| Some(Secret::from_bytes(&[byte; 16]).unwrap());
    for tls in transports() {
        let with = |secret| ucx_with(UcxConfig { secret, ..config(&tls) });
        for (callers, listeners) in [(secret(1), None), (None, secret(1)), (secret(1), secret(2))] {
            let (mut a, mut b) = (with(callers), with(listeners));
            let peer = a.connect(&b.address()).unwrap();
            match down(&mut [&mut a, &mut b], 0, peer) {
                DownReason::Misbehaved { what } => assert!(what.contains("the job's secret")),
                other => panic!("{tls}: {other:?}"),
            }
        }
        let (mut a, mut b) = (with(secret(1)), with(secret(1)));
        let peer = a.connect(&b.address()).unwrap();
        wait(&mut [&mut a, &mut b], "the other worker", |index, event| {
            (index == 0 && matches!(event, MatchingEvent::PeerUp { peer: up } if up == peer))
                .then_some(())
        });
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
