//! Runs a command whose system calls are answered as an older kernel or a container answers them.
//!
//! `deny CALL[,CALL...]=ERRNO COMMAND...`: these system calls fail, by name or number; `ERRNO` is
//! `EPERM`, as under Docker's default profile, or `ENOSYS`.
//! `deny linux-5.10 COMMAND...`: what later kernels have is answered as Linux 5.10 answers it. What
//! later kernels do without being asked stays, such as the inode numbers of pidfds (6.9).
//!
//! A seccomp filter does it, for the command and all its descendants.

#![allow(clippy::cast_possible_truncation, reason = "numbers of calls, and of a short filter")]

use std::io;
use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{c_int, c_long, c_ulong, seccomp_data, sock_filter, sock_fprog};

/// `AUDIT_ARCH_*` of this machine.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

const CALLS: [(&str, c_long); 10] = [
    ("clone3", libc::SYS_clone3),
    ("close_range", libc::SYS_close_range),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("seccomp", libc::SYS_seccomp),
    ("statx", libc::SYS_statx),
    ("unshare", libc::SYS_unshare),
];

/// The first system call that Linux 5.11 has added (epoll_pwait2), on all machines.
const FIRST_LATER: c_long = 441;
/// Call, level and option of sockets that Linux 6.16, 6.5 and 6.15 have added.
const OPTIONS_LATER: [(c_long, c_int, u32); 3] = [
    (libc::SYS_setsockopt, libc::SOL_SOCKET, 83),
    (libc::SYS_getsockopt, libc::SOL_SOCKET, 77),
    (libc::SYS_setsockopt, libc::IPPROTO_TCP, 44),
];
/// MFD_NOEXEC_SEAL and MFD_EXEC, Linux 6.3.
const MEMFD_LATER: u32 = 0x18;

/// A condition under which the filter goes on to the next statement of a rule.
const EQUAL: u32 = libc::BPF_JEQ;
const AT_LEAST: u32 = libc::BPF_JGE;
const ANY_OF: u32 = libc::BPF_JSET;

/// The filter, rule by rule.
struct Filter(Vec<sock_filter>);

impl Filter {
    fn new() -> Self {
        let mut filter = Filter(Vec::new());
        filter.load(offset_of!(seccomp_data, arch));
        filter.0.push(jump(EQUAL, ARCHITECTURE, 1, 0));
        filter.answer(libc::SECCOMP_RET_ALLOW);
        filter
    }

    fn statement(&mut self, code: u32, k: u32) {
        self.0.push(sock_filter { code: code as u16, jt: 0, jf: 0, k });
    }

    fn load(&mut self, offset: usize) {
        self.statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    }

    fn answer(&mut self, answer: u32) {
        self.statement(libc::BPF_RET | libc::BPF_K, answer);
    }

    /// Answers `errno` if all words of the call, by their offsets, meet their conditions.
    fn refuse(&mut self, conditions: &[(usize, u32, u32)], errno: c_int) {
        for (at, (offset, test, value)) in conditions.iter().enumerate() {
            let rest = conditions.len() - at - 1;
            self.load(*offset);
            // Over the other conditions, two statements each, and over the answer.
            self.0.push(jump(*test, *value, 0, (2 * rest + 1) as u8));
        }
        self.answer(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    }

    /// Applies the filter to this process, for good.
    fn install(mut self) -> io::Result<()> {
        self.answer(libc::SECCOMP_RET_ALLOW);
        let program = sock_fprog { len: self.0.len() as u16, filter: self.0.as_mut_ptr() };
        let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
        // SAFETY: `program` and the filter that it names live through the calls.
        let answers = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            ]
        };
        if answers == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt, jf, k }
}

const NUMBER: usize = offset_of!(seccomp_data, nr);

fn argument(at: usize) -> usize {
    offset_of!(seccomp_data, args) + 8 * at
}

fn is_call(number: c_long) -> (usize, u32, u32) {
    (NUMBER, EQUAL, number as u32)
}

fn linux_5_10() -> Filter {
    let mut filter = Filter::new();
    filter.refuse(&[(NUMBER, AT_LEAST, FIRST_LATER as u32)], libc::ENOSYS);
    for (call, level, option) in OPTIONS_LATER {
        let level = (argument(1), EQUAL, level.cast_unsigned());
        let option = (argument(2), EQUAL, option);
        filter.refuse(&[is_call(call), level, option], libc::ENOPROTOOPT);
    }
    let flags = (argument(1), ANY_OF, MEMFD_LATER);
    filter.refuse(&[is_call(libc::SYS_memfd_create), flags], libc::EINVAL);
    filter
}

/// The filter that a word of the command line names.
fn filter(word: &str) -> Option<Filter> {
    if word == "linux-5.10" {
        return Some(linux_5_10());
    }
    let (calls, errno) = word.split_once('=')?;
    let errno = match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        _ => return None,
    };
    let mut filter = Filter::new();
    for call in calls.split(',') {
        let known = CALLS.iter().find(|(name, _)| *name == call).map(|(_, number)| *number);
        filter.refuse(&[is_call(known.or_else(|| call.parse().ok())?)], errno);
    }
    Some(filter)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let word = words.next();
    let is_5_10 = word.as_deref() == Some("linux-5.10");
    let filter = word.and_then(|word| filter(&word));
    let (Some(filter), Some(program)) = (filter, words.next()) else {
        let names = CALLS.map(|(name, _)| name).join(", ");
        eprintln!("usage: deny CALL[,CALL...]=EPERM|ENOSYS COMMAND...; deny linux-5.10 COMMAND...");
        eprintln!("calls: {names}, or a number");
        std::process::exit(125);
    };
    if let Err(error) = filter.install() {
        eprintln!("deny: the kernel refuses the filter: {error}");
        std::process::exit(125);
    }
    // SAFETY: no pointers; the filter answers, or a kernel that knows the call refuses this.
    let later = unsafe { libc::syscall(FIRST_LATER, -1, 0, 0, 0, 0, 0) };
    if is_5_10 && (later, io::Error::last_os_error().raw_os_error()) != (-1, Some(libc::ENOSYS)) {
        eprintln!("deny: the filter has no effect");
        std::process::exit(125);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("deny: {program}: {error}");
    std::process::exit(126);
}
