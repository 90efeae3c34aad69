//! How the processes of a job find each other.
//!
//! A launcher (`mpiexec` of MPICH, `mpirun`, `srun`, `flux run`, `tagperf run`) starts a command many times and
//! tells each process its rank. [`Job::join`] takes part in that, whichever launcher it was, and exchanges what
//! the processes need to reach each other:
//!
//! ```
//! use tagmatch_launch::Job;
//!
//! // Started by no launcher: a job of one.
//! let mut job = Job::join()?;
//! let all = job.exchange(b"where I can be reached")?;
//! assert_eq!((job.rank(), job.size()), (0, 1));
//! assert_eq!(all, [b"where I can be reached"]);
//! job.leave()?;
//! # Ok::<(), tagmatch_launch::Error>(())
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`job`] | the one call, whoever the launcher is |
//! | [`pmi1`] | the client of PMI-1, the protocol of MPICH's `mpiexec`, of `srun --mpi=pmi2` and of Flux |
//! | [`server`] | the other side of PMI-1, as a pure state machine |
//! | [`launcher`] | starts processes of this machine and serves them |
//! | [`pmix`] | PMIx, the protocol of `mpirun` and of `srun --mpi=pmix`: its library is loaded at run time |
//! | [`spawn`] | processes that a running job starts, and how PMI-1 asks for them |
//! | [`wire`] | lines of PMI-1, and bytes as hexadecimal digits |
//!
//! What comes from the environment, from a launcher and from a process is checked; none of it panics.

#![deny(unsafe_code)]

mod alive;
mod inherit;
pub mod job;
pub mod launcher;
pub mod pmi1;
pub mod pmix;
pub mod server;
pub mod spawn;
pub mod wire;

pub use job::{Error, Job, Launcher};
pub use spawn::Spawn;
