//! Deaths while communicators are made, on the simulated network. One or two ranks are killed at
//! every step. No call blocks forever, and no context id is lost.

use common::Deaths::Pairs;
use common::creations::creations;

use crate::common;

#[test]
fn creations_return_when_one_or_two_of_three_die() {
    creations(Pairs(4), 3, 4);
}

#[test]
fn creations_return_when_one_or_two_of_more_die() {
    for (processes, seeds, stride) in [(2, 5, 1), (4, 2, 23), (5, 2, 61), (7, 1, 197)] {
        creations(Pairs(stride), processes, seeds);
    }
}
