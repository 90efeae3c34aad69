//! Programs of many steps on simulated NICs and networks: nothing is found. `TAGMATCH_SIM_SEEDS`
//! says how many seeds of each profile are tried.

use tagmatch_sim::{Plan, Profile};

const STEPS: u32 = 600;

/// Tries seeds of one profile.
fn nothing_is_found_in(name: &str) {
    let seeds = std::env::var("TAGMATCH_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let profile = Profile::named(name).unwrap();
    for seed in 0..seeds.unwrap_or(5) {
        let plan = Plan::new(profile, seed, STEPS, None);
        assert_eq!(plan.run(false).violation, None, "{name} seed {seed}");
    }
}

#[test]
fn nothing_is_found_with_a_nic() {
    nothing_is_found_in("nic");
}

#[test]
fn nothing_is_found_with_many_wildcards() {
    nothing_is_found_in("nic-wild");
}

#[test]
fn nothing_is_found_when_workers_die() {
    nothing_is_found_in("nic-deaths");
}

#[test]
fn nothing_is_found_with_several_networks() {
    nothing_is_found_in("several");
}

#[test]
fn nothing_is_found_with_a_nic_on_one_of_several_networks() {
    nothing_is_found_in("several-nic");
}

#[test]
fn nothing_is_found_when_workers_with_several_networks_die() {
    nothing_is_found_in("several-nic-deaths");
}
