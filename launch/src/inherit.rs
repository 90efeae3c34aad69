//! File descriptors that a process inherits from its launcher by number.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Duplicates the descriptor with this number. Processes that are started from now on inherit
/// neither of the two.
///
/// # Errors
/// No descriptor with this number is open.
pub(crate) fn take(number: RawFd) -> io::Result<File> {
    // SAFETY: fcntl makes a new descriptor or fails, whatever the number is. The owner of the old
    // one keeps it.
    let own = checked(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the descriptor was just made, so nothing else owns it.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    // SAFETY: this changes only whether children inherit the descriptor.
    checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(File::from(own))
}

/// Lets the process that `command` starts inherit `descriptor` under its current number. The
/// descriptor has to stay open until the process has started.
pub(crate) fn pass(command: &mut Command, descriptor: &OwnedFd) {
    let number = descriptor.as_raw_fd();
    // SAFETY: a system call whose arguments are plain numbers.
    let prepare = move || checked(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop);
    // SAFETY: between fork and exec the closure only makes a system call, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// As [`pass`]. The process is also killed when the thread that starts it ends, even by SIGKILL.
pub(crate) fn give(command: &mut Command, descriptor: &OwnedFd) {
    pass(command, descriptor);
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: system calls whose arguments are plain numbers.
        unsafe {
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have ended before the prctl call.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        for number in [-1, 1_000_000] {
            assert_eq!(take(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }

    #[test]
    fn only_a_given_descriptor_is_inherited() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let number = theirs.as_raw_fd();
        let inherited = |given: bool| {
            let mut command = Command::new("readlink");
            command.arg(format!("/proc/self/fd/{number}"));
            if given {
                give(&mut command, &theirs);
            }
            let output = command.output().unwrap().stdout;
            String::from_utf8(output).unwrap().trim_end().to_owned()
        };
        let socket = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_ne!(socket.to_str(), Some(inherited(false).as_str()));
        assert_eq!(socket.to_str(), Some(inherited(true).as_str()));
        // A launcher hands over descriptors that children would inherit, too.
        // SAFETY: a system call whose arguments are plain numbers.
        checked(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).unwrap();
        assert_eq!(socket.to_str(), Some(inherited(false).as_str()));
        let mut own = take(number).unwrap();
        assert_ne!(socket.to_str(), Some(inherited(false).as_str()));
        drop(theirs);
        own.write_all(b"again").unwrap();
        drop(own);
        let mut line = String::new();
        ours.read_to_string(&mut line).unwrap();
        assert_eq!(line, "again");
    }
}
