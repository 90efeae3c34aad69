//! Sockets that a forked child doesn't keep.
//!
//! A connection ends when the last process that has it open closes it. So a child that a program
//! forks, and that outlives it, would hide the end of the program from its peers
//! (`SOCK_CLOEXEC` closes a socket at exec(3) only). A handler that runs in the child at fork(3)
//! puts another descriptor into the place of each socket of this crate. The number stays taken,
//! since whatever owns it in the child's memory may still close it.
//!
//! The handler runs in a process whose other threads are gone, wherever they were. So it takes no
//! lock, allocates nothing and makes only system calls. It tells a socket by the number that the
//! kernel gives to it for good (`SO_COOKIE`), so nobody has to report that a socket was closed, and
//! a descriptor of the program with the same number is left alone.
//!
//! Not covered: a socket that another thread opens in the moment of the fork, and children that are
//! made past the C library (clone(2)). Those of vfork(2) and posix_spawn(3) run another program at
//! once.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Descriptors in a block of the table.
const BLOCK: usize = 4096;
/// Blocks of the table: descriptors with larger numbers aren't in it.
const BLOCKS: usize = 1024;

/// The cookies of the sockets with the numbers of a block; 0 where no socket was opened.
type Block = [AtomicU64; BLOCK];

/// The blocks that are in use. They are never freed.
static TABLE: [AtomicPtr<Block>; BLOCKS] = [const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS];

/// The kernel's number of a socket; 0 if the descriptor is no socket.
fn cookie(fd: RawFd) -> u64 {
    let mut cookie = 0u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).unwrap_or(0);
    let to = (&raw mut cookie).cast();
    // SAFETY: `cookie` has `length` bytes, and lives through the call.
    let answer =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, to, &raw mut length) };
    if answer == 0 { cookie } else { 0 }
}

/// Notes a new socket, which children that are forked from now on don't keep.
pub(super) fn note(socket: OwnedFd) -> OwnedFd {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // Without memory for another handler, children keep the sockets.
        // SAFETY: the handler makes only system calls.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    if let Some(place) = place(socket.as_raw_fd()) {
        place.store(cookie(socket.as_raw_fd()), Ordering::Relaxed);
    }
    socket
}

/// The place of a descriptor in the table; `None` if its number is too large.
fn place(fd: RawFd) -> Option<&'static AtomicU64> {
    let number = usize::try_from(fd).ok()?;
    let slot = TABLE.get(number / BLOCK)?;
    let mut block = slot.load(Ordering::Acquire);
    if block.is_null() {
        let new = Box::into_raw(Box::new([const { AtomicU64::new(0) }; BLOCK]));
        match slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => block = new,
            Err(other) => {
                // SAFETY: the block was made just above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                block = other;
            }
        }
    }
    // SAFETY: a block in the table is never freed, and its contents are atomic.
    unsafe { block.as_ref() }?.get(number % BLOCK)
}

/// Replaces the sockets in a child that was just forked.
extern "C" fn in_child() {
    let mut stand_in = None;
    for (at, slot) in TABLE.iter().enumerate() {
        // SAFETY: a block in the table is never freed, and its contents are atomic.
        let Some(block) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for (number, place) in (at * BLOCK..).zip(block) {
            let noted = place.swap(0, Ordering::Relaxed);
            let Ok(fd) = RawFd::try_from(number) else { return };
            if noted != 0 && noted == cookie(fd) {
                stand_in = replace(fd, stand_in);
            }
        }
    }
    if let Some(fd) = stand_in {
        // SAFETY: the descriptor was made here.
        unsafe { libc::close(fd) };
    }
}

/// Puts a descriptor that nothing is known by into the place of a socket. Gives the descriptor that
/// the next one is made from.
fn replace(socket: RawFd, stand_in: Option<RawFd>) -> Option<RawFd> {
    let make = || {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        (fd >= 0).then_some(fd)
    };
    if let Some(fd) = stand_in.or_else(make) {
        // SAFETY: no pointers. The socket's number has an owner in the child's memory, which closes
        // what is there then.
        unsafe { libc::dup3(fd, socket, libc::O_CLOEXEC) };
        return Some(fd);
    }
    // No descriptor is left: the socket makes room for one, which gets its number unless a lower
    // one was free after all. SAFETY: as above; the next calls take the number again.
    unsafe { libc::close(socket) };
    let fd = make()?;
    if fd == socket {
        return None;
    }
    // SAFETY: as above.
    unsafe { libc::dup3(fd, socket, libc::O_CLOEXEC) };
    Some(fd)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::{socket, stream};
    use super::*;

    /// What a program does in a forked child, which ends with 0 if `body` returns true.
    pub(in super::super) fn in_forked_child(body: impl FnOnce() -> bool) {
        // SAFETY: the child makes only system calls, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(!body());
            // SAFETY: no pointers.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: `status` lives through the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    fn all_kinds() -> Vec<OwnedFd> {
        let listener = stream::listen_tcp("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let port = stream::port_of(listener.as_fd()).unwrap();
        let caller = stream::connect_tcp(([127, 0, 0, 1], port).into()).unwrap();
        let accepted = loop {
            if let Ok(accepted) = socket::accept(listener.as_fd()) {
                break accepted;
            }
        };
        let [one, other] = socket::pair().unwrap();
        vec![listener, caller, accepted, one, other]
    }

    #[test]
    fn a_forked_child_has_no_socket_and_its_numbers_stay_taken() {
        let sockets = all_kinds();
        // A socket of the program, with the number that one of ours had.
        let [first, second] = socket::pair().unwrap();
        let number = first.as_raw_fd();
        drop(first);
        let (mut theirs, mut end) = UnixStream::pair().unwrap();
        let has_its_number = [&theirs, &end].iter().any(|socket| socket.as_raw_fd() == number);
        in_forked_child(|| {
            let is_replaced = |socket: &OwnedFd| {
                // SAFETY: no pointers.
                let flags = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) };
                cookie(socket.as_raw_fd()) == 0 && flags == libc::FD_CLOEXEC
            };
            let still = theirs.write(b"x").is_ok() && end.read(&mut [0]).is_ok();
            sockets.iter().all(is_replaced) && is_replaced(&second) && still
        });
        assert!(sockets.iter().all(|socket| cookie(socket.as_raw_fd()) != 0));
        if !has_its_number {
            println!("another test took the number meanwhile");
        }
    }

    #[test]
    fn a_child_without_a_descriptor_left_closes_the_sockets_all_the_same() {
        let sockets = all_kinds();
        in_forked_child(|| {
            // SAFETY: no pointers.
            unsafe {
                let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // The sockets were replaced at this fork: the second one finds new ones, and no
                // room.
                let [one, other] = socket::pair().unwrap();
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                let child = libc::fork();
                if child == 0 {
                    let gone = cookie(one.as_raw_fd()) == 0 && cookie(other.as_raw_fd()) == 0;
                    libc::_exit(i32::from(!gone));
                }
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0) == child && status == 0
            }
        });
        drop(sockets);
    }
}
