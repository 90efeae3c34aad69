//! The protocol between engines on a network of queues: each mode, size and fault.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod wire;

use tagmatch_device::{Buffer, DownReason, PeerId, RemoteSpan};
use tagmatch_fallback::wire::{AppCtx, Control, MessageKind, Opcode, Rendezvous, Tmh, WireError};
use tagmatch_fallback::{
    Completion, EngineConfig, Fault, MatchEngine, PeerFault, Refused, RequestId, Send, SendMode,
    Started, Status,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Node, config, forge, kill, meet, nodes, settle};

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn anything() -> Pattern {
    Pattern::new(Tag(0), TagMask::ANY)
}

fn pattern_of(tag: u64, peer: PeerId) -> Pattern {
    exact(tag).from_source(SourceId(peer.0))
}

fn pending(started: impl Into<Started>) -> RequestId {
    match started.into() {
        Started::Pending(request) => request,
        over => panic!("over at once: {over:?}"),
    }
}

fn finished(node: &mut Node, started: impl Into<Started>) -> Completion {
    match started.into() {
        Started::Pending(request) => node.requests_mut().take(request).expect("still under way"),
        Started::Refused(refused) => {
            let Refused { fault, buffer } = *refused;
            Completion { result: Err(fault), buffer }
        }
        // The owner of a send knows its envelope.
        Started::Sent(buffer) => {
            let source = PeerId(u32::MAX);
            let length = buffer.len() as u64;
            let status = Status { source, tag: Tag(0), length, truncated: false, immediate: None };
            Completion { result: Ok(status), buffer }
        }
    }
}

fn ok(node: &mut Node, started: impl Into<Started>) -> (Status, Vec<u8>) {
    let Completion { result, buffer } = finished(node, started);
    (result.unwrap(), buffer.into_vec())
}

fn fault(node: &mut Node, started: impl Into<Started>) -> Fault {
    finished(node, started).result.unwrap_err()
}

fn payload(length: usize) -> Buffer {
    (0..length).map(|i| (i * 7 + length) as u8).collect::<Vec<u8>>().into()
}

const MODES: [SendMode; 3] = [SendMode::Standard, SendMode::Synchronous, SendMode::Delivered];
const SIZES: [usize; 8] = [0, 1, 8, 40, 1000, 1024, 1025, 50_000];

#[test]
fn every_mode_and_size_arrives_expected_and_unexpected() {
    for mode in MODES {
        for size in SIZES {
            for expected in [true, false] {
                for oneself in [true, false] {
                    let (_, mut n) = nodes(2, &config());
                    let to = meet(&mut n, 0, if oneself { 0 } else { 1 });
                    let at = if oneself { 0 } else { 1 };
                    settle(&mut n);
                    let early = expected.then(|| n[at].receive(&exact(5), Buffer::zeroed(size)));
                    let message = Send::new(to, Tag(5), payload(size)).immediate(Some(size as u32));
                    let send = n[0].send(message, mode);
                    settle(&mut n);
                    let receive = match early {
                        Some(receive) => receive,
                        None => {
                            let status = n[at].probe(&anything()).unwrap().unwrap();
                            assert_eq!((status.length, status.tag), (size as u64, Tag(5)));
                            if let (Started::Pending(send), SendMode::Synchronous) = (&send, mode) {
                                assert!(
                                    !n[0].requests().is_over(*send),
                                    "complete before the match"
                                );
                            }
                            n[at].receive(&exact(5), Buffer::zeroed(size))
                        }
                    };
                    settle(&mut n);
                    let (status, bytes) = ok(&mut n[at], receive);
                    assert_eq!(bytes, payload(size).into_vec(), "{mode:?} {size} {expected}");
                    assert_eq!(status.length, size as u64);
                    assert_eq!((status.truncated, status.immediate), (false, Some(size as u32)));
                    let (_, sent) = ok(&mut n[0], send);
                    assert_eq!(sent, payload(size).into_vec());
                    assert_eq!((n[0].requests().len(), n[1].requests().len()), (0, 0));
                    let counters = n[at].counters();
                    assert_eq!(counters.posted + counters.unexpected, 1);
                    assert_eq!(counters.posted, u64::from(expected));
                    assert_eq!(counters.not_offloaded.off, counters.posted);
                    assert_eq!(counters.unexpected_bytes_now, 0);
                }
            }
        }
    }
}

