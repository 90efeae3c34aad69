//! Sleeping and waking: sets of descriptors, timers, and time.
//!
//! Time stands still while programs run. It goes on while all that run asleep, to the next moment
//! at which something is due.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::faults::Call;
use crate::kernel::{Answer, File, Kernel, Watch};
use crate::stream::Connection;

/// An event of `epoll_wait(2)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) events: u32,
    pub(crate) number: u64,
}

const IN: u32 = libc::EPOLLIN.cast_unsigned();
const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
const HUP: u32 = libc::EPOLLHUP.cast_unsigned();

impl Kernel {
    /// Changes what a set of descriptors watches.
    pub(crate) fn control(&mut self, set: i32, what: i32, fd: i32, watch: Watch) -> Answer<()> {
        self.files.get(&set)?;
        if what == libc::EPOLL_CTL_ADD
            && let Err(errno) = self.strike(Call::EpollAdd)
        {
            return Some(Err(errno));
        }
        let File::Epoll(watched) = &mut self.files.get_mut(&set)?.file else {
            return Some(Err(libc::EINVAL));
        };
        let is_watched = watched.contains_key(&fd);
        let done = match what {
            libc::EPOLL_CTL_ADD if is_watched => Err(libc::EEXIST),
            libc::EPOLL_CTL_ADD => Ok(()),
            _ if is_watched => Ok(()),
            _ => Err(libc::ENOENT),
        };
        if done.is_ok() && what == libc::EPOLL_CTL_DEL {
            watched.remove(&fd);
        } else if done.is_ok() {
            watched.insert(fd, watch);
        }
        Some(done)
    }

    /// The events for which a descriptor is ready.
    fn readiness(&self, fd: i32) -> u32 {
        let Some(open) = self.files.get(&fd) else { return 0 };
        let flag = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
        match &open.file {
            File::Epoll(watched) => flag(self.has_ready(watched), IN),
            File::Second => 0,
            File::Timer(due) => flag(due.is_some_and(|due| due <= self.now), IN),
            File::Fresh(_) => HUP | OUT,
            File::Listening { queue, .. } => flag(!queue.is_empty(), IN),
            File::Connected { connection, side } => {
                let Some(connection) = self.connections.get(connection) else { return HUP };
                flag(connection.has_input(*side), IN)
                    | flag(connection.has_room(*side), OUT)
                    | flag(connection.is_reset(*side), HUP)
            }
        }
    }

    fn has_ready(&self, watched: &BTreeMap<i32, Watch>) -> bool {
        watched.iter().any(|(fd, watch)| self.readiness(*fd) & (watch.events | HUP) != 0)
    }

    /// Whether a descriptor is readable or at its end.
    pub(crate) fn is_readable(&self, fd: i32) -> bool {
        self.readiness(fd) & (IN | HUP) != 0
    }

    /// The descriptors of a set that are ready. In a bad world, some of them are reported later,
    /// and some descriptors are reported that are not ready.
    pub(crate) fn ready(&mut self, set: i32, most: usize) -> Answer<Vec<Ready>> {
        self.files.get(&set)?;
        if let Err(errno) = self.strike(Call::EpollWait) {
            return Some(Err(errno));
        }
        let File::Epoll(watched) = &self.files.get(&set)?.file else {
            return Some(Err(libc::EINVAL));
        };
        let mut found = Vec::new();
        for (fd, watch) in watched.clone() {
            let mut events = self.readiness(fd) & (watch.events | HUP);
            if self.random.per_mille(self.faults.faults.events_per_mille) {
                events = if self.random.chance(1, 2) { 0 } else { events | (watch.events & IN) };
            }
            if events != 0 {
                found.push(Ready { events, number: watch.number });
            }
        }
        self.random.shuffle(&mut found);
        found.truncate(most);
        Some(Ok(found))
    }

    /// Sets a timer.
    pub(crate) fn set_timer(&mut self, fd: i32, delay: Option<Duration>) -> Answer<()> {
        let due = delay.map(|delay| self.now + delay);
        let File::Timer(timer) = &mut self.files.get_mut(&fd)?.file else {
            return Some(Err(libc::EINVAL));
        };
        *timer = due;
        Some(Ok(()))
    }

    /// When something is due next: a timer of a process, an acknowledgement, or the end of a
    /// connection whose other machine is silent.
    fn next_due(&self) -> Option<Duration> {
        let timers = self.files.values().filter_map(|open| match open.file {
            File::Timer(due) if !self.silent.contains_key(&open.process) => due,
            _ => None,
        });
        let is_reached = |connection: &&Connection| {
            !connection.ends.iter().any(|end| self.silent.contains_key(&end.machine))
        };
        let connections = self.connections.values().filter(is_reached);
        let acknowledged = connections.filter_map(Connection::acknowledged_at);
        let silent = self.silent_ends().map(|(due, ..)| due);
        timers.chain(acknowledged).chain(silent).filter(|due| *due > self.now).min()
    }

    /// When connections to silent machines fail.
    fn silent_ends(&self) -> impl Iterator<Item = (Duration, usize, usize)> {
        self.connections.iter().flat_map(move |(number, connection)| {
            (0..2).filter_map(move |side| {
                let since = *self.silent.get(&connection.ends[1 - side].machine)?;
                Some((connection.fails_at(side, since)?, *number, side))
            })
        })
    }

    fn end_silent(&mut self) {
        let late: Vec<_> = self.silent_ends().filter(|(due, ..)| *due <= self.now).collect();
        for (_, number, side) in late {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.ends[side].reset(libc::ETIMEDOUT);
            }
        }
    }

    /// The network makes a few moves, and a moment passes.
    pub(crate) fn tick(&mut self) {
        self.now += Duration::from_micros(self.random.below(20));
        if self.random.chance(1, 2) {
            self.make_a_move();
        }
    }

    /// Sleeps until one of the descriptors is readable, at most until a moment. `false` if none is
    /// then.
    pub(crate) fn sleep(&mut self, fds: &[i32], until: Duration) -> bool {
        loop {
            if fds.iter().any(|fd| self.is_readable(*fd)) {
                return true;
            }
            if until <= self.now {
                return false;
            }
            if !self.make_a_move() {
                self.now = self.next_due().map_or(until, |due| due.min(until));
                self.end_silent();
            }
        }
    }
}
