//! Processes of this machine whose workers are peers: the kernel tells when one ends.
//!
//! A NIC is silent about a process that was killed, as about a cable that was pulled. So a dead
//! peer is noticed only after all retries, which are long enough for an outage; except on this
//! machine. Each end of a connection says which process it is, and where the other one's number has
//! the same meaning, a pidfd watches it. Without one (no descriptor is left, another pid namespace)
//! the retries decide.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tagmatch_device::PeerId;
use tagmatch_os::event::{BATCH, Epoll};
use tagmatch_os::process::{self, Pid};

/// A process, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessName {
    /// A hash of the machine, since when it runs, and the pid namespace; zero if one isn't known.
    pub(super) realm: u64,
    /// Its number there.
    pub(super) pid: u32,
}

impl ProcessName {
    /// This process.
    fn own() -> Self {
        ProcessName { realm: realm().unwrap_or(0), pid: std::process::id() }
    }

    /// The number of another process than `own`, if it has a meaning here.
    fn beside(self, own: Self) -> Option<Pid> {
        let is_here = self.realm != 0 && self.realm == own.realm && self.pid != own.pid;
        let pid = i32::try_from(self.pid).ok().filter(|pid| *pid > 0);
        pid.filter(|_| is_here).map(Pid)
    }
}

fn realm() -> Option<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = DefaultHasher::new();
    (boot, namespace).hash(&mut hasher);
    Some(hasher.finish())
}

/// The processes that are watched. There are as many as peers at most.
pub(super) struct LocalProcesses {
    pub(super) own: ProcessName,
    epoll: Epoll,
    watched: HashMap<PeerId, OwnedFd>,
    /// Peers whose processes have ended, and whose ends aren't reported yet.
    ended_peers: Vec<PeerId>,
}

impl LocalProcesses {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        Ok(LocalProcesses {
            own: ProcessName::own(),
            epoll,
            watched: HashMap::new(),
            ended_peers: Vec::new(),
        })
    }

    /// Readable while a process that is watched has ended.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches the process of a peer, if it is one of this machine.
    pub(super) fn watch(&mut self, peer: PeerId, name: ProcessName) {
        if let Some(pid) = name.beside(self.own)
            && let Ok(pidfd) = process::open(pid)
            && self.epoll.watch(pidfd.as_fd(), peer.0.into()).is_ok()
        {
            self.watched.insert(peer, pidfd);
        }
    }

    /// Stops watching.
    pub(super) fn forget(&mut self, peer: PeerId) {
        if let Some(pidfd) = self.watched.remove(&peer) {
            self.epoll.forget(pidfd.as_fd());
        }
        self.ended_peers.retain(|ended| *ended != peer);
    }

    /// Looks for processes that have ended.
    pub(super) fn look(&mut self) {
        if self.watched.is_empty() {
            return;
        }
        let mut ready = [0; BATCH];
        let count = self.epoll.ready(&mut ready);
        let numbers = ready[..count].iter().filter_map(|number| u32::try_from(*number).ok());
        for peer in numbers.map(PeerId) {
            self.forget(peer);
            self.ended_peers.push(peer);
        }
    }

    /// Whether the end of a peer is to be reported.
    pub(super) fn has_gone(&self) -> bool {
        !self.ended_peers.is_empty()
    }

    /// A peer whose process has ended. To be asked for when no completion waits, so that all that
    /// the peer has sent is handled first.
    pub(super) fn take_gone(&mut self) -> Option<PeerId> {
        self.ended_peers.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_end_of_a_process_of_this_machine_is_told_once() {
        let mut local_processes = LocalProcesses::new().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let here = ProcessName { pid: child.id(), ..local_processes.own };
        assert_ne!(here.realm, 0);
        local_processes.watch(PeerId(1), here);
        local_processes.watch(PeerId(2), here);
        local_processes.watch(PeerId(3), ProcessName { realm: here.realm ^ 1, ..here });
        for pid in [0, u32::MAX, here.pid.wrapping_neg()] {
            local_processes.watch(PeerId(4), ProcessName { pid, ..here });
        }
        local_processes.watch(PeerId(5), local_processes.own);
        local_processes.forget(PeerId(2));
        local_processes.look();
        assert!(!local_processes.has_gone());
        drop(child.stdin.take());
        let start = Instant::now();
        while !local_processes.has_gone() {
            local_processes.look();
            assert!(start.elapsed() < Duration::from_secs(20), "its end isn't told");
        }
        local_processes.look();
        assert_eq!(
            (local_processes.take_gone(), local_processes.take_gone()),
            (Some(PeerId(1)), None)
        );
        assert!(local_processes.watched.is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_an_unknown_machine_is_not_watched() {
        let own = ProcessName { realm: 0, pid: 7 };
        assert_eq!(ProcessName { realm: 0, pid: 8 }.beside(own), None);
    }
}
