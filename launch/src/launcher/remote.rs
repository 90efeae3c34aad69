//! The launcher's side of a helper on another machine: the agent that has started it, and the
//! processes that it has started.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::event::LauncherEvent;
use super::failure::Member;
use super::frame::{self, FromHelper, GREETING, ToHelper};
use super::hosts::Hosts;
use super::launch::LaunchError;
use super::link::Link;
use super::part::GUARD;
use super::printer::{PrintSource, Printer};

/// The agent, unless another one is named. It asks for no password, since it can't read from the
/// terminal, and it notices within 15 seconds that the other machine has gone.
const AGENT: &str = "ssh -x -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3";
/// The most bytes that an agent or a shell may print before the helper's first line.
const PRELUDE_BYTES_MAX: u64 = 64 << 10;
/// How long an agent and a machine may take until the helper there has greeted.
const GREETING_TIME: Duration = Duration::from_secs(60);
/// How long an agent may take to end after its connection has.
const AGENT_TIME: Duration = Duration::from_millis(200);

/// A machine with a helper.
pub(super) struct RemoteHost {
    pub(super) name: String,
    pub(super) link: Link,
    /// Whether nothing more comes from the helper.
    pub(super) is_lost: bool,
    child: Child,
    /// Disconnected when all is printed that the agent has written to its standard error.
    errors_ended: Receiver<()>,
}

impl RemoteHost {
    /// Starts the agent. `number` names the machine in events.
    pub(super) fn start(
        number: usize,
        name: &str,
        hosts: &Hosts,
        printer: &Printer,
        events: &SyncSender<LauncherEvent>,
    ) -> Result<Self, LaunchError> {
        let mut words = agent(name, hosts);
        let program = words.remove(0);
        let mut command = Command::new(&program);
        command.args(words).arg(&hosts.helper).env_remove(GUARD);
        // In a process group of its own, the agent doesn't get the terminal's ^C: the processes
        // get it through the launcher.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        // `ssh` makes its standard error non-blocking. If that were ours, and our output the same
        // file (`2>&1`), writes to a full pipe would fail.
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let command = program.to_string_lossy().into_owned();
            LaunchError::Start { command, error }
        })?;
        let missing = || io::Error::other("the agent has no pipes");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut errors = child.stderr.take().ok_or_else(missing)?;
        let link = Link::start(name, input)?;
        let (copying, errors_ended) = sync_channel(0);
        let host = RemoteHost { name: name.to_owned(), link, is_lost: false, child, errors_ended };
        let copy = move || {
            let _copying: SyncSender<()> = copying;
            // If nobody reads the errors, the agent goes on.
            let _ = io::copy(&mut errors, &mut io::stderr());
        };
        thread::Builder::new().name(format!("errors of {name}")).spawn(copy)?;
        let events = events.clone();
        let link = host.link.clone();
        let source = printer.source(link.clone());
        let read = move || {
            let until = Instant::now() + GREETING_TIME;
            let from = BufReader::new(ReadUntil { from: output, until: Some(until) });
            let why = receive(number, from, &link, &source, &events);
            let why = why.map_or_else(|error| Some(error.to_string()), |()| None);
            let _ = events.send(LauncherEvent::HostLost(number, why));
        };
        thread::Builder::new().name(format!("from {name}")).spawn(read)?;
        Ok(host)
    }

    /// Ends the agent once nothing comes from the helper any more, and says how it has ended.
    pub(super) fn end(&mut self) -> String {
        self.is_lost = true;
        self.link.close();
        // A process that the agent has started may live on, with the agent's standard error.
        let _ = self.errors_ended.recv_timeout(AGENT_TIME);
        for _ in 0..10 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return format!("its agent has ended ({status})");
            }
            thread::sleep(AGENT_TIME / 10);
        }
        self.kill();
        match self.child.wait() {
            Ok(status) => format!("its agent has closed the connection ({status})"),
            Err(error) => error.to_string(),
        }
    }

    /// The agent's number.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills the agent, unless it was waited for.
    pub(super) fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

    /// Whether the agent has ended: then the helper is told to end, too. It may outlive an agent
    /// that is a shell.
    pub(super) fn check(&mut self) {
        if !self.is_lost && matches!(self.child.try_wait(), Ok(Some(_))) {
            self.link.close();
        }
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        self.link.close();
        self.kill();
        let _ = self.child.wait();
        let _ = self.errors_ended.recv_timeout(AGENT_TIME);
    }
}

/// The command that runs a shell command on a machine, without that command.
fn agent(name: &str, hosts: &Hosts) -> Vec<OsString> {
    match &hosts.agent {
        Some(agent) => agent.iter().cloned().chain([name.into()]).collect(),
        None if is_here(name) => ["sh", "-c"].map(OsString::from).into(),
        None => AGENT.split(' ').map(OsString::from).chain([name.into()]).collect(),
    }
}

/// Whether this is a name of the machine that the launcher runs on.
fn is_here(name: &str) -> bool {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name == "localhost" || name == own.trim()
}

