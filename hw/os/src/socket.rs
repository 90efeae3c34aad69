//! Abstract unix sockets that carry packets, descriptors and credentials.
//!
//! Every call is told per call not to block (`MSG_DONTWAIT`): whether the descriptor itself is
//! non-blocking is a flag that another holder of the same socket could change.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::closing::Unchecked;
use super::process::Pid;
use super::{check, check_count};

/// Most descriptors in one packet, by unix(7).
const FDS_MAX: usize = 253;
/// Most descriptors in one packet of ours.
const SENT_FDS_MAX: usize = 4;

const KIND: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Room for the control data of [`FDS_MAX`] descriptors, aligned as `cmsghdr` needs: none is cut off,
/// since the kernel would close it in the call.
type Control = [u64; CONTROL_WORDS];
const CONTROL_WORDS: usize = 2 + FDS_MAX.div_ceil(2);

/// `SO_PEERPIDFD`, since Linux 6.5; not in every version of the libc crate.
const SO_PEERPIDFD: libc::c_int = 77;

/// `SO_PASSRIGHTS`, since Linux 6.16; not in every version of the libc crate.
pub(super) const SO_PASSRIGHTS: libc::c_int = 83;

/// A packet that came in.
pub struct Packet {
    /// How many bytes of the buffer it filled; 0 at the end of the connection.
    pub length: usize,
    /// The descriptors that came with it.
    pub fds: Unchecked,
    /// Bytes or descriptors were cut off.
    pub truncated: bool,
}

/// Who is at the other end, by the word of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// 0 where the process isn't in our pid namespace.
    pub pid: Pid,
    /// The effective user, as the kernel saw it when the socket was connected.
    pub uid: u32,
}

pub(super) fn abstract_name(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0);
    // The first byte stays zero: that is what makes the name abstract.
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let length = libc::socklen_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok((address, length))
}

