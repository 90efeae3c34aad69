//! Abstract unix sockets that carry packets with descriptors, and tell the user and the process at
//! the other end.
//!
//! Each call that sends or receives passes `MSG_DONTWAIT`. `O_NONBLOCK` alone isn't enough: another
//! process that holds the same socket open, a forked child for instance, can clear it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::background_close::UncheckedDescriptors;
use super::process::Pid;
use super::socket_calls::{SocketAddress, message_of, open, option, set_option};
use super::{check_count, descriptor, fails_for_now, fork, part_of};

/// Most descriptors in one packet, by unix(7).
const FDS_MAX: usize = 253;
/// Most descriptors in one packet that [`send`] sends.
const SENT_FDS_MAX: usize = 4;

/// Room for the control data of [`FDS_MAX`] descriptors, aligned as `cmsghdr` needs. The kernel
/// closes descriptors that don't fit, inside the call, and that can block; so all of them must fit.
type Control = [u64; CONTROL_WORDS];
const CONTROL_WORDS: usize = 2 + FDS_MAX.div_ceil(2);

/// `SO_PEERPIDFD`, since Linux 6.5; not in every version of the libc crate.
const SO_PEERPIDFD: libc::c_int = 77;

/// A received packet.
pub struct Packet {
    /// How many bytes of the buffer it filled; 0 at the end of the connection.
    pub length: usize,
    /// The descriptors that were sent with it.
    pub fds: UncheckedDescriptors,
    /// Whether bytes were cut off.
    pub truncated: bool,
    /// Whether descriptors were cut off, since this process may not open so many. There was room
    /// for those of any packet, so the limit is the process' own (unix(7), `SCM_RIGHTS`).
    pub lacks_descriptors: bool,
}

/// The process at the other end of a socket, as the kernel tells it.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// 0 if the process isn't in this process' pid namespace.
    pub pid: Pid,
    /// The effective user, as the kernel saw it when the socket was connected.
    pub uid: u32,
}

/// Listens under an abstract name.
pub fn listen(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let address = SocketAddress::of_abstract(name)?;
    address.listen(open(libc::AF_UNIX, libc::SOCK_SEQPACKET)?, backlog)
}

/// Connects to an abstract name without waiting.
///
/// # Errors
/// `WouldBlock`: the listener's queue is full. `ECONNREFUSED`: nothing listens under this name.
pub fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    let address = SocketAddress::of_abstract(name)?;
    address.connect(open(libc::AF_UNIX, libc::SOCK_SEQPACKET)?)
}

/// Two sockets that are connected to each other.
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for two descriptors.
    super::check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the descriptors are new.
    Ok(ends.map(|fd| fork::note(unsafe { OwnedFd::from_raw_fd(fd) })))
}

/// Another descriptor of a socket, which a forked child doesn't get either.
pub fn duplicate(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    socket.try_clone_to_owned().map(fork::note)
}

/// Accepts the next connection; `WouldBlock` if there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let address = std::ptr::null_mut();
    let length = std::ptr::null_mut();
    // SAFETY: no address is asked for, and the descriptor is new.
    unsafe { descriptor(libc::accept4(listener.as_raw_fd(), address, length, flags)) }
        .map(fork::note)
}

/// The process at the other end: the one that called connect(2), or listen(2).
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let unknown = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let peer = option(socket, libc::SO_PEERCRED, unknown)?;
    Ok(Credentials { pid: Pid(peer.pid), uid: peer.uid })
}

/// A pidfd of the process at the other end.
///
/// Linux 6.5 and later give the process itself (`SO_PEERPIDFD`). On older kernels it is looked up
/// by number, which can be reused after the process has ended; but then the socket is at its end as
/// well.
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
    let base = bytes.as_ptr().cast_mut().cast();
    let mut parts = [libc::iovec { iov_base: base, iov_len: bytes.len() }];
    let mut message = message_of(&mut parts);
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
    // The kernel takes a packet whole or not at all.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one packet with its descriptors; `WouldBlock` if there is none.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Packet> {
    receive_with(socket, into, 0)
}

