//! Calls that only TCP sockets have, and calls that send or receive several parts at once. No call
//! blocks.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::socket_calls::{
    SocketAddress, length_of, message_of, open, option_at, set_option, watch_idle,
};
use super::{check, check_count, part_of};

/// Listens on an address. Port 0 stands for any free port. A port that was given can be used again
/// at once after an earlier listener has ended. An IPv6 address takes no connections of IPv4 if
/// `is_v6_alone`.
pub fn listen(address: SocketAddr, backlog: i32, is_v6_alone: bool) -> io::Result<OwnedFd> {
    let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = open(domain, libc::SOCK_STREAM)?;
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if address.is_ipv6() {
        let value = libc::c_int::from(is_v6_alone);
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, value)?;
    }
    SocketAddress::of_internet(address).listen(socket, backlog)
}

/// Since Linux 6.15; not in the libc crate.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// The options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// An idle connection fails about this time after the other machine stopped answering.
    pub keep_alive: Duration,
    /// How many bytes that were not sent yet the kernel may hold (`TCP_NOTSENT_LOWAT`).
    pub unsent_bytes_max: i32,
    /// The longest time between two attempts of the kernel to get an answer: retransmissions, and
    /// questions whether a window is still shut (`TCP_RTO_MAX_MS`). One second to two minutes. Two
    /// minutes before Linux 6.15.
    pub attempts_apart_max: Duration,
}

/// Sets the options of a connection, and has small packets sent at once (`TCP_NODELAY`).
///
/// The end of a machine is noticed while the connection is idle. `TCP_USER_TIMEOUT`, which would
/// count while data is under way, also ends connections to a peer that lives and whose window is
/// shut.
pub fn set_options(socket: BorrowedFd<'_>, options: TcpOptions) -> io::Result<()> {
    watch_idle(socket, options.keep_alive)?;
    let apart = i32::try_from(options.attempts_apart_max.as_millis()).unwrap_or(i32::MAX);
    let _ = set_option(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, apart.clamp(1000, 120_000));
    set_unsent_max(socket, options.unsent_bytes_max)
}