fn open() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, KIND, 0) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Listens under an abstract name.
pub fn listen(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let (address, length) = abstract_name(name)?;
    let socket = open()?;
    // SAFETY: `address` is valid for `length` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// Connects at once or not at all: `WouldBlock` if the listener's queue is full.
pub fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    let (address, length) = abstract_name(name)?;
    let socket = open()?;
    // SAFETY: `address` is valid for `length` bytes.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// The next connection, `WouldBlock` if there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    let fd =
        check(unsafe { libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length =
        libc::socklen_t::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` has as many bytes as said, and both callers' types are plain integers.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    super::stream::set(socket, libc::SOL_SOCKET, name, value)
}

/// Who is at the other end: whoever connected, or listened.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let nobody = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let peer = option(socket, libc::SO_PEERCRED, nobody)?;
    Ok(Credentials { pid: Pid(peer.pid), uid: peer.uid })
}

/// A pidfd of the process at the other end.
///
/// Since Linux 6.5 the kernel gives the very process. Before, it is looked up by number: should
/// the process have ended and its number been reused meanwhile, the socket is at its end too.
pub fn peer_pidfd(socket: BorrowedFd<'_>, peer: Credentials) -> io::Result<OwnedFd> {
    match option(socket, SO_PEERPIDFD, -1) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel has just given us this descriptor, close-on-exec.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ if peer.pid.0 > 0 => super::process::open(peer.pid),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Sends one packet with descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut control = [0u64; 4];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = fds
            .len()
            .checked_mul(size_of::<libc::c_int>())
            .filter(|_| fds.len() <= SENT_FDS_MAX)
            .and_then(|bytes| u32::try_from(bytes).ok())
            .ok_or(io::ErrorKind::InvalidInput)?;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: `control` has room for SENT_FDS_MAX descriptors, is aligned for `cmsghdr`, and
        // outlives `message`; so the first header exists and `payload` bytes follow it.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(payload) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as usize;
            let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer in `message` is to a local that lives through the call; the kernel only
    // reads the bytes.
    let sent =
        check_count(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })?;
    // A packet goes whole or not at all.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one packet with its descriptors; `WouldBlock` if there is none.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Packet> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: every pointer in `message` is to a local that lives through the call, with the length
    // said beside it.
    let length =
        check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled `control` with well-formed headers, up to `msg_controllen`, and what
    // follows is not looked at. Each descriptor in them is new and ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let is_rights =
                (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS;
            if is_rights {
                let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                for index in 0..bytes / size_of::<libc::c_int>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let cut = libc::MSG_TRUNC | libc::MSG_CTRUNC;
    Ok(Packet { length, truncated: message.msg_flags & cut != 0, fds: Unchecked(fds) })
}

/// Takes what is left in a socket that was shut down. Returns whether that is all and no descriptor was
/// among it, so that closing the socket closes nothing else.
pub(super) fn holds_plain_packets(socket: BorrowedFd<'_>) -> bool {
    // No other socket of ours can hold a descriptor, and since Linux 6.16 no other has `SO_PASSCRED`.
    if option(socket, libc::SO_DOMAIN, libc::AF_UNIX).is_ok_and(|domain| domain != libc::AF_UNIX) {
        return true;
    }
    // With credentials each packet has control data, also an empty one. The end has none.
    if set_option(socket, libc::SO_PASSCRED, 1).is_err() {
        return false;
    }
    for _ in 0..LEFTOVERS_MAX {
        let (mut bytes, mut control) = ([0u8; 1], [0u64; 4]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all zeros is a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CREDENTIALS_BYTES;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: every pointer in `message` is to a local that lives through the call, with the length
        // said beside it. There is no room for a descriptor, so none is made.
        let peeked =
            check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) });
        let has_more = message.msg_flags & libc::MSG_CTRUNC != 0;
        match peeked {
            Ok(0) if message.msg_controllen == 0 => return true,
            Ok(_) if has_more => return false,
            Ok(_) => {
                let to = bytes.as_mut_ptr().cast();
                // SAFETY: `bytes` has room for as many as said.
                unsafe { libc::recv(socket.as_raw_fd(), to, bytes.len(), libc::MSG_DONTWAIT) };
            }
            // Errors are told once, such as that the other end was closed with packets unread.
            Err(_) => {}
        }
    }
    false
}

/// Packets that are taken from a socket before it is closed.
const LEFTOVERS_MAX: usize = 64;

/// Bytes of control data for the credentials of a packet, and nothing beside them.
// SAFETY: computes a number.
const CREDENTIALS_BYTES: usize = unsafe { libc::CMSG_SPACE(12) } as usize;
const _: () = assert!(size_of::<libc::ucred>() == 12 && CREDENTIALS_BYTES <= 32);

/// Sends one byte to wake a sleeper. Failing is fine: a full socket wakes it anyway, a closed one
/// has nobody to wake.
pub fn send_wake(socket: &impl AsFd) {
    let _ = send(socket.as_fd(), &[WAKE], &[]);
}

/// The packet that wakes a sleeper.
pub const WAKE: u8 = b'w';

/// Tells the peer that its connection ends in order. Failing is fine: the peer takes the end for a fault then.
pub fn send_bye(socket: &impl AsFd) {
    let _ = send(socket.as_fd(), &[BYE], &[]);
}

/// The packet that says that the sender leaves.
pub const BYE: u8 = b'b';

/// Ends a connection for all who hold it open, forked children included.
pub fn shut_down(socket: &OwnedFd) {
    // SAFETY: no pointers. Fails if it is at its end already, which is what is wanted.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_of_tcp_is_closed_without_a_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = OwnedFd::from(listener.accept().unwrap().0);
        // More than is taken from a socket before it is closed.
        caller.write_all(&[7; 2 * LEFTOVERS_MAX]).unwrap();
        shut_down(&accepted);
        assert!(holds_plain_packets(accepted.as_fd()));
    }
}
