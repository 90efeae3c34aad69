//! The credit of a message comes back, whatever becomes of the message, and so does the place from
//! which it is read.

mod wire;

use tagmatch_device::{Buffer, PeerId, RegionPlace, RemoteSpan};
use tagmatch_fallback::wire::{AppCtx, Rendezvous, WireError};
use tagmatch_fallback::{
    Amount, CreditConfig, CreditNow, EngineConfig, Fault, MatchEngine, PeerFault, RegionKey,
    RemoteAction, RemoteOperation, RmaEngine, Send, SendMode, Started,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Node, config, forge, kill, meet, nodes, settle};

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn send(node: &mut Node, to: PeerId, tag: u64, length: usize) {
    let _ = node.send(Send::new(to, Tag(tag), Buffer::zeroed(length)), SendMode::Standard);
}

/// The credit that messages hold. The rest of the pool is free, or granted to peers that are up.
fn held(node: &Node) -> Amount {
    let CreditNow { free, granted, held } = node.credit();
    if held == Amount::default() {
        let pool = config().credit.pool;
        let sum = (free.messages + granted.messages, free.bytes + granted.bytes);
        assert_eq!(sum, (pool.messages, pool.bytes));
    }
    held
}

const NOTHING: Amount = Amount { messages: 0, bytes: 0 };

#[test]
fn a_death_gives_back_all_but_what_messages_hold_that_are_complete() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    let granted = n[0].credit().granted;
    send(&mut n[1], to, 1, 100);
    for tag in [2, 3, 4] {
        send(&mut n[1], to, tag, 9000);
    }
    settle(&mut n);
    let (probed, _) = n[0].matched_probe(&exact(3)).unwrap().unwrap();
    assert_eq!(held(&n[0]), Amount { messages: 4, bytes: 128 });
    kill(&net, 1);
    settle(&mut n[..1]);
    // The three rendezvous can't be answered any more, also the one that a probe has taken.
    assert_eq!(held(&n[0]), Amount { messages: 1, bytes: 128 });
    let receive = n[0].receive(&exact(1), Buffer::zeroed(100)).unwrap();
    assert!(n[0].requests().is_over(receive));
    assert_eq!(held(&n[0]), NOTHING);
    assert!(n[0].credit().granted.messages < granted.messages);
    assert!(n[0].receive_message(probed, Buffer::zeroed(9)).is_err());
    assert_eq!(held(&n[0]), NOTHING);
}

#[test]
fn a_message_that_a_probe_has_taken_gives_its_credit_back_when_it_is_discarded() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    for (length, cost) in [(100, 128), (9000, 0)] {
        send(&mut n[1], to, 1, length);
        settle(&mut n);
        let (probed, _) = n[0].matched_probe(&exact(1)).unwrap().unwrap();
        assert_eq!(held(&n[0]), Amount { messages: 1, bytes: cost });
        assert!(n[0].discard_message(probed));
        assert_eq!(held(&n[0]), NOTHING);
    }
}

/// One message of 64 bytes costs what it says; a peer may have a quarter of the pool.
fn small() -> EngineConfig {
    let amount = |messages| Amount { messages, bytes: messages * 64 };
    let credit = CreditConfig { pool: amount(64), first: amount(8), peer_max: amount(16) };
    EngineConfig { credit, ..config() }
}

/// Node `at` sends eager messages to node 0, numbered by their tags, and dies.
fn send_and_die(n: &mut [Node], net: &std::rc::Rc<std::cell::RefCell<wire::Net>>, at: usize) {
    let to = meet(n, at, 0);
    settle(n);
    for number in 0..8 {
        send(&mut n[at], to, at as u64 * 100 + number, 64);
        settle(n);
    }
    kill(net, at);
    settle(&mut n[..at]);
}

