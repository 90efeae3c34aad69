//! A launcher in two processes, so that nothing that a job has started outlives a launcher that is
//! killed.
//!
//! The kernel kills a rank when its parent dies, but not what the rank has started: the program of
//! `sh -c 'program; ...'`, for example. So the process that the user has started, the *front*,
//! starts the same command line again, as the *guardian*. The guardian runs the job: it is the
//! parent of the ranks. Both are subreapers (prctl(2)), so they become the parents of all processes
//! below them whose own parents have ended, whatever process group or session those are in.
//!
//! 1. The front hands signals on, waits for the guardian, and exits as it did.
//! 2. The front is killed: the guardian reads the end of a pipe, kills all processes below itself,
//!    and exits.
//! 3. The guardian is killed: the front kills all processes below itself.
//! 4. Both are killed at once: the kernel kills the ranks, and what they have started lives on.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitpid,
};
use signal_hook::consts::SIGCHLD;

use super::event::{LauncherEvent, SignalWatch, next};
use super::launch::LaunchError;
use super::part::GUARD;
use crate::inherit;

/// How long the processes below this one may take to end after SIGKILL. One that hangs in the
/// kernel is left.
const END_TIME: Duration = Duration::from_secs(10);
/// The pause between two looks for processes that have not ended yet.
const PAUSE: Duration = Duration::from_millis(2);
/// The most events that wait to be handled.
const EVENTS_MAX: usize = 16;

/// Whether this process is the guardian.
static IS_GUARDIAN: AtomicBool = AtomicBool::new(false);

/// Set in a guardian before it kills what is below it.
static IS_FRONT_GONE: AtomicBool = AtomicBool::new(false);

/// How a guardian has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardedEnd {
    /// It has exited with this status.
    Exited(u8),
    /// It was killed by this signal, and all processes of the job were killed.
    Killed(i32),
}

/// Starts this program again, with the same arguments, as the guardian of what it is about to
/// launch, and waits for its end, which the caller should exit with. `None`: this process is the
/// guardian, and goes on. To be called before [`run_on`](super::run_on) or [`help`](super::help) by
/// a program that does nothing else, while it has one thread.
///
/// Without it, processes that the ranks have started may outlive a launcher that is killed.
///
/// # Errors
/// The program can't be started again, or a system call has failed.
pub fn guarded() -> Result<Option<GuardedEnd>, LaunchError> {
    if let Some(pipe) = pipe_of_front() {
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        IS_GUARDIAN.store(true, Ordering::Relaxed);
        thread::Builder::new().name("front".into()).spawn(move || outlive(pipe))?;
        return Ok(None);
    }
    front().map(Some)
}

/// The pipe to the front, if a front has started this process.
fn pipe_of_front() -> Option<File> {
    let number = env::var(GUARD).ok()?.parse().ok()?;
    inherit::take(number).ok()
}

/// The guardian's thread that waits for the end of the front.
fn outlive(mut front: File) {
    // Nothing is ever written.
    let _ = front.read(&mut [0]);
    IS_FRONT_GONE.store(true, Ordering::SeqCst);
    kill_all_below(END_TIME);
    exit(128 + Signal::KILL.as_raw());
}

/// To be called when the job is over. If that is because this guardian kills it, it waits: the
/// thread that kills exits once nothing is left, and an earlier exit would leave the rest.
pub(super) fn before_exit() {
    while IS_FRONT_GONE.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn front() -> Result<GuardedEnd, LaunchError> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let (sender, events) = sync_channel(EVENTS_MAX);
    let _watch = SignalWatch::start(sender)?;
    let (theirs, _ours) = io::pipe()?;
    let theirs = OwnedFd::from(theirs);
    let program = env::current_exe()?;
    let mut command = Command::new(&program);
    command.args(env::args_os().skip(1)).env(GUARD, theirs.as_raw_fd().to_string());
    // In a process group of its own, the guardian gets the terminal's signals through the front
    // alone, once each.
    command.process_group(0);
    inherit::pass(&mut command, &theirs);
    let mut guardian = command.spawn().map_err(|error| LaunchError::Start {
        command: program.to_string_lossy().into_owned(),
        error,
    })?;
    drop(theirs);
    let pid = Pid::from_child(&guardian);
    loop {
        if let Some(status) = guardian.try_wait()? {
            let Some(signal) = status.signal() else {
                let status = status.code().and_then(|status| u8::try_from(status).ok());
                return Ok(GuardedEnd::Exited(status.unwrap_or(1)));
            };
            kill_all_below(END_TIME);
            return Ok(GuardedEnd::Killed(signal));
        }
        match next(&events, None) {
            Some(LauncherEvent::Signal(SIGCHLD)) => {}
            Some(LauncherEvent::Signal(signal)) => {
                // It has not been waited for, so no other process has its number.
                let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
            }
            _ => thread::sleep(PAUSE),
        }
    }
}

/// In a guardian, waits for processes that have ended and that this process has not started: their
/// parents have ended before them. `is_own`: this process waits for that one elsewhere.
pub(super) fn reap_orphans(is_own: impl Fn(Pid) -> bool) {
    if IS_GUARDIAN.load(Ordering::Relaxed) {
        for pid in children().into_iter().filter(|pid| !is_own(*pid)) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Kills all processes below this one, which is a subreaper: when one has ended, its children
/// become this process's. For at most this time.
fn kill_all_below(limit: Duration) {
    let until = Instant::now() + limit;
    // A list that is read while processes end may lack one that has just become a child.
    let mut empty = 0;
    while empty < 2 && Instant::now() < until {
        let before = children();
        empty = if before.is_empty() { empty + 1 } else { 0 };
        let opened = before.iter().filter_map(|&pid| {
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some((pid, process))
        });
        let opened: Vec<_> = opened.collect();
        // Another thread may have waited for one of them, whose number another process may have
        // now. A process that still is a child after it was opened is the right one, or an earlier
        // child.
        let still: HashSet<_> = children().into_iter().collect();
        for (_, process) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        thread::sleep(PAUSE);
        for (pid, _) in opened {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// The children of this process, whichever of its threads has started them (proc_pid_task(5)).
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    };
    lists.flat_map(pids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killing_ends_when_nothing_is_left() {
        const ROLE: &str = "TAGMATCH_TEST_ROLE";
        if env::var_os(ROLE).is_some() {
            let mut child = Command::new("/bin/sleep").arg("3600").spawn().unwrap();
            kill_all_below(Duration::from_secs(3600));
            assert_eq!(children(), []);
            let _ = child.wait();
            return;
        }
        // In a process of its own, because other tests have children.
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["launcher::guard::tests::killing_ends_when_nothing_is_left", "--exact"]);
        assert!(test.env(ROLE, "alone").output().unwrap().status.success());
    }
}
