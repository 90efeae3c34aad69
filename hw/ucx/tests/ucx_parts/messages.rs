//! Messages: sizes, order, facts, completion.

use tagmatch_device::matching::{CompleteWhen, MatchingDevice, MatchingEvent, TagSend, Unfit};
use tagmatch_device::{Buffer, PeerId};
use tagmatch_ucx::Ucx;
use tagmatch_ucx::UcxConfig;

use super::support::{
    config, drain, end_of, exactly, expect, message_of, pair, pattern_of, receive, send_of,
    sent_of, synchronous, transports, ucx, ucx_with, wait, wait_until,
};
use crate::common;

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_message_to_oneself() {
    for tls in transports().into_iter().chain(["self".into()]) {
        let mut a = ucx(&tls);
        for length in [0, 8, 4096, 100_000] {
            let bytes = common::pattern(length, length);
            receive(&mut a, pattern_of(5, !0, Some(PeerId::ONESELF)), length, 1);
            let sent = a.send(send_of(PeerId::ONESELF, 5, &bytes)).unwrap();
            let (envelope, got) = wait(&mut [&mut a], "a message", |_, e| message_of(e, 1));
            assert!(got == bytes && envelope.length == length as u64, "{tls} {length}");
            assert_eq!((envelope.source, envelope.tag), (PeerId::ONESELF, 5));
            drop(sent);
            drain(&mut a);
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn every_size_arrives_expected_and_unexpected() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        for length in [0, 1, 8, 92, 93, 4096, 7999, 8000, 8001, 65_536, 3_000_000] {
            for is_expected in [true, false] {
                let bytes = common::pattern(length, length);
                let wanted = pattern_of(9, !0, Some(to_a));
                if is_expected {
                    receive(&mut b, wanted, length, 3);
                }
                a.send(send_of(to_b, 9, &bytes)).unwrap();
                if !is_expected {
                    wait_until(&mut [&mut b], "it", |b| b[0].probe(wanted).unwrap().is_some());
                    receive(&mut b, wanted, length, 3);
                }
                let (envelope, got) = expect(&mut a, &mut b, 3);
                assert!(got == bytes && envelope.source == to_a, "{tls} {length}");
                assert_eq!((envelope.length, envelope.immediate), (length as u64, None));
                drain(&mut a);
            }
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn messages_of_one_sender_do_not_overtake() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        let length_of = |number: u64| [8, 5000, 70_000, 0][number as usize % 4];
        for number in 0..400 {
            let bytes = common::pattern(number as usize, length_of(number));
            match a.send(send_of(to_b, 7, &bytes)) {
                Ok(_) => {}
                Err((_, unfit)) => panic!("{unfit:?}"),
            }
            if number % 3 == 0 {
                b.poll();
            }
        }
        for number in 0..400 {
            receive(&mut b, exactly(7), 70_000, number);
            let (envelope, got) = expect(&mut a, &mut b, number);
            assert_eq!(envelope.length, length_of(number) as u64, "{tls} {number}");
            assert!(got == common::pattern(number as usize, length_of(number)));
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn immediate_data_comes_with_the_message() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        for (tag, immediate) in [(1, None), (2, Some(0)), (3, Some(0xdead_beef)), (4, Some(!0))] {
            for length in [0, 100_000] {
                a.send(TagSend { immediate, ..send_of(to_b, tag, &vec![7; length]) }).unwrap();
                receive(&mut b, pattern_of(tag, !0, Some(to_a)), length, tag);
                let (envelope, _) = expect(&mut a, &mut b, tag);
                assert_eq!((envelope.tag, envelope.immediate), (tag, immediate), "{tls}");
            }
            inject(&mut a, to_b, tag, immediate, b"injected");
            wait_until(&mut [&mut a, &mut b], "an injected one", |both| {
                both[1].probe(exactly(tag)).unwrap().is_some()
            });
            assert_eq!(b.probe(exactly(tag)).unwrap().unwrap().immediate, immediate);
            receive(&mut b, exactly(tag), 8, tag);
            assert_eq!(expect(&mut a, &mut b, tag).1, b"injected");
        }
    }
}

/// Sends a copy, by a send if it can't be done at once.
fn inject(a: &mut Ucx, to: PeerId, tag: u64, immediate: Option<u32>, payload: &[u8]) {
    if !a.inject(to, tag, immediate, payload).unwrap() {
        a.send(TagSend { immediate, ..send_of(to, tag, payload) }).unwrap();
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn what_is_injected_is_copied() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        for (token, length) in [0, 64, 4096, 50_000].into_iter().enumerate() {
            let mut bytes = common::pattern(1, length);
            inject(&mut a, to_b, 6, None, &bytes);
            bytes.fill(0);
            receive(&mut b, exactly(6), length, token as u64);
            let (_, got) = expect(&mut a, &mut b, token as u64);
            assert!(got == common::pattern(1, length), "{tls} {length}");
        }
        drain(&mut a);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_synchronous_send_is_complete_when_it_is_matched() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        for length in [0, 100, 4096, 7900, 100_000] {
            let bytes = common::pattern(1, length);
            assert!(a.send(synchronous(to_b, 3, &bytes)).unwrap().is_none());
            wait_until(&mut [&mut a, &mut b], "the message", |both| {
                both[1].probe(exactly(3)).unwrap().is_some()
            });
            for _ in 0..2000 {
                assert!(a.poll().is_none() && b.poll().is_none(), "{tls} {length}");
            }
            receive(&mut b, exactly(3), length, 1);
            let (mut sent, mut got) = (false, false);
            wait(&mut [&mut a, &mut b], "both ends", |index, event| {
                if index == 0 {
                    sent |= sent_of(event, 3).unwrap().is_ok();
                } else {
                    got |= message_of(event, 1).unwrap().1 == bytes;
                }
                (sent && got).then_some(())
            });
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_truncated_message_tells_its_full_length() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        for length in [9, 5000, 200_000] {
            for (is_expected, room) in [(true, 8), (false, 8), (true, 0), (false, 0)] {
                let bytes = common::pattern(2, length);
                if is_expected {
                    receive(&mut b, exactly(2), room, 1);
                }
                let is_sent = a.send(send_of(to_b, 2, &bytes)).unwrap().is_some();
                if !is_expected {
                    wait_until(&mut [&mut b], "it", |b| b[0].probe(exactly(2)).unwrap().is_some());
                    receive(&mut b, exactly(2), room, 1);
                }
                let (mut is_sent, mut is_received) = (is_sent, false);
                wait(&mut [&mut a, &mut b], "both ends", |index, event| {
                    if index == 0 {
                        is_sent |= sent_of(event, 2).unwrap().is_ok();
                    } else {
                        let (result, buffer) = end_of(event, 1).unwrap();
                        let envelope = result.unwrap();
                        assert_eq!((envelope.length, buffer.len()), (length as u64, room), "{tls}");
                        assert_eq!((envelope.source, envelope.tag), (to_a, 2));
                        is_received = true;
                    }
                    (is_sent && is_received).then_some(())
                });
            }
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn what_cannot_be_carried_is_refused_with_its_buffer() {
    let tls = &transports()[0];
    let mut wide = ucx_with(UcxConfig { used: 0xffff_ffff, ..config(tls) });
    let oneself = PeerId::ONESELF;
    let message = || send_of(oneself, 1, b"abc");
    let mut refused = |message: TagSend| match wide.send(message) {
        Err((buffer, unfit)) => {
            assert_eq!(&buffer[..], b"abc");
            unfit
        }
        Ok(_) => panic!("taken"),
    };
    for unfit in [
        refused(TagSend { immediate: Some(1), ..message() }),
        refused(TagSend { complete_when: CompleteWhen::Delivered, ..message() }),
        refused(TagSend { tag: 1 << 40, ..message() }),
        refused(TagSend { tag: 1 << 20, ..message() }),
    ] {
        assert!(matches!(unfit, Unfit::NotCarried(why) if why.len() > 20), "{unfit:?}");
    }
    assert_eq!(refused(TagSend { peer: PeerId(9), ..message() }), Unfit::NoSuchPeer);
    assert_eq!(wide.inject(PeerId(9), 1, None, b"").unwrap_err(), Unfit::NoSuchPeer);
    let shared = || Buffer::from(std::sync::Arc::<[u8]>::from(&b"abc"[..]));
    assert_eq!(wide.receive(exactly(1), shared(), 1).unwrap_err().1, Unfit::ReadOnly);
    let nobody = pattern_of(1, !0, Some(PeerId(9)));
    assert_eq!(wide.receive(nobody, Buffer::zeroed(1), 1).unwrap_err().1, Unfit::NoSuchPeer);
    assert_eq!(wide.probe(nobody).unwrap_err(), Unfit::NoSuchPeer);
    let in_field = wide.receive(exactly(1 << 20), Buffer::zeroed(1), 1).unwrap_err().1;
    assert!(matches!(in_field, Unfit::NotCarried(_)), "{in_field:?}");
    // None of that is under way.
    assert!(wide.poll().is_none());
    assert!(wide.send(message()).is_ok());
    receive(&mut wide, exactly(1), 3, 1);
    assert!(matches!(wide.poll(), Some(MatchingEvent::Received { result: Ok(_), .. })));
}
