//! Matching: masks, sources, cancel, probes.

use std::time::Instant;

use tagmatch_device::matching::{HeldId, MatchingDevice, MatchingEvent, OperationError, Unfit};
use tagmatch_device::{Buffer, PeerId};

use super::fixture::Fixture;
use super::support::*;
use crate::device::PATIENCE;

/// First posted first matched whatever the masks.
pub fn first_posted_first_matched_whatever_the_masks<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        for (token, pattern) in [
            pattern_of(0x10, 0xf0, None),
            exactly(0x12),
            pattern_of(0, 0, Some(to_a)),
            pattern_of(0x12, !0, Some(to_a)),
            pattern_of(0, 0, Some(PeerId::ONESELF)),
        ]
        .into_iter()
        .enumerate()
        {
            receive(&mut b, pattern, 8, token as u64);
        }
        for (tag, taker) in [(0x12, 0), (0x12, 1), (0x12, 2), (0x12, 3)] {
            a.send(send_of(to_b, tag, b"x")).unwrap();
            assert_eq!(expect(&mut a, &mut b, taker).0.tag, tag, "{way}");
        }
        b.send(send_of(PeerId::ONESELF, 0x77, b"x")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 4).0.source, PeerId::ONESELF);
    }
}

/// First arrived first found by a masked receive.
pub fn first_arrived_first_found_by_a_masked_receive<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        for tag in [0x21, 0x11, 0x22, 0x12] {
            a.send(send_of(to_b, tag, &[tag as u8])).unwrap();
        }
        arrives(&mut a, &mut b, 0x12);
        for (token, (pattern, tag)) in [
            (pattern_of(0x10, 0xf0, None), 0x11),
            (pattern_of(0, 0, None), 0x21),
            (pattern_of(0x02, 0x0f, None), 0x22),
            (pattern_of(0, 0, None), 0x12),
        ]
        .into_iter()
        .enumerate()
        {
            receive(&mut b, pattern, 1, token as u64);
            let (envelope, bytes) = expect(&mut a, &mut b, token as u64);
            assert_eq!((envelope.tag, bytes[0]), (tag, tag as u8), "{way}");
        }
    }
}

/// A receive that names its peer takes no others.
pub fn a_receive_that_names_its_peer_takes_no_others<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, from_a) = pair::<F>(&way);
        let mut c = up::<F>(&way);
        let (c_to_b, from_c) = connect(&mut c, &mut b);
        receive(&mut b, pattern_of(1, !0, Some(from_c)), 1, 10);
        receive(&mut b, pattern_of(1, !0, Some(from_a)), 1, 11);
        a.send(send_of(to_b, 1, b"a")).unwrap();
        let (envelope, bytes) = expect(&mut a, &mut b, 11);
        assert_eq!((envelope.source, &bytes[..]), (from_a, &b"a"[..]), "{way}");
        a.send(send_of(to_b, 1, b"a")).unwrap();
        c.send(send_of(c_to_b, 1, b"c")).unwrap();
        let (envelope, bytes) = expect(&mut c, &mut b, 10);
        assert_eq!((envelope.source, &bytes[..]), (from_c, &b"c"[..]));
        receive(&mut b, exactly(1), 1, 12);
        assert_eq!(expect(&mut a, &mut b, 12).0.source, from_a);
    }
}

/// A cancel that wins leaves the buffer alone.
pub fn a_cancel_that_wins_leaves_the_buffer_alone<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        b.receive(exactly(1), Buffer::from(vec![9; 8]), 1).unwrap();
        receive(&mut b, exactly(1), 8, 2);
        assert!(b.cancel(1));
        let (result, buffer) = wait(&mut [&mut b], "the end", |_, event| end_of(event, 1));
        assert_eq!((result, &buffer[..]), (Err(OperationError::Cancelled), &[9; 8][..]), "{way}");
        assert!(!b.cancel(1) && !b.cancel(99));
        a.send(send_of(to_b, 1, b"message!")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 2).1, b"message!");
    }
}

/// A cancel that loses is a normal completion.
pub fn a_cancel_that_loses_is_a_normal_completion<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        // A rendezvous that has matched; the sender doesn't look yet.
        let bytes = bytes_of(3, 500_000);
        a.send(synchronous(to_b, 1, &bytes)).unwrap();
        arrives(&mut a, &mut b, 1);
        receive(&mut b, exactly(1), bytes.len(), 1);
        assert!(!b.cancel(1), "{way}");
        assert!(expect(&mut a, &mut b, 1).1 == bytes);
        // An eager one that is complete and wasn't reported.
        a.send(send_of(to_b, 2, b"eager")).unwrap();
        arrives(&mut a, &mut b, 2);
        receive(&mut b, exactly(2), 8, 2);
        assert!(!b.cancel(2));
        assert_eq!(expect(&mut a, &mut b, 2).1, b"eager");
    }
}

/// Lets `b` hold the message with this tag.
fn hold<D: MatchingDevice>(b: &mut D, tag: u64) -> HeldId {
    let (id, envelope) = b.matched_probe(exactly(tag)).unwrap().unwrap();
    assert_eq!(envelope.tag, tag);
    id
}

