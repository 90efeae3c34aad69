//! Whether a process of this machine still runs: a process publishes its identity, and others ask
//! the kernel about it.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Identifies one process among all processes of all machines, including those that ended earlier
/// or start later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// The boot id of the process's machine: a new one at each boot.
    boot: String,
    /// The namespace in which `pid` is valid.
    pid_namespace: String,
    pid: u32,
    /// When the process was started, in clock ticks since boot. It tells the process from a later
    /// one with the same pid.
    started: u64,
}

impl Identity {
    /// The identity of this process.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let wrong =
            || io::Error::new(ErrorKind::InvalidData, "/proc has no start time of this process");
        Ok(Identity {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pid_namespace: fs::read_link("/proc/self/ns/pid")?.display().to_string(),
            pid,
            started: start_time(pid)?.ok_or_else(wrong)?,
        })
    }

    /// The identity that another process has published.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next().filter(|word| !word.is_empty());
        let boot = next()?.to_owned();
        let pid_namespace = next()?.to_owned();
        let pid = next()?.parse().ok()?;
        let started = next()?.parse().ok()?;
        next().is_none().then_some(Identity { boot, pid_namespace, pid, started })
    }

    /// Whether the process is known to have ended. `own` is the process that asks: it can't see
    /// processes of other machines or pid namespaces, so for these the answer is `false`.
    pub(crate) fn is_gone(&self, own: &Identity) -> bool {
        self.is_visible(own)
            && start_time(self.pid).is_ok_and(|started| started != Some(self.started))
    }

    /// Where a descriptor of the process is, if the process that asks, `own`, could see it.
    pub(crate) fn descriptor(&self, own: &Identity, number: u16) -> Option<PathBuf> {
        self.is_visible(own).then(|| format!("/proc/{}/fd/{number}", self.pid).into())
    }

    fn is_visible(&self, own: &Identity) -> bool {
        self.boot == own.boot && self.pid_namespace == own.pid_namespace
    }
}

impl Display for Identity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.boot, self.pid_namespace, self.pid, self.started)
    }
}

/// When the process with this pid was started; `None` if there is no such process, or it has ended
/// and is a zombie.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // ESRCH: the process has ended since the file was opened.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The process's name is in parentheses, and may hold any character. The state is the third
    // field, the start time the 22nd (proc_pid_stat(5)).
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let is_over = matches!(fields.first(), Some(&("Z" | "X")));
    let started = fields.get(19).and_then(|started| started.parse().ok());
    Ok(started.filter(|_| !is_over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn child() -> (Child, Identity) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let own = Identity::own().unwrap();
        let started = start_time(pid).unwrap().unwrap();
        (child, Identity { pid, started, ..own })
    }

    #[test]
    fn a_printed_identity_parses() {
        let own = Identity::own().unwrap();
        assert_eq!(Identity::parse(&own.to_string()), Some(own));
        for garbled in ["", "a b 1", "a b x 2", "a b 1 2 3", "a  1 2", "a b -1 2"] {
            assert_eq!(Identity::parse(garbled), None, "{garbled}");
        }
    }

    #[test]
    fn a_process_is_gone_once_it_has_ended() {
        let own = Identity::own().unwrap();
        assert!(!own.is_gone(&own));
        let (mut child, identity) = child();
        assert!(!identity.is_gone(&own));
        child.kill().unwrap();
        // A zombie counts as gone.
        while !identity.is_gone(&own) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(identity.is_gone(&own));
    }

    #[test]
    fn a_later_process_with_the_same_pid_is_another_process() {
        let own = Identity::own().unwrap();
        assert!(Identity { started: own.started + 1, ..own.clone() }.is_gone(&own));
        // Processes of other machines and pid namespaces can't be seen.
        assert!(!Identity { started: 0, boot: "elsewhere".into(), ..own.clone() }.is_gone(&own));
        let elsewhere = "pid:[1]".to_owned();
        assert!(!Identity { started: 0, pid_namespace: elsewhere, ..own.clone() }.is_gone(&own));
    }
}
