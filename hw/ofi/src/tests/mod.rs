//! What the device makes of what a provider does, over a provider that does what a test says.

#![allow(clippy::cast_possible_truncation, unreachable_pub, reason = "a test that fails loudly")]

mod bench;
mod ends;
mod fake;
mod hostile;
mod nic;
mod writes;

use tagmatch_device::matching::{CompleteWhen, MatchingDevice, OperationError, TagPattern};
use tagmatch_device::{Buffer, PeerId};
use tagmatch_fabric::handshake::{Hello, MeetingHost, Refusal};
use tagmatch_ofi_sys as sys;

use super::carrier::{CqData, Label, Wire};
use super::control::Packet;
use super::provider::Way;
use super::sending::HEAD;
use bench::{Bench, LONG, NUMBER, TAG, head};

#[test]
fn a_message_that_does_not_fit_has_its_full_length_and_its_first_bytes() {
    for data in [CqData::Both, CqData::One] {
        let mut bench = Bench::new(data);
        bench.receive(TAG, 100, 1);
        bench.arrive(bench.peers[0], &head(9), Some(LONG));
        let (length, buffer) = bench.received(1).unwrap();
        assert_eq!((length, &buffer[..]), (Ok(LONG as u64), &[3; 100][..]), "{data:?}");
        // Its sender need not wait for more.
        assert_eq!(bench.take_packets(), [Packet::Ack { send: 9 }], "{data:?}");
    }
    // Here the provider cuts it off, and tells what didn't fit.
    let mut bench = Bench::new(CqData::Sender);
    bench.receive(TAG, 100, 1);
    bench.arrive(bench.peers[0], &[3; 5000], None);
    let (length, buffer) = bench.received(1).unwrap();
    assert_eq!((length, &buffer[..]), (Ok(5000), &[3; 100][..]));
}

#[test]
fn only_a_provider_that_is_true_is_asked_for_levels_of_completion() {
    for until in [CompleteWhen::Matched, CompleteWhen::Delivered] {
        let mut bench = Bench::new(CqData::Both);
        bench.send(bench.peers[0], 10, until, 1);
        assert_eq!(bench.nic().sent[0].flags, 0);
        let send = bench.trailer().send;
        assert_eq!(bench.sent(1), None, "the provider's completion says nothing");
        bench.say(bench.peers[0], Packet::Ack { send });
        assert_eq!(bench.sent(1), Some(Ok(())));

        let mut bench = Bench::new(CqData::Sender);
        bench.nic().keeps_sends = true;
        bench.send(bench.peers[0], 10, until, 1);
        let level = match until {
            CompleteWhen::Matched => sys::FI_MATCH_COMPLETE,
            _ => sys::FI_DELIVERY_COMPLETE,
        };
        assert_eq!(bench.nic().sent[0].flags & level, level);
        assert_eq!(bench.nic().sent[0].bytes.len(), 10);
        assert_eq!(bench.sent(1), None);
        bench.nic().end_sends();
        assert_eq!(bench.sent(1), Some(Ok(())));
    }
}

#[test]
fn a_cancel_that_is_answered_late_tells_what_really_happened() {
    let mut bench = Bench::new(CqData::Sender);
    bench.nic().keeps_cancelled = true;
    bench.receive(TAG, 10, 1);
    bench.receive(5, 10, 2);
    assert!(!bench.ofi.cancel(1) && !bench.ofi.cancel(2));
    assert!(bench.events().is_empty());
    bench.arrive(bench.peers[0], &[3; 10], None);
    let (length, buffer) = bench.received(1).unwrap();
    assert_eq!((length, &buffer[..]), (Ok(10), &[3; 10][..]));
    bench.nic().cancelled(5);
    assert_eq!(bench.received(2).unwrap().0, Err(OperationError::Cancelled));
}

