//! The oracle finds each fault of the wires, even by the rules of order alone, and the failing
//! program can be shrunk.

use tagmatch_sim::{Bare, Devices, Plan, Profile, Rule, WireFault, shrink};

/// Bare wires with an oracle that predicts each match, and one that predicts none, as if a NIC
/// decided.
const PREDICTED: Bare = Bare { is_unpredicted: false };
const UNPREDICTED: Bare = Bare { is_unpredicted: true };

const SEEDS: u64 = 60;

/// A failing plan, and the rule that it breaks.
fn find(bare: Bare, profile: &str, wire_fault: WireFault) -> (Plan, Rule) {
    let profile = Profile::named(profile).unwrap();
    for seed in 0..SEEDS {
        let drawn = Plan::new(profile, seed, 400, None);
        let devices = Devices::Bare(bare);
        let plan = Plan { wire_fault: Some(wire_fault), devices, ..drawn };
        if let Some(violation) = plan.run(false).violation {
            return (plan, violation.rule);
        }
    }
    panic!("{wire_fault:?} was not found in {SEEDS} seeds");
}

#[test]
fn every_wire_fault_is_found() {
    for wire_fault in WireFault::ALL {
        for profile in ["mixed", "large"] {
            find(PREDICTED, profile, wire_fault);
            find(UNPREDICTED, profile, wire_fault);
        }
    }
}

#[test]
fn the_rule_is_the_one_that_was_broken() {
    let mixed = |wire_fault| find(UNPREDICTED, "mixed", wire_fault).1;
    assert!(matches!(
        mixed(WireFault::Reorder),
        Rule::Overtaken | Rule::PostedOrder | Rule::TooEarly
    ));
    assert_eq!(mixed(WireFault::Corrupt), Rule::Payload);
    assert_eq!(mixed(WireFault::ShortRead), Rule::Payload);
    assert_eq!(mixed(WireFault::LongRead), Rule::Payload);
}

#[test]
fn a_failing_plan_shrinks_and_still_fails() {
    for wire_fault in
        [WireFault::Reorder, WireFault::Duplicate, WireFault::Drop, WireFault::Corrupt]
    {
        let (plan, rule) = find(UNPREDICTED, "mixed", wire_fault);
        let small = shrink(&plan);
        let report = small.run(true);
        let violation = report.violation.unwrap();
        assert_eq!(violation.rule, rule);
        assert!(small.program.len() <= 40, "{wire_fault:?}: {} steps left", small.program.len());
        assert!(!report.lines.is_empty());
        // Shrinking is deterministic.
        assert_eq!(shrink(&plan).program, small.program);
    }
}

#[test]
fn a_plan_that_does_not_fail_stays_as_it_is() {
    let plan = Plan::new(Profile::named("mixed").unwrap(), 3, 100, None);
    assert_eq!(shrink(&plan).program, plan.program);
}
