//! Matching: masks, sources, cancel, probes.

use std::time::Instant;

use tagmatch_device::matching::{HeldId, MatchingDevice, MatchingEvent, OperationError, Unfit};
use tagmatch_device::{Buffer, PeerId};
use tagmatch_ucx::{Ucx, UcxConfig};

use super::support::{
    config, connect, drain, end_of, exactly, expect, message_of, pair, pattern_of, receive,
    send_of, sent_of, synchronous, transports, ucx, ucx_with, wait, wait_until,
};
use crate::common;

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn first_posted_first_matched_whatever_the_masks() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
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
            assert_eq!(expect(&mut a, &mut b, taker).0.tag, tag, "{tls}");
        }
        b.send(send_of(PeerId::ONESELF, 0x77, b"x")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 4).0.source, PeerId::ONESELF);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn first_arrived_first_found_by_a_masked_receive() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        for tag in [0x21, 0x11, 0x22, 0x12] {
            a.send(send_of(to_b, tag, &[tag as u8])).unwrap();
        }
        wait_until(&mut [&mut a, &mut b], "all", |both| {
            both[1].probe(exactly(0x12)).unwrap().is_some()
        });
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
            assert_eq!((envelope.tag, bytes[0]), (tag, tag as u8), "{tls}");
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_receive_that_names_its_peer_takes_no_others() {
    for tls in transports() {
        let (mut a, mut b, to_b, from_a) = pair(&tls);
        let mut c = ucx(&tls);
        let (c_to_b, from_c) = connect(&mut c, &mut b);
        receive(&mut b, pattern_of(1, !0, Some(from_c)), 1, 10);
        receive(&mut b, pattern_of(1, !0, Some(from_a)), 1, 11);
        a.send(send_of(to_b, 1, b"a")).unwrap();
        let (envelope, bytes) = expect(&mut a, &mut b, 11);
        assert_eq!((envelope.source, &bytes[..]), (from_a, &b"a"[..]), "{tls}");
        a.send(send_of(to_b, 1, b"a")).unwrap();
        c.send(send_of(c_to_b, 1, b"c")).unwrap();
        let (envelope, bytes) = expect(&mut c, &mut b, 10);
        assert_eq!((envelope.source, &bytes[..]), (from_c, &b"c"[..]));
        receive(&mut b, exactly(1), 1, 12);
        assert_eq!(expect(&mut a, &mut b, 12).0.source, from_a);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_runtime_may_keep_the_source_in_its_tags() {
    for tls in transports() {
        let numbered = |own| ucx_with(UcxConfig { own_source: Some(own), ..config(&tls) });
        let tag = |source: u64, tag: u64| source << 16 | tag;
        let (mut a, mut b) = (numbered(40), numbered(50));
        let early = b.connect(&a.address()).unwrap();
        let unnumbered = b.receive(pattern_of(tag(40, 1), !0, Some(early)), Buffer::zeroed(1), 1);
        assert!(matches!(unnumbered, Err((_, Unfit::NotCarried(_)))));
        let mut ups = 0;
        wait(&mut [&mut a, &mut b], "both", |_, _| {
            ups += 1;
            (ups == 2).then_some(())
        });
        let to_b = a.connect(&b.address()).unwrap();
        a.send(send_of(to_b, tag(40, 7), b"x")).unwrap();
        receive(&mut b, exactly(tag(40, 7)), 1, 1);
        let (envelope, _) = expect(&mut a, &mut b, 1);
        assert_eq!((envelope.tag, envelope.source), (tag(40, 7), early), "{tls}");
        receive(&mut b, pattern_of(7, 0xffff, Some(early)), 1, 2);
        a.send(send_of(to_b, tag(40, 7), b"x")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 2).0.tag, tag(40, 7));
        let (_, unfit) = a.send(send_of(to_b, tag(41, 7), b"x")).unwrap_err();
        assert!(matches!(unfit, Unfit::NotCarried(_)), "{unfit:?}");
        b.send(send_of(PeerId::ONESELF, tag(50, 1), b"x")).unwrap();
        receive(&mut b, exactly(tag(50, 1)), 1, 3);
        assert_eq!(expect(&mut a, &mut b, 3).0.source, PeerId::ONESELF);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_cancel_that_wins_leaves_the_buffer_alone() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        b.receive(exactly(1), Buffer::from(vec![9; 8]), 1).unwrap();
        receive(&mut b, exactly(1), 8, 2);
        assert!(b.cancel(1) && b.cancel(1));
        let (result, buffer) = wait(&mut [&mut b], "the end", |_, event| end_of(event, 1));
        assert_eq!((result, &buffer[..]), (Err(OperationError::Cancelled), &[9; 8][..]), "{tls}");
        assert!(!b.cancel(1) && !b.cancel(99));
        a.send(send_of(to_b, 1, b"message!")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 2).1, b"message!");
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_cancel_that_loses_is_a_normal_completion() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        // A rendezvous that has matched; the sender doesn't look yet.
        let bytes = common::pattern(3, 500_000);
        a.send(synchronous(to_b, 1, &bytes)).unwrap();
        wait_until(&mut [&mut a, &mut b], "it", |both| {
            both[1].probe(exactly(1)).unwrap().is_some()
        });
        receive(&mut b, exactly(1), bytes.len(), 1);
        assert!(!b.cancel(1), "{tls}");
        assert!(expect(&mut a, &mut b, 1).1 == bytes);
        // An eager one that is complete and wasn't reported.
        a.send(send_of(to_b, 2, b"eager")).unwrap();
        wait_until(&mut [&mut a, &mut b], "it", |both| {
            both[1].probe(exactly(2)).unwrap().is_some()
        });
        receive(&mut b, exactly(2), 8, 2);
        assert!(!b.cancel(2));
        assert_eq!(expect(&mut a, &mut b, 2).1, b"eager");
    }
}