#[test]
fn a_small_buffer_truncates_and_the_sender_completes() {
    for mode in MODES {
        for (size, room) in [(8, 3), (8, 0), (5000, 4999), (5000, 0)] {
            for expected in [true, false] {
                let (_, mut n) = nodes(2, &config());
                let to = meet(&mut n, 0, 1);
                settle(&mut n);
                let early = expected.then(|| n[1].receive(&exact(1), Buffer::zeroed(room)));
                let send = n[0].send(Send::new(to, Tag(1), payload(size)), mode);
                settle(&mut n);
                let receive =
                    early.unwrap_or_else(|| n[1].receive(&exact(1), Buffer::zeroed(room)));
                settle(&mut n);
                let (status, bytes) = ok(&mut n[1], receive);
                assert_eq!((status.length, status.truncated), (size as u64, true));
                assert_eq!(bytes, payload(size)[..room]);
                ok(&mut n[0], send);
                assert_eq!(n[1].counters().truncated, 1);
            }
        }
    }
}

#[test]
fn a_long_buffer_keeps_its_tail() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    for size in [3, 3000] {
        let receive = n[1].receive(&exact(1), vec![0xee; 5000].into());
        n[0].send(Send::new(to, Tag(1), payload(size)), SendMode::Standard);
        settle(&mut n);
        let (status, bytes) = ok(&mut n[1], receive);
        assert_eq!((status.length, status.truncated), (size as u64, false));
        assert_eq!(bytes[..size], payload(size)[..]);
        assert!(bytes[size..].iter().all(|&b| b == 0xee));
    }
}

#[test]
fn a_matched_message_is_found_by_nobody_else() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let first = n[0].send(Send::new(to, Tag(1), payload(10)), SendMode::Synchronous);
    n[0].send(Send::new(to, Tag(1), payload(20)).immediate(Some(9)), SendMode::Standard);
    settle(&mut n);
    let (message, status) = n[1].matched_probe(&exact(1)).unwrap().unwrap();
    assert_eq!(status.length, 10);
    assert_eq!(n[1].probe(&anything()).unwrap().unwrap().length, 20);
    let other = n[1].receive(&anything(), Buffer::zeroed(50));
    assert_eq!(ok(&mut n[1], other).0.length, 20);
    settle(&mut n);
    let Started::Pending(first) = first else { panic!("synchronous and over at once") };
    assert!(!n[0].requests().is_over(first), "a matched probe is no receive");
    let receive = n[1].receive_message(message, Buffer::zeroed(4));
    settle(&mut n);
    let (status, bytes) = ok(&mut n[1], receive);
    assert_eq!((status.length, status.truncated), (10, true));
    assert_eq!(bytes, payload(10)[..4]);
    assert!(n[0].requests().is_over(first));
    let again = n[1].receive_message(message, Buffer::zeroed(4));
    assert_eq!(fault(&mut n[1], again), Fault::NoSuchMessage);
}

#[test]
fn a_discarded_message_releases_its_sender_and_its_memory() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    for (mode, size) in
        [(SendMode::Synchronous, 5), (SendMode::Delivered, 5), (SendMode::Standard, 5000)]
    {
        let send = n[0].send(Send::new(to, Tag(1), payload(size)), mode);
        settle(&mut n);
        let (message, _) = n[1].matched_probe(&exact(1)).unwrap().unwrap();
        assert!(n[1].discard_message(message));
        assert!(!n[1].discard_message(message));
        settle(&mut n);
        ok(&mut n[0], send);
        assert_eq!(n[1].counters().unexpected_bytes_now, 0);
    }
    assert_eq!(n[1].counters().discarded, 3);
}

#[test]
fn cancel_reports_its_outcome() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let cancelled = pending(n[1].receive(&exact(1), vec![7; 9].into()));
    let late = pending(n[1].receive(&exact(2), Buffer::zeroed(9)));
    n[1].cancel(cancelled);
    let Completion { result, buffer } = n[1].requests_mut().take(cancelled).unwrap();
    assert_eq!((result, buffer.into_vec()), (Err(Fault::Cancelled), vec![7; 9]));
    n[0].send(Send::new(to, Tag(2), payload(9)), SendMode::Standard);
    n[0].send(Send::new(to, Tag(1), payload(9)), SendMode::Standard);
    settle(&mut n);
    n[1].cancel(late);
    assert_eq!(n[1].requests_mut().take(late).unwrap().result.unwrap().tag, Tag(2));
    n[1].cancel(late);
    assert_eq!(n[1].probe(&anything()).unwrap().unwrap().tag, Tag(1));
    assert_eq!((n[1].counters().cancelled, n[1].counters().cancelled_late), (1, 1));
}

