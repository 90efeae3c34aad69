//! A few hundred seeds of every profile find nothing, and one seed always gives the same history.

use tagmatch_sim::{Counts, OneSidedCounts, OneSidedRun, PROFILES, Plan, Profile};

const STEPS: u32 = 120;

#[test]
fn nothing_is_found() {
    for profile in &PROFILES {
        let mut counts = Counts::default();
        for seed in 0..200 {
            let steps = match profile.name {
                "graves" => 5 * STEPS,
                // Workers meet first, and learn how each peer is reached.
                _ if profile.is_on_several() => 3 * STEPS,
                _ => STEPS,
            };
            let report = Plan::new(profile, seed, steps, None).run(false);
            assert_eq!(report.violation, None, "{} seed {seed}", profile.name);
            counts.add(&report.counts);
        }
        // The runs must do something: a profile that does nothing finds nothing.
        assert!(counts.received > 200 * 10, "{}: {counts:?}", profile.name);
        // `graves` must make workers drop messages of peers that are down.
        assert!(profile.name != "graves" || counts.lost > 4, "{}: {counts:?}", profile.name);
        // NICs must match receives: software alone would also match them right. The NICs of a
        // profile match about 300.
        assert!(profile.nic.is_none() || counts.hardware > 250, "{}: {counts:?}", profile.name);
        if profile.is_on_several() {
            assert!(counts.sent_beyond > 2000, "{}: {counts:?}", profile.name);
            // Messages must come past the list while their receives are in it.
            let is_enough = profile.nic.is_none() || counts.past_list > 300;
            assert!(is_enough, "{}: {counts:?}", profile.name);
        }
    }
}

#[test]
fn the_same_seed_is_the_same_history() {
    for profile in &PROFILES {
        for seed in [1, 1000, u64::MAX] {
            let plan = Plan::new(profile, seed, STEPS, None);
            let first = plan.run(true);
            let again = Plan::new(profile, seed, STEPS, None).run(true);
            assert_eq!(first.digest, again.digest, "{} seed {seed}", profile.name);
            assert_eq!(first.counts, again.counts);
            assert!(first.lines == again.lines && !first.lines.is_empty());
            // Keeping the history as text changes nothing.
            assert_eq!(plan.run(false).digest, first.digest);
        }
    }
}

#[test]
fn other_seeds_are_other_histories() {
    let profile = Profile::named("mixed").unwrap();
    let digest = |seed| Plan::new(profile, seed, STEPS, None).run(false).digest;
    assert!((0..20).map(digest).collect::<std::collections::BTreeSet<_>>().len() == 20);
}

#[test]
fn as_many_workers_as_asked_for() {
    for profile in &PROFILES {
        for workers in [1, 2, 9] {
            let plan = Plan::new(profile, 5, STEPS, Some(workers));
            assert_eq!(plan.setup.workers, workers);
            assert_eq!(plan.run(false).violation, None, "{} {workers}", profile.name);
        }
    }
}

/// `SIM_SEEDS` seeds of `SIM_STEPS` steps; few of them by default.
#[test]
fn one_sided_operations_take_effect_once_and_in_order() {
    let number =
        |name, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let mut all = OneSidedCounts::default();
    let seeds = number("SIM_SEEDS", 600);
    for seed in 0..seeds {
        let steps = number("SIM_STEPS", 400).try_into().unwrap();
        let done = OneSidedRun::of_seed(seed, steps).run(None);
        all.add(&done.unwrap_or_else(|violation| panic!("seed {seed}: {violation}")));
    }
    assert!(all.succeeded > 40 * seeds, "{all:?}");
    assert!(all.direct > 3 * seeds, "{all:?}");
    assert!(all.closed > 5 * seeds, "{all:?}");
}