#[test]
fn messages_of_the_dead_that_nobody_receives_never_use_up_the_pool() {
    let (net, mut n) = nodes(42, &small());
    let probed = {
        send_and_die(&mut n, &net, 1);
        n[0].matched_probe(&exact(107)).unwrap().unwrap().0
    };
    for at in 2..40 {
        send_and_die(&mut n, &net, at);
    }
    let CreditNow { free, granted, held } = n[0].credit();
    let total = small().credit.pool.bytes;
    assert!(held.bytes <= total - total / 8, "{held:?}");
    // To oneself.
    assert_eq!(granted, small().credit.first);
    // Of each sender that died, all messages are there, or none; those of the last ones are.
    let mut waiting = 0;
    for at in 2..40 {
        let from = PeerId(at);
        let is_here = |n: &mut Vec<Node>, number| {
            let pattern = exact(u64::from(at) * 100 + number).from_source(SourceId(at));
            n[0].probe(&pattern).unwrap().is_some()
        };
        let here = (0..8).filter(|number| is_here(&mut n, *number)).count();
        assert_eq!(here, if n[0].has_lost_messages(from) { 0 } else { 8 }, "{from}");
        waiting += here as u64;
        assert!(here > 0 || at < 37, "the last to die have lost messages: {from}");
    }
    let counters = n[0].counters();
    assert_eq!((counters.unexpected_now, counters.lost_messages), (waiting, 39 * 8 - 1 - waiting));
    assert_eq!((held.messages, free.bytes), (waiting + 1, total - held.bytes - granted.bytes));
    // A receive that names a sender whose messages were dropped ends at once.
    let named = n[0].receive(&exact(200).from_source(SourceId(2)), Buffer::zeroed(64));
    assert!(matches!(named.unwrap_err().fault, Fault::PeerDown { .. }));
    // A message that a probe has taken stays with its owner.
    let receive = n[0].receive_message(probed, Buffer::zeroed(64)).unwrap();
    assert!(n[0].requests_mut().take(receive).unwrap().result.is_ok());
    // Other peers find credit: their messages are eager.
    let to = meet(&mut n, 40, 0);
    settle(&mut n);
    for number in 0..8 {
        send(&mut n[40], to, 5000 + number, 64);
        settle(&mut n);
    }
    assert_eq!((n[40].counters().eager_sent, n[40].counters().rendezvous_sent), (8, 0));
}

#[test]
fn while_the_pool_is_not_short_all_messages_of_the_dead_are_received() {
    let (net, mut n) = nodes(6, &small());
    // The dead peers' messages keep more than half of the pool.
    for at in 1..6 {
        send_and_die(&mut n, &net, at);
    }
    // Whatever is granted meanwhile.
    let granted = n[0].counters().credits_sent;
    for _ in 0..20 {
        let receive = n[0].receive(&exact(9), Buffer::zeroed(64)).unwrap();
        send(&mut n[0], PeerId::ONESELF, 9, 64);
        settle(&mut n[..1]);
        assert!(n[0].requests_mut().take(receive).unwrap().result.is_ok());
    }
    assert!(n[0].counters().credits_sent > granted);
    assert_eq!((n[0].counters().lost_messages, n[0].counters().unexpected_now), (0, 40));
    for at in 1..6u64 {
        for number in 0..8 {
            let receive = n[0].receive(&exact(at * 100 + number), Buffer::zeroed(64)).unwrap();
            assert!(n[0].requests_mut().take(receive).unwrap().result.is_ok());
        }
    }
    let CreditNow { free, held, .. } = n[0].credit();
    assert_eq!((free.messages, held), (64 - 8, NOTHING));
}

/// Copies of messages wait up to a bound, which those that have left don't count for.
#[test]
fn copies_that_have_left_make_room_for_others() {
    let (_, mut n) = nodes(2, &small());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    let mut accepted = 0;
    for round in 0..5 {
        let before = accepted;
        while n[1].inject(Send::new(to, Tag(accepted), &[7; 64]), 10_000).unwrap() {
            accepted += 1;
            assert!(accepted < before + 120, "no bound");
        }
        assert!(accepted >= before + 70, "round {round}: copies that are gone still count");
        for tag in before..accepted {
            let receive = n[0].receive(&exact(tag), Buffer::zeroed(64)).unwrap();
            settle(&mut n);
            assert!(n[0].requests().is_over(receive), "message {tag}");
        }
    }
}

