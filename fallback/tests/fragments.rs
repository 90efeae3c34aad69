//! Messages in fragments: what a receiver sees of them, and what becomes of a half of one.

mod wire;

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::wire::{Fragment, WireError};
use tagmatch_fallback::{
    EngineConfig, Fault, MatchEngine, PeerFault, RequestId, Send, SendMode, Started, Status,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Net, Node, config, forge, kill, meet, nodes, settle};

const TAG: Tag = Tag(5);
const LENGTH: usize = 10_000;

fn fragmenting() -> EngineConfig {
    EngineConfig { fragmented_max: 20_000, ..config() }
}

/// Three nodes; the messages of node 0 to node 1 go out in fragments. Node 0 as node 1 knows it,
/// and the other way round.
fn three() -> (Rc<RefCell<Net>>, Vec<Node>, PeerId, PeerId) {
    let (net, mut n) = nodes(3, &fragmenting());
    net.borrow_mut().fragmented_max = usize::MAX;
    let to = meet(&mut n, 0, 1);
    let back = meet(&mut n, 1, 0);
    meet(&mut n, 2, 1);
    settle(&mut n);
    (net, n, to, back)
}

fn any() -> Pattern {
    Pattern::new(TAG, TagMask::EXACT)
}

fn named(peer: PeerId) -> Pattern {
    any().from_source(SourceId(peer.0))
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

fn send(node: &mut Node, to: PeerId, length: usize) -> RequestId {
    match node.send(Send::new(to, TAG, bytes(length).into()).immediate(Some(9)), SendMode::Standard)
    {
        Started::Pending(request) => request,
        other => panic!("{other:?}"),
    }
}

/// How a receive has ended, if it has.
fn end(node: &mut Node, request: RequestId) -> Option<(Result<Status, Fault>, Vec<u8>)> {
    let done = node.requests_mut().take(request)?;
    Some((done.result, done.buffer.into_vec()))
}

fn received(node: &mut Node, request: RequestId) -> Vec<u8> {
    let (result, buffer) = end(node, request).expect("not over");
    let status = result.unwrap();
    let length = usize::try_from(status.length).unwrap();
    assert_eq!((status.truncated, status.immediate), (length > buffer.len(), Some(9)));
    let here = length.min(buffer.len());
    assert!(buffer[..here] == bytes(length)[..here] && buffer[here..].iter().all(|b| *b == 0xee));
    buffer
}

fn room(length: usize) -> Buffer {
    vec![0xee; length].into()
}

/// Takes the receiver's message out of the network after `fragments` of its fragments.
fn hold_back(net: &Rc<RefCell<Net>>, fragments: usize) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut net = net.borrow_mut();
    net.queues.get_mut(&(0, 1)).unwrap().drain(fragments..).collect()
}

fn let_go(net: &Rc<RefCell<Net>>, held: Vec<(Vec<u8>, Option<u32>)>) {
    net.borrow_mut().queues.entry((0, 1)).or_default().extend(held);
}

/// All credit of the receiver is granted or free, and no message takes memory.
fn is_clean(node: &Node) {
    assert_eq!(node.credit().held.bytes, 0);
    assert_eq!((node.counters().unexpected_bytes_now, node.counters().unexpected_now), (0, 0));
}

#[test]
fn a_message_arrives_whole_whatever_its_receive() {
    let (net, mut n, to, back) = three();
    let cases: [(Pattern, usize); 4] =
        [(named(back), LENGTH), (any(), LENGTH + 7), (named(back), 3000), (any(), 3000)];
    for (pattern, capacity) in cases {
        for is_posted in [true, false] {
            let early = is_posted.then(|| n[1].receive(&pattern, room(capacity)).unwrap());
            let sent = send(&mut n[0], to, LENGTH);
            assert!(n[0].requests_mut().take(sent).unwrap().result.is_ok());
            settle(&mut n);
            let receive = early.unwrap_or_else(|| n[1].receive(&pattern, room(capacity)).unwrap());
            received(&mut n[1], receive);
            settle(&mut n);
            is_clean(&n[1]);
        }
    }
    let sender = n[0].counters();
    let receiver = n[1].counters();
    assert_eq!((sender.fragmented_sent, sender.eager_sent, sender.rendezvous_sent), (8, 8, 0));
    assert_eq!((receiver.posted, receiver.unexpected, receiver.truncated), (4, 4, 4));
    assert_eq!((receiver.reads, net.borrow().allocated.len()), (0, 0));
    // Beyond the bound it is read.
    let receive = n[1].receive(&any(), room(20_001)).unwrap();
    let sent = send(&mut n[0], to, 20_001);
    settle(&mut n);
    received(&mut n[1], receive);
    assert!(n[0].requests_mut().take(sent).unwrap().result.is_ok());
    assert_eq!(n[0].counters().rendezvous_sent, 1);
}

