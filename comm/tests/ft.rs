//! Going on after failures, on the simulated network: ranks are killed at every step.

mod common;

use common::ft;

#[test]
fn receives_from_any_source_report_failures_and_stay() {
    ft::any_source(None, 200);
}

#[test]
fn agreements_are_the_same_at_all_who_live() {
    for (processes, seeds) in [(2, 20), (3, 30), (4, 30), (5, 20), (6, 20)] {
        ft::agreements(None, processes, seeds);
    }
}

#[test]
fn revocations_end_everything_but_agreements() {
    for (processes, seeds) in [(2, 20), (3, 20), (5, 10)] {
        ft::revocations(None, processes, seeds);
    }
}

#[test]
fn all_who_live_learn_of_a_revocation_or_none() {
    for (processes, seeds) in [(3, 20), (4, 20), (6, 10)] {
        ft::revocations_spread(None, processes, seeds);
    }
}

#[test]
fn a_late_revocation_is_of_its_own_communicator() {
    ft::late_revocations(None, 4, 100);
}

#[test]
fn all_who_live_shrink_to_the_same_communicator() {
    for (processes, seeds) in [(2, 10), (3, 10), (4, 8), (6, 4)] {
        ft::shrinks(None, processes, seeds);
    }
}
