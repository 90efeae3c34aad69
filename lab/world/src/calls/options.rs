//! Options of sockets, and what they tell.

use std::ffi::c_void;

use libc::{c_int, c_uint, socklen_t, ssize_t};

use super::answers::{answer, count, failure, put, result};
use crate::faults::Call;
use crate::scope::ask;

/// `SO_PEERPIDFD`, since Linux 6.5; not in every version of the libc crate.
const SO_PEERPIDFD: c_int = 77;

/// The beginning of `struct tcp_info`, as far as `hw/os` reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state: u8,
    states: [u8; 7],
    times_and_sizes: [u32; 4],
    unacknowledged: u32,
    between: [u32; 7],
    last_answer_ms: u32,
    more: [u32; 25],
    delivery_rate: u64,
}

/// The states of include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let room = if length.is_null() {
        0
    } else {
        // SAFETY: the caller gives the length of its room.
        unsafe { *length as usize }
    };
    if level == libc::SOL_SOCKET
        && name == SO_PEERPIDFD
        && let Some(errno) = failure(Call::PidFd)
    {
        return result(Err(errno));
    }
    let world = ask(|kernel| {
        if level == libc::IPPROTO_TCP && name == libc::TCP_INFO && room >= size_of::<TcpInfo>() {
            let info = kernel.info(fd)?.ok()?;
            let answer = TcpInfo {
                state: if info.is_over { CLOSED } else { ESTABLISHED },
                states: [0; 7],
                times_and_sizes: [0; 4],
                unacknowledged: u32::from(info.is_awaited),
                between: [0; 7],
                last_answer_ms: u32::try_from(info.age.as_millis()).unwrap_or(u32::MAX),
                more: [0; 25],
                delivery_rate: 0,
            };
            // SAFETY: there is room for it.
            unsafe { to.cast::<TcpInfo>().write_unaligned(answer) };
            return Some(());
        }
        if kernel.files.contains_key(&fd) && level == libc::SOL_SOCKET && name == libc::SO_DOMAIN {
            // SAFETY: the caller asks for an int.
            unsafe { to.cast::<c_int>().write_unaligned(libc::AF_INET) };
            return Some(());
        }
        None
    });
    match world.flatten() {
        Some(()) => 0,
        None => real!(
            getsockopt
                as fn(
                    fd: c_int,
                    level: c_int,
                    name: c_int,
                    to: *mut c_void,
                    length: *mut socklen_t,
                ) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    length: socklen_t,
) -> c_int {
    let world = ask(|kernel| {
        kernel.files.get(&fd)?;
        // SAFETY: the options of the world's sockets are ints.
        let value = unsafe { from.cast::<c_int>().read_unaligned() };
        kernel.set_option(fd, level, name, value)
    });
    match answer(world, Call::SetOption) {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(
            setsockopt
                as fn(
                    fd: c_int,
                    level: c_int,
                    name: c_int,
                    from: *const c_void,
                    length: socklen_t,
                ) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    // SIOCOUTQ has this number, too.
    let is_asked = request == libc::TIOCOUTQ;
    match ask(|kernel| if is_asked { kernel.outstanding(fd) } else { None }).flatten() {
        Some(answer) => result(answer.map(|bytes| {
            // SAFETY: the caller asks for an int.
            unsafe { argument.cast::<c_int>().write(c_int::try_from(bytes).unwrap_or(c_int::MAX)) };
            0
        })),
        None => {
            real!(ioctl as fn(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(to: *mut c_void, length: usize, flags: c_uint) -> ssize_t {
    let world = ask(|kernel| {
        if let Err(errno) = kernel.strike(Call::GetRandom) {
            return Some(Err(errno));
        }
        if !kernel.has_network {
            return None;
        }
        let bits = |_| kernel.random.bits().to_ne_bytes();
        let bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(bits).take(length).collect();
        // SAFETY: the caller has room for `length` bytes.
        unsafe { put(&bytes, to) };
        Some(Ok(bytes.len()))
    });
    match world.flatten() {
        Some(answer) => result(answer.map(count)),
        None => {
            real!(getrandom as fn(to: *mut c_void, length: usize, flags: c_uint) -> ssize_t)
        }
    }
}

/// A function of this file, which keeps all of them.
pub(super) fn names() -> *const () {
    ioctl as *const ()
}
