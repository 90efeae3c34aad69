//! Long messages whose rest the sender writes into the receiver's buffer.

use std::ptr::NonNull;

use tagmatch_device::matching::{
    CompleteWhen, MatchingDevice, MatchingEvent, OperationError, TagPattern,
};
use tagmatch_device::{Buffer, DownReason};
use tagmatch_fabric::handshake::break_with;

use super::super::carrier::CqData;
use super::super::control::{Packet, Trailer};
use super::super::operations::WRITTEN_MAX;
use super::super::rma::Target;
use super::super::sending::HEAD;
use super::bench::{Bench, LONG, TAG, head, plain};

const TARGET: Target = Target { key: 99, address: 1 << 20 };

/// Posts a receive for a long message, whose head arrives; gives the answer.
fn begun(bench: &mut Bench, token: u64) -> (u32, Target) {
    bench.receive(TAG, LONG, token);
    bench.arrive(bench.peers[0], &head(9), Some(LONG));
    assert!(bench.received(token).is_none());
    match bench.take_packets()[..] {
        [Packet::WriteTo { send: 9, receive, end, target }] if end == LONG as u32 => {
            (receive, target)
        }
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn the_rest_is_written_and_then_said_to_be() {
    for until in [CompleteWhen::Reusable, CompleteWhen::Delivered] {
        let mut bench = Bench::writing();
        let peer = bench.peers[0];
        bench.send(peer, LONG, until, 1);
        let Trailer { send, writes: true, .. } = bench.trailer() else { panic!("it can write") };
        bench.nic().sent.clear();
        bench.nic().keeps_sends = true;
        bench.say(peer, Packet::WriteTo { send, receive: 4, end: LONG as u32, target: TARGET });
        assert_eq!(bench.sent(1), None);
        let written = bench.nic().sent.clone();
        let [part] = &written[..] else { panic!("{written:?}") };
        assert_eq!((part.tag, part.data), (TARGET.key, TARGET.address + HEAD as u64));
        assert_eq!(part.bytes, vec![1; LONG - HEAD]);
        bench.nic().end_sends();
        let sent = bench.sent(1);
        assert_eq!(bench.take_packets(), [Packet::Written { receive: 4 }]);
        if until == CompleteWhen::Delivered {
            assert_eq!(sent, None);
            bench.say(peer, Packet::Ack { send });
            assert_eq!(bench.sent(1), Some(Ok(())));
        } else {
            assert_eq!(sent, Some(Ok(())));
        }
    }
}

#[test]
fn what_could_not_be_written_is_not_said_to_be() {
    let mut bench = Bench::writing();
    let peer = bench.peers[0];
    bench.send(peer, LONG, CompleteWhen::Reusable, 1);
    let send = bench.trailer().send;
    bench.nic().sent.clear();
    bench.nic().keeps_sends = true;
    bench.say(peer, Packet::WriteTo { send, receive: 4, end: LONG as u32, target: TARGET });
    assert_eq!(bench.sent(1), None);
    bench.nic().fail_send(0);
    assert_eq!(bench.sent(1), Some(Err(OperationError::PeerDown(peer))));
    assert!(!bench.is_up(0) && !bench.take_packets().contains(&Packet::Written { receive: 4 }));
}

#[test]
fn no_write_is_longer_than_a_nic_can_do() {
    let mut bench = Bench::writing();
    let length = 20 << 20;
    bench.send(bench.peers[0], length, CompleteWhen::Reusable, 1);
    let send = bench.trailer().send;
    bench.nic().sent.clear();
    let end = u32::try_from(length).unwrap();
    bench.say(bench.peers[0], Packet::WriteTo { send, receive: 4, end, target: TARGET });
    assert_eq!(bench.sent(1), Some(Ok(())));
    let parts: Vec<usize> = bench.nic().sent.iter().map(|part| part.bytes.len()).collect();
    let (_, writes) = parts.split_last().unwrap();
    assert_eq!(writes.iter().sum::<usize>(), length - HEAD);
    assert!(writes.iter().all(|bytes| *bytes <= 8 << 20));
}

#[test]
fn lent_memory_is_written_out_of_memory_of_the_devices_own() {
    let mut bench = Bench::writing();
    let peer = bench.peers[0];
    let mut lent = vec![5u8; 200_000];
    let start = NonNull::new(lent.as_mut_ptr()).unwrap();
    // SAFETY: the memory lives until the send has ended, and nobody looks at it before.
    let buffer = unsafe { Buffer::from_raw(start, lent.len(), true) };
    bench.send_buffer(peer, buffer, plain());
    let send = bench.trailer().send;
    bench.nic().sent.clear();
    bench.say(peer, Packet::WriteTo { send, receive: 4, end: 200_000, target: TARGET });
    assert_eq!(bench.sent(1), Some(Ok(())));
    let written = bench.nic().sent.clone();
    let all = lent.as_ptr_range();
    let mut place = HEAD;
    for part in &written[..written.len() - 1] {
        assert_eq!(part.data, TARGET.address + place as u64);
        assert!(!all.contains(&part.start) && part.bytes.iter().all(|byte| *byte == 5));
        place += part.bytes.len();
    }
    assert_eq!(place, 200_000);
    assert_eq!(bench.take_packets(), [Packet::Written { receive: 4 }]);
}

#[test]
fn a_buffer_is_registered_until_its_writer_has_done() {
    let mut bench = Bench::writing();
    let (receive, target) = begun(&mut bench, 1);
    assert_eq!((bench.nic().registered.len(), target.address), (1, 0));
    bench.nic().write(target.key, HEAD as u64, &vec![4; LONG - HEAD]);
    bench.say(bench.peers[0], Packet::Written { receive });
    let (result, buffer) = bench.received(1).unwrap();
    assert_eq!(result, Ok(LONG as u64));
    assert!(buffer[..HEAD] == [3; HEAD] && buffer[HEAD..].iter().all(|byte| *byte == 4));
    assert!(bench.nic().registered.is_empty() && bench.take_packets().is_empty());
}

#[test]
fn the_sender_hears_of_delivery_when_all_is_written() {
    let mut bench = Bench::writing();
    bench.receive(TAG, LONG, 1);
    let piece_max = 4096;
    let immediate = 0;
    let trailer = Trailer { send: 9, immediate, piece_max, wants_delivery: true, writes: true };
    let bytes = [&[3; HEAD][..], &trailer.emit()].concat();
    bench.arrive(bench.peers[0], &bytes, Some(LONG));
    assert!(bench.received(1).is_none());
    let Some(Packet::WriteTo { receive, .. }) = bench.take_packets().pop() else {
        panic!("no answer")
    };
    bench.say(bench.peers[0], Packet::Written { receive });
    assert!(bench.received(1).is_some());
    assert_eq!(bench.take_packets(), [Packet::Ack { send: 9 }]);
}

#[test]
fn only_what_has_room_is_written() {
    let mut bench = Bench::writing();
    bench.receive(TAG, 9000, 1);
    bench.arrive(bench.peers[0], &head(9), Some(LONG));
    assert!(bench.received(1).is_none());
    assert_eq!(bench.nic().registered[0].2, 9000);
    assert!(matches!(bench.take_packets()[..], [Packet::WriteTo { end: 9000, .. }]));
}

#[test]
fn keys_are_of_one_message() {
    let mut bench = Bench::writing();
    let first = begun(&mut bench, 1).1;
    let second = begun(&mut bench, 2).1;
    assert!(first.key != second.key && first.key > u64::from(u32::MAX));
}

/// A receive into memory that is lent, whose head arrives.
fn begun_into_lent(bench: &mut Bench, lent: &mut [u8]) -> Vec<Packet> {
    let start = NonNull::from(&mut *lent).cast();
    // SAFETY: by the callers, the memory lives until the receive has ended, and nobody looks at it
    // before.
    let buffer = unsafe { Buffer::from_raw(start, lent.len(), true) };
    bench.ofi.receive(TagPattern { tag: TAG, mask: !0, source: None }, buffer, 1).unwrap();
    bench.arrive(bench.peers[0], &head(9), Some(lent.len()));
    assert!(bench.received(1).is_none());
    bench.take_packets()
}

#[test]
fn into_lent_memory_a_message_passes_through_memory_of_the_devices_own() {
    for is_written in [true, false] {
        let mut bench = Bench::writing();
        let mut lent = vec![0u8; LONG];
        let packets = begun_into_lent(&mut bench, &mut lent);
        let [Packet::WriteTo { receive, target, .. }] = packets[..] else { panic!("{packets:?}") };
        assert!(!lent.as_ptr_range().contains(&bench.nic().registered[0].1.cast_const()));
        let peer = bench.peers[0];
        if is_written {
            bench.nic().write(target.key, HEAD as u64, &vec![4; LONG - HEAD]);
            bench.say(peer, Packet::Written { receive });
        } else {
            break_with(&mut bench.ofi.transport, peer, DownReason::Gone);
        }
        let (buffer, result) = bench.wait(|event| match event {
            MatchingEvent::Received { token: 1, buffer, result } => Some((buffer, result)),
            _ => None,
        });
        assert!(std::ptr::eq(buffer.as_ptr(), lent.as_ptr()) && result.is_ok() == is_written);
        assert!(lent[..HEAD] == [3; HEAD] && bench.nic().registered.is_empty());
        assert!(lent[HEAD..].iter().all(|byte| *byte == if is_written { 4 } else { 0 }));
    }
}

#[test]
fn pieces_come_into_long_memory_that_is_lent_and_where_nobody_can_write() {
    let mut bench = Bench::writing();
    let mut lent = vec![0; WRITTEN_MAX + 1];
    let packets = begun_into_lent(&mut bench, &mut lent);
    assert!(matches!(packets[..], [Packet::Go { .. }]) && bench.nic().registered.is_empty());
    break_with(&mut bench.ofi.transport, bench.peers[0], DownReason::Gone);
    bench.wait(|event| matches!(event, MatchingEvent::Received { .. }).then_some(()));

    let mut bench = Bench::new(CqData::Both);
    bench.receive(TAG, LONG, 1);
    bench.arrive(bench.peers[0], &head(9), Some(LONG));
    assert!(bench.received(1).is_none());
    assert!(matches!(bench.take_packets()[..], [Packet::Go { .. }]));
}

#[test]
fn a_buffer_that_a_peer_was_writing_to_stays_with_the_device() {
    let mut bench = Bench::writing();
    let peer = bench.peers[0];
    let (receive, _) = begun(&mut bench, 1);
    let memory = bench.nic().registered[0].1;
    break_with(&mut bench.ofi.transport, peer, DownReason::Gone);
    let ended = bench.wait(|event| match event {
        MatchingEvent::Received { token: 1, buffer, result } => Some((buffer.len(), result)),
        _ => None,
    });
    assert_eq!(ended, (0, Err(OperationError::PeerDown(peer))));
    assert!(bench.nic().registered.is_empty());
    bench.say(peer, Packet::Written { receive });
    assert!(bench.events().iter().all(|event| !matches!(event, MatchingEvent::Received { .. })));
    let has_it = |buffer: &Buffer| std::ptr::eq(buffer.as_ptr(), memory);
    assert!(bench.ofi.transport.core.operations.iter().any(|operation| has_it(&operation.buffer)));
}

#[test]
fn nobody_but_its_sender_ends_a_message_that_is_written() {
    let written = |receive| Packet::Written { receive };
    let write = |send| Packet::WriteTo { send, receive: 4, end: 9000, target: TARGET };
    for packet in [&written as &dyn Fn(u32) -> Packet, &write] {
        let mut bench = Bench::writing();
        let (receive, _) = begun(&mut bench, 1);
        bench.say(bench.peers[1], packet(receive));
        assert!(bench.received(1).is_none());
        assert!(bench.is_up(0) && !bench.is_up(1));
    }
}

#[test]
fn who_cant_write_is_not_asked_to() {
    let mut bench = Bench::new(CqData::Both);
    let peer = bench.peers[0];
    bench.send(peer, LONG, CompleteWhen::Reusable, 1);
    let Trailer { send, writes: false, .. } = bench.trailer() else { panic!("it can't write") };
    bench.say(peer, Packet::WriteTo { send, receive: 4, end: LONG as u32, target: TARGET });
    bench.events();
    assert!(!bench.is_up(0));
}
