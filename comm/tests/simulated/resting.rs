//! The reuse of context ids, on the simulated network.

use common::Deaths::InTurn;
use common::resting;

use crate::common;

#[test]
fn messages_of_a_revoked_communicator_are_never_received_in_a_later_one() {
    for (processes, seeds) in [(2, 6), (3, 3), (5, 1)] {
        resting::revoked(InTurn, processes, seeds);
    }
}

#[test]
fn messages_are_received_in_the_communicator_that_they_were_sent_in() {
    for processes in [2, 3, 5] {
        resting::random(processes, 40);
    }
}

#[test]
fn an_id_that_another_process_still_uses_is_taken() {
    resting::late(90);
}

#[test]
fn operations_go_on_in_a_communicator_that_some_members_have_freed() {
    resting::under_way(5, 30);
}

#[test]
fn messages_are_received_in_the_intercommunicator_that_they_were_sent_in() {
    for sizes in [[1, 1], [2, 1], [2, 3]] {
        resting::groups(sizes, 15);
    }
}

#[test]
fn nothing_waits_that_no_process_will_receive() {
    resting::leftovers(3, 9);
}

#[test]
fn freed_ids_are_found_however_few_there_are() {
    resting::exhaustion(12);
}

#[test]
fn failed_calls_use_up_no_ids() {
    resting::calls_in_vain(6);
}

#[test]
fn nothing_waits_in_an_id_that_is_never_given_out_again() {
    resting::lost();
}

#[test]
fn ids_that_are_freed_in_any_order_are_given_out_again_when_nothing_can_arrive() {
    for (processes, seeds) in [(2, 20), (3, 20), (6, 20)] {
        resting::in_any_order(processes, seeds);
    }
}

#[test]
fn ids_are_given_out_again_by_those_that_live() {
    for (processes, seeds) in [(2, 3), (3, 2), (4, 1)] {
        resting::deaths_between(InTurn, processes, seeds);
    }
}
