//! Messages: sizes, order, facts, completion.

use tagmatch_device::matching::{CompleteWhen, Envelope, MatchingDevice, TagSend, Unfit};
use tagmatch_device::{Buffer, PeerId};

use super::fixture::Fixture;
use super::support::*;

/// A message to oneself.
pub fn a_message_to_oneself<F: Fixture>() {
    for way in F::alone() {
        let mut a = up::<F>(&way);
        for length in [0, 8, 4096, 100_000] {
            let bytes = bytes_of(length, length);
            receive(&mut a, pattern_of(5, !0, Some(PeerId::ONESELF)), length, 1);
            let sent = a.send(send_of(PeerId::ONESELF, 5, &bytes)).unwrap();
            let (envelope, got) = wait(&mut [&mut a], "a message", |_, e| message_of(e, 1));
            assert!(got == bytes && envelope.length == length as u64, "{way} {length}");
            assert_eq!((envelope.source, envelope.tag), (PeerId::ONESELF, 5));
            drop(sent);
            drain(&mut a);
        }
    }
}

/// Every size arrives expected and unexpected.
pub fn every_size_arrives_expected_and_unexpected<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        for length in [0, 1, 8, 92, 93, 4096, 7999, 8000, 8001, 65_536, 3_000_000] {
            for is_expected in [true, false] {
                let bytes = bytes_of(length, length);
                let wanted = pattern_of(9, !0, Some(to_a));
                if is_expected {
                    receive(&mut b, wanted, length, 3);
                }
                a.send(send_of(to_b, 9, &bytes)).unwrap();
                if !is_expected {
                    arrives(&mut a, &mut b, 9);
                    receive(&mut b, wanted, length, 3);
                }
                let (envelope, got) = expect(&mut a, &mut b, 3);
                assert!(got == bytes && envelope.source == to_a, "{way} {length}");
                assert_eq!((envelope.length, envelope.immediate), (length as u64, None));
                drain(&mut a);
            }
        }
    }
}

/// Messages of one sender do not overtake.
pub fn messages_of_one_sender_do_not_overtake<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        let length_of = |number: u64| [8, 5000, 70_000, 0][number as usize % 4];
        for number in 0..400 {
            let bytes = bytes_of(number as usize, length_of(number));
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
            assert_eq!(envelope.length, length_of(number) as u64, "{way} {number}");
            assert!(got == bytes_of(number as usize, length_of(number)));
        }
    }
}

/// Immediate data comes with the message.
pub fn immediate_data_comes_with_the_message<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        for (tag, immediate) in [(1, None), (2, Some(0)), (3, Some(0xdead_beef)), (4, Some(!0))] {
            for length in [0, 100_000] {
                a.send(TagSend { immediate, ..send_of(to_b, tag, &vec![7; length]) }).unwrap();
                receive(&mut b, pattern_of(tag, !0, Some(to_a)), length, tag);
                let (envelope, _) = expect(&mut a, &mut b, tag);
                assert_eq!((envelope.tag, envelope.immediate), (tag, immediate), "{way}");
            }
            inject(&mut a, to_b, tag, immediate, b"injected");
            arrives(&mut a, &mut b, tag);
            assert_eq!(b.probe(exactly(tag)).unwrap().unwrap().immediate, immediate);
            receive(&mut b, exactly(tag), 8, tag);
            assert_eq!(expect(&mut a, &mut b, tag).1, b"injected");
        }
    }
}

/// Sends a copy, by a send if it can't be done at once.
fn inject<D: MatchingDevice>(
    a: &mut D,
    to: PeerId,
    tag: u64,
    immediate: Option<u32>,
    payload: &[u8],
) {
    if !a.inject(to, tag, immediate, payload).unwrap() {
        a.send(TagSend { immediate, ..send_of(to, tag, payload) }).unwrap();
    }
}

/// What is injected is copied.
pub fn what_is_injected_is_copied<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        for (token, length) in [0, 64, 4096, 50_000].into_iter().enumerate() {
            let mut bytes = bytes_of(1, length);
            inject(&mut a, to_b, 6, None, &bytes);
            bytes.fill(0);
            receive(&mut b, exactly(6), length, token as u64);
            let (_, got) = expect(&mut a, &mut b, token as u64);
            assert!(got == bytes_of(1, length), "{way} {length}");
        }
        drain(&mut a);
    }
}

