//! The system calls that tagmatch's devices share, each behind a safe function.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! This crate doesn't know the devices: it has no peers, rings or protocols. No call blocks, except
//! [`sleep::sleep_until_readable`], [`process::read_memory`] where the other process withholds
//! pages, and [`notice`] for a moment.
//!
//! | module | contents |
//! |---|---|
//! | [`background_close`] | closing descriptors that a peer sent, on another thread |
//! | [`between_forks`] | work that no fork(2) of another thread interrupts |
//! | [`event`] | epoll descriptors and timers |
//! | `exit_audit` | test programs that leave nothing open at their end |
//! | `fork` | sockets that a forked child doesn't keep |
//! | [`interfaces`] | network interfaces: their addresses, and their MTU |
//! | [`journal`] | a file of records that survives the process |
//! | [`memory`] | shared memory that can't shrink |
//! | [`notice`] | words on standard error, which never fail |
//! | [`own_table`] | threads with a descriptor table of their own |
//! | [`peer_socket`] | sockets that end for all processes when they are dropped |
//! | [`process`] | other processes: their end, their memory, memory barriers on them |
//! | [`routes`] | how far a network interface leads: its routes, and its VLAN |
//! | [`safety`] | timers that end a sleep which nothing has ended, and tests without them |
//! | [`signals`] | threads that no signal interrupts |
//! | [`sleep`] | sleeping until a descriptor is readable, and waking a sleeping thread |
//! | [`socket`] | unix sockets that carry packets with descriptors |
//! | [`stream`] | TCP and unix sockets that carry bytes |
//! | [`tcp`] | TCP sockets alone: options, several parts in one call, what is acknowledged |
//! | [`wake_socket`] | waking workers of other processes |

pub mod background_close;
pub mod between_forks;
pub mod event;
#[doc(hidden)]
pub mod exit_audit;
mod fork;
pub mod interfaces;
pub mod journal;
pub mod memory;
pub mod notice;
pub mod own_table;
pub mod peer_socket;
pub mod process;
pub mod routes;
pub mod safety;
pub mod signals;
pub mod sleep;
pub mod socket;
mod socket_calls;
pub mod stream;
pub mod tcp;
pub mod wake_socket;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The result of a system call that returns -1 for an error.
pub fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The result of a system call that returns -1 for an error, and a new descriptor otherwise.
///
/// # Safety
/// `answer` is the result of such a call, and nothing else uses the descriptor.
unsafe fn descriptor(answer: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    check(answer).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The result of a system call that returns -1 for an error, and a count otherwise.
pub fn check_count(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Whether sending or receiving failed for the moment: there are no bytes, there is no room, a
/// signal came, or the kernel has no memory for the call.
pub fn fails_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// A part of memory, as system calls take it.
fn part_of<T>(bytes: &mut [T]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size_of_val(bytes) }
}

/// Unpredictable bytes, from getrandom(2).
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        let rest = &mut bytes[have..];
        // SAFETY: `rest` is `rest.len()` bytes long, and nothing else refers to it.
        let got = check_count(unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) });
        match got {
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
