//! Sockets that carry streams of bytes: TCP, and abstract unix sockets. No call blocks.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::socket_calls::{SO_PASSRIGHTS, SocketAddress, length_of, open, set_option, watch_idle};
use super::{check, check_count, interfaces};

/// Listens under an abstract name. Connections to it refuse descriptors where the kernel can do
/// that (`SO_PASSRIGHTS`, Linux 6.16): closing a received descriptor can block, and the kernel
/// closes the descriptors in a socket's queue together with the socket.
pub fn listen_abstract(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let address = SocketAddress::of_abstract(name)?;
    let socket = open(libc::AF_UNIX, libc::SOCK_STREAM)?;
    let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
    address.listen(socket, backlog)
}

/// Connects to an abstract name without waiting.
///
/// # Errors
/// `WouldBlock`: the listener's queue is full. `ECONNREFUSED`: nothing listens under this name.
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    SocketAddress::of_abstract(name)?.connect(open(libc::AF_UNIX, libc::SOCK_STREAM)?)
}

fn open_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    open(domain, libc::SOCK_STREAM)
}

/// Listens on an internet address. Port 0 stands for any free port.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    SocketAddress::of_internet(address).listen(open_tcp(address)?, backlog)
}

/// The port on which a TCP listener listens.
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
    // SAFETY: `sockaddr_in` and `sockaddr_in6` have their port at the same offset.
    Ok(u16::from_be(unsafe { (*from).sin6_port }))
}

/// Begins to connect. A failure that is found later is reported when the socket is read.
///
/// # Errors
/// `EADDRNOTAVAIL`: all ports to connect from are in use. `ENETUNREACH`: there is no route, or this
/// machine has no address of the kind.
pub fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = open_tcp(address)?;
    let Err(error) = SocketAddress::of_internet(address).connect(socket.as_fd()) else {
        return Ok(socket);
    };
    match error.raw_os_error() {
        Some(libc::EINPROGRESS) => Ok(socket),
        Some(libc::EADDRNOTAVAIL) if !has_source(address) => {
            Err(io::Error::from_raw_os_error(libc::ENETUNREACH))
        }
        _ => Err(error),
    }
}

/// Whether this machine has an address to reach another one from. For IPv6, connect(2) gives the
/// same error number where it has none and where no port is left. A socket of UDP has ports of its
/// own, and sends nothing here.
fn has_source(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).map_or(true, |socket| socket.connect(address).is_ok())
}

/// Makes a TCP connection fail about `silence` after the other machine stopped answering, and send
/// small packets at once (`TCP_NODELAY`).
pub fn keep_alive(socket: BorrowedFd<'_>, silence: Duration) -> io::Result<()> {
    let ms = i32::try_from(silence.as_millis()).unwrap_or(i32::MAX);
    watch_idle(socket, silence)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)
}

/// Sends as many bytes as the socket has room for, and returns how many.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let from = bytes.as_ptr().cast();
    // SAFETY: `bytes` has `bytes.len()` bytes, which the kernel only reads.
    check_count(unsafe { libc::send(socket.as_raw_fd(), from, bytes.len(), flags) })
}

/// Receives the bytes that are there, and returns how many; 0 at the end of the stream.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let to = into.as_mut_ptr().cast();
    // SAFETY: `into` has room for `into.len()` bytes, and nothing else refers to it.
    check_count(unsafe { libc::recv(socket.as_raw_fd(), to, into.len(), libc::MSG_DONTWAIT) })
}

/// The addresses of this machine's interfaces that are up, without link-local ones. Loopback
/// addresses come last.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    addresses_of(|_| true)
}

/// As [`own_addresses`], of the interfaces whose names are wanted.
pub fn addresses_of(is_wanted: impl Fn(&CStr) -> bool) -> io::Result<Vec<IpAddr>> {
    let is_wanted = |name: &str| CString::new(name).is_ok_and(|name| is_wanted(&name));
    let mut found: Vec<IpAddr> = (interfaces::addresses()?.into_iter())
        .filter(|of| !is_link_local(&of.address) && is_wanted(&of.interface))
        .map(|of| of.address)
        .collect();
    found.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    found.dedup();
    Ok(found)
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

#[cfg(test)]
mod tests {
    use super::super::socket;
    use super::*;

    #[test]
    fn no_descriptor_is_received_over_an_abstract_name() {
        let name = format!("tagmatch-test-rights-{}", std::process::id());
        let listener = listen_abstract(name.as_bytes(), 8).unwrap();
        let other = open(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
        if set_option(other.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0).is_err() {
            println!("SKIPPED: needs SO_PASSRIGHTS, of Linux 6.16");
            return;
        }
        // Descriptors are refused before the connection is accepted, and after.
        let sender = connect_abstract(name.as_bytes()).unwrap();
        let send = || socket::send(sender.as_fd(), b"x", &[listener.as_fd()]).unwrap_err();
        assert_eq!(send().raw_os_error(), Some(libc::EPERM));
        let _accepted = socket::accept(listener.as_fd()).unwrap();
        assert_eq!(send().raw_os_error(), Some(libc::EPERM));
        assert!(socket::send(sender.as_fd(), b"x", &[]).is_ok());
    }

    #[test]
    fn bytes_travel_over_tcp_and_over_an_abstract_name() {
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
        let refused = connect_abstract(b"tagmatch-no-listener-here").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    }

    #[test]
    fn loopback_comes_last() {
        let found = own_addresses().unwrap();
        let first = found.iter().position(IpAddr::is_loopback).unwrap_or(found.len());
        assert!(found[first..].iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
