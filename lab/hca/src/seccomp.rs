//! Trapping one system call: seccomp user notification, seccomp_unotify(2).

use std::io;
use std::mem::{offset_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_ulong, seccomp_data, seccomp_notif, seccomp_notif_resp, sock_filter};

use crate::abi::RDMA_VERBS_IOCTL;

/// `AUDIT_ARCH_*` of this machine.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// A family of netlink sockets.
const NETLINK_RDMA: u32 = 20;

/// `SECCOMP_IOCTL_NOTIF_*`.
const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
const ID_VALID: c_ulong = 0x4008_2102;
const ADD_FD: c_ulong = 0x4018_2103;
const CONTINUE: u32 = 1;

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn jump(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

/// What becomes of a program's system calls. All but two are as without the filter.
fn filter() -> [sock_filter; 17] {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let argument = |at: usize| (offset_of!(seccomp_data, args) + 8 * at) as u32;
    let refuse = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
    [
        statement(LOAD, offset_of!(seccomp_data, arch) as u32),
        jump(ARCHITECTURE, 2, 0),
        // A program of another word size: its libibverbs finds a device that refuses all.
        statement(LOAD, argument(1)),
        jump(RDMA_VERBS_IOCTL, 11, 9),
        statement(LOAD, offset_of!(seccomp_data, nr) as u32),
        jump(libc::SYS_socket as u32, 3, 0),
        jump(libc::SYS_ioctl as u32, 0, 6),
        statement(LOAD, argument(1)),
        jump(RDMA_VERBS_IOCTL, 7, 4),
        // libibverbs asks the kernel for devices by netlink first, which doesn't know ours.
        statement(LOAD, argument(0)),
        jump(libc::AF_NETLINK as u32, 0, 2),
        statement(LOAD, argument(2)),
        jump(NETLINK_RDMA, 1, 0),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
        statement(RETURN, refuse(libc::EPROTONOSUPPORT)),
        statement(RETURN, refuse(libc::EOPNOTSUPP)),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
    ]
}

/// Why the filter can't be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// A thread has one listener only.
    #[error(
        "this runs inside of another program that answers system calls (a container's runtime, or tagmatch-hca itself), and the kernel allows one: start it outside"
    )]
    Nested,
    /// The kernel refuses the filter.
    #[error(
        "the kernel refuses a seccomp filter with a listener ({0}); Linux 5.10 or later is needed, and a container must allow seccomp(2)"
    )]
    Refused(io::Error),
}