#[test]
fn a_word_of_another_peer_than_the_receiver_ends_that_peer_alone() {
    for length in [10, LONG] {
        let mut bench = Bench::new(CqData::Both);
        let [receiver, other] = bench.peers;
        bench.send(receiver, length, CompleteWhen::Matched, 1);
        let send = bench.trailer().send;
        let go = Packet::Go { send, receive: 4, piece: 4096, end: LONG as u64 };
        bench.say(other, if length == LONG { go } else { Packet::Ack { send } });
        assert_eq!(bench.sent(1), None);
        assert!(bench.is_up(0) && !bench.is_up(1));
        bench.say(receiver, Packet::Ack { send });
        assert_eq!(bench.sent(1), Some(Ok(())));
    }
}

#[test]
fn what_goes_out_has_the_number_that_its_receiver_gave_this_device() {
    for data in [CqData::Both, CqData::One, CqData::Sender] {
        let mut bench = Bench::new(data);
        for peer in bench.peers {
            bench.send(peer, 10, CompleteWhen::Reusable, 1);
            bench.ofi.transport.say(peer, Packet::Ack { send: 1 });
        }
        for (place, gone) in bench.nic().sent.iter().enumerate() {
            let wire = Wire { tag: gone.tag, data: gone.data };
            let number = match place % 2 {
                0 => bench.ofi.transport.carrier.read(wire).number,
                _ => bench.ofi.transport.carrier.control_number(wire),
            };
            assert_eq!((number, gone.to), (NUMBER, 1 + place as u64 / 2), "{data:?}");
        }
        assert_eq!(bench.nic().sent.len(), 4);
    }
}

#[test]
fn a_receive_names_its_sender_in_the_tag_or_beside_it() {
    for data in [CqData::Both, CqData::Sender] {
        let mut bench = Bench::new(data);
        let peer = bench.peers[1];
        for source in [None, Some(peer)] {
            let pattern = TagPattern { tag: TAG, mask: !0, source };
            bench.ofi.receive(pattern, Buffer::zeroed(10), source.is_some().into()).unwrap();
            assert!(bench.ofi.probe(pattern).unwrap().is_none());
            let (asked, look) = {
                let nic = bench.nic();
                (*nic.receives.last().unwrap(), *nic.looks.last().unwrap())
            };
            let beside =
                source.filter(|_| data == CqData::Sender).map_or(sys::FI_ADDR_UNSPEC, |_| 2);
            assert_eq!((asked.from, look.from), (beside, beside), "{data:?}");
            assert_eq!((asked.tag, asked.ignored), (look.tag, look.ignored));
            let message = |peer| bench.wire(peer, Label::default()).tag;
            let matches = |peer| (message(peer) ^ asked.tag) & !asked.ignored == 0;
            let other_too = source.is_none() || data == CqData::Sender;
            assert_eq!((matches(peer), matches(bench.peers[0])), (true, other_too));
        }
    }
}

#[test]
fn a_message_of_no_known_peer_is_nobodys() {
    let mut bench = Bench::new(CqData::Both);
    bench.receive(TAG, 10, 1);
    bench.arrive(PeerId(40), &[3; 10], None);
    let failed = OperationError::Failed { status: sys::FI_EINVAL };
    assert_eq!(bench.received(1).unwrap().0, Err(failed));
    // Nor one whose way was not made.
    bench.ofi.transport.core.meeting.peers.find_mut(bench.peers[0]).unwrap().link.address = None;
    bench.receive(TAG, 10, 2);
    bench.arrive(bench.peers[0], &[3; 10], None);
    assert_eq!(bench.received(2).unwrap().0, Err(failed));
}

