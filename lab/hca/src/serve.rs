//! The device's process: it answers trapped calls, and has a thread for each process that uses the
//! device.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, wait};
use serde::Serialize;

use crate::boundary::{Answers, Call, Errno, Kept};
use crate::channel::Channel;
use crate::memory::ProcessMemory;
use crate::nic::{Counts, Fabric, Function, Inbox, Letter};
use crate::seccomp::{Listener, Trapped};
use crate::settings::Settings;
use crate::strikes::Strikes;
use crate::sysfs::{self, PortFiles};
use crate::wire::{Notice, Wire};

/// What the device has done for a process, for its report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessReport {
    /// The process.
    pub(crate) process: i32,
    /// The name of its program.
    pub(crate) program: String,
    /// What the device has done.
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// How a thread of the device answers calls.
#[derive(Clone)]
struct Gate {
    listener: Arc<Listener>,
    guardian: Arc<Mutex<Wire>>,
    released: Sender<u64>,
    channels: Arc<AtomicU64>,
}

impl Answers for Gate {
    fn give(&self, call: u64, fd: BorrowedFd<'_>) -> io::Result<i32> {
        self.listener.give(call, fd, None)
    }

    fn replace(&self, call: u64, place: i32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.listener.give(call, fd, Some(place)).map(drop)
    }

    fn answer(&self, call: u64, errno: Errno) -> bool {
        self.listener.answer(call, errno)
    }

    fn keep(&self, channel: &Channel) -> Option<Kept> {
        let number = self.channels.fetch_add(1, Ordering::Relaxed);
        let guardian = self.guardian.lock().unwrap_or_else(PoisonError::into_inner);
        guardian.say(Notice::Channel(number), Some(channel.writer())).ok()?;
        Some(Kept::new(number, self.released.clone()))
    }
}

/// A process that uses the device.
struct Served {
    pidfd: OwnedFd,
    inbox: Inbox,
    thread: JoinHandle<Counts>,
    program: String,
}