/// Has the calls of this process and its descendants answered by whoever gets the descriptor.
/// `is_killable`: only a deadly signal interrupts a call that waits, which Linux 5.19 can do.
pub(crate) fn install(is_killable: bool) -> Result<OwnedFd, FilterError> {
    const NEW_LISTENER: c_ulong = 1 << 3;
    const WAIT_KILLABLE: c_ulong = 1 << 5;
    const MODE_FILTER: c_ulong = 1;
    let mut filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes no pointer.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(FilterError::Refused(io::Error::last_os_error()));
    }
    let flags = if is_killable { NEW_LISTENER | WAIT_KILLABLE } else { NEW_LISTENER };
    // SAFETY: `program` and the filter that it names live through the call.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, MODE_FILTER, flags, &raw const program) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EINVAL) if is_killable => install(false),
            Some(libc::EBUSY) => Err(FilterError::Nested),
            _ => Err(FilterError::Refused(error)),
        };
    }
    // SAFETY: the kernel has made this descriptor for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The listener: calls of programs come from it, and are answered through it.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// A trapped system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trapped {
    pub(crate) id: u64,
    /// The thread.
    pub(crate) thread: i32,
    /// The descriptor that the call is about.
    pub(crate) fd: i32,
    /// The argument of ioctl(2).
    pub(crate) argument: u64,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Listener(fd)
    }

    fn ioctl<T>(&self, request: c_ulong, argument: &mut T) -> io::Result<i32> {
        // SAFETY: each caller gives a structure of the size that the request's number names.
        let done = unsafe {
            libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument))
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
    }

    /// The next call. An error of the kind `NotFound`: its caller has gone meanwhile.
    pub(crate) fn receive(&self) -> io::Result<Trapped> {
        // SAFETY: the structure is numbers, for which zeros are valid; the kernel wants zeros.
        let mut notice: seccomp_notif = unsafe { std::mem::zeroed() };
        debug_assert_eq!(size_of_val(&notice), 80);
        self.ioctl(RECEIVE, &mut notice)?;
        Ok(Trapped {
            id: notice.id,
            thread: notice.pid as i32,
            fd: notice.data.args[0] as i32,
            argument: notice.data.args[2],
        })
    }

    fn send(&self, id: u64, error: i32, flags: u32) -> bool {
        let mut response = seccomp_notif_resp { id, val: 0, error: -error, flags };
        self.ioctl(SEND, &mut response).is_ok()
    }

    /// Ends a call with an error number, or 0. `false`: its caller has gone, or was interrupted.
    pub(crate) fn answer(&self, id: u64, errno: i32) -> bool {
        self.send(id, errno, 0)
    }

    /// The kernel carries the call out.
    pub(crate) fn pass(&self, id: u64) {
        self.send(id, 0, CONTINUE);
    }

    /// Whether the caller still waits.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        let mut id = id;
        self.ioctl(ID_VALID, &mut id).is_ok()
    }

    /// Gives the caller a copy of a descriptor, and tells its number there. `place`: the number
    /// that it gets, in place of what the caller has there.
    pub(crate) fn give(&self, id: u64, fd: BorrowedFd<'_>, place: Option<i32>) -> io::Result<i32> {
        const SET_FD: u32 = 1;
        let mut added = libc::seccomp_notif_addfd {
            id,
            flags: if place.is_some() { SET_FD } else { 0 },
            srcfd: fd.as_raw_fd() as u32,
            newfd: place.unwrap_or(0) as u32,
            newfd_flags: libc::O_CLOEXEC as u32,
        };
        self.ioctl(ADD_FD, &mut added)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SECCOMP_RET_*` of `linux/seccomp.h`.
    const ALLOWED: u32 = 0x7fff_0000;
    const ASKED: u32 = 0x7fc0_0000;
    const fn refused(errno: i32) -> u32 {
        0x0005_0000 | errno as u32
    }

    /// Runs the filter on a call as the kernel does. The filter has three kinds of instructions, of
    /// `linux/bpf_common.h`, on a `struct seccomp_data`.
    fn becomes(call: libc::c_long, architecture: u32, arguments: [u64; 3]) -> u32 {
        let mut data = [call as u32, architecture, 0, 0].map(u32::to_ne_bytes).concat();
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let program = filter();
        let mut at = 0;
        let mut loaded = 0;
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match code {
                0x20 => loaded = u32::from_ne_bytes(*data[k as usize..].first_chunk().unwrap()),
                0x15 => at += usize::from(if loaded == k { jt } else { jf }),
                0x06 => return k,
                other => panic!("{other:#x} is no instruction of the filter"),
            }
        }
    }

    #[test]
    fn only_verbs_and_the_sockets_that_look_for_devices_are_trapped() {
        let verbs = [3, RDMA_VERBS_IOCTL.into(), 0x7fff_0000_1000];
        let socket = |family: i32, protocol| [family as u64, libc::SOCK_RAW as u64, protocol];
        let other = ARCHITECTURE ^ 0x8000_0000;
        for (call, architecture, arguments, expected) in [
            (libc::SYS_ioctl, ARCHITECTURE, verbs, ASKED),
            (libc::SYS_ioctl, ARCHITECTURE, [3, libc::FIONREAD, 0], ALLOWED),
            (libc::SYS_read, ARCHITECTURE, verbs, ALLOWED),
            // The numbers of calls are others there.
            (libc::SYS_ioctl, other, verbs, refused(libc::EOPNOTSUPP)),
            (libc::SYS_socket, other, socket(libc::AF_NETLINK, 20), ALLOWED),
            (
                libc::SYS_socket,
                ARCHITECTURE,
                socket(libc::AF_NETLINK, 20),
                refused(libc::EPROTONOSUPPORT),
            ),
            (libc::SYS_socket, ARCHITECTURE, socket(libc::AF_NETLINK, 0), ALLOWED),
            (libc::SYS_socket, ARCHITECTURE, socket(libc::AF_INET, 20), ALLOWED),
            (libc::SYS_socket, ARCHITECTURE, [16, RDMA_VERBS_IOCTL.into(), 0], ALLOWED),
        ] {
            assert_eq!(becomes(call, architecture, arguments), expected, "{call} {arguments:?}");
        }
    }
}
