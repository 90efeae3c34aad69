//! Starts the processes of a job on this machine, serves them PMI-1, and waits for their end.
//!
//! 1. Each process gets a socket, a rank, and a process group of its own.
//! 2. A request of a process, a signal and the end of an output are events. One thread handles them
//!    in turn.
//! 3. The launcher forwards signals to all processes.
//! 4. A process may ask for another job, which has ranks, keys and barriers of its own.
//! 5. If a process fails, all jobs end: the other processes get SIGTERM, and SIGKILL one second
//!    later. If the launcher was told to keep going, they go on, and can ask which processes have
//!    died. When a process ends, all that is left of its process group is killed.
//! 6. The run ends when the last process of the last job has ended.
//! 7. All processes of a run on several machines find the run's secret in their environment, as
//!    `TAGMATCH_SECRET`. Those of a run on one machine find it if the launcher's environment has
//!    one, and otherwise agree on one when they need it ([`Job::secret`](crate::Job::secret)).
//! 8. Threads copy output of other machines and output with labels. When standard output can't be
//!    written, for instance because its reader has gone, all jobs end.
//! 9. If the launcher itself is killed, the kernel kills the processes. With [`guarded`], all that
//!    they have started is killed as well.
//!
//! # Several machines
//! The launcher starts a helper on each machine, through an agent such as `ssh`. The helper starts
//! and watches ranks as the launcher does on its own machine; the launcher keeps the PMI server and
//! decides. Both sides use the same code for a process (`launch/src/launcher/process.rs`);
//! `frame.rs` has what they tell each other.
//!
//! | rule | from | where we differ, and why |
//! |---|---|---|
//! | an agent is given a machine and a command | MPICH's hydra, PRRTE | launcher and helper talk over the agent's standard input and output. Hydra and PRRTE connect back over TCP. So nothing listens, no stranger can connect, no address of the launcher must be known on the other machine, and `ssh` encrypts what is said, the secret included. An agent must not print to standard output after the helper's first line |
//! | the end of the connection is the end of the ranks | hydra | the helper kills the process groups; if it is killed itself, the kernel kills its ranks (`PR_SET_PDEATHSIG`) |
//! | helpers answer requests for values, which the launcher tells them at each barrier | hydra | |
//! | `host:slots`, `--ppn`, hostfiles | both | without slots, ranks are divided evenly in blocks: hydra takes turns, Open MPI refuses a second rank on a machine. More ranks than slots are refused, as by Open MPI |
//! | ranks get the launcher's environment and directory | hydra | Open MPI passes no variables on |
//! | one secret for all jobs of a run | | a spawned job connects to its parents |
//! | under foreign launchers rank 0 puts the secret into the key-value store only if no environment has one | | the store may be readable for others; a secret that a user has given stays out of it |

mod event;
mod failure;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod helper;
mod hosts;
mod job;
mod launch;
mod link;
mod outbox;
mod output;
mod part;
mod printer;
mod process;
mod rank;
mod remote;
mod run;
mod values;

use std::sync::mpsc::sync_channel;

use crate::spawn::{SIZE_MAX, Spawn};
use event::SignalWatch;
pub use failure::{Failure, Member};
pub use guard::{GuardedEnd, guarded};
pub use helper::help;
pub use hosts::{Host, Hosts, HostsError, parse_hosts};
pub use launch::{Launch, LaunchError};
use run::Run;

/// The most events that wait to be handled. A thread that has another event blocks.
const EVENTS_MAX: usize = 256;

/// Runs a job, and the jobs that its processes ask for, until all processes have ended. Blocks.
/// Returns the first failure and the process that failed. Calls `on_failure` at each failure as it
/// happens, except for failures that come from ending the jobs.
///
/// The calling process must not wait for other children by SIGCHLD. From now on SIGINT, SIGTERM,
/// SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the job.
///
/// # Errors
/// The job can't be started. Processes that were already started have been killed.
pub fn run(
    launch: &Launch,
    on_failure: impl FnMut(Member, &Failure),
) -> Result<Option<(Member, Failure)>, LaunchError> {
    run_on(launch, None, on_failure)
}

/// Runs a job as [`run`] does, with its processes on these machines, and none on this one unless it
/// is among them. Spawned jobs are divided evenly among them. The processes start in this
/// process's directory, which must exist there, and in its environment. They read empty input.
///
/// # Errors
/// As those of [`run`]; also, the machines are too few, or an agent or a helper has failed.
pub fn run_on(
    launch: &Launch,
    hosts: Option<&Hosts>,
    on_failure: impl FnMut(Member, &Failure),
) -> Result<Option<(Member, Failure)>, LaunchError> {
    let size = launch.size;
    let words = launch.command.len();
    if words == 0 || !(1..=SIZE_MAX).contains(&size) {
        return Err(LaunchError::OutOfRange { size, words });
    }
    let (sender, events) = sync_channel(EVENTS_MAX);
    let _watch = SignalWatch::start(sender.clone())?;
    let environment = part::environment(hosts.is_some_and(|hosts| hosts.hosts.len() > 1))?;
    let mut run = Run::new(launch, environment, sender, on_failure);
    hosts.map_or(Ok(()), |hosts| run.connect(size, hosts))?;
    run.start(&Spawn { command: launch.command.clone(), size }, [], None)?;
    let ended = run.until_all_end(&events);
    guard::before_exit();
    ended
}
