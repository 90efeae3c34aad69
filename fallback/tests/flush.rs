//! A flush ends when what was accepted before it has left this process, and what is lost is told
//! once.

mod wire;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::{
    FlushEngine, Flushing, MatchEngine, PeerFault, Send, SendMode, Unsent, WhyUnsent,
};
use tagmatch_soft::{Pattern, Tag, TagMask};

use wire::{Node, config, kill, meet, nodes, settle};

const LARGE: usize = 9000;

fn inject(node: &mut Node, to: PeerId, length: usize) {
    node.inject(Send::new(to, Tag(1), &vec![0; length]), u64::MAX).unwrap();
}

fn receive(node: &mut Node, length: usize) {
    node.receive(&Pattern::new(Tag(1), TagMask::EXACT), Buffer::zeroed(length)).unwrap();
}

fn is_flushed(node: &mut Node) -> bool {
    let mut flushing = node.begin_flush();
    node.is_flushed(&mut flushing)
}

fn unsent(peer: PeerId, messages: usize, why: WhyUnsent) -> Vec<Unsent> {
    vec![Unsent { peer, messages, why }]
}

#[test]
fn messages_to_a_peer_that_is_not_connected_have_not_left() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    assert!(is_flushed(&mut n[1]), "nothing was sent");
    for _ in 0..3 {
        inject(&mut n[1], to, 8);
    }
    let mut flushing = n[1].begin_flush();
    assert!(!n[1].is_flushed(&mut flushing));
    assert_eq!(n[1].unsent(), unsent(to, 3, WhyUnsent::NotConnected));
    settle(&mut n);
    assert!(n[1].is_flushed(&mut flushing));
    assert_eq!((n[1].unsent(), n[1].take_lost()), (vec![], vec![]));
}

#[test]
fn a_flush_waits_for_what_was_accepted_before_it_and_for_nothing_later() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    // Eight fit into the way, two wait.
    for _ in 0..10 {
        inject(&mut n[1], to, 8);
    }
    assert_eq!(n[1].unsent(), unsent(to, 2, WhyUnsent::NotTaken));
    let mut flushing = n[1].begin_flush();
    for _ in 0..8 {
        inject(&mut n[1], to, 8);
    }
    net.borrow_mut().capacity = 10;
    n[1].progress();
    assert_eq!(n[1].unsent(), unsent(to, 8, WhyUnsent::NotTaken));
    assert!(n[1].is_flushed(&mut flushing));
}

#[test]
fn a_rendezvous_has_left_when_it_was_read() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    inject(&mut n[1], to, LARGE);
    let mut flushing = n[1].begin_flush();
    settle(&mut n);
    assert!(!n[1].is_flushed(&mut flushing));
    assert_eq!(n[1].unsent(), unsent(to, 1, WhyUnsent::NotTaken));
    // A later one doesn't count.
    inject(&mut n[1], to, LARGE);
    net.borrow_mut().reads_hang = true;
    receive(&mut n[0], LARGE);
    settle_a_little(&mut n);
    assert!(!n[1].is_flushed(&mut flushing), "flushed while it is being read");
    net.borrow_mut().reads_hang = false;
    settle(&mut n);
    assert!(n[1].is_flushed(&mut flushing));
    assert_eq!(n[1].unsent(), unsent(to, 1, WhyUnsent::NotTaken));
}

fn settle_a_little(nodes: &mut [Node]) {
    for _ in 0..10 {
        nodes.iter_mut().for_each(|node| {
            node.progress();
        });
    }
}

#[test]
fn an_acknowledgement_that_is_to_come_is_not_waited_for() {
    let (_, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    let _ = n[1].send(Send::new(to, Tag(1), Buffer::default()), SendMode::Synchronous);
    let _ = n[1].send(Send::new(to, Tag(1), Buffer::zeroed(8)), SendMode::Delivered);
    assert!(is_flushed(&mut n[1]));
}

#[test]
fn messages_to_oneself_are_not_waited_for() {
    let (_, mut n) = nodes(1, &config());
    settle(&mut n);
    inject(&mut n[0], PeerId::ONESELF, LARGE);
    assert!(is_flushed(&mut n[0]) && n[0].unsent().is_empty());
}

#[test]
fn the_device_says_when_its_messages_have_left() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    let before = net.borrow().taken;
    net.borrow_mut().acknowledged = Some(before);
    inject(&mut n[1], to, 8);
    inject(&mut n[1], to, 8);
    let mut flushing: Flushing = n[1].begin_flush();
    assert!(!n[1].is_flushed(&mut flushing));
    assert_eq!(n[1].unsent(), unsent(to, 2, WhyUnsent::NotTaken));
    inject(&mut n[1], to, 8);
    net.borrow_mut().acknowledged = Some(before + 2);
    assert!(n[1].is_flushed(&mut flushing), "waits for a later message");
    assert_eq!(n[1].unsent(), unsent(to, 1, WhyUnsent::NotTaken));
}

#[test]
fn what_a_dead_peer_has_not_taken_is_told_once() {
    let (net, mut n) = nodes(3, &config());
    let to = meet(&mut n, 1, 0);
    let other = meet(&mut n, 1, 2);
    settle(&mut n);
    inject(&mut n[1], to, LARGE);
    inject(&mut n[1], other, 8);
    for _ in 0..9 {
        inject(&mut n[1], to, 8);
    }
    // Its acknowledgement would not have been waited for.
    let _ = n[1].send(Send::new(to, Tag(1), Buffer::default()), SendMode::Synchronous);
    let mut flushing = n[1].begin_flush();
    assert!(!n[1].is_flushed(&mut flushing));
    kill(&net, 0);
    settle(&mut n[1..]);
    assert!(n[1].is_flushed(&mut flushing));
    // The rendezvous, and the three that found no room after it and seven others.
    assert_eq!(n[1].take_lost(), unsent(to, 4, WhyUnsent::Down(PeerFault::Gone)));
    assert_eq!((n[1].take_lost(), n[1].unsent()), (vec![], vec![]));
}

#[test]
fn what_the_device_has_lost_is_told_once() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    inject(&mut n[1], to, 8);
    assert!(is_flushed(&mut n[1]));
    net.borrow_mut().loses = true;
    n[1].disconnect(to);
    settle(&mut n);
    assert!(is_flushed(&mut n[1]));
    assert_eq!(n[1].take_lost(), unsent(to, 1, WhyUnsent::Down(PeerFault::Disconnected)));
    assert_eq!(n[1].take_lost(), []);
}
