//! Opening, connecting and closing sockets.

use std::net::{Ipv4Addr, SocketAddrV4};

use libc::{c_int, c_long, sockaddr, socklen_t};

use super::answers::{answer, failure, open_file, place_holder, result};
use crate::faults::Call;
use crate::kernel::File;
use crate::scope::ask;

#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let has_network = ask(|kernel| kernel.has_network).unwrap_or(false);
    let is_tcp = domain == libc::AF_INET && kind & 0xf == libc::SOCK_STREAM;
    let world = if is_tcp && has_network {
        open_file(Call::Socket, || File::Fresh(None))
    } else {
        let no_family = (has_network && domain == libc::AF_INET6).then_some(libc::EAFNOSUPPORT);
        no_family.or_else(|| failure(Call::Socket)).map(Err)
    };
    match world {
        Some(answer) => result(answer),
        None => real!(socket as fn(domain: c_int, kind: c_int, protocol: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller gives the length of the address.
    let wanted = unsafe { address_of(address, length) };
    let world = ask(|kernel| kernel.bind(fd, wanted?));
    match answer(world, Call::Bind) {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(bind as fn(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int),
    }
}

#[unsafe(no_mangle)]
extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match answer(ask(|kernel| kernel.listen(fd)), Call::Listen) {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(listen as fn(fd: c_int, backlog: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller gives the length of the address.
    let wanted = unsafe { address_of(address, length) };
    let world = ask(|kernel| kernel.connect(fd, wanted?));
    match answer(world, Call::Connect) {
        Some(answer) => result(answer.map(|()| 0)),
        None => {
            real!(connect as fn(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let world = ask(|kernel| {
        let accepted = kernel.accept(fd)?;
        Some(accepted.and_then(|file| {
            let fd = place_holder()?;
            kernel.open(fd, file);
            Ok(fd)
        }))
    });
    match answer(world, Call::Accept) {
        Some(answer) => result(answer),
        None => real!(
            accept4
                as fn(
                    fd: c_int,
                    address: *mut sockaddr,
                    length: *mut socklen_t,
                    flags: c_int,
                ) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match answer(ask(|kernel| kernel.name(fd)), Call::Name) {
        // SAFETY: the caller gives room and its length.
        Some(answer) => result(answer.map(|address| unsafe { put_address(address, to, length) })),
        None => {
            real!(getsockname as fn(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match answer(ask(|kernel| kernel.peer_name(fd)), Call::PeerName) {
        // SAFETY: the caller gives room and its length.
        Some(answer) => result(answer.map(|address| unsafe { put_address(address, to, length) })),
        None => {
            real!(getpeername as fn(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int)
        }
    }
}

/// The C library's function takes any number of arguments; its commands have one at most.
#[unsafe(no_mangle)]
extern "C" fn fcntl(fd: c_int, what: c_int, argument: c_long) -> c_int {
    let answer = real!(fcntl as fn(fd: c_int, what: c_int, argument: c_long) -> c_int);
    if what == libc::F_DUPFD_CLOEXEC && answer >= 0 {
        ask(|kernel| kernel.duplicated(fd, answer));
    }
    answer
}

#[unsafe(no_mangle)]
extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    match ask(|kernel| kernel.shut_down(fd, how)).flatten() {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(shutdown as fn(fd: c_int, how: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    ask(|kernel| kernel.close(fd));
    real!(close as fn(fd: c_int) -> c_int)
}

/// Closes a descriptor.
pub(crate) fn close_descriptor(fd: c_int) {
    close(fd);
}

/// A function of this file, which keeps all of them.
pub(super) fn names() -> *const () {
    socket as *const ()
}

/// Reads an address of IPv4.
///
/// # Safety
/// `address` has `length` bytes.
unsafe fn address_of(address: *const sockaddr, length: socklen_t) -> Option<SocketAddrV4> {
    if (length as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: long enough, and any bytes are a valid `sockaddr_in`.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    let is_internet = i32::from(address.sin_family) == libc::AF_INET;
    let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
    is_internet.then(|| SocketAddrV4::new(ip, u16::from_be(address.sin_port)))
}

/// Writes an address.
///
/// # Safety
/// `to` has `*length` bytes.
unsafe fn put_address(address: SocketAddrV4, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: all zeros is a valid `sockaddr_in`.
    let mut written: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    written.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
    written.sin_port = address.port().to_be();
    written.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
    let size = size_of::<libc::sockaddr_in>();
    // SAFETY: both have so many bytes, by the caller's promise, and don't overlap.
    unsafe {
        let room = (*length as usize).min(size);
        std::ptr::copy_nonoverlapping((&raw const written).cast(), to.cast::<u8>(), room);
        *length = socklen_t::try_from(size).unwrap_or(0);
    }
    0
}
