//! Whether a process of this machine still runs: by what it has said of itself, and by the kernel's word.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, ErrorKind};

/// What tells a process from all others, on whatever machine, before and after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// Its machine's, since that was started.
    boot: String,
    /// In which its number is its own.
    pid_namespace: String,
    pid: u32,
    /// When it was started, in the kernel's ticks: numbers are given out again.
    started: u64,
}

impl Identity {
    /// Of this process.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let wrong = || io::Error::new(ErrorKind::InvalidData, "/proc has no start of this process");
        Ok(Identity {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pid_namespace: fs::read_link("/proc/self/ns/pid")?.display().to_string(),
            pid,
            started: look(pid)?.ok_or_else(wrong)?,
        })
    }

    /// What another process has said of itself.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next().filter(|word| !word.is_empty());
        let (boot, pid_namespace) = (next()?.to_owned(), next()?.to_owned());
        let (pid, started) = (next()?.parse().ok()?, next()?.parse().ok()?);
        next().is_none().then_some(Identity { boot, pid_namespace, pid, started })
    }

    /// Whether the process is gone, as far as `own`, the process that asks, can see: of other machines it can't.
    pub(crate) fn is_gone(&self, own: &Identity) -> bool {
        let is_near = self.boot == own.boot && self.pid_namespace == own.pid_namespace;
        is_near && look(self.pid).is_ok_and(|started| started != Some(self.started))
    }
}

impl Display for Identity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.boot, self.pid_namespace, self.pid, self.started)
    }
}

/// When the process of this number was started; `None` if there is none, or it has ended and nobody has waited for it.
fn look(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // ESRCH: it has ended since the file was opened.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The name, in brackets, may hold anything. State is the third field, the start the 22nd (proc_pid_stat(5)).
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
        let (pid, own) = (child.id(), Identity::own().unwrap());
        let started = look(pid).unwrap().unwrap();
        (child, Identity { pid, started, ..own })
    }

    #[test]
    fn what_is_said_is_understood() {
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
        // Until it is waited for it is a zombie, which is no less gone.
        while !identity.is_gone(&own) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(identity.is_gone(&own));
    }

    #[test]
    fn another_of_its_number_is_another() {
        let own = Identity::own().unwrap();
        assert!(Identity { started: own.started + 1, ..own.clone() }.is_gone(&own));
        // Where it can't be seen nothing is known.
        assert!(!Identity { started: 0, boot: "elsewhere".into(), ..own.clone() }.is_gone(&own));
        let elsewhere = "pid:[1]".to_owned();
        assert!(!Identity { started: 0, pid_namespace: elsewhere, ..own.clone() }.is_gone(&own));
    }
}
