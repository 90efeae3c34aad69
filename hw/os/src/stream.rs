//! Sockets that carry streams of bytes: TCP, and abstract unix sockets. No call waits.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::socket::{SO_PASSRIGHTS, abstract_name};
use super::{check, check_count};

const KIND: libc::c_int = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

fn open(domain: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(domain, KIND, 0) })?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Listens under an abstract name. Where the kernel can, it refuses descriptors that are sent over the
/// connections: to close one may block, and the kernel closes those that lie in a socket with the socket.
pub fn listen_abstract(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let (address, length) = abstract_name(name)?;
    let socket = open(libc::AF_UNIX)?;
    let _ = set(socket.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
    // SAFETY: `address` is valid for `length` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// Connects at once or not at all: `WouldBlock` if the listener's queue is full.
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let (address, length) = abstract_name(name)?;
    let socket = open(libc::AF_UNIX)?;
    // SAFETY: `address` is valid for `length` bytes.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// An internet address as the kernel wants it.
fn internet(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeros is a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let family = |family: libc::c_int| libc::sa_family_t::try_from(family).unwrap_or(0);
    let length = match address {
        SocketAddr::V4(address) => {
            let to: *mut libc::sockaddr_in = (&raw mut storage).cast();
            // SAFETY: a `sockaddr_storage` is as large, and aligned as, any kind of address.
            unsafe {
                (*to).sin_family = family(libc::AF_INET);
                (*to).sin_port = address.port().to_be();
                (*to).sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            }
            length_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let to: *mut libc::sockaddr_in6 = (&raw mut storage).cast();
            // SAFETY: as above.
            unsafe {
                (*to).sin6_family = family(libc::AF_INET6);
                (*to).sin6_port = address.port().to_be();
                (*to).sin6_addr.s6_addr = address.ip().octets();
            }
            length_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length)
}

fn domain(address: SocketAddr) -> libc::c_int {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// Listens on an internet address; port 0 for any that is free.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = open(domain(address))?;
    let (storage, length) = internet(address);
    // SAFETY: `storage` is valid for `length` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), length) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// The port that a listener has.
pub fn port_of(listener: BorrowedFd<'_>) -> io::Result<u16> {
    // SAFETY: all zeros is a valid `sockaddr_storage`, which lives through the call.
    let (answer, storage) = unsafe {
        let mut storage: libc::sockaddr_storage = mem::zeroed();
        let mut length = length_of::<libc::sockaddr_storage>();
        let to = (&raw mut storage).cast();
        (libc::getsockname(listener.as_raw_fd(), to, &raw mut length), storage)
    };
    check(answer)?;
    let from = (&raw const storage).cast::<libc::sockaddr_in6>();
    // SAFETY: both kinds of internet address have their port at the same place.
    Ok(u16::from_be(unsafe { (*from).sin6_port }))
}

/// Begins to connect; a failure shows when the socket is read.
pub fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = open(domain(address))?;
    let (storage, length) = internet(address);
    // SAFETY: `storage` is valid for `length` bytes.
    let answer = unsafe { libc::connect(socket.as_raw_fd(), (&raw const storage).cast(), length) };
    match check(answer) {
        Ok(_) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

pub(super) fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = length_of::<libc::c_int>();
    let from = (&raw const value).cast();
    // SAFETY: `value` has as many bytes as said and lives through the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, length) }).map(drop)
}

/// Makes a TCP connection notice within about `silence` that the other machine is gone, and not hold
/// small packets back.
pub fn keep_alive(socket: BorrowedFd<'_>, silence: Duration) -> io::Result<()> {
    const TRIALS: i32 = 3;
    let ms = i32::try_from(silence.as_millis()).unwrap_or(i32::MAX);
    let seconds = (ms / 1000 / (TRIALS + 1)).max(1);
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, TRIALS)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)
}

/// Sends as many bytes as there is room for.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let from = bytes.as_ptr().cast();
    // SAFETY: `bytes` is as long as said; the kernel only reads it.
    check_count(unsafe { libc::send(socket.as_raw_fd(), from, bytes.len(), flags) })
}

/// Receives what is there; 0 at the end of the stream.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let to = into.as_mut_ptr().cast();
    // SAFETY: `into` is ours alone and as long as said.
    check_count(unsafe { libc::recv(socket.as_raw_fd(), to, into.len(), libc::MSG_DONTWAIT) })
}