#[test]
fn a_head_without_its_trailer_ends_its_sender() {
    for (bytes, length) in [
        (head(9)[..HEAD].to_vec(), LONG),
        (head(9)[16..].to_vec(), LONG),
        (head(9), 100),
        (vec![0; HEAD + 16], LONG),
        (vec![0; 3], 3),
    ] {
        let mut bench = Bench::new(CqData::Both);
        bench.receive(TAG, LONG, 1);
        bench.arrive(bench.peers[0], &bytes, Some(length));
        let down = Err(OperationError::PeerDown(bench.peers[0]));
        assert_eq!(bench.received(1).unwrap().0, down, "{} {length}", bytes.len());
        assert!(!bench.is_up(0) && bench.is_up(1));
    }
}

#[test]
fn a_piece_that_is_too_short_ends_its_sender_and_the_receive() {
    let mut bench = Bench::new(CqData::Both);
    bench.receive(TAG, LONG, 1);
    bench.arrive(bench.peers[0], &head(9), Some(LONG));
    assert!(bench.received(1).is_none());
    let Some(Packet::Go { receive, .. }) = bench.take_packets().pop() else { panic!("no go") };
    let tag = bench.ofi.transport.carrier.piece_tag(receive);
    bench.nic().arrive(tag, 0, &[4; 4095]);
    let down = Err(OperationError::PeerDown(bench.peers[0]));
    assert_eq!(bench.received(1).unwrap().0, down);
    assert!(!bench.is_up(0) && bench.is_up(1));
}

#[test]
fn a_peer_that_carries_tags_otherwise_is_refused() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    let carriage = bench.ofi.transport.carrier.fingerprint();
    let mut adopt = |carriage, provider: &str, names: [&[u8]; 2]| {
        let worker = Way { carriage, provider, names }.emit();
        let address = bench.ofi.transport.core.meeting.address;
        let hello = Hello { address, used: 0, source: 0, own_source: None, number: 0, worker };
        bench.ofi.transport.adopt(peer, &hello)
    };
    assert_eq!(adopt(carriage, "fake", [b"name", b""]), Ok(()));
    assert_eq!(adopt(carriage, "other", [b"name", b""]), Err(Refusal::NoTransport));
    assert_eq!(adopt([carriage[0], 4], "fake", [b"name", b""]), Err(Refusal::Layout));
    assert_eq!(adopt([60, carriage[1]], "fake", [b"name", b""]), Err(Refusal::Layout));
    // The provider reads as many bytes as its names have.
    assert_eq!(adopt(carriage, "fake", [b"nam", b""]), Err(Refusal::Invalid));
    assert_eq!(adopt(carriage, "fake", [b"name", b"name"]), Err(Refusal::Invalid));
}

#[test]
fn a_go_that_asks_for_more_than_there_is_ends_its_sender() {
    let end = LONG as u64;
    for (piece, end) in [(4096, end + 1), (4097, end), (0, end), (4096, HEAD as u64)] {
        let mut bench = Bench::new(CqData::Both);
        bench.send(bench.peers[0], LONG, CompleteWhen::Reusable, 1);
        let send = bench.trailer().send;
        bench.nic().sent.clear();
        bench.say(bench.peers[0], Packet::Go { send, receive: 4, piece, end });
        assert!(bench.sent(1).is_some_and(|result| result.is_err()), "{piece} {end}");
        assert!(bench.nic().sent.is_empty() && !bench.is_up(0), "{piece} {end}");
    }
}