#[test]
fn detached_requests_end_by_themselves() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let posted = pending(n[1].receive(&exact(1), Buffer::zeroed(9)));
    n[1].detach(posted);
    let send = pending(n[0].send(Send::new(to, Tag(1), payload(5000)), SendMode::Standard));
    n[0].detach(send);
    settle(&mut n);
    let reading = n[1].receive(&exact(1), Buffer::zeroed(5000));
    n[1].detach(pending(reading));
    settle(&mut n);
    assert_eq!((n[0].requests().len(), n[1].requests().len()), (0, 0));
}

#[test]
fn what_waits_for_room_goes_out_while_requests_end_one_after_the_other() {
    let (_net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let me = PeerId::ONESELF;
    let mut sent = 0;
    while n[0].counters().room_stalls == 0 {
        n[0].inject(Send::new(to, Tag(sent), &[1; 8]), u64::MAX).unwrap();
        sent += 1;
    }
    // Something to receive is always there, so that a poll never finds nothing; and never so much
    // that messages to oneself wait for room.
    n[0].inject(Send::new(me, Tag(1 << 40), &[2; 8]), u64::MAX).unwrap();
    let mut received = 0;
    for round in 0..1000 {
        while n[1].progress() > 0 {}
        while let Some((message, _)) = n[1].matched_probe(&anything()).unwrap() {
            n[1].discard_message(message);
            received += 1;
        }
        let receive = pending(n[0].receive(&exact(1 << 40), Buffer::zeroed(8)));
        n[0].inject(Send::new(me, Tag(1 << 40), &[2; 8]), u64::MAX).unwrap();
        while !n[0].progress_until(receive).1 {}
        assert!(n[0].progress_until(receive).1, "over and not said to be, in round {round}");
        n[0].requests_mut().take(receive).unwrap().result.unwrap();
    }
    assert_eq!(received, sent);
    settle(&mut n);
    assert_eq!(n[0].requests().len(), 0, "what was injected and had to wait is nobody's");
}

#[test]
fn a_slow_receiver_costs_its_sender_time_and_never_order() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let total = 5000;
    let sends: Vec<_> = (0..total)
        .map(|i| {
            let message =
                Send::new(to, Tag(i % 3), payload((i % 1500) as usize)).immediate(Some(i as u32));
            n[0].send(message, SendMode::Standard)
        })
        .collect();
    settle(&mut n);
    let counters = n[1].counters();
    assert!(counters.unexpected_bytes_now <= config().credit.peer_max.bytes);
    assert!(counters.unexpected_now <= config().credit.peer_max.messages + 16);
    assert!(n[0].counters().credit_stalls > 0 && n[0].counters().eager_turned > 0);
    // The same send waits until something is received.
    let waits = n[0].credit_waits();
    assert!(matches!(waits[..], [(peer, _)] if peer == to), "{waits:?}");
    settle(&mut n);
    assert_eq!(n[0].credit_waits(), waits);
    for i in 0..total {
        let receive = n[1].receive(&anything(), Buffer::zeroed(2000));
        settle(&mut n);
        let (status, bytes) = ok(&mut n[1], receive);
        assert_eq!((status.immediate, status.tag), (Some(i as u32), Tag(i % 3)));
        assert_eq!(bytes[..status.length as usize], payload((i % 1500) as usize)[..]);
    }
    settle(&mut n);
    for send in sends {
        ok(&mut n[0], send);
    }
    assert!(n[0].credit_waits().is_empty());
    assert_eq!(n[1].counters().unexpected_bytes_now, 0);
}

#[test]
fn more_sends_than_operations_wait_their_turn() {
    let (_, mut n) = nodes(3, &EngineConfig { operations_max: 3, ..config() });
    let peers = [meet(&mut n, 0, 1), meet(&mut n, 0, 2)];
    settle(&mut n);
    let sends: Vec<_> = (0..40usize)
        .map(|i| {
            let message = Send::new(peers[i % 2], Tag(1), payload(5000)).immediate(Some(i as u32));
            n[0].send(message, MODES[i % 3])
        })
        .collect();
    settle(&mut n);
    for i in 0..40usize {
        let at = 1 + i % 2;
        let receive = n[at].receive(&exact(1), Buffer::zeroed(5000));
        settle(&mut n);
        assert_eq!(ok(&mut n[at], receive).0.immediate, Some(i as u32), "overtaken");
    }
    for send in sends {
        ok(&mut n[0], send);
    }
}

