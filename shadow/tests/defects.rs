//! The checks of `world` find each planted bug.
#![cfg(feature = "defects")]

mod world;

use tagmatch_shadow::Defect;
use world::World;

/// Seeds within which a planted bug must be found.
const SEEDS: u64 = 20_000;

#[test]
fn every_planted_bug_is_found() {
    let mut unfound = vec![];
    for defect in Defect::ALL {
        let wrong = |seed| World::new(seed, Some(defect)).run(300).err().map(|wrong| (seed, wrong));
        match (0..SEEDS).find_map(wrong) {
            Some((seed, wrong)) => println!("{defect:?}: seed {seed}: {wrong}"),
            None => unfound.push(defect),
        }
    }
    assert!(unfound.is_empty(), "not found within {SEEDS} seeds: {unfound:?}");
}
