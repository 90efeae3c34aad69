//! The helper: starts processes on its machine for a launcher on another one. The launcher's frames
//! come on standard input, and answers go to standard output.
//!
//! 1. When the launcher needs nothing more, it says so. The helper ends once it has sent the rest
//!    of its processes' output.
//! 2. The end of standard input means that the launcher has gone: the helper kills its processes,
//!    and ends.
//! 3. If the helper itself is killed, the kernel kills the processes. A helper has a guardian, too.
//! 4. At the end of each barrier the launcher tells the helper the values that processes have put,
//!    and the helper answers requests for them. So a value reaches each machine once.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{process, thread};

use rustix::process::Signal;
use signal_hook::consts::SIGCHLD;

use super::event::{LauncherEvent, SignalWatch, is_request_to_end, next};
use super::failure::Member;
use super::frame::{self, FromHelper, GREETING, ToHelper};
use super::guard;
use super::launch::LaunchError;
use super::outbox::Outbox;
use super::output::{Outputs, Sink};
use super::part::MachinePart;
use super::process::Process;
use super::values::KnownValues;
use crate::spawn::request::PmiRequest;

/// The most events that wait to be handled.
const EVENTS_MAX: usize = 256;
/// How long to wait for output of which nothing comes. When the launcher has closed the connection,
/// a helper that doesn't end within twice this time ends at once.
const OUTPUT_TIME: Duration = Duration::from_secs(1);

/// Starts and serves the processes that a launcher on another machine asks for on standard input,
/// until the launcher closes the connection. Blocks.
///
/// # Errors
/// A system call has failed.
pub fn help() -> Result<(), LaunchError> {
    let (sender, events) = sync_channel(EVENTS_MAX);
    let _watch = SignalWatch::start(sender.clone())?;
    io::stdout().write_all(GREETING.as_bytes())?;
    io::stdout().flush()?;
    let (outbox, outbox_ended) = Outbox::start(io::stdout())?;
    let helper = Helper::new(sender.clone(), outbox.clone());
    let is_closed = Arc::clone(&helper.is_closed);
    let from = outbox.clone();
    let read = move || read_frames(&sender, &is_closed, &from);
    thread::Builder::new().name("launcher".into()).spawn(read)?;
    let is_finished = helper.until_closed(&events);
    guard::before_exit();
    outbox.finish();
    // Nothing is ever sent here: the wait is for the end.
    if is_finished {
        let _ = outbox_ended.recv();
    } else {
        let _ = outbox_ended.recv_timeout(OUTPUT_TIME);
    }
    Ok(())
}

/// Makes events of the launcher's frames.
fn read_frames(events: &SyncSender<LauncherEvent>, is_closed: &AtomicBool, outbox: &Outbox) {
    let mut from = BufReader::new(io::stdin());
    while let Some(frame) = frame::read(&mut from).ok().flatten() {
        let Some(frame) = ToHelper::decode(&frame) else { break };
        if let ToHelper::Printed(count) = frame {
            outbox.printed(count);
            continue;
        }
        if events.send(LauncherEvent::Frame(frame)).is_err() {
            return;
        }
    }
    close(events, is_closed);
    // The main thread may be blocked, for instance by a process that can't be killed.
    thread::sleep(2 * OUTPUT_TIME);
    process::exit(1);
}

/// Tells the main thread that the launcher has closed the connection. The event only wakes it. If
/// the channel is full, the main thread is awake, and reads the flag after the event it handles.
fn close(events: &SyncSender<LauncherEvent>, is_closed: &AtomicBool) {
    is_closed.store(true, Ordering::SeqCst);
    let _ = events.try_send(LauncherEvent::Closed);
}

struct Helper {
    processes: BTreeMap<Member, Process>,
    values: KnownValues,
    outputs: Outputs,
    sender: SyncSender<LauncherEvent>,
    outbox: Outbox,
    /// Whether the launcher has closed the connection.
    is_closed: Arc<AtomicBool>,
}

impl Helper {
    fn new(sender: SyncSender<LauncherEvent>, outbox: Outbox) -> Self {
        let processes = BTreeMap::new();
        let outputs = Outputs::default();
        let values = KnownValues::default();
        Helper { processes, values, outputs, sender, outbox, is_closed: Arc::default() }
    }

    /// Tells the launcher something. A launcher that leaves too much unread counts as gone.
    fn tell(&self, frame: &FromHelper) {
        if !self.outbox.send(frame) {
            self.is_closed.store(true, Ordering::SeqCst);
        }
    }

