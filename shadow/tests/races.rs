//! Random histories of a receiver and a NIC that keeps its contract; see `world`. `SHADOW_SEEDS` is
//! the number of histories, `SHADOW_FIRST` is the first seed, and `SHADOW_LOG` prints each step.

mod world;

use world::World;

#[test]
fn random_histories_are_right() {
    let seeds = std::env::var("SHADOW_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let first = std::env::var("SHADOW_FIRST").ok().and_then(|first| first.parse().ok());
    let first: u64 = first.unwrap_or(0);
    for seed in first..first + seeds.unwrap_or(1000) {
        if let Err(wrong) = World::new(seed).run(300) {
            panic!("seed {seed}: {wrong}");
        }
    }
}
