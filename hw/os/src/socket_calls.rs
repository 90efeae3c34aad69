//! The calls that all kinds of sockets share: opening, binding, connecting, options.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{check, check_count, descriptor, fork};

/// `SO_PASSRIGHTS`, since Linux 6.16; not in every version of the libc crate.
pub(super) const SO_PASSRIGHTS: libc::c_int = 83;

/// A message in these parts, without control data. It points to `parts`.
pub(super) fn message_of(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    message
}

/// Makes an idle TCP connection fail about `silence` after the other machine stopped answering, and
/// sends small packets at once (`TCP_NODELAY`).
pub(super) fn watch_idle(socket: BorrowedFd<'_>, silence: Duration) -> io::Result<()> {
    const TRIALS: i32 = 3;
    let seconds = i32::try_from(silence.as_secs()).unwrap_or(i32::MAX);
    let seconds = (seconds / (TRIALS + 1)).max(1);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, TRIALS)
}

/// An address as bind(2) and connect(2) take it.
pub(super) struct SocketAddress {
    /// Initialised, and valid for the first `length` bytes.
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

impl SocketAddress {
    /// A name in the abstract namespace of unix sockets, see unix(7). It is in no file system.
    pub(super) fn of_abstract(name: &[u8]) -> io::Result<Self> {
        // SAFETY: all zeros is a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        // SAFETY: a `sockaddr_storage` has the size and alignment for every kind of address, and
        // all zeros is a valid `sockaddr_un`.
        let address = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_un>() };
        address.sun_family = family(libc::AF_UNIX);
        // The first byte of an abstract name is zero.
        let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
        for (to, from) in room.iter_mut().zip(name) {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let length = libc::socklen_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(SocketAddress { storage, length })
    }

    /// An internet address.
    pub(super) fn of_internet(address: SocketAddr) -> Self {
        // SAFETY: all zeros is a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let length = match address {
            SocketAddr::V4(address) => {
                let to: *mut libc::sockaddr_in = (&raw mut storage).cast();
                // SAFETY: a `sockaddr_storage` has the size and alignment for every kind of
                // address.
                unsafe {
                    (*to).sin_family = family(libc::AF_INET);
                    (*to).sin_port = address.port().to_be();
                    (*to).sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                }
                length_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                let to: *mut libc::sockaddr_in6 = (&raw mut storage).cast();
                // SAFETY: a `sockaddr_storage` has the size and alignment for every kind of
                // address.
                unsafe {
                    (*to).sin6_family = family(libc::AF_INET6);
                    (*to).sin6_port = address.port().to_be();
                    (*to).sin6_addr.s6_addr = address.ip().octets();
                }
                length_of::<libc::sockaddr_in6>()
            }
        };
        SocketAddress { storage, length }
    }

    /// Binds a socket to the address.
    pub(super) fn bind(&self, socket: &OwnedFd) -> io::Result<()> {
        let address = (&raw const self.storage).cast();
        // SAFETY: `storage` is valid for `length` bytes.
        check(unsafe { libc::bind(socket.as_raw_fd(), address, self.length) }).map(drop)
    }

    /// Sends one packet to the address.
    pub(super) fn send_to(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let address = (&raw const self.storage).cast();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let from = bytes.as_ptr().cast();
        let count = bytes.len();
        // SAFETY: `storage` is valid for `length` bytes; the kernel only reads the bytes.
        check_count(unsafe { libc::sendto(socket, from, count, flags, address, self.length) })
            .map(drop)
    }

    /// Binds a socket to the address and listens on it.
    pub(super) fn listen(&self, socket: OwnedFd, backlog: i32) -> io::Result<OwnedFd> {
        self.bind(&socket)?;
        // SAFETY: no pointers.
        check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
        Ok(socket)
    }

    /// Connects a socket to the address.
    pub(super) fn connect<S: AsFd>(&self, socket: S) -> io::Result<S> {
        let address = (&raw const self.storage).cast();
        // SAFETY: `storage` is valid for `length` bytes.
        check(unsafe { libc::connect(socket.as_fd().as_raw_fd(), address, self.length) })?;
        Ok(socket)
    }
}

/// A new socket whose calls don't block and which neither a program started by exec(3) nor a forked
/// child gets.
pub(super) fn open(domain: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers, and a new descriptor.
    unsafe { descriptor(libc::socket(domain, kind, 0)) }.map(fork::note)
}

/// Size of a C structure, as socket calls take it.
pub(super) fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Reads an option of a socket (`SOL_SOCKET`). `T` is a plain C type; `value` is the start value of
/// what the kernel fills.
pub(super) fn option<T: Copy>(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    value: T,
) -> io::Result<T> {
    option_at(socket, libc::SOL_SOCKET, name, value)
}

/// As [`option`], at any level.
pub(super) fn option_at<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = length_of::<T>();
    let to = (&raw mut value).cast();
    // SAFETY: `value` has `length` bytes, and the types of all callers are made of plain integers.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut length) })?;
    Ok(value)
}

/// Sets an option of a socket.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = length_of::<libc::c_int>();
    let from = (&raw const value).cast();
    // SAFETY: `value` has `length` bytes and lives through the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, length) }).map(drop)
}