/// A synchronous send is complete when it is matched.
pub fn a_synchronous_send_is_complete_when_it_is_matched<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        for length in [0, 100, 4096, 7900, 100_000] {
            let bytes = bytes_of(1, length);
            assert!(a.send(synchronous(to_b, 3, &bytes)).unwrap().is_none());
            arrives(&mut a, &mut b, 3);
            for _ in 0..2000 {
                assert!(a.poll().is_none() && b.poll().is_none(), "{way} {length}");
            }
            receive(&mut b, exactly(3), length, 1);
            let mut sent = false;
            let mut got = false;
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

/// A truncated message tells its full length on every path.
pub fn a_truncated_message_tells_its_full_length_on_every_path<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        for length in [1, 9, 5000, 8176, 8192, 8193, 200_000] {
            for (is_expected, room) in
                [(true, 8), (false, 8), (true, 0), (false, 0), (true, length - 1)]
            {
                let room = room.min(length - 1);
                let bytes = bytes_of(2, length);
                let wanted = pattern_of(2, !0, Some(to_a));
                if is_expected {
                    receive(&mut b, wanted, room, 1);
                }
                let message = TagSend { immediate: Some(5), ..synchronous(to_b, 2, &bytes) };
                assert!(a.send(message).unwrap().is_none());
                if !is_expected {
                    arrives(&mut a, &mut b, 2);
                    receive(&mut b, wanted, room, 1);
                }
                let mut is_sent = false;
                let mut is_received = false;
                wait(&mut [&mut a, &mut b], "both ends", |index, event| {
                    if index == 0 {
                        is_sent |= sent_of(event, 2).unwrap().is_ok();
                    } else {
                        let (result, got) = end_of(event, 1).unwrap();
                        let Envelope { source, tag, length: full, immediate } = result.unwrap();
                        assert_eq!((full, got.len()), (length as u64, room), "{way}");
                        assert_eq!((source, tag, immediate), (to_a, 2, Some(5)), "{way}");
                        let zeros = vec![0; room];
                        let is_there = if F::HAS_FIRST_BYTES { &bytes[..room] } else { &zeros };
                        assert!(got == is_there, "{way} {length} {room}");
                        is_received = true;
                    }
                    (is_sent && is_received).then_some(())
                });
            }
        }
    }
}

/// A delivered send ends or is refused.
pub fn a_delivered_send_ends_or_is_refused<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        let complete_when = CompleteWhen::Delivered;
        let message = TagSend { complete_when, ..send_of(to_b, 8, &vec![3; 100_000]) };
        match a.send(message) {
            Ok(done) => assert!(F::HAS_FIRST_BYTES && done.is_none()),
            Err((buffer, Unfit::NotCarried(_))) if !F::HAS_FIRST_BYTES => {
                assert_eq!(buffer.len(), 100_000);
                continue;
            }
            Err((_, unfit)) => panic!("{way}: {unfit:?}"),
        }
        receive(&mut b, exactly(8), 100_000, 2);
        let mut order = Vec::new();
        wait(&mut [&mut a, &mut b], "delivery", |index, event| {
            assert!(sent_of(event, 8).is_none_or(|result| result.is_ok()));
            order.push(index);
            (order.len() == 2).then_some(())
        });
        order.sort_unstable();
        assert_eq!(order, [0, 1], "{way}");
    }
}

/// What cannot be carried is refused with its buffer.
pub fn what_cannot_be_carried_is_refused_with_its_buffer<F: Fixture>() {
    let mut a = up::<F>(&F::ways()[0]);
    let oneself = PeerId::ONESELF;
    let message = || send_of(oneself, 1, b"abc");
    let mut refused = |message: TagSend| match a.send(message) {
        Err((buffer, unfit)) => {
            assert_eq!(&buffer[..], b"abc");
            unfit
        }
        Ok(_) => panic!("taken"),
    };
    for unfit in [
        refused(TagSend { tag: 1 << 40, ..message() }),
        refused(TagSend { tag: 1 << 20, ..message() }),
    ] {
        assert!(matches!(unfit, Unfit::NotCarried(why) if why.len() > 20), "{unfit:?}");
    }
    assert_eq!(refused(TagSend { peer: PeerId(9), ..message() }), Unfit::NoSuchPeer);
    assert_eq!(a.inject(PeerId(9), 1, None, b"").unwrap_err(), Unfit::NoSuchPeer);
    let shared = || Buffer::from(std::sync::Arc::<[u8]>::from(&b"abc"[..]));
    assert_eq!(a.receive(exactly(1), shared(), 1).unwrap_err().1, Unfit::ReadOnly);
    let nobody = pattern_of(1, !0, Some(PeerId(9)));
    assert_eq!(a.receive(nobody, Buffer::zeroed(1), 1).unwrap_err().1, Unfit::NoSuchPeer);
    assert_eq!(a.probe(nobody).unwrap_err(), Unfit::NoSuchPeer);
    let in_field = a.receive(exactly(1 << 20), Buffer::zeroed(1), 1).unwrap_err().1;
    assert!(matches!(in_field, Unfit::NotCarried(_)), "{in_field:?}");
    // None of that is under way.
    assert!(a.poll().is_none());
    assert!(a.send(message()).is_ok());
    receive(&mut a, exactly(1), 3, 1);
    wait(&mut [&mut a], "the message", |_, event| message_of(event, 1));
}
