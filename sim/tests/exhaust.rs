//! Small scopes, explored completely: nothing is found in the code, and every planted bug that a small
//! scope can show.

use tagmatch_sim::{Explored, Scope};

/// All messages through the list, and one sender's past it.
fn both(scope: Scope) -> [Scope; 2] {
    [false, true].map(|second_passes| Scope { second_passes, ..scope })
}

fn passes(scope: Scope) -> Explored {
    match scope.explore(2) {
        Ok(explored) => explored,
        Err(failure) => panic!("{scope}: {failure}"),
    }
}

#[test]
fn states_of_one_digest_have_one_future() {
    for (receives, messages, cancels, tags, least) in
        [(1, 1, 1, 2, 400), (2, 1, 0, 2, 3000), (1, 2, 0, 2, 2000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
            let scope = Scope { all_names: true, ..scope };
            let explored = passes(Scope { is_thorough: true, ..scope });
            assert!(explored.states > least, "{scope}: {explored}");
            // Orders that are left out come to nothing else.
            assert_eq!(passes(scope).ends, explored.ends, "{scope}");
        }
    }
}

#[test]
fn nothing_is_found_in_small_scopes() {
    for (receives, messages, cancels, tags, least) in
        [(2, 1, 1, 2, 21_000), (1, 2, 1, 2, 7000), (2, 2, 0, 1, 12_000), (1, 3, 1, 1, 10_000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
            let explored = passes(scope);
            assert!(explored.states > least, "{scope}: {explored}");
            println!("{scope}: {explored}");
        }
    }
}

/// Planted bugs, and the smallest scope that was found to show each. (Random programs find the others:
/// `sim/tests/planted.rs` and `shadow/tests/defects.rs`.)
mod planted {
    use tagmatch_fallback::ShadowDefect;
    use tagmatch_fallback::ShadowDefect::*;
    use tagmatch_sim::Scope;

    /// Did not show in any scope tried, up to 3 receives, 3 messages and a cancel.
    const NOT_FOUND: [ShadowDefect; 5] =
        [C1BlindToInactive, CountBeforeWithdraw, AddBeforeWithdraw, NoReserve, PhaseBySearched];

    fn scope(defect: ShadowDefect) -> Scope {
        match defect {
            FreeAtFirstCompletion | LostIsCancelled => Scope::new(1, 1, 1, 1),
            ForgetToPromote => Scope::new(2, 1, 0, 1),
            ForgetSync => Scope { held_max: 2, ..Scope::new(0, 4, 0, 1) },
            // The count is told with the next operation and not before.
            StaleCountInAdd => Scope { sync_limit: 9, ..Scope::new(2, 2, 0, 1) },
            TakeWhileCancelled => Scope::new(2, 2, 1, 1),
            DeliverOtherDeviceAtOnce => Scope { second_passes: true, ..Scope::new(2, 2, 0, 2) },
            _ => Scope::new(2, 2, 0, 2),
        }
    }

    #[test]
    fn planted_bugs_are_found() {
        for defect in ShadowDefect::ALL {
            if NOT_FOUND.contains(&defect) {
                continue;
            }
            let honest = scope(defect);
            let scope = Scope { defect: Some(defect), ..honest };
            match scope.explore(2) {
                Ok(explored) => panic!("{defect:?} is not found in {scope}: {explored}"),
                Err(failure) => println!("{defect:?}: {scope}: {failure}"),
            }
            // It is the bug that was found.
            super::passes(honest);
        }
    }
}
