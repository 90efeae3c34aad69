//! When operations end, what is given back then, and what a peer's end does to them.

use std::ptr::NonNull;
use std::time::Instant;

use tagmatch_device::matching::{
    CompleteWhen, MatchingDevice, MatchingEvent, OperationError, TagPattern, TagSend,
};
use tagmatch_device::{Buffer, DownReason, Flush};
use tagmatch_fabric::handshake::{MeetingHost, break_with};

use super::super::carrier::{CqData, Label};
use super::super::control::{NOBODY, Packet, Trailer};
use super::super::endpoint::Lane;
use super::super::operations::Kind;
use super::super::sending::HEAD;
use super::bench::{Bench, LONG, TAG, head, plain};

#[test]
fn a_buffer_that_libfabric_still_has_stays_with_the_device() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    bench.nic().keeps_sends = true;
    bench.send(peer, LONG, CompleteWhen::Reusable, 1);
    let send = bench.trailer().send;
    bench.say(peer, Packet::Go { send, receive: 4, piece: 4096, end: LONG as u64 });
    assert_eq!(bench.sent(1), None);
    assert_eq!(bench.nic().sent.len(), 4, "the head, and three pieces");
    break_with(&mut bench.ofi.transport, peer, DownReason::Gone);
    let (buffer, result) = bench.wait(|event| match event {
        MatchingEvent::Sent { token: 1, buffer, result } => Some((buffer, result)),
        _ => None,
    });
    assert_eq!((buffer.len(), result), (0, Err(OperationError::PeerDown(peer))));
    // Also once it has given some of it back.
    let kept =
        |bench: &Bench| bench.ofi.transport.core.operations.iter().any(|is| is.kind == Kind::Send);
    for place in 0..4 {
        assert!(kept(&bench), "{place}");
        bench.nic().end_send(place);
        bench.events();
    }
    assert!(!kept(&bench));
}

#[test]
fn a_receive_that_names_a_peer_ends_with_it() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    for (source, token) in [(Some(peer), 1), (None, 2), (Some(bench.peers[1]), 3)] {
        let pattern = TagPattern { tag: TAG, mask: !0, source };
        bench.ofi.receive(pattern, Buffer::zeroed(10), token).unwrap();
    }
    let posted = bench.nic().receives.len();
    break_with(&mut bench.ofi.transport, peer, DownReason::Gone);
    let mut ended = Vec::new();
    bench.wait(|event| match event {
        MatchingEvent::Received { token, buffer, result } => {
            ended.push((token, buffer.len(), result.unwrap_err()));
            None
        }
        MatchingEvent::PeerDown { .. } => Some(()),
        _ => None,
    });
    assert_eq!(ended, [(1, 10, OperationError::PeerDown(peer))]);
    assert_eq!(bench.nic().receives.len(), posted - 1, "a message would be lost in it");
    bench.arrive(bench.peers[1], &[3; 10], None);
    assert_eq!(bench.received(2).unwrap().0, Ok(10));
}

/// `cxi` receives into the caller's memory.
#[test]
fn memory_that_was_lent_for_a_receive_comes_back_when_the_nic_has_let_go() {
    let mut bench = Bench::new(CqData::Sender);
    let peer = bench.peers[0];
    bench.nic().keeps_cancelled = true;
    let mut lent = vec![5u8; 10];
    let start = NonNull::new(lent.as_mut_ptr()).unwrap();
    // SAFETY: the memory lives until the receive has ended, and nobody looks at it before.
    let buffer = unsafe { Buffer::from_raw(start, 10, true) };
    let pattern = TagPattern { tag: TAG, mask: !0, source: Some(peer) };
    bench.ofi.receive(pattern, buffer, 1).unwrap();
    bench.ofi.receive(pattern, Buffer::zeroed(10), 2).unwrap();
    break_with(&mut bench.ofi.transport, peer, DownReason::Gone);
    let mut ended = Vec::new();
    let mut note = |event| match event {
        MatchingEvent::Received { token, buffer, result } => {
            assert_eq!(result, Err(OperationError::PeerDown(peer)));
            ended.push((token, buffer.len()));
            Some(token)
        }
        other => panic!("{other:?}"),
    };
    // A vector stays with the device.
    assert_eq!(bench.wait(&mut note), 2);
    assert!(bench.events().is_empty());
    bench.nic().cancelled(TAG);
    assert_eq!(bench.wait(&mut note), 1);
    assert_eq!(ended, [(2, 0), (1, 10)]);
    assert!(bench.events().into_iter().any(|is| matches!(is, MatchingEvent::PeerDown { .. })));
}