/// A held message is found by nobody while a peer comes up.
pub fn a_held_message_is_found_by_nobody_while_a_peer_comes_up<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        let mut newcomer = up::<F>(&way);
        newcomer.connect(&b.address()).unwrap();
        let start = Instant::now();
        let mut is_up = false;
        let mut tag = 0;
        while !is_up {
            tag += 1;
            a.send(send_of(to_b, tag, b"held")).unwrap();
            // The newcomer isn't polled again in this round, so it stays half connected.
            newcomer.poll();
            let mut comes_up = |event: Option<MatchingEvent>| {
                is_up |= matches!(event, Some(MatchingEvent::PeerUp { peer }) if peer != to_a);
            };
            while b.probe(exactly(tag)).unwrap().is_none() {
                a.poll();
                comes_up(b.poll());
                assert!(start.elapsed() < PATIENCE, "{way}: waited in vain");
            }
            let held = hold(&mut b, tag);
            assert!(b.probe(exactly(tag)).unwrap().is_none(), "{way}");
            b.receive_held(held, Buffer::zeroed(4), tag).unwrap();
            let (_, bytes) = wait(&mut [&mut a, &mut b], "a message", |index, event| match event {
                MatchingEvent::PeerUp { .. } => {
                    comes_up(Some(event));
                    None
                }
                event if index == 1 => message_of(event, tag),
                _ => None,
            });
            assert_eq!(bytes, b"held");
        }
    }
}

/// A matched probe that is the first to hear of a peer loses none of its messages.
pub fn a_probe_that_is_the_first_to_hear_of_a_peer_loses_no_message<F: Fixture>() {
    for way in F::ways() {
        let mut a = up::<F>(&way);
        let mut b = up::<F>(&way);
        a.connect(&b.address()).unwrap();
        let start = Instant::now();
        // The other device is not polled between its answer and its probes.
        let to_b = loop {
            assert!(start.elapsed() < PATIENCE, "{way}: no connection");
            b.poll();
            if let Some(MatchingEvent::PeerUp { peer }) = a.poll() {
                break peer;
            }
        };
        a.send(send_of(to_b, 1, b"early")).unwrap();
        let mut probes = 0;
        let held = loop {
            assert!(start.elapsed() < PATIENCE, "{way}: the message is lost");
            a.poll();
            if let Some((held, _)) = b.matched_probe(exactly(1)).unwrap() {
                break held;
            }
            probes += 1;
            if probes % 1000 == 0 {
                b.poll();
            }
        };
        b.receive_held(held, Buffer::zeroed(5), 1).unwrap();
        assert_eq!(expect(&mut a, &mut b, 1).1, b"early");
    }
}

/// Held messages are received in any order and found by nobody.
pub fn held_messages_are_received_in_any_order_and_found_by_nobody<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        let lengths = [10, 100_000, 0, 5000];
        for (tag, length) in lengths.iter().enumerate() {
            a.send(send_of(to_b, tag as u64, &bytes_of(tag, *length))).unwrap();
        }
        arrives(&mut a, &mut b, 3);
        let held: Vec<HeldId> = (0..4).map(|tag| hold(&mut b, tag)).collect();
        assert!(b.probe(pattern_of(0, 0, None)).unwrap().is_none(), "{way}");
        for tag in [2, 1, 3, 0] {
            let room = lengths[tag] + 5;
            b.receive_held(held[tag], Buffer::zeroed(room), tag as u64).unwrap();
            let (envelope, got) = expect(&mut a, &mut b, tag as u64);
            assert!(got == bytes_of(tag, lengths[tag]) && envelope.source == to_a);
            let (buffer, unfit) = b.receive_held(held[tag], Buffer::zeroed(1), 9).unwrap_err();
            assert_eq!((buffer.len(), unfit), (1, Unfit::NoSuchMessage));
            assert!(!b.discard_held(held[tag]));
        }
        drain(&mut a);
    }
}

/// A message that is discarded releases its sender.
pub fn a_message_that_is_discarded_releases_its_sender<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        for length in [0, 100, 100_000] {
            a.send(synchronous(to_b, 1, &bytes_of(1, length))).unwrap();
            arrives(&mut a, &mut b, 1);
            let held = hold(&mut b, 1);
            assert!(b.discard_held(held) && !b.discard_held(held));
            wait(&mut [&mut a, &mut b], "the sender", |index, event| {
                assert_eq!(index, 0, "{event:?}");
                sent_of(event, 1).unwrap().ok()
            });
        }
    }
}

/// A probe takes nothing.
pub fn a_probe_takes_nothing<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        assert!(b.probe(exactly(4)).unwrap().is_none());
        a.send(send_of(to_b, 4, &[1; 50_000])).unwrap();
        arrives(&mut a, &mut b, 4);
        for _ in 0..3 {
            let envelope = b.probe(pattern_of(4, 0xff, Some(to_a))).unwrap().unwrap();
            assert_eq!(
                (envelope.length, envelope.tag, envelope.source),
                (50_000, 4, to_a),
                "{way}"
            );
            assert!(b.probe(pattern_of(4, !0, Some(PeerId::ONESELF))).unwrap().is_none());
        }
        receive(&mut b, exactly(4), 50_000, 1);
        let (_, got) =
            wait(&mut [&mut a, &mut b], "it", |i, e| if i == 1 { message_of(e, 1) } else { None });
        assert!(got == [1; 50_000]);
    }
}
