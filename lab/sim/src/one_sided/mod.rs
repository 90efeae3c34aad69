//! One-sided operations between workers on simulated wires, with deaths, beside messages.
//!
//! Workers expose regions of counters, elements and bytes, close them at any moment, and use those
//! of others, also by keys of regions that were closed. What is known of an operation is when it
//! began and when it ended, by a clock that all workers share. From that, and from the table of
//! `tagmatch::Remote`, follows what a result may be:
//! - A byte has the value of a write that has begun, and that no other write has replaced for
//!   certain ([`bytes`]).
//! - Each addition to a counter takes effect once, also if a worker dies ([`counters`]).
//! - An element that one worker alone uses has what the operations of that worker make of it in
//!   their order.
//! - The bytes of a put are there when it ends, and when its notice is taken. Notices are told
//!   once, in the order of their puts.
//! - An operation on a region that was closed before it began fails. So does one without the right,
//!   or whose bytes lie outside. Any other one fails only if the region is closed or a worker dies.
//!
//! In two runs of three, the wires do some operations without messages: in the call, or puts and
//! gets as late as a message would come. They refuse others, at once or late, or do a half;
//! messages do these.
//!
//! [`scopes`] runs small programs in every order.

mod bytes;
mod counters;
mod plan;
mod region;
mod scopes;
mod view;
mod world;

use tagmatch_device::Device;
use tagmatch_fallback::{Amount, CreditConfig, EngineConfig, Rights};
use tagmatch_soft::TagMask;
use tagmatch_testkit::random::{Random, mix};

pub use scopes::{OneSidedScopes, run_one_sided_scopes};
pub use world::OneSidedCounts;

use self::plan::{OwnUse, PlannedAction};
use self::region::{COUNTERS, OWN_WORDS, REGION_BYTES, SHARED, SimRegion};
use self::world::OneSidedWorld;
use crate::adapter::{Adapter, Bare, Devices, ModelNic, Several};
use crate::violation::{Verdict, Violation};
use crate::wire::WireConfig;

/// A run of random one-sided operations.
#[derive(Clone, Copy, Debug)]
pub struct OneSidedRun {
    /// What stands between wires and engines.
    pub devices: Devices,
    /// Decides everything else.
    pub seed: u64,
    /// Steps of the program.
    pub steps: u32,
}

impl OneSidedRun {
    /// A run whose devices the seed decides, too.
    #[must_use]
    pub fn of_seed(seed: u64, steps: u32) -> Self {
        let devices = match seed % 4 {
            0 => Devices::Nic(ModelNic { fails: false }),
            1 => Devices::Several,
            2 => Devices::SeveralWithNic(ModelNic { fails: false }),
            _ => Devices::Bare(Bare::default()),
        };
        OneSidedRun { devices, seed, steps }
    }

    /// Runs it. What has happened is added to the lines, if there are any.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(&self, lines: Option<&mut Vec<String>>) -> Result<OneSidedCounts, Violation> {
        match self.devices {
            Devices::Bare(bare) => self.run_on(&bare, 0, lines),
            Devices::Nic(nic) => self.run_on(&nic, 0, lines),
            Devices::Several => self.run_on(&Several(Bare::default()), 3, lines),
            Devices::SeveralWithNic(nic) => self.run_on(&Several(nic), 3, lines),
        }
    }

    fn run_on<A: Adapter>(
        &self,
        adapter: &A,
        machines: u32,
        lines: Option<&mut Vec<String>>,
    ) -> Result<OneSidedCounts, Violation> {
        let OneSidedRun { seed, steps, .. } = *self;
        let mut random = Random::stream(seed, 11);
        let workers = random.between((2, 4)) as usize;
        let eager_max = random.between((64, 300));
        let accesses_per_mille = Random::stream(seed, 12).pick(&[0, 500, 950]);
        let wire = WireConfig {
            message_max: eager_max + 16,
            fragments: false,
            capacity: random.between((1, 8)),
            delay_max: random.between((0, 40)),
            delayed_per_mille: 300,
            refused_per_mille: 100,
            exposures_max: 16,
            accesses_per_mille,
            calls_per_mille: accesses_per_mille,
            accesses_at_once: Random::stream(seed, 13).pick(&[1, 4]),
            machines,
            seed: mix(seed ^ 0x77),
        };
        let config = engine_config(eager_max as usize, seed);
        let mut world = OneSidedWorld::new(adapter, wire, &config, workers)?;
        world.lines = lines.is_some().then(Vec::new);
        let verdict = play(&mut world, &mut random, steps);
        if let (Some(lines), Some(more)) = (lines, world.lines.take()) {
            lines.extend(more);
        }
        verdict.map(|()| world.counts)
    }
}

