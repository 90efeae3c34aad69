//! Credit comes back, whatever becomes of the message that has cost it.

mod wire;

use tagmatch_fallback::{Amount, CreditNow, SendMode};
use tagmatch_hw::{Buffer, PeerId};
use tagmatch_soft::{Pattern, Tag, TagMask};
use wire::{Node, config, kill, meet, nodes, settle};

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn send(node: &mut Node, to: PeerId, tag: u64, length: usize) {
    let _ = node.send(to, Tag(tag), None, Buffer::zeroed(length), SendMode::Standard);
}

/// What messages hold; all else of the pool is free or granted to peers that are up.
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
    let (probed, _) = n[0].matched_probe(&exact(3)).unwrap();
    assert_eq!(held(&n[0]), Amount { messages: 4, bytes: 128 });
    kill(&net, 1);
    settle(&mut n[..1]);
    // The three rendezvous can't be answered any more, also the one that a probe has taken.
    assert_eq!(held(&n[0]), Amount { messages: 1, bytes: 128 });
    let receive = n[0].receive(&exact(1), Buffer::zeroed(100)).unwrap();
    assert!(n[0].is_done(receive));
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
        let (probed, _) = n[0].matched_probe(&exact(1)).unwrap();
        assert_eq!(held(&n[0]), Amount { messages: 1, bytes: cost });
        assert!(n[0].discard_message(probed));
        assert_eq!(held(&n[0]), NOTHING);
    }
}
