//! Connections: both at once, in vain, with those who disagree.

use rustix::io::Errno;
use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{Address, DeviceError, DownReason, PeerId};

use super::fixture::{Fixture, Settings};
use super::support::*;

/// Both begin at once and meet in one connection.
pub fn both_begin_at_once_and_meet_in_one_connection<F: Fixture>() {
    for way in F::ways() {
        let mut a = up::<F>(&way);
        let mut b = up::<F>(&way);
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = b.connect(&a.address()).unwrap();
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        let own = a.address();
        assert_eq!(a.connect(&own).unwrap(), PeerId::ONESELF);
        a.send(send_of(to_b, 1, b"one way")).unwrap();
        b.send(send_of(to_a, 1, b"the other")).unwrap();
        receive(&mut a, exactly(1), 16, 1);
        receive(&mut b, exactly(1), 16, 1);
        let mut ups = 0;
        let mut messages = 0;
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

/// Sends wait for their peer in order.
pub fn sends_wait_for_their_peer_in_order<F: Fixture>() {
    for way in F::ways() {
        let mut a = up::<F>(&way);
        let mut b = up::<F>(&way);
        let to_b = a.connect(&b.address()).unwrap();
        for number in 0..100u8 {
            let length = if number % 2 == 0 { 1 } else { 20_000 };
            assert!(a.send(send_of(to_b, 5, &vec![number; length])).unwrap().is_none());
        }
        for number in 0..100u8 {
            receive(&mut b, exactly(5), 20_000, number.into());
            assert_eq!(expect(&mut a, &mut b, number.into()).1[0], number, "{way}");
        }
    }
}

/// Nobody there is told with the sends.
pub fn nobody_there_is_told_with_the_sends<F: Fixture>() {
    for way in F::ways() {
        let mut a = up::<F>(&way);
        let gone = up::<F>(&way).address();
        let peer = a.connect(&gone).unwrap();
        let sent = a.send(send_of(peer, 5, b"in vain"));
        assert!(matches!(sent, Ok(None) | Err(_)));
        let reason = down(&mut [&mut a], 0, peer);
        assert_eq!(reason, DownReason::Unreachable { errno: REFUSED }, "{way}");
        let (_, unfit) = a.send(send_of(peer, 5, b"in vain")).unwrap_err();
        assert_eq!(unfit, tagmatch_device::matching::Unfit::Down);
    }
}

/// Workers of one job reach each other and no others.
pub fn workers_of_one_job_reach_each_other_and_no_others<F: Fixture>() {
    for way in F::ways() {
        let with = |secret| up_with::<F>(&way, Settings { secret, ..Settings::default() });
        for (callers, listeners) in [(Some(1), None), (None, Some(1)), (Some(1), Some(2))] {
            let mut a = with(callers);
            let mut b = with(listeners);
            let peer = a.connect(&b.address()).unwrap();
            match down(&mut [&mut a, &mut b], 0, peer) {
                DownReason::Misbehaved { what } => assert!(what.contains("the job's secret")),
                other => panic!("{way}: {other:?}"),
            }
        }
        let mut a = with(Some(1));
        let mut b = with(Some(1));
        let peer = a.connect(&b.address()).unwrap();
        wait(&mut [&mut a, &mut b], "the other worker", |index, event| {
            (index == 0 && matches!(event, MatchingEvent::PeerUp { peer: up } if up == peer))
                .then_some(())
        });
    }
}

/// Those who carry tags in another way are refused.
pub fn those_who_carry_tags_in_another_way_are_refused<F: Fixture>() {
    let way = &F::ways()[0];
    let mut a = up::<F>(way);
    let layout = [0x7fff_ffff, 0x7f00_0000];
    let mut b = up_with::<F>(way, Settings { layout, ..Settings::default() });
    let to_a = b.connect(&a.address()).unwrap();
    let reason = down(&mut [&mut a, &mut b], 1, to_a);
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    assert!(a.poll().is_none());
}

/// No more peers than the source field numbers.
pub fn no_more_peers_than_the_source_field_numbers<F: Fixture>() {
    let way = &F::ways()[0];
    let small = || up_with::<F>(way, Settings { layout: [7, 1], ..Settings::default() });
    let mut a = small();
    let mut b = small();
    let mut c = small();
    connect(&mut b, &mut a);
    let error = a.connect(&c.address()).unwrap_err();
    assert!(matches!(error, DeviceError::Exhausted { limit: 2, .. }), "{error}");
    let to_a = c.connect(&a.address()).unwrap();
    let reason = down(&mut [&mut a, &mut c], 1, to_a);
    assert_eq!(reason, DownReason::Unreachable { errno: Errno::USERS.raw_os_error() });
}

/// Addresses of others are refused.
pub fn addresses_of_others_are_refused<F: Fixture>() {
    let mut a = up::<F>(&F::ways()[0]);
    for bytes in [&b"x"[..], F::MAGIC, &[0; 64], &a.address().as_bytes()[..10]] {
        let error = a.connect(&Address::from_bytes(bytes).unwrap()).unwrap_err();
        assert!(matches!(error, DeviceError::BadAddress { .. }), "{error}");
    }
}