/// The addresses of this machine's interfaces that are up; no link-local ones, loopback last.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a place for the list, which is freed below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the kernel's list is well-formed until it is freed; an address is null or one of
        // the family that it says.
        unsafe {
            let interface = &*next;
            next = interface.ifa_next;
            let is_up = interface.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
            if !is_up || interface.ifa_addr.is_null() {
                continue;
            }
            found.extend(address_of(interface.ifa_addr));
        }
    }
    // SAFETY: a list that getifaddrs(3) gave.
    unsafe { libc::freeifaddrs(first) };
    found.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    found.dedup();
    Ok(found)
}

/// # Safety
/// Points to an address of the family that it says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller says.
    let family = i32::from(unsafe { (*address).sa_family });
    if family == libc::AF_INET {
        // SAFETY: an IPv4 address by its family.
        let bits = unsafe { (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr };
        return Some(Ipv4Addr::from(bits.to_ne_bytes()).into());
    }
    if family == libc::AF_INET6 {
        // SAFETY: an IPv6 address by its family.
        let bytes = unsafe { (*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
        let address = Ipv6Addr::from(bytes);
        let is_link_local = address.segments()[0] & 0xffc0 == 0xfe80;
        return (!is_link_local).then_some(address.into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::socket;
    use super::*;

    #[test]
    fn no_descriptor_comes_in_over_a_name() {
        let name = format!("tagmatch-test-rights-{}", std::process::id());
        let listener = listen_abstract(name.as_bytes(), 8).unwrap();
        let other = open(libc::AF_UNIX).unwrap();
        if set(other.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0).is_err() {
            println!("SKIPPED: needs SO_PASSRIGHTS, of Linux 6.16");
            return;
        }
        // Neither before the connection is accepted nor after.
        let sender = connect_abstract(name.as_bytes()).unwrap();
        let send = || socket::send(sender.as_fd(), b"x", &[listener.as_fd()]).unwrap_err();
        assert_eq!(send().raw_os_error(), Some(libc::EPERM));
        let _accepted = socket::accept(listener.as_fd()).unwrap();
        assert_eq!(send().raw_os_error(), Some(libc::EPERM));
        assert!(socket::send(sender.as_fd(), b"x", &[]).is_ok());
    }

    #[test]
    fn bytes_go_over_tcp_and_over_a_name() {
        let tcp = listen_tcp("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let port = port_of(tcp.as_fd()).unwrap();
        let to_tcp = connect_tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)).unwrap();
        keep_alive(to_tcp.as_fd(), Duration::from_secs(5)).unwrap();
        let name = format!("tagmatch-test-{}", std::process::id());
        let named = listen_abstract(name.as_bytes(), 8).unwrap();
        let to_named = connect_abstract(name.as_bytes()).unwrap();
        for (listener, socket) in [(tcp, to_tcp), (named, to_named)] {
            let accepted = loop {
                match socket::accept(listener.as_fd()) {
                    Ok(accepted) => break accepted,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            };
            assert_eq!(send(socket.as_fd(), b"hello").unwrap(), 5);
            drop(socket);
            let mut bytes = [0; 8];
            let mut have = 0;
            loop {
                match receive(accepted.as_fd(), &mut bytes[have..]) {
                    Ok(0) => break,
                    Ok(count) => have += count,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            assert_eq!(&bytes[..have], b"hello");
        }
        let refused = connect_abstract(b"tagmatch-nobody-listens-here").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    }

    #[test]
    fn loopback_comes_last() {
        let found = own_addresses().unwrap();
        let first = found.iter().position(IpAddr::is_loopback).unwrap_or(found.len());
        assert!(found[first..].iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
