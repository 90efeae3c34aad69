//! Fault tolerance on the simulated network: ranks are killed at every step.

use common::Deaths::{AllPairs, InTurn};
use common::{creations, ft, inter};
use tagmatch_comm::{Config, Error, Source};
use tagmatch_comm_sim::Kill;

use crate::common;

#[test]
fn receives_from_any_source_report_failures_and_stay() {
    ft::any_source(200);
}

#[test]
fn agreements_are_the_same_at_all_living_members() {
    for (processes, seeds) in [(2, 20), (3, 30), (4, 30), (5, 20), (6, 20)] {
        ft::agreements(InTurn, processes, seeds);
    }
}

#[test]
fn revocations_end_everything_but_agreements() {
    for (processes, seeds) in [(2, 20), (3, 20), (5, 10)] {
        ft::revocations(InTurn, processes, seeds);
    }
}

#[test]
fn all_living_members_learn_of_a_revocation_or_none_does() {
    for (processes, seeds) in [(3, 20), (4, 20), (6, 10)] {
        ft::revocations_spread(processes, seeds);
    }
}

#[test]
fn a_late_revocation_ends_no_later_communicator() {
    ft::late_revocations(4, 100);
}

#[test]
fn all_survivors_shrink_to_the_same_communicator() {
    for (processes, seeds) in [(2, 10), (3, 8), (4, 4), (6, 2)] {
        ft::shrinks(InTurn, processes, seeds);
    }
}

#[test]
fn a_new_communicator_knows_members_that_had_failed_before() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        if world.rank() == 1 {
            return std::future::pending().await;
        }
        while world.failed().size() == 0 {
            common::turn().await;
        }
        // This communicator is made without a message.
        let part = world.intranode().unwrap();
        assert_eq!(part.failed(), world.failed());
        let mut any = part.recv(Source::Any, 1, vec![0; 1]);
        assert_eq!((&mut any).await.unwrap_err().error, Error::ProcessFailedPending);
    };
    for seed in 0..10 {
        let kills = [Kill { rank: 1, step: 3 }];
        common::try_run(3, seed, &kills, Config::default, program).unwrap();
    }
}

#[test]
fn a_new_communicator_knows_that_it_was_revoked_before_it_came() {
    for seed in 0..20 {
        common::run(3, seed, |runtime| async move {
            let world = runtime.world();
            let copy = world.dup().start();
            if world.rank() == 0 {
                copy.await.unwrap().revoke();
                for to in 1..3 {
                    world.send(to, 9, vec![]).await.unwrap();
                }
            } else {
                world.recv(0, 9, vec![]).await.unwrap();
                // Handles the messages that have arrived. The revocation is one of them.
                world.failed();
                assert!(copy.await.unwrap().is_revoked());
            }
        });
    }
}

/// Among twelve processes, rank 0 sends a revocation to ranks 1, 2, 4 and 8, and to the ranks at
/// the same distances in the other direction. Ranks 1 and 2 die before they have done anything.
/// Then rank 0 sends it to its next living neighbour, rank 3.
#[test]
fn a_revocation_reaches_the_next_living_member_when_neighbours_die() {
    for seed in 0..10 {
        let program = |runtime: common::Sims| async move {
            let world = runtime.world();
            match world.rank() {
                0 => {
                    world.revoke();
                    while world.failed().size() < 2 {
                        common::turn().await;
                    }
                }
                1 | 2 => std::future::pending().await,
                3 => {
                    while !world.is_revoked() {
                        world.failed();
                        common::turn().await;
                    }
                }
                _ => {}
            }
        };
        let kills = [1, 2].map(|rank| Kill { rank, step: 120 });
        common::try_run(12, seed, &kills, Config::default, program).unwrap();
    }
}

#[test]
#[ignore = "long: ci/test planted"]
fn each_pair_dies_at_each_pair_of_steps() {
    ft::agreements(AllPairs, 3, 1);
    ft::agreements(AllPairs, 4, 1);
    ft::revocations(AllPairs, 3, 1);
    ft::shrinks(AllPairs, 3, 1);
}

#[test]
#[ignore = "takes ten minutes: ci/pairs runs it"]
fn each_pair_dies_at_each_pair_of_steps_of_longer_runs() {
    creations::creations(AllPairs, 3, 1);
    inter::kill_all_pairs([2, 2], inter::strict);
    inter::kill_all_pairs([2, 2], inter::eventual);
}