#[test]
fn both_sides_flooding_each_other_come_through() {
    let (net, mut n) = nodes(2, &config());
    net.borrow_mut().capacity = 1;
    let to = meet(&mut n, 0, 1);
    let from = meet(&mut n, 1, 0);
    settle(&mut n);
    let mut receives = Vec::new();
    for i in 0..500u64 {
        for (a, peer) in [(0, to), (1, from)] {
            let message = Send::new(peer, Tag(i), payload((i * 13 % 3000) as usize));
            n[a].send(message, SendMode::Delivered);
            receives.push((a, n[a].receive(&exact(i), Buffer::zeroed(3000))));
        }
    }
    settle(&mut n);
    for (a, receive) in receives {
        ok(&mut n[a], receive);
    }
    assert!(n[0].counters().room_stalls > 0);
    assert_eq!((n[0].operations(), n[1].operations()), (0, 0));
}

#[test]
fn a_receiver_that_keeps_up_never_stalls_its_sender() {
    let (net, mut n) = nodes(2, &config());
    net.borrow_mut().capacity = 1000;
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    for round in 0..20_000u64 {
        let receive = n[1].receive(&exact(round), Buffer::zeroed(600));
        let send = n[0].send(Send::new(to, Tag(round), payload(600)), SendMode::Standard);
        assert!(matches!(send, Started::Sent(_)), "round {round} had to wait");
        settle(&mut n);
        ok(&mut n[1], receive);
    }
    let counters = n[0].counters();
    assert_eq!((counters.credit_stalls, counters.eager_turned), (0, 0));
}

#[test]
fn a_held_message_survives_a_buffer_that_cannot_take_it() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    n[0].send(Send::new(to, Tag(1), payload(9)), SendMode::Standard);
    settle(&mut n);
    let (message, _) = n[1].matched_probe(&exact(1)).unwrap().unwrap();
    let shared: std::sync::Arc<[u8]> = payload(9).into_vec().into();
    let refused = n[1].receive_message(message, Buffer::from(shared));
    assert_eq!(fault(&mut n[1], refused), Fault::ReadOnlyBuffer);
    let receive = n[1].receive_message(message, Buffer::zeroed(9));
    assert_eq!(ok(&mut n[1], receive).1, payload(9).into_vec());
}

#[test]
fn a_failed_read_is_an_error_on_both_sides() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    net.borrow_mut().reads_fail = Some(14);
    let receive = n[1].receive(&exact(1), Buffer::zeroed(5000));
    let send = n[0].send(Send::new(to, Tag(1), payload(5000)), SendMode::Standard);
    settle(&mut n);
    let from = PeerId(1);
    assert_eq!(fault(&mut n[1], receive), Fault::ReadFailed { peer: from, errno: 14 });
    let Completion { result, buffer } = finished(&mut n[0], send);
    assert_eq!(result, Err(Fault::NotRead { peer: to, errno: 14 }));
    assert_eq!(buffer.into_vec(), payload(5000).into_vec());
    // No other peer is affected.
    n[0].send(Send::new(to, Tag(1), payload(5000)), SendMode::Standard);
    let receive = n[1].receive(&exact(1), Buffer::zeroed(5000));
    settle(&mut n);
    ok(&mut n[1], receive);
}