#[test]
fn half_of_a_message_is_not_there_for_probes_and_other_receives() {
    let (net, mut n, to, back) = three();
    send(&mut n[0], to, LENGTH);
    let blocker = hold_back(&net, 2);
    settle(&mut n);
    assert!(n[1].probe(&any()).unwrap().is_none() && n[1].matched_probe(&any()).unwrap().is_none());
    assert_eq!(n[1].counters().unexpected_now, 0);
    let first = n[1].receive(&any(), room(LENGTH)).unwrap();
    let second = n[1].receive(&named(back), room(LENGTH)).unwrap();
    settle(&mut n);
    assert!(end(&mut n[1], first).is_none());
    // A message of another sender takes the older receive meanwhile.
    let other = meet(&mut n, 2, 1);
    let sent =
        n[2].send(Send::new(other, TAG, bytes(100).into()).immediate(Some(9)), SendMode::Standard);
    assert!(matches!(sent, Started::Sent(_)));
    settle(&mut n);
    received(&mut n[1], first);
    let_go(&net, blocker);
    settle(&mut n);
    received(&mut n[1], second);
    is_clean(&n[1]);
}

#[test]
fn a_receive_that_names_no_sender_takes_another_message_though_half_of_one_is_there() {
    let (net, mut n, to, _) = three();
    let receive = n[1].receive(&any(), room(LENGTH)).unwrap();
    send(&mut n[0], to, LENGTH);
    let blocker = hold_back(&net, 2);
    settle(&mut n);
    let other = meet(&mut n, 2, 1);
    assert!(matches!(
        n[2].send(Send::new(other, TAG, bytes(100).into()).immediate(Some(9)), SendMode::Standard),
        Started::Sent(_)
    ));
    settle(&mut n);
    received(&mut n[1], receive);
    let_go(&net, blocker);
    settle(&mut n);
    let (message, status) = n[1].matched_probe(&any()).unwrap().unwrap();
    assert_eq!(status.length, LENGTH as u64);
    let receive = n[1].receive_message(message, room(LENGTH)).unwrap();
    received(&mut n[1], receive);
    is_clean(&n[1]);
}

#[test]
fn a_receive_that_half_of_a_message_fills_is_cancelled_too_late() {
    for is_dropped in [false, true] {
        let (net, mut n, to, back) = three();
        let receive = n[1].receive(&named(back), room(LENGTH)).unwrap();
        send(&mut n[0], to, LENGTH);
        let blocker = hold_back(&net, 2);
        settle(&mut n);
        if is_dropped {
            n[1].detach(receive);
        } else {
            n[1].cancel(receive);
        }
        assert!(n[1].requests().exists(receive) && !n[1].requests().is_over(receive));
        let_go(&net, blocker);
        settle(&mut n);
        if is_dropped {
            assert!(!n[1].requests().exists(receive));
        } else {
            received(&mut n[1], receive);
            assert_eq!((n[1].counters().cancelled, n[1].counters().cancelled_late), (0, 1));
        }
        is_clean(&n[1]);
    }
}

#[test]
fn several_slices_are_sent_and_received_in_fragments() {
    let (_, mut n, to, back) = three();
    for pattern in [named(back), any()] {
        let slices = Buffer::from_slices([vec![0xee; 4000], vec![0xee; LENGTH - 3900]]);
        let receive = n[1].receive(&pattern, slices).unwrap();
        let parts = bytes(LENGTH);
        let message = Buffer::from_slices([parts[..7].to_vec(), parts[7..].to_vec()]);
        n[0].send(Send::new(to, TAG, message).immediate(Some(9)), SendMode::Standard);
        settle(&mut n);
        assert!(n[1].requests().is_over(receive));
        let done = n[1].requests_mut().take(receive).unwrap();
        assert!(done.buffer.slices().is_some());
        let all = done.buffer.into_vec();
        assert!(all[..LENGTH] == bytes(LENGTH) && all[LENGTH..] == [0xee; 100]);
    }
    assert_eq!(n[0].counters().fragmented_sent, 2);
}

#[test]
fn a_sender_that_dies_in_the_middle_has_sent_nothing() {
    for (pattern_names, is_posted) in [(true, true), (false, true), (false, false)] {
        let (net, mut n, to, back) = three();
        let pattern = if pattern_names { named(back) } else { any() };
        let receive = is_posted.then(|| n[1].receive(&pattern, room(LENGTH)).unwrap());
        send(&mut n[0], to, LENGTH);
        hold_back(&net, 2);
        settle(&mut n);
        kill(&net, 0);
        settle(&mut n);
        if pattern_names {
            let fault = Fault::PeerDown { peer: back, fault: PeerFault::Gone };
            assert_eq!(end(&mut n[1], receive.unwrap()).unwrap().0, Err(fault));
        } else {
            assert!(n[1].probe(&any()).unwrap().is_none());
            let receive = receive.unwrap_or_else(|| n[1].receive(&any(), room(100)).unwrap());
            let other = meet(&mut n, 2, 1);
            let _ = n[2].send(
                Send::new(other, TAG, bytes(100).into()).immediate(Some(9)),
                SendMode::Standard,
            );
            settle(&mut n);
            received(&mut n[1], receive);
        }
        settle(&mut n);
        is_clean(&n[1]);
    }
}

