//! What this machine allows the device to do, with the reasons.

use std::fmt;
use std::fs;
use std::os::fd::AsFd;

use tagmatch_device::{Finding, ReadMode};
use tagmatch_os::process::{self, Pid};

use super::config::{ReadPolicy, ShmConfig};
use super::handshake::local::device_memory;

/// What this machine allows, as seen from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmInfo {
    /// How reads will be done from a peer that runs in the same way as this process. Each peer is
    /// tried when it connects.
    pub read_mode: ReadMode,
    /// Direct reads of a peer's memory.
    pub direct_reads: Finding,
    /// Reads of large buffers of the device without a system call.
    pub mapped_reads: Finding,
    /// Sends without a memory fence.
    pub membarrier: Finding,
    /// Exact notice of the end of a process.
    pub pidfd: Finding,
    /// `/proc/sys/kernel/yama/ptrace_scope`; `None` on a kernel without Yama.
    pub yama_scope: Option<u32>,
    /// Whether system calls of this process are filtered (`Seccomp` in /proc/self/status).
    pub is_filtered: bool,
    /// The pid namespace of this process. Processes in another one may not be visible.
    pub pid_namespace: Option<String>,
}

/// Bit of `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;

/// The facts that decide on direct reads, as far as they are known without a peer.
#[derive(Clone, Copy, Debug)]
struct Surroundings {
    policy: ReadPolicy,
    allows_readers: bool,
    yama_scope: Option<u32>,
    has_ptrace_capability: bool,
    is_dumpable: bool,
    /// `errno` of reading our own memory, if that failed.
    self_test_errno: Option<i32>,
    has_pidfd: bool,
}

impl ShmInfo {
    /// Finds out what this machine allows. Registers the process for membarrier(2), which is
    /// harmless.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_shm as shm; }
    /// use tagmatch::shm::{ShmConfig, ShmInfo};
    /// println!("{}", ShmInfo::probe(&ShmConfig::default()));
    /// ```
    pub fn probe(config: &ShmConfig) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        let yama_scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let capabilities = field("CapEff:").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
        let pidfd = probe_pidfd();
        let direct_reads = judge_reads(Surroundings {
            policy: config.read,
            allows_readers: config.allow_readers,
            yama_scope,
            has_ptrace_capability: capabilities.is_some_and(|set| set >> CAP_SYS_PTRACE & 1 == 1),
            is_dumpable: process::is_dumpable(),
            self_test_errno: self_test(),
            has_pidfd: pidfd.is_available,
        });
        ShmInfo {
            read_mode: if direct_reads.is_available { ReadMode::Direct } else { ReadMode::Copied },
            direct_reads,
            mapped_reads: probe_device_memory(config),
            membarrier: probe_membarrier(config),
            pidfd,
            yama_scope,
            is_filtered: field("Seccomp:").is_some_and(|mode| mode != "0"),
            pid_namespace: fs::read_link("/proc/self/ns/pid")
                .ok()
                .map(|link| link.to_string_lossy().into_owned()),
        }
    }

    /// All findings.
    pub fn findings(&self) -> [&Finding; 4] {
        [&self.direct_reads, &self.mapped_reads, &self.membarrier, &self.pidfd]
    }
}

impl fmt::Display for ShmInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.findings() {
            writeln!(f, "{finding}")?;
        }
        let yama = self.yama_scope.map_or("none".to_owned(), |scope| scope.to_string());
        let filtered = if self.is_filtered { "yes" } else { "no" };
        let namespace = self.pid_namespace.as_deref().unwrap_or("unknown");
        write!(f, "yama scope {yama}, system calls filtered: {filtered}, namespace {namespace}")
    }
}

fn judge_reads(seen: Surroundings) -> Finding {
    let no = |reason: &str, next| Finding::no("direct reads", reason, Some(next));
    let yes = |reason: &str| Finding::yes("direct reads", reason);
    if seen.policy == ReadPolicy::Copied {
        return no("switched off by ReadPolicy::Copied", "set ShmConfig::read to ReadPolicy::Auto");
    }
    if let Some(errno) = seen.self_test_errno {
        let reason = match errno {
            libc::ENOSYS => "process_vm_readv is not in this kernel".to_owned(),
            libc::EPERM => "process_vm_readv is refused, probably by seccomp".to_owned(),
            errno => format!("process_vm_readv fails with errno {errno}"),
        };
        return no(&reason, "docker run --cap-add SYS_PTRACE ...  (or another seccomp profile)");
    }
    if !seen.has_pidfd {
        return no(
            "without pidfd, a process number may mean another process later",
            "uname -r  (Linux 5.3 or later has pidfd_open)",
        );
    }
    if !seen.is_dumpable {
        return no(
            "this process is not dumpable, so the kernel lets no other process read it",
            "cat /proc/sys/fs/suid_dumpable  (set-user-id programs and PR_SET_DUMPABLE change it)",
        );
    }
    match seen.yama_scope {
        None => yes("no Yama; processes of one user may read each other"),
        Some(0) => yes("Yama's scope is 0; processes of one user may read each other"),
        Some(3) => no(
            "Yama's scope is 3: no process may read another one until a reboot",
            "grep -r ptrace_scope /etc/sysctl.d  (then reboot)",
        ),
        Some(_) if seen.has_ptrace_capability => yes("CAP_SYS_PTRACE"),
        Some(1) if seen.allows_readers => {
            yes("Yama's scope is 1; workers allow each other to read (PR_SET_PTRACER_ANY)")
        }
        Some(1) => no(
            "Yama's scope is 1, and ShmConfig::allow_readers is off",
            "sysctl kernel.yama.ptrace_scope=0",
        ),
        Some(scope) => no(
            &format!("Yama's scope is {scope}, which requires CAP_SYS_PTRACE"),
            "sysctl kernel.yama.ptrace_scope=1",
        ),
    }
}

