//! The command's own process: it starts the device, and stands in for it if it dies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, WaitOptions, set_child_subreaper, wait};
use tagmatch_os::notice;
use zerocopy::IntoBytes;

use crate::abi::{AsyncEvent, event};
use crate::seccomp::Listener;
use crate::wire::{Notice, Wire};

/// Starts this command again as another of its processes, with one end of a wire.
pub(crate) fn start(stage: &str, wire: &Wire, arguments: &[OsString]) -> io::Result<Child> {
    // The new process gets the descriptor by its number; this one has one thread.
    fcntl_setfd(wire.as_fd(), FdFlags::empty())?;
    let fd = wire.as_fd().as_raw_fd().to_string();
    let child = Command::new("/proc/self/exe")
        .arg0("tagmatch-hca")
        .args(["--stage", stage, "--wire", &fd])
        .args(arguments)
        .spawn();
    fcntl_setfd(wire.as_fd(), FdFlags::CLOEXEC)?;
    child
}

/// The facts that the device has told the guardian.
#[derive(Default)]
struct Known {
    listener: Option<Listener>,
    program: Option<Pid>,
    channels: BTreeMap<u64, OwnedFd>,
    ended: Option<i32>,
}

/// Watches the device until all programs have ended; the status of the first one.
pub(crate) fn watch(wire: &Wire, mut device: Child) -> io::Result<i32> {
    let mut known = Known::default();
    while let Some((notice, fd)) = wire.hear()? {
        match (notice, fd) {
            (Notice::Listener(pid), Some(fd)) => {
                known.listener = Some(Listener::new(fd));
                known.program = i32::try_from(pid).ok().and_then(Pid::from_raw);
            }
            (Notice::Channel(number), Some(fd)) => drop(known.channels.insert(number, fd)),
            (Notice::Closed(number), _) => drop(known.channels.remove(&number)),
            (Notice::Ended(status), _) => known.ended = Some(status as i32),
            _ => {}
        }
    }
    let status = device.wait()?;
    match (known.ended, &known.listener) {
        (Some(status), _) => Ok(status),
        (None, Some(_)) => {
            notice::tell(&format!(
                "tagmatch-hca: the device has died ({status}); programs are told"
            ));
            Ok(stand_in(&known))
        }
        // The device has said why.
        (None, None) => Ok(status.code().unwrap_or(125) << 8),
    }
}

/// Tells all programs that the device is gone, and refuses their calls until they have ended.
fn stand_in(known: &Known) -> i32 {
    let gone = AsyncEvent { element: 0, event_type: event::DEVICE_FATAL, reserved: 0 };
    for channel in known.channels.values() {
        let _ = rustix::io::write(channel, gone.as_bytes());
    }
    let mut first = None;
    loop {
        const NOW_AND_THEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let Some(listener) = &known.listener else { break };
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&NOW_AND_THEN));
        let found = fds[0].revents();
        if found.contains(PollFlags::IN)
            && let Ok(trapped) = listener.receive()
        {
            listener.answer(trapped.id, libc::EIO);
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if Some(pid) == known.program {
                first = Some(status.as_raw());
            }
        }
        if found.contains(PollFlags::HUP) {
            break;
        }
    }
    while let Ok(Some((pid, status))) = wait(WaitOptions::empty()) {
        if Some(pid) == known.program {
            first = Some(status.as_raw());
        }
    }
    first.unwrap_or(125 << 8)
}

/// Programs whose parents end become children of this process: so it may look at their memory, and
/// knows their ends.
pub(crate) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}
