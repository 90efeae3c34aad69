//! The engine over a device that matches by itself, on such a device in memory.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod memory;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;

use proptest::prelude::*;
use tagmatch_device::matching::{MatchingDevice, TagPattern};
use tagmatch_device::{Address, Buffer, Flush, PeerId, ToleratedBugs};
use tagmatch_fallback::{
    ConnectionState, Decision, Delegated, Fault, FlushEngine, MatchEngine, PeerFault, RequestId,
    Send, SendMode, Started, Status, Unsent, WhyUnsent,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use memory::{Memory, TOO_WIDE, World};

type Engine = Delegated<Memory>;

const TO_B: PeerId = PeerId(1);

fn engines() -> (Engine, Engine) {
    let world = Rc::new(World::default());
    let a = world.worker(1);
    let b = world.worker(2);
    let to_b = b.address();
    let mut a = Delegated::new(Box::new(a));
    let b = Delegated::new(Box::new(b));
    assert_eq!(a.connect(&to_b).unwrap(), TO_B);
    (a, b)
}

fn tag(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn pending(started: impl Into<Started>) -> RequestId {
    let started = started.into();
    let Started::Pending(request) = started else { panic!("{started:?}") };
    request
}

fn refused(started: impl Into<Started>) -> (Fault, usize) {
    let started = started.into();
    let Started::Refused(refused) = started else { panic!("{started:?}") };
    (refused.fault, refused.buffer.len())
}

fn end(engine: &mut Engine, request: RequestId) -> (Result<Status, Fault>, Vec<u8>) {
    assert!(engine.progress_until(request).1, "not over");
    let completion = engine.requests_mut().take(request).unwrap();
    assert!(!engine.requests().exists(request) && engine.requests_mut().take(request).is_none());
    (completion.result, completion.buffer.into_vec())
}

fn send(engine: &mut Engine, tag: u64, payload: &[u8], mode: SendMode) -> Started {
    engine.send(Send::new(TO_B, Tag(tag), Buffer::from(payload.to_vec())).immediate(Some(7)), mode)
}

#[test]
fn messages_arrive_with_all_their_facts() {
    let (mut a, mut b) = engines();
    for early in [true, false] {
        for room in [8, 5, 2] {
            let receive = early.then(|| b.receive(&tag(3), Buffer::zeroed(room)));
            let sync = pending(send(&mut a, 3, b"hello", SendMode::Synchronous));
            assert!(!a.requests().is_over(sync), "complete before the device says so");
            let receive = pending(receive.unwrap_or_else(|| {
                let status = b.probe(&tag(3)).unwrap().unwrap();
                assert_eq!((status.length, status.truncated), (5, false));
                b.receive(&tag(3), Buffer::zeroed(room))
            }));
            let (result, data) = end(&mut b, receive);
            let source = PeerId(1);
            let length = 5;
            let truncated = room < 5;
            let status = Status { source, tag: Tag(3), length, truncated, immediate: Some(7) };
            assert_eq!(result, Ok(status));
            assert_eq!(data[..room.min(5)], b"hello"[..room.min(5)]);
            let (result, data) = end(&mut a, sync);
            assert_eq!(result, Ok(Status { source: TO_B, truncated: false, ..status }));
            assert_eq!(data, b"hello");
        }
    }
    assert!(matches!(send(&mut a, 4, b"x", SendMode::Standard), Started::Sent(_)));
    a.inject(Send::new(TO_B, Tag(4), b"y"), 0).unwrap();
    let counters = b.counters();
    assert_eq!((counters.by_device, counters.truncated), (6, 2));
    assert_eq!((counters.posted_now, counters.unexpected_now), (0, 2));
    assert_eq!(a.counters().sent_by_device, 8);
}

#[test]
fn a_snapshot_tells_peers_and_how_many_requests_the_device_has() {
    let (mut a, _b) = engines();
    let receive = pending(a.receive(&tag(3), Buffer::zeroed(8)));
    pending(send(&mut a, 3, b"hello", SendMode::Synchronous));
    let told = a.snapshot(10);
    assert_eq!((told.delegated, told.posted.len(), told.sends.len()), (2, 0, 0));
    let peers: Vec<_> = told.peers.first.iter().map(|peer| peer.peer).collect();
    assert_eq!(peers, [PeerId::ONESELF, TO_B]);
    assert_eq!(told.peers.first[1].address, a.peer_address(TO_B));
    a.cancel(receive);
    end(&mut a, receive).0.unwrap_err();
    a.disconnect(TO_B);
    let told = a.snapshot(10);
    assert_eq!(told.peers.first[1].connection, ConnectionState::Down(PeerFault::Disconnected));
}

#[test]
fn what_the_device_refuses_comes_back_with_a_reason() {
    let (mut a, _) = engines();
    let wide = Fault::NotCarried { why: TOO_WIDE };
    let nobody = Fault::NoSuchPeer { peer: PeerId(9) };
    assert_eq!(refused(send(&mut a, 1 << 32, b"abc", SendMode::Standard)), (wide, 3));
    assert_eq!(a.inject(Send::new(TO_B, Tag(1 << 40), &[]), 0), Err(wide));
    assert_eq!(a.inject(Send::new(PeerId(9), Tag(1), &[]), 0), Err(nobody));
    assert_eq!(refused(a.receive(&tag(1 << 32), Buffer::zeroed(2))), (wide, 2));
    assert_eq!(
        refused(a.receive(&tag(1).from_source(SourceId(9)), Buffer::zeroed(2))),
        (nobody, 2)
    );
    let shared = Buffer::from(Arc::<[u8]>::from(&b"abc"[..]));
    assert_eq!(refused(a.receive(&tag(1), shared)), (Fault::ReadOnlyBuffer, 3));
    assert_eq!(a.probe(&tag(1 << 32)), Err(wide));
    assert_eq!(a.matched_probe(&tag(1 << 32)), Err(wide));
    assert!(a.connect(&Address::from_bytes(&[77]).unwrap()).is_err());
    assert_eq!((a.requests().len(), a.counters().sent_by_device), (0, 0));
}

#[test]
fn a_message_that_no_request_gets_ends_the_connection_to_its_sender() {
    let (mut a, mut b) = engines();
    let anything = TagPattern { tag: 0, mask: 0, source: None };
    b.device_mut().receive(anything, Buffer::zeroed(4), 0).unwrap();
    a.inject(Send::new(TO_B, Tag(1), b"lost"), 0).unwrap();
    let before = b.counters().bugs;
    let tolerated = ToleratedBugs::new();
    while b.progress() > 0 {}
    drop(tolerated);
    assert_eq!(b.counters().bugs, before + 1);
    assert!(matches!(b.peer_fault(PeerId(1)), Some(PeerFault::Bug(_))));
}

#[test]
fn a_cancel_wins_or_comes_too_late() {
    let (mut a, mut b) = engines();
    let won = pending(b.receive(&tag(1), Buffer::zeroed(4)));
    let receive = pending(b.receive(&tag(2), Buffer::zeroed(4)));
    a.inject(Send::new(TO_B, Tag(2), b"2"), 0).unwrap();
    b.cancel(won);
    b.cancel(receive);
    assert_eq!(end(&mut b, won), (Err(Fault::Cancelled), vec![0; 4]));
    assert_eq!(end(&mut b, receive).1, b"2\0\0\0");
    // Names of requests that are gone name nothing.
    b.cancel(won);
    b.detach(receive);
    let sync = pending(send(&mut a, 3, b"3", SendMode::Synchronous));
    a.cancel(sync);
    assert!(!a.progress_until(sync).1);
    let counters = b.counters();
    assert_eq!((counters.cancelled, counters.cancelled_late), (1, 1));
    assert_eq!(a.counters().cancelled_late, 1);
}

#[test]
fn a_request_that_is_let_go_leaves_nothing_behind() {
    let (mut a, mut b) = engines();
    let posted = pending(b.receive(&tag(1), Buffer::zeroed(4)));
    let matched = pending(b.receive(&tag(2), Buffer::zeroed(4)));
    let sync = pending(send(&mut a, 2, b"2", SendMode::Delivered));
    a.detach(sync);
    b.detach(posted);
    b.detach(matched);
    while a.progress() + b.progress() > 0 {}
    assert_eq!((a.requests().len(), b.requests().len()), (0, 0));
    assert_eq!(b.counters().posted_now, 0);
    let done = pending(b.receive(&tag(1), Buffer::zeroed(4)));
    a.inject(Send::new(TO_B, Tag(1), b"1"), 0).unwrap();
    b.progress();
    b.detach(done);
    assert_eq!(b.requests().len(), 0);
}

#[test]
fn matched_messages_are_received_or_dropped_once() {
    let (mut a, mut b) = engines();
    let sends = [1, 1].map(|t| pending(send(&mut a, t, b"abc", SendMode::Synchronous)));
    let (first, status) = b.matched_probe(&tag(1)).unwrap().unwrap();
    let (second, _) = b.matched_probe(&tag(1)).unwrap().unwrap();
    assert_eq!((status.length, b.matched_probe(&tag(1))), (3, Ok(None)));
    let shared = Buffer::from(Arc::<[u8]>::from(&b"abc"[..]));
    assert_eq!(refused(b.receive_message(first, shared)).0, Fault::ReadOnlyBuffer);
    let receive = pending(b.receive_message(first, Buffer::zeroed(3)));
    b.cancel(receive);
    assert_eq!(end(&mut b, receive).1, b"abc");
    let refusal = refused(b.receive_message(first, Buffer::zeroed(1)));
    assert_eq!(refusal, (Fault::NoSuchMessage, 1));
    assert!(!b.discard_message(first));
    assert!(a.progress_until(sends[0]).1 && !a.requests().is_over(sends[1]));
    assert!(b.discard_message(second) && !b.discard_message(second));
    assert!(a.progress_until(sends[1]).1);
    let counters = b.counters();
    assert_eq!((counters.unexpected, counters.discarded, counters.by_device), (1, 1, 0));
}

#[test]
fn what_a_peers_end_ends_says_why() {
    let (mut a, mut b) = engines();
    let to_a = b.connect(&a.device().address()).unwrap();
    let named = pending(b.receive(&tag(1).from_source(SourceId(to_a.0)), Buffer::zeroed(5)));
    let any = pending(b.receive(&tag(1), Buffer::zeroed(6)));
    let sync = pending(b.send(Send::new(to_a, Tag(1), Buffer::zeroed(7)), SendMode::Synchronous));
    a.inject(Send::new(TO_B, Tag(8), b"last"), 0).unwrap();
    a.device().die();
    let down = Fault::PeerDown { peer: to_a, fault: PeerFault::Gone };
    // The device reports the peer's end last, and the engine not before it.
    assert_eq!(b.peer_fault(to_a), None);
    assert_eq!(end(&mut b, named), (Err(down), vec![0; 5]));
    assert_eq!(end(&mut b, sync), (Err(down), vec![0; 7]));
    assert_eq!(b.peer_fault(to_a), Some(PeerFault::Gone));
    assert_eq!(b.inject(Send::new(to_a, Tag(1), &[]), 0), Err(down));
    let from_a = |t| tag(t).from_source(SourceId(to_a.0));
    assert_eq!(refused(b.receive(&from_a(9), Buffer::zeroed(1))), (down, 1));
    let words = pending(b.receive(&from_a(8), Buffer::zeroed(4)));
    assert_eq!(end(&mut b, words).1, b"last");
    assert!(!b.progress_until(any).1 && b.counters().posted_now == 1);
    assert_eq!(b.counters().peer_faults, 1);
}

#[test]
fn a_peer_that_this_side_disconnects_is_down_at_once() {
    let (mut a, b) = engines();
    let down = Fault::PeerDown { peer: TO_B, fault: PeerFault::Disconnected };
    let named = pending(a.receive(&tag(1).from_source(SourceId(1)), Buffer::zeroed(5)));
    a.disconnect(TO_B);
    a.disconnect(PeerId(5));
    assert_eq!(a.peer_fault(TO_B), Some(PeerFault::Disconnected));
    assert_eq!(a.inject(Send::new(TO_B, Tag(1), &[]), 0), Err(down));
    assert_eq!(end(&mut a, named).0, Err(down));
    // A later reason changes nothing.
    b.device().die();
    while a.progress() > 0 {}
    assert_eq!(a.peer_fault(TO_B), Some(PeerFault::Disconnected));
    assert_eq!((a.counters().peer_faults, a.peer_fault(PeerId(5))), (0, None));
}

#[test]
fn a_failure_of_the_device_is_one() {
    let (_, mut b) = engines();
    let receive = pending(b.receive(&tag(1), Buffer::zeroed(5)));
    b.device().fail_oldest(-3);
    assert_eq!(end(&mut b, receive), (Err(Fault::DeviceFailed { status: -3 }), vec![0; 5]));
}

#[test]
fn closing_ends_everything() {
    let (mut a, mut b) = engines();
    let posted = pending(b.receive(&tag(1), Buffer::zeroed(5)));
    let sync = pending(send(&mut a, 2, b"abc", SendMode::Synchronous));
    b.close();
    assert_eq!(end(&mut b, posted), (Err(Fault::Closed), vec![0; 5]));
    let down = Fault::PeerDown { peer: TO_B, fault: PeerFault::Gone };
    assert_eq!(end(&mut a, sync), (Err(down), b"abc".to_vec()));
    assert_eq!((a.requests().len(), b.requests().len()), (0, 0));
    // What a device has is waited for as long as it says that it has work.
    let (mut slow, _) = engines();
    let kept = pending(slow.receive(&tag(1), Buffer::zeroed(5)));
    slow.device().be_slow(3 << 20);
    slow.close();
    assert_eq!(end(&mut slow, kept), (Err(Fault::Closed), vec![0; 5]));
    // What the device doesn't give back is lost, and nobody waits for it.
    let lost = pending(a.receive(&tag(1), Buffer::zeroed(5)));
    a.device().lose_receives();
    a.close();
    assert_eq!(a.audit(true), [""; 0]);
    assert_eq!(end(&mut a, lost), (Err(Fault::Closed), vec![]));
}

#[test]
fn an_owner_that_watches_is_woken_once() {
    let (mut a, mut b) = engines();
    let receives = [1, 2].map(|t| pending(b.receive(&tag(t), Buffer::zeroed(1))));
    assert!(b.requests_mut().watch(receives[1]) && b.arm());
    a.inject(Send::new(TO_B, Tag(1), b"1"), 0).unwrap();
    a.inject(Send::new(TO_B, Tag(2), b"2"), 0).unwrap();
    assert!(b.has_work() && !b.arm());
    // Progress stops at the end of the first receive.
    assert_eq!(b.progress_until(receives[0]), (1, true));
    assert!(!b.requests().has_woken());
    assert_eq!(b.progress(), 1);
    assert!(b.requests().has_woken() && !b.requests_mut().watch(receives[1]));
    assert_eq!(b.requests_mut().take_woken(), [receives[1]]);
    assert!(!b.requests().has_woken() && b.requests_mut().take_woken().is_empty());
    for receive in receives {
        assert_eq!(b.requests_mut().ended(receive).unwrap().take().0.length, 1);
        assert!(b.requests_mut().ended(receive).is_none());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send { tag: u64, mode: SendMode },
    Receive { tag: u64, any: bool },
    Cancel(usize),
    Detach(usize),
    Progress,
    Die,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let modes =
        prop::sample::select(vec![SendMode::Standard, SendMode::Synchronous, SendMode::Delivered]);
    let step = prop_oneof![
        4 => (0..3u64, modes).prop_map(|(tag, mode)| Step::Send { tag, mode }),
        4 => (0..3u64, any::<bool>()).prop_map(|(tag, any)| Step::Receive { tag, any }),
        1 => (0..64usize).prop_map(Step::Cancel),
        1 => (0..64usize).prop_map(Step::Detach),
        2 => Just(Step::Progress),
        1 => prop::bool::weighted(0.1).prop_map(|die| if die { Step::Die } else { Step::Progress }),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// Every operation ends once, with a buffer of its own, whatever happens; nothing is left.
    #[test]
    fn every_operation_ends_once(steps in steps()) {
        let (mut a, mut b) = engines();
        // Whether it is a's, the request, and the length of its buffer, which no other has.
        let mut requests: Vec<(bool, RequestId, usize)> = Vec::new();
        let mut is_dead = false;
        for (step, size) in steps.into_iter().zip(1..) {
            let begun = match step {
                Step::Send { tag, mode } => {
                    Some((true, a.send(Send::new(TO_B, Tag(tag), Buffer::zeroed(size)), mode)))
                }
                Step::Receive { tag, any } => {
                    let mask = if any { TagMask::ANY } else { TagMask::EXACT };
                    Some((false, b.receive(&Pattern::new(Tag(tag), mask), Buffer::zeroed(size)).into()))
                }
                Step::Cancel(at) | Step::Detach(at) if !requests.is_empty() => {
                    let at = at % requests.len();
                    let engine = if requests[at].0 { &mut a } else { &mut b };
                    match step {
                        Step::Cancel(_) => engine.cancel(requests[at].1),
                        _ => engine.detach(requests.swap_remove(at).1),
                    }
                    None
                }
                Step::Progress => {
                    a.progress();
                    b.progress();
                    None
                }
                Step::Die if !is_dead => {
                    is_dead = true;
                    b.device().die();
                    None
                }
                _ => None,
            };
            match begun {
                Some((of_a, Started::Pending(request))) => requests.push((of_a, request, size)),
                Some((_, Started::Sent(buffer))) => prop_assert_eq!(buffer.len(), size),
                Some((_, Started::Refused(refused))) => {
                    prop_assert_eq!(refused.buffer.len(), size);
                    prop_assert!(is_dead);
                }
                None => {}
            }
            prop_assert_eq!([a.audit(false), b.audit(false)].concat(), [""; 0]);
        }
        a.close();
        b.close();
        prop_assert_eq!([a.audit(true), b.audit(true)].concat(), [""; 0]);
        for (of_a, request, size) in requests {
            let engine = if of_a { &mut a } else { &mut b };
            let (_, buffer) = end(engine, request);
            prop_assert_eq!(buffer.len(), size);
        }
        prop_assert_eq!((a.requests().len(), b.requests().len()), (0, 0));
        prop_assert_eq!((a.counters().posted_now, b.counters().posted_now), (0, 0));
    }
}

#[test]
fn a_watcher_is_told_of_peers_that_come_and_go() {
    let world = Rc::new(World::default());
    let a = world.worker(1);
    let address = world.worker(2).address();
    let device = a.clone();
    let mut a = Delegated::new(Box::new(a));
    let (teller, told) = channel();
    a.watch_decisions(Box::new(move |decision| teller.send(decision).unwrap()));
    a.connect(&address).unwrap();
    device.come_up(TO_B);
    a.progress();
    a.disconnect(TO_B);
    while a.progress() > 0 {}
    let down = Decision::PeerDown(TO_B, PeerFault::Disconnected);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [Decision::PeerUp(TO_B), down]);
}

#[test]
fn the_device_says_when_its_messages_have_left() {
    let world = Rc::new(World::default());
    let a = world.worker(1);
    let b = world.worker(2);
    let address = b.address();
    let device = a.clone();
    let mut a = Delegated::new(Box::new(a));
    assert_eq!(a.connect(&address).unwrap(), TO_B);
    device.answer_flushes(Flush::Pending { messages: 2 });
    let unsent = |messages, why| vec![Unsent { peer: TO_B, messages, why }];
    let mut flushing = a.begin_flush();
    assert!(!a.is_flushed(&mut flushing));
    assert_eq!(a.unsent(), unsent(2, WhyUnsent::NotConnected));
    device.come_up(TO_B);
    a.progress();
    assert_eq!(a.unsent(), unsent(2, WhyUnsent::NotTaken));
    device.answer_flushes(Flush::Done);
    assert!(a.is_flushed(&mut flushing) && a.unsent().is_empty());
    device.answer_flushes(Flush::Lost { messages: 3 });
    a.disconnect(TO_B);
    a.progress();
    let mut flushing = a.begin_flush();
    assert!(a.is_flushed(&mut flushing));
    assert_eq!(a.take_lost(), unsent(3, WhyUnsent::Down(PeerFault::Disconnected)));
    assert_eq!((a.take_lost(), a.unsent()), (vec![], vec![]));
}