#[test]
fn lent_memory_never_goes_to_libfabric() {
    let mut bench = Bench::new(CqData::Both);
    let mut lent = vec![5u8; LONG];
    let start = NonNull::new(lent.as_mut_ptr()).unwrap();
    for length in [10, LONG] {
        // SAFETY: the memory lives until the send has ended, and nobody looks at it before.
        let buffer = unsafe { Buffer::from_raw(start, length, true) };
        bench.send_buffer(bench.peers[0], buffer, plain());
        if length == LONG {
            let send = bench.trailer().send;
            let go = Packet::Go { send, receive: 4, piece: 4096, end: LONG as u64 };
            bench.say(bench.peers[0], go);
        }
        assert_eq!(bench.sent(1), Some(Ok(())));
    }
    let all = lent.as_ptr_range();
    assert!(bench.nic().sent.iter().all(|gone| !all.contains(&gone.start)));
    assert_eq!(bench.nic().sent.len(), 5);
}

#[test]
fn a_delivered_message_ends_when_its_last_byte_has_come() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    bench.send(peer, LONG, CompleteWhen::Delivered, 1);
    let trailer = bench.trailer();
    assert!(trailer.wants_delivery);
    let send = trailer.send;
    bench.say(peer, Packet::Go { send, receive: 4, piece: 4096, end: LONG as u64 });
    assert_eq!(bench.sent(1), None);
    assert_eq!(bench.nic().sent.len(), 4, "all pieces have gone");
    bench.say(peer, Packet::Ack { send });
    assert_eq!(bench.sent(1), Some(Ok(())));

    bench.nic().sent.clear();
    bench.receive(TAG, LONG, 2);
    let wants =
        Trailer { send: 9, immediate: 0, piece_max: 20_000, wants_delivery: true, writes: false };
    let bytes = [&[3; HEAD][..], &wants.emit()].concat();
    bench.arrive(peer, &bytes, Some(LONG));
    assert!(bench.received(2).is_none());
    let Some(Packet::Go { receive, piece: 4096, .. }) = bench.take_packets().pop() else {
        panic!("no go")
    };
    let tag = bench.ofi.transport.carrier.piece_tag(receive);
    bench.nic().arrive(tag, 0, &[4; 4096]);
    bench.nic().arrive(tag, 0, &[4; 4096]);
    assert!(bench.received(2).is_none() && bench.take_packets().is_empty());
    bench.nic().arrive(tag, 0, &vec![4; LONG - HEAD - 8192]);
    assert_eq!(bench.received(2).unwrap().0, Ok(LONG as u64));
    assert_eq!(bench.take_packets(), [Packet::Ack { send: 9 }]);
}

