//! Descriptors that a process inherits by number.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A descriptor of our own for what is open under this number. Neither is inherited by processes that are
/// started from now on.
///
/// # Errors
/// Nothing is open under it.
pub(crate) fn take(number: RawFd) -> io::Result<File> {
    // SAFETY: makes a new descriptor, whatever the number is; who owns the old one keeps it.
    let own = checked(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: just made, and known to nobody else.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    // SAFETY: changes only who inherits it.
    checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(File::from(own))
}

/// Lets the process that `command` starts inherit `descriptor` under its number here, and end when the thread
/// that starts it does, also by SIGKILL. The descriptor has to stay open until then.
pub(crate) fn give(command: &mut Command, descriptor: &OwnedFd) {
    let number = descriptor.as_raw_fd();
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: system calls on numbers.
        unsafe {
            checked(libc::fcntl(number, libc::F_SETFD, 0))?;
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // It may have gone before we asked to be told.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls alone, and allocates nothing.
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
    fn what_is_given_is_inherited_and_nothing_else() {
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
