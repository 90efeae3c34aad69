//! One process of a job, and the socket to it.

use std::io::{BufReader, IsTerminal, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::event::LauncherEvent;
use super::failure::Member;
use super::launch::LaunchError;
use super::part::MachinePart;
use crate::inherit;
use crate::spawn::request::PmiRequest;

/// How long a write to a process may block. A process that doesn't read its answers for this long
/// gets no more answers.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// A process of a job. Dropping it kills its process group, and waits for the process.
pub(super) struct Process {
    child: Child,
    group: Pid,
    socket: UnixStream,
    is_running: bool,
    /// Whether all requests of the process have been handled, up to the end of its connection.
    is_disconnected: bool,
    status: Option<ExitStatus>,
}

impl Process {
    pub(super) fn start(part: &MachinePart, member: Member) -> Result<Self, LaunchError> {
        if part.is_remote && !part.directory.is_dir() {
            return Err(LaunchError::Directory(part.directory.clone()));
        }
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(WRITE_TIME))?;
        let theirs = OwnedFd::from(theirs);
        let mut command = command(part, member, &theirs);
        let child = command.spawn().map_err(|error| {
            let command = part.command[0].to_string_lossy().into_owned();
            LaunchError::Start { command, error }
        })?;
        let group = Pid::from_child(&child);
        let is_running = true;
        let is_disconnected = false;
        Ok(Process { child, group, socket, is_running, is_disconnected, status: None })
    }

    /// Starts a thread that sends the requests of the process as events.
    pub(super) fn listen(
        &self,
        member: Member,
        events: &SyncSender<LauncherEvent>,
    ) -> io::Result<()> {
        let mut reader = BufReader::new(self.socket.try_clone()?);
        let events = events.clone();
        let read = move || {
            loop {
                let (text, is_last) = PmiRequest::read_text(&mut reader);
                if events.send(LauncherEvent::Request(member, text)).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("rank {member}")).spawn(read).map(drop)
    }

    /// Takes the pipes of standard output and standard error, if there are any.
    pub(super) fn outputs(&mut self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        (self.child.stdout.take().map(Into::into), self.child.stderr.take().map(Into::into))
    }

    /// Whether the process has ended, and all its requests have been handled.
    pub(super) fn is_over(&self) -> bool {
        !self.is_running && self.is_disconnected
    }

    /// Notes that the connection has ended, and that all requests before have been handled.
    pub(super) fn set_disconnected(&mut self) {
        self.is_disconnected = true;
    }

    /// Sends a line. A process that doesn't read its answers gets no more of them.
    pub(super) fn send(&mut self, line: &[u8]) {
        if self.is_running && self.socket.write_all(line).is_err() {
            // The line may be incomplete, and the next one would be appended to it.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// The number of the process.
    pub(super) fn pid(&self) -> Pid {
        self.group
    }

    /// Signals the process group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running {
            // The process may have ended. But until it is waited for, no other process gets its
            // number.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Returns the exit status once, when the process is over. Its last requests, such as an abort,
    /// are handled before.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if self.is_running && waitid(WaitId::Pid(self.group), options).ok().flatten().is_some() {
            self.status = self.reap().ok();
        }
        if self.is_disconnected { self.status.take() } else { None }
    }

    /// Kills the rest of the process group while no other group can have its number, and waits for
    /// the process.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.is_running = false;
        // Other processes may still hold the socket. The shutdown ends the connection for them,
        // too. Requests that are already in the socket are still read.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running {
            let _ = self.reap();
        }
    }
}

fn command(part: &MachinePart, member: Member, socket: &OwnedFd) -> Command {
    let mut command = Command::new(&part.command[0]);
    command.args(&part.command[1..]).process_group(0);
    command.env_clear().envs(part.environment.iter().map(|(name, value)| (name, value)));
    let Member { job, rank } = member;
    command.env("PMI_FD", socket.as_raw_fd().to_string());
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", part.size.to_string());
    command.env("MPI_LOCALRANKID", (rank - part.first).to_string());
    command.env("MPI_LOCALNRANKS", part.count.to_string());
    if job > 0 {
        command.env("PMI_SPAWNED", "1");
    }
    if !part.directory.as_os_str().is_empty() {
        command.current_dir(&part.directory);
    }
    // A terminal stops processes that read from it and aren't in the launcher's process group. Only
    // rank 0 of job 0 reads the launcher's input, and only if that is no terminal.
    if part.is_remote || job > 0 || rank > 0 || io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    if part.label || part.is_remote {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    inherit::give(&mut command, socket);
    command
}
