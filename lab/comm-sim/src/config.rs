//! Settings of a simulation.

use std::time::Duration;

/// The loss of the connection between two processes, numbered through all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The processes.
    pub ends: [u32; 2],
    /// Whether the network tells each of them that the other one is down.
    pub tells: [bool; 2],
    /// Whether the network says that the other end has left in order.
    pub says_left: bool,
    /// The step before which the connection is lost, with all that is in flight.
    pub step: u64,
}

/// The settings of a simulation: the same settings and programs give the same history.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Number of processes in all jobs together.
    pub processes: u32,
    /// Decides on everything that varies: delays, the order of turns, and whether the network
    /// matches by tag alone.
    pub seed: u64,
    /// The longest delay of a message, in events of the whole network.
    pub delay_max: u32,
    /// A standard send of up to this many bytes is complete at once. A longer one completes when it
    /// is matched.
    pub eager_max: usize,
    /// Whether the network reports a death to the other processes.
    pub tells_deaths: bool,
    /// Whether a death is reported to all processes. Otherwise it is reported to those that have
    /// exchanged messages with the dead process, or watch it, as between workers.
    pub tells_unconnected: bool,
    /// How long a process waits in shared memory for another one before it watches it, by the real
    /// clock.
    pub watch_after: Duration,
    /// How often every process is polled in vain, while no message is in flight, before the
    /// processes count as stuck. A process may need several polls without a message, or wait for
    /// the clock.
    pub turns_in_vain: u32,
    /// Number of processes of a job on each machine, in the order of their ranks; at least 1.
    pub per_node: u32,
    /// Whether processes on one machine may map memory together. What they write there is seen at
    /// once, while messages have delays. The network doesn't count it as an event.
    pub shares_memory: bool,
    /// A process, and the step from which on it lacks what its connection to the next process needs
    /// ([`Net::failure`](tagmatch_comm::net::Net::failure)).
    pub lacks: Option<(u32, u64)>,
    /// A connection that is lost between two processes that live.
    pub cut: Option<Cut>,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            processes: 2,
            seed: 0,
            delay_max: 20,
            eager_max: 64,
            tells_deaths: true,
            tells_unconnected: true,
            watch_after: Duration::ZERO,
            turns_in_vain: 64,
            per_node: u32::MAX,
            shares_memory: false,
            lacks: None,
            cut: None,
        }
    }
}
