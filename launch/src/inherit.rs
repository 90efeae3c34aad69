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
/// process is also killed when the thread that starts it ends, even by SIGKILL. The descriptor has
/// to stay open until the process has started.
pub(crate) fn give(command: &mut Command, descriptor: &OwnedFd) {
    let number = descriptor.as_raw_fd();
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: system calls whose arguments are plain numbers.
        unsafe {
            checked(libc::fcntl(number, libc::F_SETFD, 0))?;
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
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        for number in [-1, 1_000_000] {
            assert_eq!(take(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }

    #[test]
    fn only_a_given_descriptor_is_inherited() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let say = |given: bool| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("echo hello >&{}", theirs.as_raw_fd()));
            if given {
                give(&mut command, &theirs);
            }
            command.stderr(std::process::Stdio::null()).status().unwrap().success()
        };
        assert!(!say(false));
        assert!(say(true));
        let mut own = take(theirs.as_raw_fd()).unwrap();
        drop(theirs);
        own.write_all(b"again\n").unwrap();
        drop(own);
        assert_eq!(io::read_to_string(ours).unwrap(), "hello\nagain\n");
    }
}