#[test]
fn a_long_message_goes_in_pieces_into_its_receive() {
    let mut bench = Bench::new(CqData::Both);
    bench.send(bench.peers[0], LONG, CompleteWhen::Reusable, 1);
    let send = bench.trailer().send;
    bench.nic().sent.clear();
    let go = Packet::Go { send, receive: 4, piece: 4000, end: LONG as u64 };
    bench.say(bench.peers[0], go);
    assert_eq!(bench.sent(1), Some(Ok(())));
    let lengths: Vec<usize> = bench.nic().sent.iter().map(|gone| gone.bytes.len()).collect();
    assert_eq!(lengths, [4000, 4000, LONG - HEAD - 8000]);
    let tag = bench.ofi.transport.carrier.piece_tag(4);
    assert!(bench.nic().sent.iter().all(|gone| (gone.to, gone.tag) == (1, tag)));

    bench.nic().sent.clear();
    bench.receive(TAG, LONG, 2);
    bench.arrive(bench.peers[0], &head(9), Some(LONG));
    assert!(bench.received(2).is_none());
    let Some(Packet::Go { send: 9, receive, piece: 4096, end }) = bench.take_packets().pop() else {
        panic!("no go")
    };
    assert_eq!(end, LONG as u64);
    let tag = bench.ofi.transport.carrier.piece_tag(receive);
    for (length, byte) in [(4096, 4), (4096, 5), (LONG - HEAD - 8192, 6)] {
        bench.nic().arrive(tag, 0, &vec![byte; length]);
    }
    let (length, buffer) = bench.received(2).unwrap();
    assert_eq!(length, Ok(LONG as u64));
    let places = [0, HEAD, HEAD + 4096, LONG - 1].map(|place| buffer[place]);
    assert_eq!(places, [3, 4, 5, 6]);
}

#[test]
fn a_message_that_a_probe_took_is_given_back_when_it_is_dropped() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    let length = Some(LONG as u32);
    let wire = bench.wire(peer, Label { length, has_trailer: true, ..Label::default() });
    bench.nic().waiting = Some((wire.tag, wire.data, HEAD + 16));
    let pattern = TagPattern { tag: TAG, mask: !0, source: None };
    let (held, envelope) = bench.ofi.matched_probe(pattern).unwrap().unwrap();
    assert_eq!((envelope.source, envelope.length), (peer, LONG as u64));
    let claims: Vec<u64> = bench.nic().looks.iter().map(|look| look.flags).collect();
    assert_eq!(claims, [sys::FI_PEEK, sys::FI_PEEK | sys::FI_CLAIM]);
    assert!(bench.ofi.discard_held(held) && !bench.ofi.discard_held(held));
    let claimed = bench.nic().receives.last().copied().unwrap();
    assert_eq!((claimed.tag, claimed.flags), (wire.tag, sys::FI_CLAIM));
    bench.nic().arrive(wire.tag, wire.data, &head(9));
    assert!(bench.events().is_empty());
    // Its sender learns that it was matched.
    assert_eq!(bench.take_packets(), [Packet::Ack { send: 9 }]);
}

#[test]
fn what_waits_for_room_is_not_overtaken() {
    let mut bench = Bench::new(CqData::Both);
    let posted = bench.nic().receives.len();
    bench.nic().is_full = true;
    bench.receive(1, 10, 1);
    bench.send(bench.peers[0], 1, CompleteWhen::Reusable, 1);
    bench.nic().is_full = false;
    // Nor by a look, which may find a message for it.
    bench.nic().waiting = None;
    bench.receive(2, 10, 2);
    bench.send(bench.peers[0], 2, CompleteWhen::Reusable, 2);
    bench.events();
    bench.receive(3, 10, 3);
    bench.send(bench.peers[0], 3, CompleteWhen::Reusable, 3);
    let tags: Vec<u64> = bench.nic().receives[posted..].iter().map(|asked| asked.tag).collect();
    assert_eq!(tags, [1, 2, 3]);
    let lengths: Vec<usize> = bench.nic().sent.iter().map(|gone| gone.bytes.len()).collect();
    assert_eq!(lengths, [1, 2, 3]);
}

#[test]
fn a_look_waits_for_receives_that_were_posted_before_it() {
    let mut bench = Bench::new(CqData::Both);
    let wire = bench.wire(bench.peers[0], Label::default());
    bench.nic().waiting = Some((wire.tag, wire.data, 1));
    bench.nic().is_full = true;
    bench.receive(TAG, 10, 1);
    let pattern = TagPattern { tag: TAG, mask: !0, source: None };
    assert!(bench.ofi.probe(pattern).unwrap().is_none());
    assert!(bench.nic().looks.is_empty());
    bench.nic().is_full = false;
    assert!(bench.ofi.probe(pattern).unwrap().is_some());
    assert_eq!(bench.nic().receives.last().unwrap().tag, TAG);
}

