//! Processes that write nonsense: to the board, and into the launcher's key-value store.

use super::{Client, Outcome, SimBoard, World};
use crate::error::{BYTES_MAX, Error};
use crate::exchange::Collected;
use crate::exchange::board::{Board, write_record};
use crate::exchange::bundle::encode;
use crate::exchange::pieces;
use crate::exchange::store::{Reach, ValueStore};

/// Ranks 0 to 2 are on the first machine, ranks 3 to 5 on the second.
const MAPPING: &str = "(vector,(0,2,3))";

fn bytes(rank: u32) -> Vec<u8> {
    vec![u8::try_from(rank).unwrap(); 100]
}

fn all() -> Vec<Vec<u8>> {
    (0..6).map(bytes).collect()
}

fn board(leader: u32) -> SimBoard {
    SimBoard::open(&format!("0/{leader}"), 0).unwrap()
}

/// Each process's result after `meddle` was called once, before this stage.
fn results(at: usize, meddle: impl Fn(&mut World)) -> Vec<Outcome> {
    let mut world = World::new(6, MAPPING, &[], bytes);
    let results = world.run(|world, stage| {
        if stage == at {
            meddle(world);
        }
    });
    assert_eq!(results.len(), 6);
    results.into_iter().map(|(_, result)| result).collect()
}

/// All processes, or those of the other machine, are told that this process is to blame.
fn blames(at: usize, culprit: u32, meddle: impl Fn(&mut World)) {
    for (rank, result) in (0..).zip(results(at, meddle)) {
        let is_blamed = matches!(&result, Err(Error::Garbled { rank, .. }) if *rank == culprit);
        // A leader of whom others get nonsense has handed its own machine what is right.
        let is_spared = culprit == 3 && rank >= 3 && result.as_ref().is_ok_and(|got| *got == all());
        assert!(is_blamed || is_spared, "{rank}: {result:?}");
    }
}

#[test]
fn a_board_gives_its_bundles_up_to_the_first_that_is_none() {
    let mut collected = Collected::new(4);
    for rank in 0..3 {
        let bundle = encode([(rank, vec![7])].into_iter());
        assert!(collected.add(&bundle) && !collected.add(&bundle));
    }
    let mut board = collected.bundles;
    let mut all = Collected::new(4);
    all.take(&board);
    assert_eq!(all.missing(), Some(3));
    // The first byte of the second bundle, behind its length.
    let second = board.len() / 3 + size_of::<u64>();
    board[second] = u8::MAX;
    let mut some = Collected::new(4);
    some.take(&board);
    assert_eq!(some.missing(), Some(1));
}

#[test]
fn a_process_that_writes_no_record_is_to_blame() {
    let at = (1 + 2) * (4096 + BYTES_MAX as u64);
    for length in [u64::MAX, BYTES_MAX as u64 + 2, 0] {
        // After all have written to the board, and before their leader reads it.
        blames(4, 2, |_| board(0).write(at, &length.to_le_bytes()).unwrap());
    }
}

#[test]
fn nonsense_in_place_of_what_a_leader_hands_on_costs_requests_and_nothing_else() {
    let nonsense = [&[0xff; 64][..], &[0; 64], &[], &[1, 0, 0, 0, 0, 0, 0, 0, 7]];
    for bytes in nonsense {
        let results = results(8, |world| {
            let part = world.parts[4].as_ref().unwrap();
            write_record(part.board.as_ref().unwrap(), 3, bytes).unwrap();
        });
        for result in results {
            assert_eq!(result.unwrap(), all(), "{bytes:?}");
        }
    }
}

#[test]
fn a_board_that_cannot_be_opened_costs_requests_and_nothing_else() {
    for place in ["nowhere", "0/3", ""] {
        let results = results(2, |world| {
            world.client(0).put("tagmatch-0-0-board", place, Reach::Machine).unwrap();
        });
        // The board of another machine can be opened here; its leader doesn't look for this rank.
        for result in results {
            match result {
                Ok(result) => assert_eq!(result, all()),
                Err(Error::Garbled { rank, .. }) => assert!(place == "0/3" && rank < 3, "{rank}"),
                Err(other) => panic!("{place}: {other}"),
            }
        }
    }
}

#[test]
fn a_leader_that_puts_nonsense_is_to_blame() {
    // Before the leaders get the bundles.
    let puts = |bundle: &[u8]| {
        blames(6, 3, |world| pieces::put(&mut world.client(3), 0, bundle).unwrap());
    };
    puts(&[]);
    puts(&[0xff; 300]);
    let of = |ranks: &[u32]| encode(ranks.iter().map(|rank| (*rank, bytes(*rank))));
    puts(&of(&[2, 3, 4, 5]));
    puts(&of(&[4, 5]));
    let put = |client: &mut Client<'_>, value: &str| {
        client.put("tagmatch-0-3-0", value, Reach::Job).unwrap();
    };
    let whole = |world: &mut World| {
        let get = world.client(3).get(3, "tagmatch-0-3-0");
        get.unwrap().unwrap()
    };
    for garbled in ["", "0000000", "ffffffff", "+0000001", "zz", "00000002zzzz", "0000000100ff"] {
        blames(6, 3, |world| put(&mut world.client(3), garbled));
    }
    blames(6, 3, |world| {
        let value = whole(world);
        put(&mut world.client(3), &value[..value.len() - 1]);
    });
    blames(6, 3, |world| {
        let value = whole(world);
        put(&mut world.client(3), &format!("{value}00"));
    });
}

#[test]
fn a_bundle_replaces_the_bytes_of_no_process_that_another_one_has_brought() {
    let bundle = |ranks: &[u32]| encode(ranks.iter().map(|rank| (*rank, bytes(*rank))));
    let mut collected = Collected::new(4);
    assert!(collected.add(&bundle(&[0, 2])));
    let again = encode([(1, bytes(1)), (2, vec![9])].into_iter());
    assert!(!collected.add(&again));
    assert_eq!(collected.all, [Some(bytes(0)), None, Some(bytes(2)), None]);
    assert!(collected.add(&bundle(&[1, 3])));
}
