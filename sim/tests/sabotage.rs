//! Wires that break their promises are found, by the rules of order alone as well, and what is left of the
//! program is small.

use tagmatch_device::DeviceError;
use tagmatch_sim::{Adapter, Bare, Plan, Profile, Rule, Sabotage, Wire, shrink};

/// As if a NIC decided: nothing is predicted.
struct Unpredicted;

impl Adapter for Unpredicted {
    type Device = Wire;

    fn device(&self, wire: Wire, _: u64) -> Result<Wire, DeviceError> {
        Ok(wire)
    }

    fn software_decides(&self) -> bool {
        false
    }

    fn is_idle(&self, _: &Wire) -> bool {
        true
    }

    fn may_break(&self) -> bool {
        false
    }

    fn fault(&self, _: &Wire) -> Option<String> {
        None
    }
}

const SEEDS: u64 = 60;

/// A failing plan, and what it fails with.
fn find<A: Adapter>(adapter: &A, profile: &str, sabotage: Sabotage) -> (Plan, Rule) {
    let profile = Profile::named(profile).unwrap();
    for seed in 0..SEEDS {
        let plan = Plan { sabotage: Some(sabotage), ..Plan::new(profile, seed, 400, None) };
        if let Some(violation) = plan.run(adapter, false).violation {
            return (plan, violation.rule);
        }
    }
    panic!("{sabotage:?} was not found in {SEEDS} seeds");
}

#[test]
fn every_broken_promise_is_found() {
    for sabotage in Sabotage::ALL {
        for profile in ["mixed", "large"] {
            find(&Bare, profile, sabotage);
            find(&Unpredicted, profile, sabotage);
        }
    }
}

#[test]
fn the_rule_is_the_one_that_was_broken() {
    let mixed = |sabotage| find(&Unpredicted, "mixed", sabotage).1;
    assert!(matches!(
        mixed(Sabotage::Reorder),
        Rule::Overtaken | Rule::PostedOrder | Rule::TooEarly
    ));
    assert_eq!(mixed(Sabotage::Corrupt), Rule::Payload);
    assert_eq!(mixed(Sabotage::ShortRead), Rule::Payload);
    assert_eq!(mixed(Sabotage::LongRead), Rule::Payload);
}

#[test]
fn what_fails_becomes_small_and_fails_still() {
    for sabotage in [Sabotage::Reorder, Sabotage::Duplicate, Sabotage::Drop, Sabotage::Corrupt] {
        let (plan, rule) = find(&Unpredicted, "mixed", sabotage);
        let small = shrink(&plan, &Unpredicted);
        let report = small.run(&Unpredicted, true);
        let violation = report.violation.unwrap();
        assert_eq!(violation.rule, rule);
        assert!(small.program.len() <= 40, "{sabotage:?}: {} steps left", small.program.len());
        assert!(!report.lines.is_empty());
        // Shrinking is a function of the plan, too.
        assert_eq!(shrink(&plan, &Unpredicted).program, small.program);
    }
}

#[test]
fn a_plan_that_does_not_fail_stays_as_it_is() {
    let plan = Plan::new(Profile::named("mixed").unwrap(), 3, 100, None);
    assert_eq!(shrink(&plan, &Bare).program, plan.program);
}
