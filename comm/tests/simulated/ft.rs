//! Going on after failures, on the simulated network: ranks are killed at every step.

use crate::common;
use common::Deaths::{AllPairs, InTurn};
use common::{creations, ft, inter};

#[test]
fn receives_from_any_source_report_failures_and_stay() {
    ft::any_source(None, 200);
}

#[test]
fn agreements_are_the_same_at_all_who_live() {
    for (processes, seeds) in [(2, 20), (3, 30), (4, 30), (5, 20), (6, 20)] {
        ft::agreements(InTurn, None, processes, seeds);
    }
}

#[test]
fn revocations_end_everything_but_agreements() {
    for (processes, seeds) in [(2, 20), (3, 20), (5, 10)] {
        ft::revocations(InTurn, None, processes, seeds);
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
        ft::shrinks(InTurn, None, processes, seeds);
    }
}

#[test]
#[ignore = "long: ci/test planted"]
fn each_two_die_at_each_two_steps() {
    ft::agreements(AllPairs, None, 3, 1);
    ft::agreements(AllPairs, None, 4, 1);
    ft::revocations(AllPairs, None, 3, 1);
    ft::shrinks(AllPairs, None, 3, 1);
}

#[test]
#[ignore = "takes ten minutes: ci/pairs runs it"]
fn each_two_die_at_each_two_steps_of_longer_ways() {
    creations::creations(AllPairs, None, 3, 1);
    inter::kill_all_pairs([2, 2], inter::strict);
    inter::kill_all_pairs([2, 2], inter::eventual);
}
