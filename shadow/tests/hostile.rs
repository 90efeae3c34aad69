//! A NIC may report any events in any order: the shadow returns errors and its counters stay
//! consistent.

use proptest::prelude::*;
use tagmatch_shadow::table::State;
use tagmatch_shadow::{Op, Refusal, Shadow, ShadowConfig};
use tagmatch_soft::{Pattern, Tag, TagMask};

const SLOTS: u32 = 3;

fn shadow() -> Shadow {
    Shadow::new(&ShadowConfig {
        slots: SLOTS,
        operations: 8,
        sync_every: 2,
        first_count: u16::MAX,
        threshold: 0,
        read_max: u64::MAX,
        source_bits: TagMask(0),
    })
}

/// Makes one call. Events name any slot, or a slot that doesn't exist.
fn call(shadow: &mut Shadow, what: u8, which: u32) {
    let slot = which % (SLOTS + 1);
    let id = which % 12;
    match what {
        0 => {
            let _ = shadow.added(slot);
        }
        1 => {
            let _ = shadow.matched(slot);
        }
        2 => {
            let _ = shadow.landed(slot);
        }
        3 => {
            let _ = shadow.deleted(slot);
        }
        4 => {
            let _ = shadow.lost(slot);
        }
        5 => {
            shadow.take(id, which.is_multiple_of(2));
        }
        6 => {
            shadow.cancel(id);
        }
        7 => shadow.searched(),
        8 => shadow.unexpected_reported(),
        _ => shadow.end(id),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_events_leave_consistent_counters(
        calls in prop::collection::vec((0u8..10, any::<u32>(), 0u8..8), 1..80),
    ) {
        let mut shadow = shadow();
        let mut next = 0;
        for (what, which, refuse) in calls {
            if which.is_multiple_of(3) {
                let mask = if which.is_multiple_of(2) { u64::MAX } else { 0 };
                shadow.post(next, &Pattern::new(Tag(u64::from(which % 4)), TagMask(mask)), 1, true);
                next += 1;
            }
            call(&mut shadow, what, which);
            let mut ops = 0;
            while let Some(due) = shadow.next_op() {
                ops += 1;
                prop_assert!(ops <= 100, "next_op never ends");
                let all = [Refusal::ListFull, Refusal::QueueFull, Refusal::Buffer];
                match all.get(usize::from(refuse)) {
                    Some(refusal) => due.refused(*refusal),
                    None => {
                        let handle =
                            if let Op::Add { slot, .. } = due.op() { Some(slot) } else { None };
                        due.accepted(handle);
                    }
                }
            }
            let free = shadow.slots_in(State::Free);
            prop_assert_eq!(shadow.counters().slots + free, SLOTS as usize);
            prop_assert!(shadow.counters().waiting <= shadow.counters().receives);
        }
    }
}
