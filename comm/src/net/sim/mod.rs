//! A simulated network: many processes in one thread, and everything that can vary decided by a seed.
//!
//! Each message takes a time of its own, but none overtakes another of the same sender and receiver.
//! A process can be killed at any step: what it has sent last may arrive or not, and each other process
//! learns of it at another time, after the last of its messages. They are of one job, or of [several](Sim::of_jobs)
//! that know of each other only what they tell each other.
//!
//! ```
//! use tagmatch_comm::net::sim::{Sim, SimConfig};
//! use tagmatch_comm::{Config, Runtime};
//!
//! let sim = Sim::new(SimConfig { processes: 5, seed: 1, ..SimConfig::default() });
//! let program = |rank: u32| {
//!     let net = sim.net(rank);
//!     async move { Runtime::new(net, Config::default())?.world().ibarrier().await }
//! };
//! for end in sim.run((0..5).map(program), &[])?.ends {
//!     assert!(end.is_some_and(|result| result.is_ok()));
//! }
//! # Ok::<(), tagmatch_comm::net::sim::Stuck>(())
//! ```

mod net;
mod rng;
mod run;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub use net::{SimMessage, SimNet, SimReceive, SimSend};
pub use run::{Kill, Ran, Stuck};

use world::World;

/// What a simulation is a function of.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// How many processes, of all jobs.
    pub processes: u32,
    /// Decides on all that varies.
    pub seed: u64,
    /// Longest time that a message takes, in events of the whole network.
    pub delay_max: u32,
    /// Largest message in bytes whose standard send is complete before it is matched.
    pub eager_max: usize,
    /// Whether processes learn of the death of others.
    pub tells_deaths: bool,
    /// Times that every process is asked in vain, while nothing is on its way, until they count as stuck. A
    /// process may have several turns of its own to do without a message, or wait for a time.
    pub turns_in_vain: u32,
    /// Processes of a job on each machine, in the order of their ranks; at least 1.
    pub per_node: u32,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            processes: 2,
            seed: 0,
            delay_max: 20,
            eager_max: 64,
            tells_deaths: true,
            turns_in_vain: 64,
            per_node: u32::MAX,
        }
    }
}

/// A simulated network.
#[derive(Clone, Debug)]
pub struct Sim {
    world: Rc<RefCell<World>>,
}

impl Sim {
    /// A network whose processes have done nothing yet.
    pub fn new(config: SimConfig) -> Self {
        Self::of_jobs(config, &[config.processes])
    }

    /// A network of several jobs, of these sizes, whose processes are numbered one job after the other:
    /// [`SimConfig::processes`] is their sum, whatever was given.
    pub fn of_jobs(config: SimConfig, sizes: &[u32]) -> Self {
        let config = SimConfig { processes: sizes.iter().sum(), ..config };
        Sim { world: Rc::new(RefCell::new(World::new(config, sizes))) }
    }

    /// The network as one process has it: that of a rank, in a job after others the sum of their sizes more.
    pub fn net(&self, number: u32) -> SimNet {
        SimNet::new(&self.world, number)
    }

    /// A clock of the simulation: a step takes a microsecond.
    pub fn clock(&self) -> impl Fn() -> Duration + use<> {
        let world = Rc::clone(&self.world);
        move || Duration::from_micros(world.borrow().steps)
    }

    /// Messages that have been received by nobody.
    pub fn unexpected(&self) -> usize {
        self.world.borrow().unexpected()
    }
}