/// The settings of all engines.
fn engine_config(eager_max: usize, seed: u64) -> EngineConfig {
    let amount = |messages, bytes| Amount { messages, bytes };
    let pool = amount(200, 50_000);
    EngineConfig {
        eager_max,
        fragmented_max: 0,
        operations_max: 16,
        credit: CreditConfig { pool, first: amount(8, 2000), peer_max: amount(20, 8000) },
        nic_threshold: 0,
        source_bits: TagMask(0),
        departed_max: 1024,
        seed,
    }
}

fn play<D: Device>(world: &mut OneSidedWorld<D>, random: &mut Random, steps: u32) -> Verdict {
    for at in 0..world.members.len() {
        world.expose(at, Rights::ALL)?;
    }
    let under_way_max = random.pick(&[1, 3, 24]);
    for _ in 0..steps {
        step(world, random, under_way_max)?;
    }
    world.finish()
}

/// A region, mostly an open one.
fn any_region<D: Device>(world: &OneSidedWorld<D>, random: &mut Random) -> usize {
    let latest = world.regions.len().saturating_sub(4 * world.members.len());
    let mut region = latest + random.index(world.regions.len() - latest);
    for _ in 0..6 {
        let SimRegion { owner, closed, .. } = &world.regions[region];
        let is_open = closed.is_none() && world.members[*owner].engine.is_some();
        if is_open || random.per_mille(30) {
            break;
        }
        region = random.index(world.regions.len());
    }
    region
}

fn step<D: Device>(
    world: &mut OneSidedWorld<D>,
    random: &mut Random,
    under_way_max: usize,
) -> Verdict {
    let at = random.index(world.members.len());
    let other = random.index(world.members.len());
    let region = any_region(world, random);
    match random.below(100) {
        0..45 => {
            if world.members[at].requests.len() >= under_way_max {
                return Ok(());
            }
            world.begin(at, region, planned(random))
        }
        45..50 => {
            let length = random.index(900);
            world.send(at, other, length);
            Ok(())
        }
        50..54 => {
            // A fence matters most between operations on the same bytes.
            let (from, length) = span(random, SHARED);
            world.begin(at, region, PlannedAction::Get { at: from, length })?;
            world.fence(at, world.regions[region].owner);
            let has_notice = random.chance(1, 8);
            world.begin(at, region, PlannedAction::Put { at: from, length, has_notice })
        }
        54 => {
            if random.per_mille(50) {
                let lossy = random.per_mille(500);
                world.kill(at, lossy);
            }
            Ok(())
        }
        55..57 => {
            let (at, length) = span(random, SHARED);
            world.write(region, at, length);
            Ok(())
        }
        57..59 => world.look_at_all(region),
        59 => {
            let some = random.pick(&[Rights::READ, Rights::WRITE, Rights::ATOMIC]);
            world.expose(at, if random.per_mille(700) { Rights::ALL } else { some }).map(drop)
        }
        60 => {
            if random.per_mille(700) {
                return world.close(region);
            }
            Ok(())
        }
        61..64 => world.take_notices(at),
        _ => {
            let events = random.pick(&[1, 1, 2, 8, 64]);
            world.work(at, events, || random.per_mille(100))
        }
    }
}

/// Bytes from a place on, or from a later one.
fn span(random: &mut Random, from: usize) -> (usize, usize) {
    let length = random.pick(&[0, 1, 3, 8, 16, 60, 160]).min(REGION_BYTES - from);
    (from + random.index(REGION_BYTES - from - length + 1), length)
}

fn planned(random: &mut Random) -> PlannedAction {
    let first = random.index(COUNTERS);
    let count = 1 + random.index(COUNTERS - first);
    match random.below(16) {
        0..4 => {
            let (at, length) = span(random, SHARED);
            PlannedAction::Put { at, length, has_notice: random.per_mille(200) }
        }
        4..8 => {
            let (at, length) = span(random, OWN_WORDS);
            PlannedAction::Get { at, length }
        }
        8..10 => PlannedAction::Add { first, count, fetches: random.per_mille(500) },
        10 => PlannedAction::Swap { counter: first },
        11 => PlannedAction::Read { first, count },
        12..15 => PlannedAction::Own(random.pick(&[OwnUse::Add, OwnUse::Fetch, OwnUse::Put])),
        _ => {
            let end = REGION_BYTES as u64;
            let offsets = [end - 1, end, end + 1, 1 << 63, u64::MAX - 1, u64::MAX];
            let puts = random.per_mille(500);
            if random.per_mille(300) {
                // The first bytes lie in the region.
                return PlannedAction::Beyond { offset: end - 100, length: 160, puts };
            }
            PlannedAction::Beyond { offset: random.pick(&offsets), length: 2, puts }
        }
    }
}
