//! Tests of credit.

use proptest::prelude::*;

use super::*;

fn config() -> CreditConfig {
    CreditConfig {
        pool: Amount { messages: 1000, bytes: 100_000 },
        first: Amount { messages: 50, bytes: 4096 },
        peer_max: Amount { messages: 600, bytes: 60_000 },
    }
}

#[test]
fn a_peer_that_is_served_at_once_never_stalls() {
    let mut pool = Pool::new(config());
    let (mut grant, first) = CreditGrant::open(&mut pool);
    let mut allowance = SendCredit(first);
    for _ in 0..10_000 {
        let cost = Amount::eager(100);
        assert!(allowance.covers(cost));
        allowance.spend(cost);
        assert!(grant.arrived(cost));
        grant.freed(cost, &mut pool);
        if let Some(credit) = grant.due(&mut pool) {
            allowance.add(credit);
        }
    }
    grant.close(&mut pool);
    assert!(pool.is_whole());
}

#[test]
fn messages_that_wait_let_the_grant_grow_to_its_bound() {
    let mut pool = Pool::new(config());
    let (mut grant, first) = CreditGrant::open(&mut pool);
    let mut allowance = SendCredit(first);
    let mut waiting = 0;
    while allowance.covers(Amount::RENDEZVOUS) {
        allowance.spend(Amount::RENDEZVOUS);
        assert!(grant.arrived(Amount::RENDEZVOUS));
        waiting += 1;
        if let Some(credit) = grant.due(&mut pool) {
            allowance.add(credit);
        }
    }
    assert_eq!(waiting, 600);
    // A peer that goes down makes room for another one, so no peer waits for ever.
    grant.freed(Amount::RENDEZVOUS, &mut pool);
    assert_eq!(grant.due(&mut pool).map(|credit| credit.messages), Some(1));
}

#[test]
fn waiting_bytes_stay_within_the_bound_of_a_peer() {
    let mut pool = Pool::new(config());
    let (mut grant, first) = CreditGrant::open(&mut pool);
    let mut allowance = SendCredit(first);
    let cost = Amount::eager(1000);
    let mut waiting = 0;
    while allowance.covers(cost) {
        allowance.spend(cost);
        assert!(grant.arrived(cost));
        waiting += cost.bytes;
        if let Some(credit) = grant.due(&mut pool) {
            allowance.add(credit);
        }
        assert!(grant.limit.bytes <= 60_000, "{grant:?}");
    }
    assert_eq!(waiting, 58 * 1024);
}

#[test]
fn what_comes_back_to_a_short_pool_stays_there() {
    let mut pool = Pool::new(config());
    let (mut first, allowed) = CreditGrant::open(&mut pool);
    let (mut second, _) = CreditGrant::open(&mut pool);
    let cost = Amount::RENDEZVOUS;
    let mut allowance = SendCredit(allowed);
    let fill = |grant: &mut CreditGrant, allowance: &mut SendCredit, pool: &mut Pool| {
        let mut waiting = 0;
        while allowance.covers(cost) {
            allowance.spend(cost);
            assert!(grant.arrived(cost));
            waiting += 1;
            if let Some(credit) = grant.due(pool) {
                allowance.add(credit);
            }
        }
        waiting
    };
    let waiting = fill(&mut first, &mut allowance, &mut pool);
    let mut other = SendCredit(Amount { messages: second.outstanding().messages, bytes: 0 });
    fill(&mut second, &mut other, &mut pool);
    assert!(pool.free.messages <= 1000 / 8, "{pool:?}");
    for _ in 0..waiting {
        first.freed(cost, &mut pool);
        if let Some(credit) = first.due(&mut pool) {
            allowance.add(credit);
        }
    }
    assert!(first.limit.messages < waiting, "it kept all of {waiting}: {first:?}");
    assert!(allowance.covers(cost));
}

/// The limit of messages, or of bytes, after a look at a grant of which all that is not
/// outstanding or held has come back. The other unit has no part in it.
fn adapted(unit: fn(u64) -> Amount, free: u64, limit: u64, [out, held]: [u64; 2]) -> u64 {
    let sum = |amount: Amount| amount.messages + amount.bytes;
    let all = CreditConfig { pool: unit(1000), first: unit(50), peer_max: unit(600) };
    let mut pool = Pool { free: unit(free), ..Pool::new(all) };
    let mut grant = CreditGrant { from_pool: unit(limit), ..CreditGrant::default() };
    grant.set_limit(unit(limit));
    grant.set_outstanding(unit(out));
    grant.held = unit(held);
    grant.adapt(&mut pool);
    assert_eq!(sum(pool.free) + sum(grant.from_pool), free + limit);
    sum(grant.limit)
}