#[test]
fn a_message_waits_in_the_middle_for_room_and_nothing_overtakes_it() {
    let (net, mut n, to, back) = three();
    net.borrow_mut().capacity = 2;
    let large = n[1].receive(&named(back), room(LENGTH)).unwrap();
    let small = n[1].receive(&named(back), room(10)).unwrap();
    let requests = [send(&mut n[0], to, LENGTH), send(&mut n[0], to, 10)];
    assert!(requests.iter().all(|request| !n[0].requests().is_over(*request)));
    assert!(n[0].has_unsent());
    settle(&mut n);
    received(&mut n[1], large);
    received(&mut n[1], small);
    for request in requests {
        let done = n[0].requests_mut().take(request).unwrap();
        assert!(done.result.is_ok() && !done.buffer.is_empty());
    }
    is_clean(&n[1]);
}

#[test]
fn without_credit_for_the_whole_message_it_is_read() {
    let (_, mut n, to, _) = three();
    // The first grant is 16 KiB, and such a message takes a block of all of it.
    let sends = [send(&mut n[0], to, LENGTH), send(&mut n[0], to, LENGTH)];
    let counters = n[0].counters();
    assert_eq!((counters.fragmented_sent, counters.rendezvous_sent), (1, 1));
    assert_eq!(counters.eager_turned, 1);
    for _ in sends {
        let receive = n[1].receive(&any(), room(LENGTH)).unwrap();
        settle(&mut n);
        received(&mut n[1], receive);
    }
}

#[test]
fn closing_a_worker_ends_the_receive_that_half_of_a_message_fills() {
    let (net, mut n, to, back) = three();
    let receive = n[1].receive(&named(back), room(LENGTH)).unwrap();
    send(&mut n[0], to, LENGTH);
    hold_back(&net, 1);
    settle(&mut n);
    n[1].close();
    assert!(end(&mut n[1], receive).unwrap().0.is_err());
}

/// A hostile sender breaks with its victim, and leaves nothing there.
#[test]
fn each_broken_rule_ends_the_connection_and_no_other() {
    let first = |length: u64| Fragment::First { tag: TAG, length }.emit().to_vec();
    let next = |offset: u64| Fragment::Next { offset }.emit().to_vec();
    let with = |header: Vec<u8>, payload: usize| [header, bytes(payload)].concat();
    let broken = |what| Some(WireError::Fragment(what));
    let cases: [(Vec<Vec<u8>>, Option<WireError>); 9] = [
        (vec![with(first(9000), 0)], broken("without a payload")),
        (vec![with(next(0), 10)], broken("continues no message")),
        (vec![with(first(9000), 10), with(next(9), 10)], broken("isn't the next one")),
        (vec![with(first(9), 10)], broken("goes beyond the end of its message")),
        (
            vec![with(first(15), 10), with(next(10), 6)],
            broken("goes beyond the end of its message"),
        ),
        (
            vec![with(first(9000), 10), with(first(9000), 10)],
            broken("begins a message before the last one is whole"),
        ),
        (vec![with(first(16_385), 10)], Some(WireError::Credit { bytes: 32_768 })),
        (vec![with(first(u64::MAX), 10)], Some(WireError::Credit { bytes: u64::MAX })),
        (vec![next(10)[..20].to_vec()], None),
    ];
    for (frames, error) in cases {
        for posted in [None, Some(true), Some(false)] {
            let (net, mut n, _, back) = three();
            let receive = posted.map(|names| {
                let pattern = if names { named(back) } else { any() };
                n[1].receive(&pattern, room(LENGTH)).unwrap()
            });
            frames.iter().for_each(|frame| forge(&net, 0, 1, frame));
            settle(&mut n);
            match (n[1].peer_fault(back), error) {
                (Some(PeerFault::Protocol(told)), Some(error)) => assert_eq!(told, error),
                (Some(PeerFault::Protocol(_)), None) => {}
                other => panic!("{frames:?}: {other:?}"),
            }
            let receive = match receive {
                Some(receive) if posted == Some(false) => receive,
                named => {
                    if let Some(r) = named {
                        assert!(end(&mut n[1], r).unwrap().0.is_err());
                    }
                    n[1].receive(&any(), room(100)).unwrap()
                }
            };
            let other = meet(&mut n, 2, 1);
            let _ = n[2].send(
                Send::new(other, TAG, bytes(100).into()).immediate(Some(9)),
                SendMode::Standard,
            );
            settle(&mut n);
            received(&mut n[1], receive);
            is_clean(&n[1]);
        }
    }
}
