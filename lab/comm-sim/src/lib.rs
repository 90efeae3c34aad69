//! A simulated network for tests of `tagmatch-comm`, and of collective layers above it: many
//! processes run in one thread, and a seed decides on everything that can vary.
//!
//! Each message has a delay of its own, but messages of one sender to one receiver arrive in order.
//! A process can be killed at any step. Messages that it sent shortly before may arrive or not, and
//! each other process learns of the death at another time, after the last message of the dead
//! process. The processes are of one job, or of [several jobs](Sim::of_jobs), which know of each
//! other only what they tell each other.
//!
//! ```
//! use tagmatch_comm::{Config, Runtime};
//! use tagmatch_comm_sim::{Sim, SimConfig};
//!
//! let sim = Sim::new(SimConfig { processes: 5, seed: 1, ..SimConfig::default() });
//! let program = |rank: u32| {
//!     let net = sim.net(rank);
//!     async move { Runtime::new(net, Config::default())?.world().barrier().await }
//! };
//! for end in sim.run((0..5).map(program), &[])?.ends {
//!     assert!(end.is_some_and(|result| result.is_ok()));
//! }
//! # Ok::<(), tagmatch_comm_sim::Stuck>(())
//! ```

#![forbid(unsafe_code)]

mod config;
mod net;
mod numbers;
mod simulation;
mod world;

pub use config::{Cut, SimConfig};
pub use net::{SimMessage, SimNet, SimReceive, SimSend};
pub use simulation::{Kill, Ran, Sim, Stuck};
