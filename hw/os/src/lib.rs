//! The system calls of the device, each behind a function that a caller can't misuse.
//!
//! Nothing here knows what a peer or a ring is.

pub mod closing;
pub mod event;
pub mod memory;
pub mod process;
pub mod sleep;
pub mod socket;
pub mod stream;

use std::io;

/// The answer of a system call that says -1 for an error.
pub fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The answer of a system call that says -1 for an error, else a count.
pub fn check_count(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        let rest = &mut bytes[have..];
        // SAFETY: `rest` is ours alone and as long as said.
        let got = check_count(unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) });
        match got {
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
