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
        [(1, 1, 1, 2, 400), (2, 1, 0, 2, 3000), (1, 2, 0, 2, 2000), (2, 2, 0, 1, 10_000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
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
        [(2, 2, 0, 2, 80_000), (2, 2, 1, 1, 60_000), (3, 2, 0, 1, 70_000), (2, 3, 0, 1, 50_000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
            let explored = passes(scope);
            assert!(explored.states > least, "{scope}: {explored}");
            eprintln!("{scope}: {explored}");
        }
    }
}

/// Planted bugs, the smallest scope that was found to show each, and why there is none. (Random programs
/// find those: `planted` of the simulator and of the shadow.)
#[cfg(feature = "defects")]
mod planted {
    use tagmatch_fallback::ShadowDefect;
    use tagmatch_fallback::ShadowDefect::*;
    use tagmatch_sim::Scope;

    /// Receives, messages, cancels, tags, completions held back, one sender's past the list.
    type Size = (usize, u32, u32, u8, usize, bool);

    fn size(defect: ShadowDefect) -> Option<Size> {
        const ANY: usize = usize::MAX;
        Some(match defect {
            FreeAtFirstCompletion | LostIsCancelled => (1, 1, 1, 1, ANY, false),
            ForgetToPromote => (2, 1, 0, 1, ANY, false),
            IgnorePhases | ActivateEarly | SkipC1 | C1ByBucket | AgainOldestFirst => {
                (2, 2, 0, 2, ANY, false)
            }
            DeliverOtherDeviceAtOnce | TakeWhileCancelled => (2, 2, 0, 2, ANY, true),
            C1BlindToInactive | CountBeforeWithdraw | AddBeforeWithdraw | ForgetSync
            | NoReserve | StaleCountInAdd | PhaseBySearched => return None,
        })
    }

    #[test]
    fn planted_bugs_are_found() {
        for defect in ShadowDefect::ALL {
            let Some((receives, messages, cancels, tags, held_max, second_passes)) = size(defect)
            else {
                continue;
            };
            let scope = Scope::new(receives, messages, cancels, tags);
            let scope = Scope { held_max, second_passes, defect: Some(defect), ..scope };
            match scope.explore(1) {
                Ok(explored) => panic!("{defect:?} is not found in {scope}: {explored}"),
                Err(failure) => eprintln!("{defect:?}: {scope}: {failure}"),
            }
        }
    }
}