/// A bench over a NIC, whose first peer isn't there yet; and the tags of the receives that the NIC
/// has got since.
fn without_its_first_peer() -> (Bench, impl Fn(&Bench) -> Vec<u64>) {
    let mut bench = Bench::new(CqData::Sender);
    bench.ofi.transport.core.meeting.peers.find_mut(bench.peers[0]).unwrap().link.address = None;
    let before = bench.nic().receives.len();
    let posted =
        move |bench: &Bench| bench.nic().receives[before..].iter().map(|asked| asked.tag).collect();
    (bench, posted)
}

fn receive_from(bench: &mut Bench, source: Option<PeerId>, tag: u64) {
    let pattern = TagPattern { tag, mask: !0, source };
    bench.ofi.receive(pattern, Buffer::zeroed(10), tag).unwrap();
}

#[test]
fn a_receive_that_names_a_peer_before_it_is_there_is_overtaken_by_no_wildcard() {
    let (mut bench, posted) = without_its_first_peer();
    let [late, other] = bench.peers;
    receive_from(&mut bench, Some(late), 1);
    receive_from(&mut bench, Some(other), 2);
    assert_eq!(posted(&bench), [2]);
    receive_from(&mut bench, None, 3);
    receive_from(&mut bench, Some(other), 4);
    bench.events();
    assert_eq!(posted(&bench), [2]);
    // A message that the third one may get is found by no look.
    let wire = bench.wire(other, Label { tag: 3, ..Label::default() });
    bench.nic().waiting = Some((wire.tag, wire.data, 1));
    let third = TagPattern { tag: 3, mask: !0, source: None };
    assert!(bench.ofi.probe(third).unwrap().is_none());
    bench.ofi.transport.core.meeting.peers.find_mut(late).unwrap().link.address = Some(1);
    bench.ofi.transport.post_early();
    assert_eq!(posted(&bench), [2, 1, 3, 4]);
    let from: Vec<_> = bench.nic().receives.iter().rev().take(3).map(|asked| asked.from).collect();
    assert_eq!(from, [2, sys::FI_ADDR_UNSPEC, 1]);
    assert!(bench.ofi.probe(third).unwrap().is_some());
}

#[test]
fn what_waits_behind_a_receive_for_a_peer_goes_on_when_that_receive_ends() {
    for dies in [false, true] {
        let (mut bench, posted) = without_its_first_peer();
        let [late, other] = bench.peers;
        receive_from(&mut bench, Some(late), 1);
        receive_from(&mut bench, None, 2);
        receive_from(&mut bench, Some(other), 3);
        let ended = if dies {
            tagmatch_fabric::handshake::break_with(
                &mut bench.ofi.transport,
                late,
                tagmatch_device::DownReason::Gone,
            );
            OperationError::PeerDown(late)
        } else {
            assert!(bench.ofi.cancel(1));
            OperationError::Cancelled
        };
        assert_eq!(bench.received(1).unwrap().0, Err(ended), "{dies}");
        assert_eq!(posted(&bench), [2, 3], "{dies}");
    }
}

#[test]
fn a_look_for_messages_of_a_peer_that_is_not_there_finds_none() {
    let (mut bench, _) = without_its_first_peer();
    let wire = bench.wire(bench.peers[1], Label::default());
    bench.nic().waiting = Some((wire.tag, wire.data, 1));
    let pattern = TagPattern { tag: TAG, mask: !0, source: Some(bench.peers[0]) };
    assert_eq!(bench.ofi.probe(pattern).unwrap(), None);
    assert!(bench.nic().looks.is_empty());
}