#[test]
fn a_send_waits_for_a_place_to_be_read_from_and_fails_where_there_is_none_at_all() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    net.borrow_mut().exposures_max = Some(1);
    let send = |n: &mut Node, tag| match n
        .send(Send::new(to, Tag(tag), Buffer::zeroed(9000)), SendMode::Standard)
    {
        Started::Pending(request) => request,
        over => panic!("over at once: {over:?}"),
    };
    let sends = [1, 2].map(|tag| send(&mut n[0], tag));
    settle(&mut n);
    for (tag, send) in [1, 2].into_iter().zip(sends) {
        assert!(!n[0].requests().is_over(send));
        let receive = n[1].receive(&exact(tag), Buffer::zeroed(9000)).unwrap();
        settle(&mut n);
        assert!(n[1].requests_mut().take(receive).unwrap().result.is_ok());
        assert!(n[0].requests_mut().take(send).unwrap().result.is_ok());
    }
    // A wait would have no end: nothing is read that would leave a place.
    net.borrow_mut().exposures_max = Some(0);
    let send = send(&mut n[0], 3);
    settle(&mut n);
    let end = n[0].requests_mut().take(send).expect("the send waits");
    assert!(matches!(end.result, Err(Fault::NotExposed { peer, .. }) if peer == to));
    assert_eq!(end.buffer.len(), 9000);
}

#[test]
fn a_buffer_that_cant_be_registered_ends_its_send_with_the_call_and_the_limit() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    net.borrow_mut().expose_fails = Some(12);
    let buffer = Buffer::zeroed(9000);
    let started = n[0].send(Send::new(to, Tag(1), buffer), SendMode::Standard);
    let Started::Pending(request) = started else { panic!("over at once: {started:?}") };
    settle(&mut n);
    let end = n[0].requests_mut().take(request).expect("the send waits");
    let why = end.result.unwrap_err().to_string();
    for part in ["Cannot allocate memory (os error 12)", "ulimit", "; more?"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn rendezvous_requests_beyond_the_credit_end_their_sender_and_no_other_peer() {
    let (net, mut n) = nodes(3, &small());
    let peer = meet(&mut n, 0, 1);
    let other = meet(&mut n, 2, 0);
    settle(&mut n);
    let span = RemoteSpan { address: 0, key: 0, length: 9000 };
    let request = Rendezvous::new(AppCtx(0), Tag(1), span, None).emit();
    for _ in 0..100 {
        forge(&net, 1, 0, &request);
    }
    for _ in 0..20 {
        n[0].progress();
    }
    let fault = n[0].peer_fault(peer);
    assert!(matches!(fault, Some(PeerFault::Protocol(WireError::Credit { .. }))), "{fault:?}");
    assert_eq!(n[0].credit().held, NOTHING, "nobody can read for them any more");
    send(&mut n[2], other, 2, 9000);
    let receive = n[0].receive(&exact(2), Buffer::zeroed(9000)).unwrap();
    settle(&mut n);
    assert!(n[0].requests().is_over(receive));
}

#[test]
fn a_wait_for_room_is_counted_once_however_often_it_is_tried() {
    let (_net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    for round in 1..=3 {
        // The queue has room for eight messages.
        (0..10).for_each(|tag| send(&mut n[0], to, tag, 8));
        for _ in 0..20 {
            n[0].progress();
        }
        assert_eq!(n[0].counters().room_stalls, round);
        settle(&mut n);
        for tag in 0..10 {
            n[1].receive(&exact(tag), Buffer::zeroed(8)).unwrap();
        }
        settle(&mut n);
    }
}

#[test]
fn a_send_that_waits_for_credit_is_counted_once_however_often_it_is_tried() {
    let (_net, mut n) = nodes(2, &small());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let mut sent = 0;
    while n[0].credit_waits().is_empty() {
        send(&mut n[0], to, sent, 64);
        sent += 1;
        settle(&mut n);
    }
    assert_eq!(n[0].counters().credit_stalls, 1);
    // Each one-sided operation has the peer's backlog tried again.
    for _ in 0..5 {
        let action = RemoteAction::Get { into: Buffer::zeroed(8) };
        let key = RegionKey(1);
        let place = RegionPlace::default();
        let get = RemoteOperation { peer: to, key, place, offset: 0, action };
        n[0].begin_remote(get).unwrap();
        settle(&mut n);
    }
    assert_eq!(n[0].counters().credit_stalls, 1);
    for tag in 0..sent {
        n[1].receive(&exact(tag), Buffer::zeroed(64)).unwrap();
    }
    settle(&mut n);
    assert!(n[0].credit_waits().is_empty());
    // Another send has to wait.
    while n[0].credit_waits().is_empty() {
        send(&mut n[0], to, sent, 64);
        sent += 1;
        settle(&mut n);
    }
    assert_eq!(n[0].counters().credit_stalls, 2);
}
