//! How the processes of a job find each other.
//!
//! A launcher (`mpiexec` of MPICH, `mpirun`, `srun`, `flux run`, `tagperf run`) starts a command
//! many times and tells each process its rank. [`Job::join`] joins the job under any of these
//! launchers, and lets the processes exchange the data that they need to reach each other:
//!
//! ```
//! use tagmatch_launch::Job;
//!
//! // This process was not started by a launcher: it is a job of one process.
//! let mut job = Job::join()?;
//! let all = job.exchange(b"my address")?;
//! assert_eq!((job.rank(), job.size()), (0, 1));
//! assert_eq!(all, [b"my address"]);
//! job.leave()?;
//! # Ok::<(), tagmatch_launch::Error>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`job`] | [`Job`]: one interface for all launchers |
//! | `exchange` | how all processes get the bytes of all: one process of each machine asks for the others |
//! | [`pmi1`] | the client of PMI-1, the protocol of MPICH's `mpiexec`, of `srun --mpi=pmi2` and of Flux |
//! | [`server`] | the server side of PMI-1, as a pure state machine |
//! | [`launcher`] | starts processes on this machine and serves them PMI-1 |
//! | [`pmix`] | PMIx, the protocol of `mpirun` and of `srun --mpi=pmix`; its library is loaded at run time |
//! | [`secret`] | the secret that the processes of a job share |
//! | [`spawn`] | jobs that a running job starts, and how PMI-1 asks for them |
//! | [`wire`] | lines of PMI-1, and bytes as hexadecimal digits |
//!
//! Everything that comes from the environment, from a launcher or from a process is checked. No
//! input panics.

#![deny(unsafe_code)]

#[cfg(test)]
mod choppy;
mod error;
mod exchange;
mod identity;
mod inherit;
pub mod job;
pub mod launcher;
pub mod pmi1;
pub mod pmix;
pub mod secret;
pub mod server;
mod slurm;
pub mod spawn;
mod step;
pub mod wire;

pub use job::{Error, Job, Launcher};
pub use spawn::Spawn;
pub use tagmatch_secret::Secret;