/// Reads a few bytes of this process' own memory by the system call that reads a peer's. The error
/// number if that fails.
fn self_test() -> Option<i32> {
    let there: Box<[u8; 16]> = Box::new(*b"tagmatch-reading");
    let address = (&raw const *there).expose_provenance() as u64;
    let mut here = [0; 16];
    match process::read_memory(Pid::own(), address, &mut here) {
        Ok(16) if here == *there => None,
        Ok(_) => Some(libc::EFAULT),
        Err(error) => Some(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn probe_device_memory(config: &ShmConfig) -> Finding {
    let what = "mapped reads";
    match device_memory(config) {
        Ok(_) => Finding::yes(what, "peers map the memory of large buffers of the device"),
        Err(why) => {
            let next =
                "set ShmConfig::device_memory_bytes; ulimit -v and -f; sysctl vm.overcommit_memory";
            Finding::no(what, why, Some(next))
        }
    }
}

fn probe_membarrier(config: &ShmConfig) -> Finding {
    let what = "sends unfenced";
    if !config.membarrier {
        let next = Some("set ShmConfig::membarrier");
        return Finding::no(what, "switched off by ShmConfig::membarrier", next);
    }
    match process::register_for_barriers().and_then(|()| process::barrier_everywhere()) {
        Ok(()) => Finding::yes(what, "membarrier(2) reaches every worker"),
        Err(error) => Finding::no(
            what,
            format!("membarrier(2): {error}; each send has a fence"),
            Some("zgrep MEMBARRIER /proc/config.gz  (or look for a seccomp filter)"),
        ),
    }
}

fn probe_pidfd() -> Finding {
    let what = "pidfd";
    let reason = match process::open(Pid::own()) {
        Ok(pidfd) if !process::has_ended(pidfd.as_fd()) => {
            return Finding::yes(what, "the end of a peer's process is seen at once");
        }
        Ok(_) => "pidfd_open reports this process as ended".to_owned(),
        Err(error) => {
            format!("pidfd_open: {error}; only the end of a socket shows that a peer ended")
        }
    };
    Finding::no(what, reason, Some("uname -r  (Linux 5.3 or later has pidfd_open)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Surroundings = Surroundings {
        policy: ReadPolicy::Auto,
        allows_readers: true,
        yama_scope: None,
        has_ptrace_capability: false,
        is_dumpable: true,
        self_test_errno: None,
        has_pidfd: true,
    };

    #[test]
    fn pidfd_is_available_where_the_system_call_is() {
        let finding = probe_pidfd();
        assert_eq!(finding.is_available, process::open(Pid::own()).is_ok(), "{finding:?}");
    }

    #[test]
    fn each_missing_feature_has_a_reason_and_a_command() {
        let yama = |scope| Surroundings { yama_scope: Some(scope), ..GOOD };
        assert!(judge_reads(GOOD).is_available);
        assert!(judge_reads(yama(0)).is_available && judge_reads(yama(1)).is_available);
        let root = Surroundings { has_ptrace_capability: true, ..yama(2) };
        assert!(judge_reads(root).is_available);
        for bad in [
            yama(2),
            yama(3),
            yama(9),
            Surroundings { has_ptrace_capability: true, ..yama(3) },
            Surroundings { allows_readers: false, ..yama(1) },
            Surroundings { is_dumpable: false, ..GOOD },
            Surroundings { has_pidfd: false, ..GOOD },
            Surroundings { self_test_errno: Some(libc::EPERM), ..GOOD },
            Surroundings { self_test_errno: Some(libc::ENOSYS), ..GOOD },
            Surroundings { policy: ReadPolicy::Copied, ..GOOD },
        ] {
            let finding = judge_reads(bad);
            assert!(!finding.is_available && finding.next.is_some(), "{bad:?}");
            assert!(!finding.reason.is_empty());
        }
    }

    #[test]
    fn the_probe_can_be_printed() {
        let info = ShmInfo::probe(&ShmConfig::default());
        assert!(info.to_string().contains("direct reads"));
        assert!(info.mapped_reads.is_available);
        let off = ShmConfig {
            read: ReadPolicy::Copied,
            device_memory_bytes: 0,
            membarrier: false,
            ..ShmConfig::default()
        };
        let info = ShmInfo::probe(&off);
        assert_eq!(info.read_mode, ReadMode::Copied);
        assert!(!info.mapped_reads.is_available);
        assert!(!info.membarrier.is_available && info.to_string().contains("try:"));
    }
}
