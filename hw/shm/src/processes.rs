//! The processes of peers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::process::{self, NONCE_BYTES, Pid, ReadPart};
use tagmatch_os::socket::{self, Credentials};

use super::packet::Nonce;

/// The process of a peer, whose memory may be readable. The nonce tells whether `pid` still means
/// the same process, and whether its worker still has its buffers.
#[derive(Clone, Copy)]
pub(crate) struct ReadableProcess {
    pub(crate) pid: Pid,
    pub(crate) nonce_address: u64,
    pub(crate) nonce: Nonce,
}

impl ReadableProcess {
    /// Whether the nonce can be read where the peer has it.
    pub(crate) fn has_nonce(&self) -> bool {
        let mut nonce = [0; NONCE_BYTES];
        let count = process::read_memory(self.pid, self.nonce_address, &mut nonce);
        count.is_ok_and(|count| count == NONCE_BYTES) && nonce == self.nonce.0
    }

    /// Reads the peer's memory. Returns how many bytes were read, and whether they and all that was
    /// read before were the peer's: that is known only once `into` is full.
    pub(crate) fn read(
        &self,
        address: u64,
        into: &mut [MaybeUninit<u8>],
    ) -> io::Result<(usize, bool)> {
        let parts = [ReadPart { address, into }];
        let read = process::read_memory_then_nonce(self.pid, parts, self.nonce_address);
        read.map(|(count, nonce)| (count, nonce == self.nonce.0))
    }

    /// Reads several parts of the peer's memory in one call, [`process::READ_PARTS_MAX`] at most.
    /// Returns how many bytes were read, if all that was read is known to have been the peer's.
    pub(crate) fn read_parts<'a>(
        &self,
        parts: impl IntoIterator<Item = ReadPart<'a>>,
    ) -> Option<usize> {
        let read = process::read_memory_then_nonce(self.pid, parts, self.nonce_address);
        read.ok().filter(|(_, nonce)| *nonce == self.nonce.0).map(|(count, _)| count)
    }
}

/// A socket whose other end was made by a process of this process' user.
pub(crate) struct OwnUsersSocket {
    pub(crate) socket: PeerSocket,
    pub(crate) sender: Credentials,
}

impl OwnUsersSocket {
    /// Asks the kernel which process made the other end.
    ///
    /// # Errors
    /// `EPERM`: a process of another user.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = PeerSocket::new(socket);
        let sender = socket::credentials(socket.as_fd())?;
        let is_own = process::is_own_user(sender.uid);
        is_own.then_some(Self { socket, sender }).ok_or(io::Error::from_raw_os_error(libc::EPERM))
    }
}

impl AsFd for OwnUsersSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Identifies a process that connects to this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallingProcess {
    /// 0 for every process that isn't in this pid namespace.
    pid: i32,
    /// Distinguishes processes that have had the same number. Before Linux 6.9 it is the same for
    /// all.
    pidfd_inode: u64,
}

impl CallingProcess {
    /// Identifies the process at the other end of a connection; `None` if that is this process.
    pub(crate) fn of(pid: Pid, pidfd: Option<BorrowedFd<'_>>) -> Option<Self> {
        let pidfd_inode = pidfd.map_or(0, process::inode);
        (pid != Pid::own()).then_some(CallingProcess { pid: pid.0, pidfd_inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_counted() {
        assert_eq!(CallingProcess::of(Pid::own(), None), None);
    }
}
