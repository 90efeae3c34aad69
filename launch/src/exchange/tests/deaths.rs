//! Processes that die at each stage of an exchange.

use super::{STAGES, World};
use crate::error::Error;

/// Mappings of five processes, and the processes that can open no board.
const LAYOUTS: [(&str, &[u32]); 6] = [
    ("(vector,(0,1,5))", &[]),
    ("(vector,(0,2,3))", &[]),
    ("(vector,(0,2,1))", &[]),
    ("(vector,(0,5,1))", &[]),
    ("unknown", &[]),
    ("(vector,(0,1,5))", &[1, 4]),
];

fn bytes(rank: u32) -> Vec<u8> {
    vec![u8::try_from(rank).unwrap(); rank as usize]
}

fn all() -> Vec<Vec<u8>> {
    (0..5).map(bytes).collect()
}

/// Who makes the board that a process writes to; the process itself if it writes to none.
fn leader(layout: usize, rank: u32) -> u32 {
    match layout {
        0 => 0,
        1 => [0, 0, 0, 3, 3][rank as usize],
        2 => rank % 2,
        5 => [0, 1, 0, 0, 4][rank as usize],
        _ => rank,
    }
}

#[test]
fn all_processes_get_the_bytes_of_all_whichever_machines_they_are_on() {
    for (mapping, apart) in LAYOUTS {
        let results = World::new(5, mapping, apart, bytes).run(|_, _| {});
        assert_eq!(results.len(), 5);
        for (rank, result) in results {
            assert_eq!(result.unwrap(), all(), "{mapping}: {rank}");
        }
    }
}

#[test]
fn a_death_at_any_stage_is_told_to_all_or_stops_nobody() {
    for (layout, (mapping, apart)) in (0..).zip(LAYOUTS) {
        for dies in 0..5 {
            for at in 0..STAGES {
                let mut world = World::new(5, mapping, apart, bytes);
                let results = world.run(|world, stage| {
                    if stage == at {
                        world.kill(dies);
                    }
                });
                assert_eq!(results.len(), 4);
                // A leader has to put its bundle, another process to write its bytes.
                let is_heard = at > if leader(layout, dies) == dies { 4 } else { 2 };
                for (rank, result) in results {
                    match result {
                        Ok(result) if is_heard => assert_eq!(result, all()),
                        Err(Error::Dead { rank }) if !is_heard => assert_eq!(rank, dies),
                        other => panic!("{mapping}, {dies} dies at {at}: {rank} has {other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_death_between_two_writes_is_told_to_all_or_stops_nobody() {
    for (mapping, apart) in LAYOUTS {
        for (dies, writes) in (0..15).map(|at| (at / 3, at % 3)) {
            let results = World::new(5, mapping, apart, bytes).run(|world, stage| {
                if stage == 2 {
                    world.kill_within(stage, dies, writes);
                }
            });
            for (_, result) in results {
                match result {
                    Ok(result) => assert_eq!(result, all()),
                    Err(Error::Dead { rank }) => assert_eq!(rank, dies),
                    Err(other) => panic!("{mapping}, {dies} dies after {writes}: {other}"),
                }
            }
        }
    }
}

#[test]
fn two_deaths_at_any_stages_are_told_by_their_ranks() {
    for (mapping, apart) in LAYOUTS {
        for (first, second) in (0..25).map(|pair| (pair / 5, pair % 5)) {
            for (at, later) in (0..STAGES * STAGES).map(|at| (at / STAGES, at % STAGES)) {
                let results = World::new(5, mapping, apart, bytes).run(|world, stage| {
                    for (dies, at) in [(first, at), (second, later)] {
                        if stage == at {
                            world.kill(dies);
                        }
                    }
                });
                for (_, result) in results {
                    match result {
                        Ok(result) => assert_eq!(result, all()),
                        Err(Error::Dead { rank }) => assert!([first, second].contains(&rank)),
                        Err(other) => panic!("{mapping}, {first} {at}, {second} {later}: {other}"),
                    }
                }
            }
        }
    }
}
