//! What a worker tells of what it waits for.

use tagmatch::snapshot::{ConnectionState, SendWait, Snapshot};
use tagmatch::{Ability, Match, SendMode, SendOptions};

use crate::common::has;
use crate::pair::pair;

const LONG: usize = 1 << 20;
const MOST: usize = 100;

fn sends_wait_for(snapshot: &Snapshot, what: SendWait) -> bool {
    !snapshot.sends.is_empty() && snapshot.sends.first.iter().all(|send| send.waits_for == what)
}

#[test]
fn a_snapshot_names_what_waits_and_for_what() {
    if !has(Ability::Observes) {
        return;
    }
    let p = pair();
    let idle = p.b.snapshot(MOST);
    assert!(idle.posted.is_empty() && idle.unexpected.is_empty() && idle.sends.is_empty());
    let receives = [1, 2, 3].map(|tag| p.b.recv(Match::tag(tag).from(p.to_a), vec![0; 8]));
    let posted = p.b.snapshot(2).posted;
    assert_eq!((posted.len(), posted.left_out), (3, 1));
    let tags: Vec<u64> = posted.first.iter().map(|receive| receive.pattern.tag().0).collect();
    assert_eq!(tags, [1, 2], "oldest first");
    assert_eq!(posted.first, p.b.snapshot(2).posted.first, "nothing moved");

    // A message that no receive takes, and one whose bytes wait for a receive.
    let with = SendOptions::default().mode(SendMode::Synchronous);
    let sends = [8, LONG].map(|length| p.a.send_with(p.to_b, length as u64, vec![7; length], with));
    p.all_arrive();
    let unexpected = p.b.snapshot(MOST).unexpected.first;
    let told: Vec<_> =
        unexpected.iter().map(|message| (message.status.tag.0, message.status.length)).collect();
    assert_eq!(told, [(8, 8), (LONG as u64, LONG as u64)]);
    assert!(unexpected.iter().all(|message| message.is_awaited));
    let sender = p.a.snapshot(MOST);
    assert_eq!(sender.sends.len(), 2);
    assert!(sends_wait_for(&sender, SendWait::Receive), "{:?}", sender.sends);
    let mut peers = sender.peers.first.iter();
    let to_b = peers.find(|peer| peer.address == Some(p.b.address())).unwrap();
    assert_eq!(to_b.connection, ConnectionState::Up);
    assert!(sender.sends.first.iter().all(|send| send.envelope.source == to_b.peer));

    for length in [8, LONG] {
        p.ok(p.b.recv(Match::tag(length as u64), vec![0; length]));
    }
    for send in sends {
        p.ok(send);
    }
    for (tag, receive) in (1..).zip(receives) {
        p.a.inject(p.to_b, tag, &[7]).unwrap();
        p.ok(receive);
    }
    let [a, b] = [p.a.snapshot(MOST), p.b.snapshot(MOST)];
    assert!(a.sends.is_empty() && b.posted.is_empty() && b.unexpected.is_empty());
    assert_eq!(b.counters, p.b.counters());
}