/// The address of the machine at the other end. An IPv4 address that an IPv6 socket shows in the
/// form of IPv6 is returned as IPv4.
pub fn peer_address(socket: BorrowedFd<'_>) -> io::Result<IpAddr> {
    // SAFETY: all zeros is a valid `sockaddr_storage`, which lives through the call.
    let (answer, storage) = unsafe {
        let mut storage: libc::sockaddr_storage = mem::zeroed();
        let mut length = length_of::<libc::sockaddr_storage>();
        let to = (&raw mut storage).cast();
        (libc::getpeername(socket.as_raw_fd(), to, &raw mut length), storage)
    };
    check(answer)?;
    let from = &raw const storage;
    if i32::from(storage.ss_family) == libc::AF_INET {
        // SAFETY: the family says that it is an IPv4 address.
        let bits = unsafe { (*from.cast::<libc::sockaddr_in>()).sin_addr.s_addr };
        return Ok(IpAddr::V4(bits.to_ne_bytes().into()));
    }
    // SAFETY: a `sockaddr_storage` is as long as a `sockaddr_in6`.
    let bytes = unsafe { (*from.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
    Ok(Ipv6Addr::from(bytes).to_canonical())
}

/// Sends the parts, one after the other, as far as the socket has room, and returns how many bytes.
pub fn send_parts(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // An `IoSlice` has the layout of an iovec. The kernel only reads through it.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` has `parts.len()` parts, which live through the call.
    check_count(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Receives the bytes that are there: first as many as fit into `first`, the others into `second`.
/// Returns how many; 0 at the end of the stream. All of them are initialised.
pub fn receive_parts(
    socket: BorrowedFd<'_>,
    first: &mut [MaybeUninit<u8>],
    second: &mut [u8],
) -> io::Result<usize> {
    let mut parts = [part_of(first), part_of(second)];
    let mut message = message_of(&mut parts);
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: both parts have room for their lengths, live through the call, and nothing else
    // refers to them.
    check_count(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })
}

/// Sends no more: the other end reads the end of the stream after everything that was sent before.
pub fn end_sending(socket: BorrowedFd<'_>) {
    // SAFETY: no pointers. The call fails if the connection is at its end already, which is fine.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}

/// How many of the bytes that the socket took were not acknowledged yet by the other machine.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (which has the number of TIOCOUTQ) stores one int.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The beginning of `struct tcp_info` of `linux/tcp.h`, up to the last field that is used here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TcpInfo {
    state: u8,
    states: [u8; 2],
    probes: u8,
    other_states: [u8; 4],
    times_and_sizes: [u32; 4],
    unacked: u32,
    between: [u32; 7],
    last_ack_recv: u32,
    more: [u32; 25],
    delivery_rate: u64,
}

const _: () = {
    assert!(mem::offset_of!(TcpInfo, probes) == 3);
    assert!(mem::offset_of!(TcpInfo, unacked) == 24);
    assert!(mem::offset_of!(TcpInfo, last_ack_recv) == 56);
    assert!(mem::offset_of!(TcpInfo, delivery_rate) == 160);
};

/// Whether the connection is over: all bytes of both ends are acknowledged, or an end has reset it.
/// A socket at which the other end's last byte was received tells of a reset in no other way.
pub fn is_over(socket: BorrowedFd<'_>) -> bool {
    /// `TCP_CLOSE` of include/net/tcp_states.h.
    const CLOSE: u8 = 7;
    let info = option_at(socket, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo::default());
    info.is_ok_and(|info| info.state == CLOSE)
}

/// The kernel's record of the answers of the other machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Time since the last acknowledgement came.
    pub age: Duration,
    /// The kernel waits for an answer: to data, or to its question whether the window is still
    /// shut. While the window is shut and the last question was answered, the next one is not due.
    pub is_awaited: bool,
}

/// How fast the other machine has acknowledged bytes lately, in bytes a second; 0 before Linux 4.9.
pub fn delivery_rate(socket: BorrowedFd<'_>) -> io::Result<u64> {
    option_at(socket, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo::default())
        .map(|info| info.delivery_rate)
}

/// Has the kernel acknowledge now what was received, not later together with data
/// (`TCP_QUICKACK`).
pub fn acknowledge_now(socket: BorrowedFd<'_>) {
    // Without it, the acknowledgement comes a moment later.
    let _ = set_option(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
}

/// Sets how many bytes that were not sent yet the kernel may hold (`TCP_NOTSENT_LOWAT`).
pub fn set_unsent_max(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// The kernel's record of the answers of the other machine.
pub fn answers(socket: BorrowedFd<'_>) -> io::Result<Answers> {
    let info = option_at(socket, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo::default())?;
    Ok(Answers {
        age: Duration::from_millis(info.last_ack_recv.into()),
        is_awaited: info.unacked > 0 || info.probes > 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn parts_are_one_stream() {
        let (one, mut two) = pair();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        assert_eq!(send_parts(one.as_fd(), &parts).unwrap(), 5);
        let mut first = [MaybeUninit::uninit(); 2];
        let mut second = [0; 8];
        let mut peeked = [0; 5];
        while two.peek(&mut peeked).unwrap() < 5 {}
        assert_eq!(receive_parts(two.as_fd(), &mut first, &mut second).unwrap(), 5);
        // SAFETY: both bytes were received.
        assert_eq!(first.map(|byte| unsafe { byte.assume_init() }), *b"ab");
        assert_eq!(&second[..3], b"cde");
        end_sending(one.as_fd());
        assert_eq!(two.read(&mut second).unwrap(), 0);
    }

    #[test]
    fn a_connection_is_over_when_both_ends_have_sent_all_or_one_is_reset() {
        let (one, mut two) = pair();
        end_sending(one.as_fd());
        assert_eq!(two.read(&mut [0]).unwrap(), 0);
        assert!(!is_over(one.as_fd()) && !is_over(two.as_fd()));
        end_sending(two.as_fd());
        while !is_over(one.as_fd()) || !is_over(two.as_fd()) {}
        let (one, mut two) = pair();
        end_sending(one.as_fd());
        assert_eq!(two.read(&mut [0]).unwrap(), 0);
        drop(one);
        two.write_all(b"to nobody").unwrap();
        while !is_over(two.as_fd()) {}
        assert_eq!(two.read(&mut [0]).unwrap(), 0, "no error tells it");
        assert!(unacknowledged(two.as_fd()).unwrap() > 0);
    }

    #[test]
    fn bytes_are_acknowledged_though_nobody_reads_them() {
        let (mut one, two) = pair();
        let keep_alive = Duration::from_secs(8);
        let attempts_apart_max = Duration::from_secs(2);
        let options = TcpOptions { keep_alive, unsent_bytes_max: 1 << 17, attempts_apart_max };
        set_options(one.as_fd(), options).unwrap();
        one.write_all(&[1; 1000]).unwrap();
        while unacknowledged(one.as_fd()).unwrap() > 0 {}
        let answers = answers(one.as_fd()).unwrap();
        assert!(delivery_rate(one.as_fd()).unwrap() < 1 << 50);
        assert!(answers.age < Duration::from_secs(60) && !answers.is_awaited);
        assert!(peer_address(two.as_fd()).unwrap().is_loopback());
    }
}