/// Gives a packet with duplicates of its descriptors, and leaves it in the socket. So a process
/// that lacks descriptors loses none. `WouldBlock` if there is no packet.
pub fn peek(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Packet> {
    receive_with(socket, into, libc::MSG_PEEK)
}

/// Takes out the packet that [`peek`] has given. This call closes the packet's descriptors, so the
/// caller has checked that closing them can't block.
pub fn take(socket: BorrowedFd<'_>) {
    // SAFETY: no byte is stored.
    unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
}

fn receive_with(socket: BorrowedFd<'_>, into: &mut [u8], peek: libc::c_int) -> io::Result<Packet> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut parts = [part_of(into)];
    let mut message = message_of(&mut parts);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | peek;
    // SAFETY: every pointer in `message` is to a local that lives through the call, with its length
    // beside it.
    let length =
        check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled `control` with well-formed headers up to `msg_controllen`, and
    // nothing behind that is read. Each descriptor in them is new and belongs to nothing else.
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
    Ok(Packet {
        length,
        fds: UncheckedDescriptors(fds),
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        lacks_descriptors: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Takes the packets that are left in a socket that was shut down. `true` if all of them were taken
/// and none had a descriptor, so that closing the socket closes nothing else. At most 64
/// packets are taken.
pub fn holds_plain_packets(socket: BorrowedFd<'_>) -> bool {
    // Only a unix socket can hold descriptors. Since Linux 6.16 only unix sockets have
    // `SO_PASSCRED`.
    if option(socket, libc::SO_DOMAIN, libc::AF_UNIX).is_ok_and(|domain| domain != libc::AF_UNIX) {
        return true;
    }
    // With `SO_PASSCRED` every packet has control data, an empty packet too; only the end has none.
    // That tells an empty packet from the end.
    if set_option(socket, libc::SOL_SOCKET, libc::SO_PASSCRED, 1).is_err() {
        return false;
    }
    for _ in 0..LEFTOVERS_MAX {
        let mut bytes = [0u8; 1];
        let mut control = [0u64; 4];
        let mut parts = [part_of(&mut bytes)];
        let mut message = message_of(&mut parts);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CREDENTIALS_BYTES;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: every pointer in `message` is to a local that lives through the call, with its
        // length beside it. There is no room for a descriptor, so the kernel makes none.
        let peeked =
            check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) });
        let has_more = message.msg_flags & libc::MSG_CTRUNC != 0;
        match peeked {
            Ok(0) if message.msg_controllen == 0 => return true,
            Ok(_) if has_more => return false,
            Ok(_) => {
                let to = bytes.as_mut_ptr().cast();
                // SAFETY: `bytes` has room for `bytes.len()` bytes.
                unsafe { libc::recv(socket.as_raw_fd(), to, bytes.len(), libc::MSG_DONTWAIT) };
            }
            // The kernel reports an error once, for instance ECONNRESET when the other end was
            // closed with packets unread; the next call goes on.
            Err(_) => {}
        }
    }
    false
}

/// Most packets that are taken from a socket before it is closed.
const LEFTOVERS_MAX: usize = 64;

/// Bytes of control data for the credentials of a packet, without room for anything else.
// SAFETY: computes a number.
const CREDENTIALS_BYTES: usize = unsafe { libc::CMSG_SPACE(12) } as usize;
const _: () = assert!(size_of::<libc::ucred>() == 12 && CREDENTIALS_BYTES <= 32);

/// The last packet of a peer on a connection, or the end without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// Nothing yet.
    None,
    /// The peer ends the connection in order.
    Bye,
    /// The connection is at its end.
    End,
    /// A packet that is none of these.
    Nonsense,
}

/// Looks at a connection on which only the last word is still to come, and leaves it there.
pub fn last_word(socket: BorrowedFd<'_>) -> LastWord {
    let mut bytes = [0u8; 2];
    let mut parts = [part_of(&mut bytes)];
    let mut message = message_of(&mut parts);
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: every pointer in `message` is to a local that lives through the call, with its length
    // beside it. There is no room for a descriptor, so the kernel makes none.
    let length = check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) });
    let has_descriptors = message.msg_flags & libc::MSG_CTRUNC != 0;
    match (length, bytes[0]) {
        (Err(error), _) if fails_for_now(&error) => LastWord::None,
        (Err(_), _) => LastWord::End,
        (Ok(0), _) if !has_descriptors => LastWord::End,
        (Ok(1), BYE) if !has_descriptors => LastWord::Bye,
        _ => LastWord::Nonsense,
    }
}

/// Tells the peer that this side ends the connection in order. Errors are ignored: the peer then
/// reports the end of the socket as a failure.
pub fn send_bye(socket: &impl AsFd) {
    let _ = send(socket.as_fd(), &[BYE], &[]);
}

/// Contents of the packet that says that the sender ends the connection.
const BYE: u8 = b'b';

/// Ends a connection for all processes that hold the socket open, forked children included.
pub fn shut_down(socket: &OwnedFd) {
    // SAFETY: no pointers. The call fails if the connection is at its end already, which is fine.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_packet_that_was_peeked_at_stays_until_it_is_taken() {
        let [one, other] = pair().unwrap();
        send(one.as_fd(), b"first", &[one.as_fd(), other.as_fd()]).unwrap();
        send(one.as_fd(), b"second", &[]).unwrap();
        for _ in 0..2 {
            let mut bytes = [0; 8];
            let packet = peek(other.as_fd(), &mut bytes).unwrap();
            assert_eq!((&bytes[..packet.length], packet.fds.0.len()), (&b"first"[..], 2));
            assert!(!packet.truncated);
        }
        assert!(peek(other.as_fd(), &mut [0; 2]).unwrap().truncated);
        take(other.as_fd());
        let mut bytes = [0; 8];
        let packet = peek(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..packet.length], packet.fds.0.len()), (&b"second"[..], 0));
        take(other.as_fd());
        assert_eq!(
            peek(other.as_fd(), &mut bytes).err().unwrap().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn a_socket_of_tcp_is_closed_without_a_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = OwnedFd::from(listener.accept().unwrap().0);
        // More bytes than packets are taken from a socket before it is closed.
        caller.write_all(&[7; 2 * LEFTOVERS_MAX]).unwrap();
        shut_down(&accepted);
        assert!(holds_plain_packets(accepted.as_fd()));
    }
}