/// Where the data beside a tag has room for one number, the trailer has the other.
#[test]
fn immediate_data_and_lengths_are_told_on_every_path() {
    for data in [CqData::Both, CqData::One] {
        let mut bench = Bench::new(data);
        let peer = bench.peers[0];
        bench.receive(TAG, 100, 1);
        let immediate = Some(7);
        let length = Some(LONG as u32);
        let label = Label { immediate, length, has_trailer: true, ..Label::default() };
        let wire = bench.wire(peer, label);
        let trailer =
            Trailer { send: 9, immediate: 7, piece_max: 4096, wants_delivery: false, writes: true };
        let bytes = [&head(9)[..HEAD], &trailer.emit()].concat();
        bench.nic().arrive(wire.tag, wire.data, &bytes);
        let envelope = bench.wait(|event| match event {
            MatchingEvent::Received { token: 1, result, .. } => result.ok(),
            _ => None,
        });
        assert_eq!((envelope.immediate, envelope.length), (Some(7), LONG as u64), "{data:?}");

        bench.send_buffer(peer, vec![1; 10].into(), TagSend { immediate: Some(8), ..plain() });
        let label = {
            let sent = bench.nic().sent.last().cloned().unwrap();
            bench.ofi.transport.carrier.read(super::Wire { tag: sent.tag, data: sent.data })
        };
        match data {
            CqData::One => {
                let trailer = bench.trailer();
                assert_eq!((trailer.immediate, trailer.send), (8, NOBODY));
                assert_eq!((label.has_trailer, label.length), (true, Some(10)));
            }
            _ => assert_eq!((label.has_trailer, label.immediate), (false, Some(8))),
        }
        // Nobody answers it.
        assert_eq!(bench.sent(1), Some(Ok(())));
    }
}

#[test]
fn a_peer_is_flushed_once_a_mark_behind_its_last_message_has_gone() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    bench.send(peer, 10, CompleteWhen::Reusable, 1);
    assert_eq!(bench.sent(1), Some(Ok(())));
    bench.nic().keeps_sends = true;
    bench.nic().sent.clear();
    let is_pending = |bench: &mut Bench| matches!(bench.ofi.flush(peer), Flush::Pending { .. });
    assert!(is_pending(&mut bench));
    bench.send(peer, 10, CompleteWhen::Reusable, 2);
    // The mark, which stands before the second message.
    bench.nic().end_send(0);
    bench.nic().end_send(1);
    assert_eq!(bench.sent(2), Some(Ok(())));
    assert!(is_pending(&mut bench));
    assert_eq!(bench.take_packets(), [Packet::Mark { lane: Lane::Messages }; 2]);
}

#[test]
fn packets_are_received_for_ever() {
    let mut bench = Bench::new(CqData::Both);
    for token in 0..100 {
        bench.send(bench.peers[0], 10, CompleteWhen::Matched, token);
        let send = bench.trailer().send;
        bench.say(bench.peers[0], Packet::Ack { send });
        assert_eq!(bench.sent(token), Some(Ok(())));
    }
}

#[test]
fn a_copied_message_does_not_overtake_one_that_waits() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    bench.ofi.transport.provider.inject_max = 64;
    bench.nic().is_full = true;
    bench.send(peer, 10, CompleteWhen::Reusable, 1);
    bench.nic().is_full = false;
    assert_eq!(bench.ofi.inject(peer, TAG, None, b"later"), Ok(false));
    // That one goes alone.
    assert_eq!(bench.ofi.inject(bench.peers[1], TAG, None, b"other"), Ok(true));
    assert_eq!(bench.sent(1), Some(Ok(())));
    assert_eq!(bench.ofi.inject(peer, TAG, None, b"later"), Ok(true));
    let lengths: Vec<usize> = bench.nic().sent.iter().map(|gone| gone.bytes.len()).collect();
    assert_eq!(lengths, [5, 10, 5]);
}

#[test]
fn a_peer_that_the_provider_does_not_reach_in_time_is_reported_once() {
    let mut bench = Bench::new(CqData::Both);
    let [late, other] = bench.peers;
    bench.ofi.transport.tell(MatchingEvent::PeerUp { peer: late });
    bench.ofi.transport.tell(MatchingEvent::PeerUp { peer: other });
    bench.ofi.transport.rise(other);
    let now = Instant::now();
    assert!(bench.ofi.transport.take_late(now).is_empty());
    let timeout = bench.ofi.transport.core.meeting.connect_timeout;
    assert_eq!(bench.ofi.transport.take_late(now + timeout), [late]);
    assert!(bench.ofi.transport.take_late(now + 2 * timeout).is_empty());
}