#[test]
fn a_death_ends_what_depends_on_it_and_nothing_else() {
    let (net, mut n) = nodes(3, &config());
    let dead = meet(&mut n, 0, 1);
    let alive = meet(&mut n, 0, 2);
    let zero_at_1 = meet(&mut n, 1, 0);
    settle(&mut n);
    // From the peer that will die: a complete eager message, two rendezvous requests, one held by a
    // probe.
    n[1].send(Send::new(zero_at_1, Tag(10), payload(9)), SendMode::Standard);
    n[1].send(Send::new(zero_at_1, Tag(11), payload(9000)), SendMode::Standard);
    n[1].send(Send::new(zero_at_1, Tag(12), payload(9000)), SendMode::Standard);
    n[1].send(Send::new(zero_at_1, Tag(13), payload(9000)), SendMode::Standard);
    settle(&mut n);
    let (message, _) = n[0].matched_probe(&exact(12)).unwrap().unwrap();
    net.borrow_mut().reads_hang = true;
    let reading = n[0].receive(&exact(13), Buffer::zeroed(9000));
    // These depend on the peer that will die: sends, a receive that names it.
    let rendezvous = n[0].send(Send::new(dead, Tag(1), payload(9000)), SendMode::Standard);
    let sync = n[0].send(Send::new(dead, Tag(1), payload(9)), SendMode::Synchronous);
    let delivered = n[0].send(Send::new(dead, Tag(1), payload(9)), SendMode::Delivered);
    let named = n[0].receive(&pattern_of(1, dead), Buffer::zeroed(9));
    // These don't depend on it.
    let any = n[0].receive(&exact(2), Buffer::zeroed(9));
    let other = n[0].receive(&pattern_of(1, alive), Buffer::zeroed(9));
    let send = n[0].send(Send::new(alive, Tag(3), payload(9000)), SendMode::Standard);
    settle(&mut n[..1]);
    net.borrow_mut().death = Some(DownReason::Unreachable { errno: 110 });
    kill(&net, 1);
    settle(&mut n);
    net.borrow_mut().reads_hang = false;
    // The read has ended before the reason was known.
    let expected = Fault::PeerDown { peer: dead, fault: PeerFault::Unreachable { errno: 110 } };
    for ended in [reading.into(), rendezvous, sync, delivered, named.into()] {
        assert_eq!(fault(&mut n[0], ended), expected);
    }
    assert_eq!(n[0].probe(&exact(11)).unwrap(), None);
    assert_eq!(n[0].counters().lost_rendezvous, 2);
    let receive = n[0].receive_message(message, Buffer::zeroed(9));
    assert_eq!(fault(&mut n[0], receive), expected);
    let complete = n[0].receive(&exact(10), Buffer::zeroed(9));
    assert_eq!(ok(&mut n[0], complete).1, payload(9).into_vec());
    // New operations with it fail at once, and only those.
    let send_to_dead = n[0].send(Send::new(dead, Tag(1), payload(1)), SendMode::Standard);
    assert_eq!(fault(&mut n[0], send_to_dead), expected);
    let from_dead = n[0].receive(&pattern_of(1, dead), Buffer::zeroed(1));
    assert_eq!(fault(&mut n[0], from_dead), expected);
    let zero_at_2 = meet(&mut n, 2, 0);
    settle(&mut n);
    n[2].send(Send::new(zero_at_2, Tag(2), payload(9)), SendMode::Standard);
    n[2].send(Send::new(zero_at_2, Tag(1), payload(9)), SendMode::Standard);
    let at_2 = n[2].receive(&exact(3), Buffer::zeroed(9000));
    settle(&mut n);
    ok(&mut n[0], any);
    ok(&mut n[0], other);
    ok(&mut n[2], at_2);
    ok(&mut n[0], send);
}

#[test]
fn whoever_breaks_the_protocol_is_broken_with() {
    let fin = Tmh { opcode: Opcode::Fin, app_ctx: AppCtx(77), tag: Tag(0) }.emit();
    let unknown = AppCtx::new(77, 0);
    let abort = Control::Abort { app_ctx: unknown, errno: 0 }.emit();
    let span = RemoteSpan { address: 0, key: 0, length: 10 };
    let mut request = Rendezvous::new(AppCtx(0), Tag(0), span, None).emit();
    request[47] = 11;
    let no_such = |kind| WireError::NoSuchOperation { kind, operation: unknown };
    let cases: [(&[u8], WireError); 4] = [
        (&fin, no_such(MessageKind::Fin)),
        (&abort, no_such(MessageKind::Abort)),
        (&request, WireError::Lengths { rvh: 10, real: 11 }),
        (&[9; 16], WireError::Opcode(9)),
    ];
    for (bytes, error) in cases {
        let (net, mut n) = nodes(3, &config());
        let bad = meet(&mut n, 0, 1);
        let good = meet(&mut n, 0, 2);
        settle(&mut n);
        let named = n[0].receive(&pattern_of(1, bad), Buffer::zeroed(1));
        let send = n[0].send(Send::new(good, Tag(3), payload(9000)), SendMode::Standard);
        forge(&net, 1, 0, bytes);
        settle(&mut n);
        assert_eq!(n[0].peer_fault(bad), Some(PeerFault::Protocol(error)));
        let fault = fault(&mut n[0], named);
        assert_eq!(fault, Fault::PeerDown { peer: bad, fault: PeerFault::Protocol(error) });
        let receive = n[2].receive(&exact(3), Buffer::zeroed(9000));
        settle(&mut n);
        ok(&mut n[2], receive);
        ok(&mut n[0], send);
    }
}