    /// Serves the launcher until it needs no more, which makes the result true, or has gone.
    fn until_closed(mut self, events: &Receiver<LauncherEvent>) -> bool {
        let mut is_finished = false;
        while let Some(event) = next(events, None) {
            match event {
                LauncherEvent::Frame(ToHelper::Start(part)) => {
                    let refusal = self.start(&part);
                    self.tell(&FromHelper::Started(part.job, refusal));
                }
                LauncherEvent::Frame(ToHelper::Reply(member, line)) => {
                    if let Some(process) = self.processes.get_mut(&member) {
                        process.send(&line);
                    }
                }
                LauncherEvent::Frame(ToHelper::Signal(member, signal)) => {
                    let process = self.processes.get(&member);
                    if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(signal))
                    {
                        process.signal(signal);
                    }
                }
                LauncherEvent::Frame(ToHelper::Values(job, name, values)) => {
                    self.values.learn(job, name, values);
                    self.forget_jobs();
                }
                LauncherEvent::Request(member, text) => self.handle_request(member, text),
                LauncherEvent::Signal(SIGCHLD) => {
                    self.reap();
                    let own: HashSet<_> = self.processes.values().map(Process::pid).collect();
                    guard::reap_orphans(|pid| own.contains(&pid));
                }
                LauncherEvent::OutputEnded => self.outputs.ended(),
                LauncherEvent::Frame(ToHelper::Finish) => {
                    is_finished = true;
                    break;
                }
                event if is_end(&event) => break,
                _ => {}
            }
            if self.is_closed.load(Ordering::SeqCst) {
                break;
            }
        }
        // All are signalled before any is waited for: one may be slow to end.
        self.processes.values().for_each(|process| process.signal(Signal::KILL));
        self.processes.clear();
        let mut is_hurried = !is_finished;
        self.outputs.wait(events, OUTPUT_TIME, is_hurried, |event| {
            is_hurried |= is_end(&event);
            is_hurried
        });
        !is_hurried
    }

    /// Answers a request for a value that the launcher has told, and passes on all other requests.
    fn handle_request(&mut self, member: Member, text: Vec<u8>) {
        let request = PmiRequest::read(&mut &*text);
        if let Ok(PmiRequest::Line(line)) = &request
            && let Some(answer) = self.values.answer(member.job, line)
            && let Some(process) = self.processes.get_mut(&member)
        {
            return process.send(answer.as_bytes());
        }
        self.tell(&FromHelper::Request(member, text));
        if request.is_err()
            && let Some(process) = self.processes.get_mut(&member)
        {
            process.set_disconnected();
            self.reap();
        }
    }

    /// Starts all processes of a part, or none. Returns why they can't be started.
    fn start(&mut self, part: &MachinePart) -> Option<String> {
        let error = self.try_start(part).err()?;
        // Dropping the processes kills them.
        part.members().for_each(|member| drop(self.processes.remove(&member)));
        Some(error.to_string())
    }

    fn try_start(&mut self, part: &MachinePart) -> Result<(), LaunchError> {
        for member in part.members() {
            self.processes.insert(member, Process::start(part, member)?);
        }
        for member in part.members() {
            let Some(process) = self.processes.get_mut(&member) else { continue };
            let (output, error) = process.outputs();
            let [to_output, to_error] =
                [Sink::OutputFrames, Sink::ErrorFrames].map(|sink| sink(self.outbox.clone()));
            let label = part.label.then_some(member);
            self.outputs.begin(label, output, to_output, &self.sender)?;
            self.outputs.begin(label, error, to_error, &self.sender)?;
            process.listen(member, &self.sender)?;
        }
        Ok(())
    }

    /// Forgets the values of jobs that have no process here any more.
    fn forget_jobs(&mut self) {
        self.values.keep(|job| self.processes.keys().any(|member| member.job == job));
    }

    /// Tells the launcher which processes have ended.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        self.processes.retain(|&member, process| {
            let Some(status) = process.ended() else { return !process.is_over() };
            ended.push(FromHelper::Ended(member, status.into_raw()));
            false
        });
        ended.iter().for_each(|frame| self.tell(frame));
        self.forget_jobs();
    }
}

/// Whether the helper is to end at once.
fn is_end(event: &LauncherEvent) -> bool {
    match event {
        LauncherEvent::Closed => true,
        LauncherEvent::Signal(signal) => is_request_to_end(*signal),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(sender: SyncSender<LauncherEvent>) -> Helper {
        Helper::new(sender, Outbox::start(io::sink()).unwrap().0)
    }

    #[test]
    fn a_part_that_cannot_be_started_leaves_no_process() {
        let (sender, _events) = sync_channel(EVENTS_MAX);
        let mut helper = helper(sender);
        let part = MachinePart {
            job: 0,
            size: 2,
            first: 0,
            count: 2,
            command: ["/bin/sleep", "600"].map(Into::into).into(),
            environment: Vec::new(),
            directory: "/".into(),
            label: false,
            is_remote: true,
        };
        assert_eq!((helper.start(&part), helper.processes.len()), (None, 2));
        helper.reap();
        assert_eq!(helper.processes.len(), 2, "both are running");
        let nowhere = MachinePart { directory: "/nonexistent".into(), ..part };
        let other = MachinePart { job: 1, ..nowhere.clone() };
        assert!(helper.start(&other).is_some() && helper.processes.len() == 2);
        // The processes of job 0 stand for those that were started before an error.
        assert!(helper.start(&nowhere).is_some() && helper.processes.is_empty());
    }

    #[test]
    fn a_helper_that_is_busy_ends_too_when_the_launcher_closes_the_connection() {
        let (sender, events) = sync_channel(1);
        let mut helper = helper(sender.clone());
        helper.outputs.expect();
        sender.send(LauncherEvent::OutputEnded).unwrap();
        close(&sender, &helper.is_closed);
        // `sender` lives on, so only the flag ends the helper.
        helper.until_closed(&events);
        assert!(events.try_recv().is_err(), "the event before the end was handled");
    }
}
