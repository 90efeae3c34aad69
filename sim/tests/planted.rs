//! Each planted bug is found. With `--nocapture`: within how many seeds, and how it shows.

use tagmatch_sim::{Plan, Profile, Violation};

/// Seeds of each profile that are tried before a bug counts as not found.
const SEEDS: u64 = 3000;
const STEPS: u32 = 600;
const PROFILES: [&str; 3] = ["nic-wild", "nic-deaths", "nic"];

/// Bugs that cost speed alone, or need states that an engine doesn't reach which hands over each operation
/// at once. `shadow/tests/defects.rs` finds them.
const FOUND_BY_SHADOW: [tagmatch_shadow::Defect; 5] = [
    tagmatch_shadow::Defect::CountBeforeWithdraw,
    tagmatch_shadow::Defect::AddBeforeWithdraw,
    tagmatch_shadow::Defect::NoReserve,
    tagmatch_shadow::Defect::AgainOldestFirst,
    tagmatch_shadow::Defect::ForgetToPromote,
];

type Planted = (Option<tagmatch_fallback::Defect>, Option<tagmatch_shadow::Defect>);

/// The profile, the number of seeds and the broken rule by which a bug was found.
fn find(planted: Planted) -> Option<(&'static str, u64, Violation)> {
    for seed in 0..SEEDS {
        for name in PROFILES {
            let profile = Profile::named(name)?;
            let mut plan = Plan::new(profile, seed, STEPS, None);
            plan.setup.planted = planted;
            if let Some(violation) = plan.run(&profile.nic?, false).violation {
                return Some((name, seed + 1, violation));
            }
        }
    }
    None
}

#[test]
fn every_planted_bug_is_found() {
    // A bug may end in a panic, which is a way to be found.
    std::panic::set_hook(Box::new(|_| {}));
    let of_engine = tagmatch_fallback::Defect::ALL.map(|defect| (Some(defect), None));
    let of_shadow = tagmatch_shadow::Defect::ALL.into_iter();
    let of_shadow = of_shadow.filter(|defect| !FOUND_BY_SHADOW.contains(defect));
    let of_shadow = of_shadow.map(|defect| (None, Some(defect)));
    let mut missed = Vec::new();
    for planted in of_engine.into_iter().chain(of_shadow) {
        match find(planted) {
            Some((profile, seeds, violation)) => {
                println!("{planted:?}: {seeds} seeds of {profile}: {violation}");
            }
            None => missed.push(planted),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
