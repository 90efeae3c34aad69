//! A snapshot says of each send what it waits for, and of a peer what became of it.

mod wire;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::{
    Amount, ConnectionState, CreditConfig, EngineConfig, MatchEngine, Send, SendMode, SendWait,
    Started,
};
use tagmatch_soft::{Pattern, Tag, TagMask};

use wire::{Node, config, kill, meet, nodes, settle};

const LONG: usize = 9000;
const MOST: usize = 1000;

fn send(node: &mut Node, to: PeerId, length: usize, mode: SendMode) {
    match node.send(Send::new(to, Tag(length as u64), Buffer::zeroed(length)), mode) {
        Started::Pending(_) => {}
        started => panic!("{started:?}"),
    }
}

fn copy(node: &mut Node, to: PeerId) {
    node.inject(Send::new(to, Tag(8), &[0; 8]), u64::MAX).unwrap();
}

/// What the sends of a node wait for, with their lengths.
fn waits(node: &Node) -> Vec<(u64, SendWait)> {
    let sends = node.snapshot(MOST).sends.first.into_iter();
    sends.map(|send| (send.envelope.length, send.waits_for)).collect()
}

fn connection(node: &Node, peer: PeerId) -> ConnectionState {
    let mut peers = node.snapshot(MOST).peers.first.into_iter();
    peers.find(|known| known.peer == peer).unwrap().connection
}

#[test]
fn sends_wait_for_a_connection_for_receives_and_for_acknowledgements() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 1, 0);
    send(&mut n[1], to, 7, SendMode::Synchronous);
    send(&mut n[1], to, 8, SendMode::Delivered);
    send(&mut n[1], to, LONG, SendMode::Standard);
    assert_eq!(connection(&n[1], to), ConnectionState::Connecting);
    let waiting = [(7, SendWait::Connection), (8, SendWait::Turn), (LONG as u64, SendWait::Turn)];
    assert_eq!(waits(&n[1]), waiting);
    settle(&mut n);
    assert_eq!(connection(&n[1], to), ConnectionState::Up);
    let waiting =
        [(7, SendWait::Receive), (8, SendWait::Acknowledgement), (LONG as u64, SendWait::Receive)];
    assert_eq!(waits(&n[1]), waiting);
    let unexpected = n[0].snapshot(2).unexpected;
    assert_eq!((unexpected.first.len(), unexpected.left_out, unexpected.len()), (2, 1, 3));

    net.borrow_mut().reads_hang = true;
    n[0].receive(&Pattern::new(Tag(LONG as u64), TagMask::EXACT), Buffer::zeroed(LONG)).unwrap();
    let arriving = n[0].snapshot(MOST).arriving.first;
    assert_eq!((arriving.len(), arriving[0].status.length), (1, LONG as u64));
    kill(&net, 1);
    net.borrow_mut().reads_hang = false;
    settle(&mut n[..1]);
    let from = PeerId(1);
    assert!(matches!(connection(&n[0], from), ConnectionState::Down(_)));
}

#[test]
fn sends_wait_for_room_for_credit_and_for_places() {
    let amount = |messages| Amount { messages, bytes: messages * 64 };
    let credit = CreditConfig { pool: amount(64), first: amount(10), peer_max: amount(16) };
    let (net, mut n) = nodes(2, &EngineConfig { credit, operations_max: 1, ..config() });
    let to = meet(&mut n, 1, 0);
    settle(&mut n);
    (0..10).for_each(|_| copy(&mut n[1], to));
    assert_eq!(waits(&n[1]), [(8, SendWait::Room), (8, SendWait::Turn)]);
    net.borrow_mut().capacity = 100;
    settle(&mut n);
    (0..30).for_each(|_| copy(&mut n[1], to));
    settle(&mut n);
    let waiting = waits(&n[1]);
    assert_eq!(waiting.first(), Some(&(8, SendWait::Credit)), "{waiting:?}");
    let at = n[1].snapshot(MOST).peers.first.into_iter().find(|peer| peer.peer == to).unwrap();
    assert_eq!(at.backlog, waiting.len());

    while !n[0].snapshot(MOST).unexpected.is_empty() {
        n[0].receive(&Pattern::new(Tag(8), TagMask::EXACT), Buffer::zeroed(8)).unwrap();
        settle(&mut n);
    }
    assert_eq!(waits(&n[1]), []);
    send(&mut n[1], to, LONG, SendMode::Standard);
    send(&mut n[1], to, LONG, SendMode::Standard);
    let waiting = [(LONG as u64, SendWait::Receive), (LONG as u64, SendWait::Place)];
    assert_eq!(waits(&n[1]), waiting);
}
