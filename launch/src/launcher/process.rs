//! One process of a job, and the socket to it.

use std::env;
use std::ffi::OsString;
use std::io::{BufReader, IsTerminal, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{Event, LaunchError, Member};
use crate::inherit;
use crate::spawn::order::Request;

/// A process that doesn't read its answers for so long gets no more of them.
const WRITE_TIME: Duration = Duration::from_secs(1);
/// What another launcher may have left for this process is not for those that it starts.
const FOREIGN_VARIABLES: [&str; 2] = ["PMI_", "PMIX_"];

/// Where in a run a process is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) member: Member,
    /// Of its job.
    pub(super) size: u32,
    /// Whether its output is piped.
    pub(super) label: bool,
}

/// Dropping it kills its process group, and waits for it.
pub(super) struct Process {
    child: Child,
    group: Pid,
    socket: UnixStream,
    running: bool,
    /// All that it said has been heard.
    silent: bool,
    status: Option<ExitStatus>,
}

impl Process {
    pub(super) fn start(words: &[OsString], place: Place) -> Result<Self, LaunchError> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(WRITE_TIME))?;
        let theirs = OwnedFd::from(theirs);
        let mut command = command(words, place, &theirs);
        let started = command.spawn().map_err(|error| {
            let command = words[0].to_string_lossy().into_owned();
            LaunchError::Start { command, error }
        })?;
        let group = Pid::from_child(&started);
        Ok(Process { child: started, group, socket, running: true, silent: false, status: None })
    }

    /// Makes events of its lines.
    pub(super) fn listen(&self, member: Member, events: &SyncSender<Event>) -> io::Result<()> {
        let mut reader = BufReader::new(self.socket.try_clone()?);
        let events = events.clone();
        let read = move || {
            loop {
                let request = Request::read(&mut reader);
                let last = request.is_err();
                if events.send(Event::Request(member, request)).is_err() || last {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("rank {member}")).spawn(read).map(drop)
    }

    /// Its standard output and error, if they are piped; once.
    pub(super) fn outputs(&mut self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        (self.child.stdout.take().map(Into::into), self.child.stderr.take().map(Into::into))
    }

    /// Whether it has ended, and all that it said before has been heard.
    pub(super) fn is_over(&self) -> bool {
        !self.running && self.silent
    }

    /// Its last line has been taken.
    pub(super) fn silenced(&mut self) {
        self.silent = true;
    }

    pub(super) fn say(&mut self, line: &str) {
        if self.running && self.socket.write_all(line.as_bytes()).is_err() {
            // Half of an answer would garble the next.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Signals it, and what it has started in its group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.running {
            // It may have ended; until it is waited for, its number is nobody else's.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// How it has ended, once it is over: said once. What it said last, such as an abort, comes before.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if self.running && waitid(WaitId::Pid(self.group), options).ok().flatten().is_some() {
            self.status = self.reap().ok();
        }
        if self.silent { self.status.take() } else { None }
    }

    /// Kills what is left of its group while the number is still its own, and waits for it.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.running = false;
        // Others may have the socket still; nobody is to wait for what they say. What is in it is still heard.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.running {
            let _ = self.reap();
        }
    }
}

fn command(words: &[OsString], place: Place, socket: &OwnedFd) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).process_group(0);
    for (name, _) in env::vars_os() {
        if FOREIGN_VARIABLES.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    let Member { job, rank } = place.member;
    let size = place.size.to_string();
    command.env("PMI_FD", socket.as_raw_fd().to_string());
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", &size);
    command.env("MPI_LOCALRANKID", rank.to_string()).env("MPI_LOCALNRANKS", &size);
    if job > 0 {
        command.env("PMI_SPAWNED", "1");
    }
    // A terminal stops whoever reads from another group than the launcher's.
    if job > 0 || rank > 0 || io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    if place.label {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    inherit::give(&mut command, socket);
    command
}

/// The signal that has killed a process.
pub(super) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}