#[test]
fn a_fin_of_another_peer_ends_nothing() {
    let (net, mut n) = nodes(3, &config());
    let to = meet(&mut n, 0, 1);
    let _ = meet(&mut n, 0, 2);
    settle(&mut n);
    let send = pending(n[0].send(Send::new(to, Tag(1), payload(9000)), SendMode::Standard));
    settle(&mut n);
    let fin = Tmh { opcode: Opcode::Fin, app_ctx: AppCtx::new(0, 0), tag: Tag(0) }.emit();
    forge(&net, 2, 0, &fin);
    settle(&mut n);
    assert!(!n[0].requests().is_over(send));
    let receive = n[1].receive(&exact(1), Buffer::zeroed(9000));
    settle(&mut n);
    ok(&mut n[1], receive);
    assert!(n[0].requests().is_over(send));
}

#[test]
fn a_fin_of_an_operation_that_has_ended_ends_no_other() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let send = |n: &mut Vec<Node>| {
        let send = n[0].send(Send::new(to, Tag(1), payload(9000)), SendMode::Standard);
        settle(n);
        pending(send)
    };
    let ended = send(&mut n);
    let receive = n[1].receive(&exact(1), Buffer::zeroed(9000));
    settle(&mut n);
    ok(&mut n[1], receive);
    ok(&mut n[0], Started::Pending(ended));
    // This operation has the place of the one that has ended.
    let send = send(&mut n);
    let old = AppCtx::new(0, 0);
    forge(&net, 1, 0, &Tmh { opcode: Opcode::Fin, app_ctx: old, tag: Tag(0) }.emit());
    settle(&mut n);
    let fault = WireError::NoSuchOperation { kind: MessageKind::Fin, operation: old };
    assert_eq!(n[0].peer_fault(to), Some(PeerFault::Protocol(fault)));
    let Completion { result, .. } = n[0].requests_mut().take(send).unwrap();
    assert_eq!(result, Err(Fault::PeerDown { peer: to, fault: PeerFault::Protocol(fault) }));
}

#[test]
fn sending_beyond_the_credits_is_a_fault() {
    let (net, mut n) = nodes(2, &config());
    let peer = meet(&mut n, 0, 1);
    settle(&mut n);
    let mut eager = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx(0), tag: Tag(1) }.emit().to_vec();
    eager.resize(2000, 1);
    for _ in 0..1000 {
        forge(&net, 1, 0, &eager);
    }
    for _ in 0..20 {
        n[0].progress();
    }
    assert!(matches!(n[0].peer_fault(peer), Some(PeerFault::Protocol(WireError::Credit { .. }))));
    let bytes = n[0].counters().unexpected_bytes_now;
    assert!(bytes <= config().credit.peer_max.bytes, "{bytes}");
}

#[test]
fn shared_bytes_are_sent_and_never_received_into() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let shared: std::sync::Arc<[u8]> = payload(3000).into_vec().into();
    let receive = n[1].receive(&exact(1), Buffer::from(shared.clone()));
    assert_eq!(fault(&mut n[1], receive), Fault::ReadOnlyBuffer);
    n[0].send(Send::new(to, Tag(1), Buffer::from(shared.clone())), SendMode::Standard);
    let receive = n[1].receive(&exact(1), Buffer::zeroed(3000));
    settle(&mut n);
    assert_eq!(ok(&mut n[1], receive).1, shared[..]);
}

/// A peer whose messages we match asks for an acknowledgement of each, and never makes room for
/// these.
#[test]
fn who_takes_no_answers_is_granted_no_more() {
    let config = config();
    let (net, mut n) = nodes(2, &config);
    let peer = meet(&mut n, 0, 1);
    settle(&mut n);
    let mut matched = 0u64;
    while n[0].peer_fault(peer).is_none() && matched < 20_000 {
        let receive = pending(n[0].receive(&exact(1), Buffer::zeroed(1)));
        let operation = AppCtx::new(u32::try_from(matched).unwrap(), 0).with_ack();
        let asks = Tmh { opcode: Opcode::Eager, app_ctx: operation, tag: Tag(1) }.emit();
        forge(&net, 1, 0, &asks);
        n[0].progress();
        matched +=
            u64::from(n[0].requests_mut().take(receive).is_some_and(|over| over.result.is_ok()));
    }
    let fault = n[0].peer_fault(peer);
    assert!(
        matches!(fault, Some(PeerFault::Protocol(WireError::Credit { .. }))),
        "{fault:?} after {matched} messages whose answers wait here"
    );
    assert!(matched <= config.credit.peer_max.messages, "{matched} answers wait here");
}
