//! How many connections each other process has made to this worker: bounded, so that one process can't
//! take what is there for all.

use std::collections::HashMap;

use super::lane::Process;
use tagmatch_os::process::Pid;

/// Most connections of one process over the whole life of a device: a sixteenth of what all have together.
const EVER_MAX: u32 = 1 << 16;

/// A process that connects to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guest {
    /// 0 for every process that isn't in our pid namespace.
    pid: i32,
    /// Tells processes apart that have, or had, one number; since Linux 6.9, before it is always the same.
    pidfd_inode: u64,
}

impl Guest {
    /// The process at the other end of a connection, unless that is this very process.
    pub(crate) fn of(pid: Pid, process: Option<&Process>) -> Option<Self> {
        let pidfd_inode = process.map_or(0, Process::inode);
        (pid != Pid::own()).then_some(Guest { pid: pid.0, pidfd_inode })
    }
}

#[derive(Default)]
struct Count {
    now: u32,
    ever: u32,
}

/// All of them. What is kept is bounded by the peers over the life of a device.
pub(crate) struct Guests {
    counts: HashMap<Guest, Count>,
    now_max: u32,
}

impl Guests {
    /// With at most `now_max` connections of one process at a time.
    pub(crate) fn new(now_max: u32) -> Self {
        Guests { counts: HashMap::new(), now_max }
    }

    /// Counts a connection; `false` if the process has as many as it may.
    pub(crate) fn enter(&mut self, guest: Guest) -> bool {
        let count = self.counts.entry(guest).or_default();
        let may = count.now < self.now_max && count.ever < EVER_MAX;
        if may {
            count.now += 1;
            count.ever += 1;
        }
        may
    }

    /// A connection that was counted has ended.
    pub(crate) fn leave(&mut self, guest: Guest) {
        if let Some(count) = self.counts.get_mut(&guest) {
            count.now -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_takes_so_much_and_leaves_the_rest_to_others() {
        let mut guests = Guests::new(3);
        let [first, second] = [1, 2].map(|pid| Guest { pid, pidfd_inode: 0 });
        let enter = |guests: &mut Guests| (0..5).filter(|_| guests.enter(first)).count();
        assert_eq!(enter(&mut guests), 3);
        assert!(guests.enter(second));
        guests.leave(first);
        assert_eq!(enter(&mut guests), 1);
        let mut ever = 4;
        loop {
            guests.leave(first);
            if !guests.enter(first) {
                break;
            }
            ever += 1;
        }
        assert_eq!(ever, EVER_MAX);
        assert!(guests.enter(second));
        assert_eq!(Guest::of(Pid::own(), None), None);
    }
}