/// Makes events of what the helper sends, until the connection ends. Its greeting has to come while
/// `from` may be read.
fn receive(
    host: usize,
    mut from: BufReader<ReadUntil<ChildStdout>>,
    link: &Link,
    source: &PrintSource,
    events: &SyncSender<LauncherEvent>,
) -> io::Result<()> {
    if !greet(&mut from, &mut io::stderr())? {
        return Ok(());
    }
    from.get_mut().until = None;
    link.open();
    while let Some(frame) = frame::read(&mut from)? {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "its helper is garbled");
        let print =
            |text, is_error| if source.print(text, is_error) { Ok(()) } else { Err(malformed()) };
        let event = match FromHelper::decode(&frame).ok_or_else(malformed)? {
            FromHelper::Output(text) => {
                print(text, false)?;
                continue;
            }
            FromHelper::Error(text) => {
                print(text, true)?;
                continue;
            }
            FromHelper::Started(job, refusal) => LauncherEvent::Started(host, job, refusal),
            FromHelper::Request(member, text) => LauncherEvent::RemoteRequest(host, member, text),
            FromHelper::Ended(member, status) => LauncherEvent::Ended(host, member, status),
        };
        if events.send(event).is_err() {
            break;
        }
    }
    Ok(())
}

/// A pipe that is read until some time, or without a limit.
struct ReadUntil<R> {
    from: R,
    until: Option<Instant>,
}

impl<R: Read + AsFd> Read for ReadUntil<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            let time = Timespec::try_from(left).ok();
            let mut polled = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut polled, time.as_ref()) {
                Ok(0) => {
                    let why = "no helper has greeted in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        self.from.read(into)
    }
}

/// Reads until the helper's first line. False if the connection ends before. Text before it, which
/// a shell may print when it starts, goes to `other`. That text may end without a newline.
pub(super) fn greet(from: &mut impl BufRead, other: &mut impl Write) -> io::Result<bool> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut from = from.take(PRELUDE_BYTES_MAX);
    let (name, _) = GREETING.split_at(GREETING.len() - env!("CARGO_PKG_VERSION").len() - 1);
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return match from.limit() {
                0 => Err(wrong("no helper has answered, but something that prints much".into())),
                _ => Ok(false),
            };
        }
        if let Some(before) = line.strip_suffix(GREETING.as_bytes()) {
            other.write_all(before)?;
            return Ok(true);
        }
        if let Some(at) = line.windows(name.len()).rposition(|part| part == name.as_bytes()) {
            // A carriage return, which a terminal adds, is shown.
            let greeting = line[at..].strip_suffix(b"\n").unwrap_or(&line[at..]).escape_ascii();
            return Err(wrong(format!("`{}` is wanted there, not `{greeting}`", GREETING.trim())));
        }
        other.write_all(&line)?;
    }
}

/// A process that a helper has started.
pub(super) struct RemoteProcess {
    pub(super) host: usize,
    member: Member,
    link: Link,
    is_running: bool,
    status: Option<ExitStatus>,
}

impl RemoteProcess {
    pub(super) fn new(host: usize, member: Member, link: Link) -> Self {
        RemoteProcess { host, member, link, is_running: true, status: None }
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_running
    }

    pub(super) fn send(&self, line: &str) {
        if self.is_running {
            self.link.send(&ToHelper::Reply(self.member, line.as_bytes().to_vec()));
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running {
            self.link.send(&ToHelper::Signal(self.member, signal.as_raw()));
        }
    }

    /// Notes the end of the process. `None`: it was never started, or its machine was lost.
    pub(super) fn end(&mut self, status: Option<i32>) {
        self.is_running = false;
        self.status = status.map(ExitStatus::from_raw);
    }

    /// Returns the exit status once.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.status.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choppy::Choppy;

    fn greeted(mut text: &[u8]) -> (Result<bool, String>, Vec<u8>, usize) {
        let mut other = Vec::new();
        let mut from = BufReader::with_capacity(1, Choppy::new(&mut text));
        let done =
            greet(&mut from, &mut Choppy::new(&mut other)).map_err(|error| error.to_string());
        (done, other, text.len())
    }

    #[test]
    fn what_a_shell_prints_before_the_helper_is_passed_on() {
        let (done, other, left) = greeted(format!("hello\n{GREETING}rest").as_bytes());
        assert_eq!((done, &*other, left), (Ok(true), &b"hello\n"[..], 4));
        let (done, other, left) = greeted(format!("a\n\x1b]0;b\x07{GREETING}rest").as_bytes());
        assert_eq!((done, &*other, left), (Ok(true), &b"a\n\x1b]0;b\x07"[..], 4));
        let (done, other, _) = greeted(b"no\nhelper");
        assert_eq!((done, &*other), (Ok(false), &b"no\nhelper"[..]));
    }

    #[test]
    fn a_helper_that_never_greets_is_waited_for_with_a_limit() {
        let time = Duration::from_millis(20);
        for words in [&["sleep", "600"][..], &["sh", "-c", "while printf x; do sleep 0.01; done"]] {
            let mut agent = Command::new(words[0]);
            let mut agent = agent.args(&words[1..]).stdout(Stdio::piped()).spawn().unwrap();
            let until = Some(Instant::now() + time);
            let from = agent.stdout.take().unwrap();
            let mut from = BufReader::new(ReadUntil { from, until });
            let error = greet(&mut from, &mut io::sink()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    #[test]
    fn a_helper_that_is_none_is_told() {
        for before in ["", "x"] {
            let (done, other, _) =
                greeted(format!("{before}tagmatch-launch helper of version 9.9.9\n").as_bytes());
            assert!(done.unwrap_err().contains("9.9.9") && other.is_empty());
        }
        let (done, ..) = greeted(GREETING.replace('\n', "\r\n").as_bytes());
        assert!(done.unwrap_err().ends_with("\\r`"), "a terminal is between");
        let (done, other, _) = greeted(&vec![b'y'; 1 << 20]);
        assert!(done.is_err() && u64::try_from(other.len()) == Ok(PRELUDE_BYTES_MAX));
    }
}
