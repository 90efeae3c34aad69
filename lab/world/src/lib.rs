//! A system that answers as badly as it may, for tests of code that makes system calls.
//!
//! A program that uses this crate has the C library's functions for sockets, sets of descriptors,
//! timers and time a second time, in front of the real ones: neither the product nor `hw/os`
//! knows. They ask the real kernel, except on a thread that has entered a [`World`]. There TCP
//! sockets of IPv4 are simulated, by what tcp(7) and the kernel's source say, and time is virtual.
//! A seed decides all that is random: which bytes arrive when, how many a call takes, which call
//! fails with an error that passes, which event is reported late or though it isn't true.
//!
//! All ends of the connections are driven by one thread. [`World::run_as`] says whose calls are
//! made: each process has a machine of its own, which [`World::silence`] switches off.
//!
//! | module | contents |
//! |---|---|
//! | `calls` | the functions in front, and the real ones |
//! | `scope` | the world of a thread |
//! | `kernel`, `waiting` | descriptors and sockets; what wakes, and time |
//! | `stream` | a TCP connection |
//! | `faults` | which calls fail |
//! | [`devices`] | random use of devices, and what must hold of it |
#![deny(unsafe_code)]

mod calls;
pub mod devices;
mod faults;
mod kernel;
mod scope;
mod stream;
mod waiting;

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

pub use faults::{Call, Failure, Faults};
pub use kernel::Settings;

use kernel::Kernel;

/// The world of this thread, until it is dropped.
pub struct World {
    /// It is the thread's.
    _thread: PhantomData<*const ()>,
}

/// The descriptors and the calls of a world that has ended.
#[derive(Debug)]
pub struct Audit {
    /// Descriptors of the world that are open.
    pub open: Vec<i32>,
    /// How many calls of each kind could have failed.
    pub calls: BTreeMap<Call, usize>,
}

impl Audit {
    /// Each of the calls with each of its errors; with one of them, by turns, unless `all`.
    #[must_use]
    pub fn failures(&self, all: bool) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (call, count) in &self.calls {
            let errors = call.errors();
            for number in 0..*count {
                let turn = &errors[number % errors.len()..][..1];
                let errors = if all { errors } else { turn };
                let of_errno = |errno: &i32| Failure { call: *call, number, errno: *errno };
                failures.extend(errors.iter().map(of_errno));
            }
        }
        failures
    }
}

fn ask<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    scope::ask(act).expect("the thread has a world")
}

/// Makes calls as a process.
fn run_as<T>(process: usize, act: impl FnOnce() -> T) -> T {
    let before = ask(|kernel| std::mem::replace(&mut kernel.process, process));
    let out = act();
    ask(|kernel| kernel.process = before);
    out
}

impl World {
    /// Gives this thread a world.
    ///
    /// # Panics
    /// If it has one.
    #[must_use]
    pub fn enter(settings: Settings) -> Self {
        calls::keep();
        // The standard library draws numbers for its hash tables once in each thread.
        drop(RandomState::new());
        let before = scope::enter(Some(Kernel::new(settings)));
        assert!(before.is_none(), "the thread has a world already");
        World { _thread: PhantomData }
    }

    /// Makes calls as a process.
    pub fn run_as<T>(&self, process: usize, act: impl FnOnce() -> T) -> T {
        run_as(process, act)
    }

    /// The work of other processes while one sleeps inside of a call.
    pub fn while_asleep(&self, others: Option<Box<dyn FnMut()>>) {
        scope::set_others(others);
    }

    /// The time, by the clock of `Instant`.
    #[must_use]
    pub fn now(&self) -> Duration {
        ask(|kernel| kernel.now)
    }

    /// Sleeps until one of the descriptors is readable. `false` if there is none after `limit`.
    #[must_use]
    pub fn sleep(&self, fds: &[BorrowedFd<'_>], limit: Duration) -> bool {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        ask(|kernel| {
            let until = kernel.now + limit;
            kernel.sleep(&fds, until)
        })
    }

    /// Whether a descriptor is readable.
    #[must_use]
    pub fn is_readable(&self, fd: BorrowedFd<'_>) -> bool {
        ask(|kernel| kernel.is_readable(fd.as_raw_fd()))
    }

    /// A machine neither hears nor answers any more.
    pub fn silence(&self, machine: usize) {
        ask(|kernel| kernel.silence(machine));
    }

    /// Closes what a process has open, as the kernel does when the process is killed.
    pub fn kill(&self, process: usize) {
        let of_process = |kernel: &mut Kernel| -> Vec<i32> {
            let files = kernel.files.iter().filter(|(_, open)| open.process == process);
            files.map(|(fd, _)| *fd).collect()
        };
        for fd in ask(of_process) {
            calls::close_descriptor(fd);
        }
    }

    /// Changes how badly the system answers. Gives how it was before.
    pub fn set_faults(&self, faults: Faults) -> Faults {
        ask(|kernel| std::mem::replace(&mut kernel.faults.faults, faults))
    }

    /// Has all stand still between the machines and nothing fail, while `act` runs.
    pub fn frozen<T>(&self, act: impl FnOnce() -> T) -> T {
        let faults = self.set_faults(Faults::default());
        ask(|kernel| kernel.is_frozen = true);
        let out = act();
        ask(|kernel| kernel.is_frozen = false);
        self.set_faults(faults);
        out
    }

    /// Ends the world, and tells what is left of it.
    ///
    /// # Panics
    /// Never: the thread has a world as long as this value is there.
    #[must_use]
    pub fn leave(self) -> Audit {
        let kernel = scope::enter(None).expect("the thread has a world");
        Audit { open: kernel.files.into_keys().collect(), calls: kernel.faults.counts }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(scope::enter(None));
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn world(failure: Option<Failure>) -> World {
        World::enter(Settings {
            seed: 1,
            has_network: true,
            faults: Faults { failure, ..Faults::default() },
            sent_max: 4096,
            received_max: 4096,
            acknowledgement_time: Duration::ZERO,
        })
    }

    #[test]
    fn time_stands_still_until_somebody_sleeps_and_goes_on_for_other_threads() {
        let hour = Duration::from_secs(3600);
        let world = world(None);
        let start = Instant::now();
        assert_eq!(start.elapsed(), Duration::ZERO);
        let other = std::thread::spawn(Instant::now).join().unwrap();
        assert!(!world.sleep(&[], hour));
        assert_eq!(start.elapsed(), hour);
        drop(world);
        assert!(other.elapsed() < hour);
    }

    #[test]
    fn a_call_fails_that_is_to_fail_and_the_audit_tells_what_is_open() {
        let failure = Failure { call: Call::Listen, number: 1, errno: libc::EADDRINUSE };
        let world = world(Some(failure));
        let first = TcpListener::bind("10.0.0.1:0").unwrap();
        let second = TcpListener::bind("10.0.0.1:0");
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
        // The simulated network is never waited for.
        assert!(TcpStream::connect(first.local_addr().unwrap()).is_err());
        let audit = world.leave();
        assert_eq!((audit.open.len(), audit.calls[&Call::Listen]), (1, 2));
    }
}