#[test]
fn a_grant_grows_and_shrinks_with_the_room_in_the_pool() {
    let messages = |messages| Amount { messages, bytes: 0 };
    let bytes = |bytes| Amount { messages: 0, bytes };
    for unit in [messages, bytes] {
        // Most of the pool is free: double, at least by the first grant, up to the bound.
        let roomy = [(40, 90), (100, 200), (550, 600), (600, 600)];
        for (limit, after) in roomy {
            assert_eq!(adapted(unit, 501, limit, [limit, 0]), after);
        }
        // Half of it: only if more than a quarter of the limit waits here.
        let half = [(25, 100), (26, 200)];
        for (held, after) in half {
            assert_eq!(adapted(unit, 500, 100, [100 - held, held]), after);
            assert_eq!(adapted(unit, 126, 100, [100 - held, held]), after);
        }
        assert_eq!(adapted(unit, 125, 100, [74, 26]), 100);
        // An eighth: what has come back stays in the pool, but for the first grant.
        assert_eq!(adapted(unit, 126, 200, [20, 30]), 200);
        assert_eq!(adapted(unit, 125, 200, [20, 30]), 50);
        assert_eq!(adapted(unit, 125, 200, [20, 160]), 180);
    }
}

#[test]
fn a_full_pool_still_lets_a_new_peer_send() {
    let empty = Amount { messages: 0, bytes: 0 };
    let mut pool = Pool::new(CreditConfig { pool: empty, ..config() });
    let (_, first) = CreditGrant::open(&mut pool);
    assert_eq!(first, Amount { messages: FLOOR_MESSAGES, bytes: 0 });
}

#[test]
fn spending_beyond_the_grant_is_noticed() {
    let mut pool = Pool::new(config());
    let (mut grant, first) = CreditGrant::open(&mut pool);
    assert!(!grant.arrived(Amount { messages: 1, bytes: first.bytes + 1 }));
    assert!(grant.arrived(Amount { messages: 1, bytes: first.bytes }));
    assert!(!grant.arrived(Amount::eager(1)));
}

proptest! {
    /// Whatever peers do, no credit is lost or invented, the pool is never overdrawn, and a
    /// peer none of whose messages wait can always send.
    #[test]
    fn credits_are_conserved(steps in prop::collection::vec((0..4usize, 0..3u8, 0..3000usize), 1..600)) {
        let mut pool = Pool::new(config());
        let mut peers: Vec<_> = (0..4).map(|_| {
            let (grant, first) = CreditGrant::open(&mut pool);
            (grant, SendCredit(first), Vec::new())
        }).collect();
        for (peer, what, size) in steps {
            let (grant, allowance, waiting) = &mut peers[peer];
            let cost = if size % 3 == 0 { Amount::RENDEZVOUS } else { Amount::eager(size) };
            if what < 2 && allowance.covers(cost) {
                allowance.spend(cost);
                let left = grant.outstanding().minus(cost);
                let stays_high = grant.stays_high(cost);
                prop_assert_eq!(stays_high, left.covers(grant.low));
                if what == 0 {
                    prop_assert!(grant.arrived(cost));
                    waiting.push(cost);
                } else if stays_high {
                    grant.passed_high(cost);
                } else {
                    grant.passed(cost);
                }
            } else if let Some(cost) = (!waiting.is_empty()).then(|| waiting.swap_remove(size % waiting.len())) {
                grant.freed(cost, &mut pool);
            }
            if let Some(credit) = grant.due(&mut pool) {
                allowance.add(credit);
            }
            prop_assert_eq!(grant.outstanding(), allowance.0);
            prop_assert_eq!(grant.limit, grant.outstanding().plus(grant.held).plus(grant.back()));
            prop_assert!(!waiting.is_empty() || allowance.covers(Amount::RENDEZVOUS));
            let granted = peers.iter().fold(Amount::default(), |sum, p| sum.plus(p.0.from_pool));
            prop_assert_eq!(granted.plus(pool.free), config().pool);
        }
        for (mut grant, _, waiting) in peers {
            grant.close(&mut pool);
            for cost in waiting {
                grant.freed(cost, &mut pool);
            }
        }
        prop_assert!(pool.is_whole());
    }
}