/// The process of a thread.
fn process_of(thread: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The number of the device behind a descriptor of a process, if it is one of ours.
fn device_behind(process: i32, fd: i32) -> Option<u32> {
    let target = std::fs::read_link(format!("/proc/{process}/fd/{fd}")).ok()?;
    let target = target.to_str()?;
    let number = target.strip_prefix("/dev/infiniband/uverbs").or_else(|| {
        // What the device has put in its place.
        let name = target.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?;
        name.strip_prefix(crate::doorbells::NAME)
    });
    number?.parse().ok()
}

/// The device's process.
pub(crate) struct Server {
    gate: Gate,
    released: Receiver<u64>,
    settings: Arc<Settings>,
    fabric: Arc<Fabric>,
    served: HashMap<i32, Served>,
    reports: Vec<ProcessReport>,
    /// The files of counters, and what stands in them.
    counters: Vec<(Option<File>, u64)>,
    strikes: Strikes,
    port_files: PortFiles,
    /// The first program, and the status of its end.
    first: Pid,
    status: Option<i32>,
}

impl Server {
    pub(crate) fn new(listener: OwnedFd, guardian: Wire, settings: Settings, first: Pid) -> Self {
        let (released, receiver) = channel();
        let pid = first.as_raw_nonzero().get();
        let counters = sysfs::counters(pid, &settings);
        // The guardian, which has started this process, is the one that users know.
        let own = std::os::unix::process::parent_id();
        let strikes = Strikes::new(pid, Some(own), &settings);
        let port_files = PortFiles::open(pid, &settings);
        let fabric = Fabric::new(&settings);
        Server {
            gate: Gate {
                listener: Arc::new(Listener::new(listener)),
                guardian: Arc::new(Mutex::new(guardian)),
                released,
                channels: Arc::default(),
            },
            released: receiver,
            settings: Arc::new(settings),
            fabric: Arc::new(fabric),
            served: HashMap::new(),
            reports: Vec::new(),
            counters: counters.into_iter().map(|file| (file, 0)).collect(),
            strikes,
            port_files,
            first,
            status: None,
        }
    }

    /// Connects the Ethernet ports to their networks.
    pub(crate) fn connect(&self, wire: crate::roce::socket::RoceWire) -> io::Result<()> {
        let fabric = Arc::downgrade(&self.fabric);
        wire.listen(move |arrived| {
            let fabric = fabric.upgrade();
            fabric.map(|fabric| fabric.arrive(arrived)).is_some()
        })?;
        self.fabric.connect(Box::new(wire));
        Ok(())
    }

    /// Serves all programs until the last one has ended. The first one's status, and what was done.
    pub(crate) fn run(mut self) -> (i32, Vec<ProcessReport>) {
        const NOW_AND_THEN: Duration = Duration::from_millis(200);
        loop {
            let guardian = self.gate.guardian.lock().unwrap_or_else(PoisonError::into_inner);
            let guardian_fd = guardian.as_fd().try_clone_to_owned().ok();
            drop(guardian);
            let (is_called, is_over, is_alone, ended) = {
                let listener = self.gate.listener.as_fd();
                let mut fds = vec![PollFd::from_borrowed_fd(listener, PollFlags::IN)];
                if let Some(guardian) = &guardian_fd {
                    fds.push(PollFd::new(guardian, PollFlags::empty()));
                }
                for fd in self.strikes.descriptors() {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                }
                let fixed = fds.len();
                let processes: Vec<i32> = self.served.keys().copied().collect();
                for process in &processes {
                    fds.push(PollFd::new(&self.served[process].pidfd, PollFlags::IN));
                }
                let sleep = self.strikes.until_next().min(NOW_AND_THEN);
                let _ = poll(&mut fds, Timespec::try_from(sleep).ok().as_ref());
                let is = |at: usize, flags| {
                    fds.get(at).is_some_and(|fd: &PollFd<'_>| fd.revents().intersects(flags))
                };
                let ended: Vec<i32> = processes
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| is(fixed + at, PollFlags::IN))
                    .map(|(_, process)| *process)
                    .collect();
                let is_alone = guardian_fd.is_none() || is(1, PollFlags::HUP | PollFlags::ERR);
                (is(0, PollFlags::IN), is(0, PollFlags::HUP), is_alone, ended)
            };
            if is_called && let Ok(trapped) = self.gate.listener.receive() {
                self.take(trapped);
            }
            for process in ended {
                self.end(process);
            }
            for number in self.released.try_iter() {
                let guardian = self.gate.guardian.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = guardian.say(Notice::Closed(number), None);
            }
            self.strike();
            self.count();
            self.reap();
            if is_alone {
                self.kill_all();
            }
            if is_over {
                break;
            }
        }
        let left: Vec<i32> = self.served.keys().copied().collect();
        for process in left {
            self.end(process);
        }
        while self.status.is_none() && self.reap() {}
        let status = self.status.unwrap_or(0);
        let guardian = self.gate.guardian.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = guardian.say(Notice::Ended(status as u64), None);
        drop(guardian);
        (status, self.reports)
    }

    /// Has happen what is due.
    fn strike(&mut self) {
        let due = self.strikes.due();
        if due.is_empty() {
            return self.strikes.answer();
        }
        for strike in &due {
            strike.apply(&self.fabric.ports, &self.settings);
        }
        // A program that is told of a change looks into the files.
        self.port_files.refresh(&self.fabric.ports, &self.settings);
        for strike in &due {
            for served in self.served.values() {
                served.inbox.put(Letter::Fault(strike.device, strike.kind));
            }
        }
        self.strikes.answer();
    }

    /// Writes counters that have changed into their files.
    fn count(&mut self) {
        for (device, (file, written)) in self.counters.iter_mut().enumerate() {
            let now = self.fabric.ports.out_of_buffer(device);
            if now != *written
                && let Some(file) = file
                && file.write_all_at(format!("{now}\n").as_bytes(), 0).is_ok()
            {
                *written = now;
            }
        }
    }

    /// Takes the ends of children. `false`: there are none.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.first {
                        self.status = Some(status.as_raw());
                    }
                }
                Ok(None) => {
                    if self.status.is_none() {
                        std::thread::yield_now();
                    }
                    return true;
                }
                Err(_) => return false,
            }
        }
    }

    /// The guardian was killed: nothing may be left behind.
    fn kill_all(&self) {
        let kill = |pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        if self.status.is_none() {
            let _ = kill(self.first);
        }
        for pid in self.served.keys().filter_map(|process| Pid::from_raw(*process)) {
            let _ = kill(pid);
        }
        for child in children() {
            let _ = kill(child);
        }
    }

    fn take(&mut self, trapped: Trapped) {
        let Some(process) = process_of(trapped.thread) else {
            self.gate.listener.answer(trapped.id, libc::ESRCH);
            return;
        };
        let number = device_behind(process, trapped.fd);
        let device = number
            .and_then(|number| self.settings.devices.iter().position(|device| *device == number));
        let Some(device) = device else {
            // A real device, or anything else that knows the call.
            return self.gate.listener.pass(trapped.id);
        };
        let Trapped { id, thread, fd, argument } = trapped;
        let call = Call { id, thread, fd, device, at: argument };
        if !self.gate.listener.is_waiting(trapped.id) {
            return;
        }
        match self.serve(process) {
            Ok(inbox) => inbox.put(Letter::Call(call)),
            Err(_) => drop(self.gate.listener.answer(trapped.id, libc::EIO)),
        }
    }

    /// The inbox of a process, which gets a thread of the device with its first call.
    fn serve(&mut self, process: i32) -> io::Result<Inbox> {
        if let Some(served) = self.served.get(&process) {
            if !served.thread.is_finished() {
                return Ok(served.inbox.clone());
            }
            self.end(process);
        }
        let pid = Pid::from_raw(process).ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let inbox = Inbox::default();
        let function = Function::new(
            ProcessMemory::new(process),
            Arc::clone(&self.fabric),
            inbox.clone(),
            Arc::clone(&self.settings),
        );
        let gate = self.gate.clone();
        let is_open = move |fd, inode| {
            let found = std::fs::metadata(format!("/proc/{process}/fd/{fd}"));
            found.is_ok_and(|found| found.ino() == inode)
        };
        let thread =
            std::thread::Builder::new().name(format!("hca {process}")).spawn(move || {
                crate::priority::ask_for_short_turns();
                function.serve(&gate, is_open)
            })?;
        let program = std::fs::read_to_string(format!("/proc/{process}/comm"));
        let program = program.unwrap_or_default().trim().to_owned();
        self.served.insert(process, Served { pidfd, inbox: inbox.clone(), thread, program });
        Ok(inbox)
    }

    /// A process has ended.
    fn end(&mut self, process: i32) {
        let Some(Served { inbox, thread, program, .. }) = self.served.remove(&process) else {
            return;
        };
        inbox.put(Letter::End);
        let counts = thread.join().unwrap_or_default();
        self.reports.push(ProcessReport { process, program, counts });
    }
}

/// The children of this process: the program, and what it has left behind.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let path = format!("/proc/{own}/task/{own}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