/// Lets `b` hold the message with this tag.
fn hold(b: &mut Ucx, tag: u64) -> HeldId {
    let (id, envelope) = b.matched_probe(exactly(tag)).unwrap().unwrap();
    assert_eq!(envelope.tag, tag);
    id
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_held_message_is_found_by_nobody_while_a_peer_comes_up() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        let mut newcomer = ucx(&tls);
        newcomer.connect(&b.address()).unwrap();
        let start = Instant::now();
        let (mut is_up, mut tag) = (false, 0);
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
                assert!(start.elapsed() < common::PATIENCE, "{tls}: waited in vain");
            }
            let held = hold(&mut b, tag);
            assert!(b.probe(exactly(tag)).unwrap().is_none(), "{tls}");
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

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn held_messages_are_received_in_any_order_and_found_by_nobody() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        let lengths = [10, 100_000, 0, 5000];
        for (tag, length) in lengths.iter().enumerate() {
            a.send(send_of(to_b, tag as u64, &common::pattern(tag, *length))).unwrap();
        }
        wait_until(&mut [&mut a, &mut b], "all", |both| {
            both[1].probe(exactly(3)).unwrap().is_some()
        });
        let held: Vec<HeldId> = (0..4).map(|tag| hold(&mut b, tag)).collect();
        assert!(b.probe(pattern_of(0, 0, None)).unwrap().is_none(), "{tls}");
        for tag in [2, 1, 3, 0] {
            let room = lengths[tag] + 5;
            b.receive_held(held[tag], Buffer::zeroed(room), tag as u64).unwrap();
            let (envelope, got) = expect(&mut a, &mut b, tag as u64);
            assert!(got == common::pattern(tag, lengths[tag]) && envelope.source == to_a);
            let (buffer, unfit) = b.receive_held(held[tag], Buffer::zeroed(1), 9).unwrap_err();
            assert_eq!((buffer.len(), unfit), (1, Unfit::NoSuchMessage));
            assert!(!b.discard_held(held[tag]));
        }
        drain(&mut a);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_message_that_is_discarded_releases_its_sender() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        for length in [0, 100, 100_000] {
            a.send(synchronous(to_b, 1, &common::pattern(1, length))).unwrap();
            wait_until(&mut [&mut a, &mut b], "it", |both| {
                both[1].probe(exactly(1)).unwrap().is_some()
            });
            let held = hold(&mut b, 1);
            assert!(b.discard_held(held) && !b.discard_held(held));
            wait(&mut [&mut a, &mut b], "the sender", |index, event| {
                assert_eq!(index, 0, "{event:?}");
                sent_of(event, 1).unwrap().ok()
            });
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_probe_takes_nothing() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        assert!(b.probe(exactly(4)).unwrap().is_none());
        a.send(send_of(to_b, 4, &[1; 50_000])).unwrap();
        wait_until(&mut [&mut a, &mut b], "it", |both| {
            both[1].probe(exactly(4)).unwrap().is_some()
        });
        for _ in 0..3 {
            let envelope = b.probe(pattern_of(4, 0xff, Some(to_a))).unwrap().unwrap();
            assert_eq!(
                (envelope.length, envelope.tag, envelope.source),
                (50_000, 4, to_a),
                "{tls}"
            );
            assert!(b.probe(pattern_of(4, !0, Some(PeerId::ONESELF))).unwrap().is_none());
        }
        receive(&mut b, exactly(4), 50_000, 1);
        let (_, got) =
            wait(&mut [&mut a, &mut b], "it", |i, e| if i == 1 { message_of(e, 1) } else { None });
        assert!(got == [1; 50_000]);
    }
}
