//! A peer that is killed, or stopped, at each of its system calls while it connects. The other
//! worker is never blocked by it, serves its other peers, and keeps nothing of a dead one.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use tagmatch_device::{Address, Device, PeerId};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::process::Descriptors;

use common::{Owned, PATIENCE, message, poll, shm, wait_for};

/// Which of the two workers asks for the connection.
#[derive(Clone, Copy, Debug)]
enum Role {
    Connects,
    Accepts,
}

/// What becomes of the peer at a system call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Killed,
    /// It goes on once the other worker has talked to another peer.
    Stopped,
}

/// A forked child that this thread traces.
struct Traced {
    pid: libc::pid_t,
    is_alive: bool,
    stops: usize,
}

impl Traced {
    /// Forks. The child traces itself, and ends by `_exit` after `program`.
    fn fork(program: impl FnOnce()) -> Self {
        // SAFETY: the child has this thread alone, and calls what the C library allows such a
        // child. It ends by `_exit`, so nothing of its parent is run twice.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // A child whose parent fails ends by itself. The calls take no pointers that are used.
            // SAFETY: as above.
            unsafe {
                libc::alarm(60);
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(3);
                }
                libc::raise(libc::SIGSTOP);
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(program));
            // SAFETY: no pointers.
            unsafe { libc::_exit(i32::from(result.is_err())) };
        }
        let mut traced = Traced { pid, is_alive: true, stops: 0 };
        let start = Instant::now();
        while !traced.has_stopped() {
            assert!(start.elapsed() < PATIENCE, "the child doesn't stop");
        }
        traced
    }

    /// Whether the child has stopped since the last call. It also notices the child's end.
    fn has_stopped(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: `status` lives through the call, and the child is this process's.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
        if waited != self.pid {
            return false;
        }
        if libc::WIFSTOPPED(status) {
            self.stops += 1;
            return true;
        }
        self.is_alive = false;
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
                || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the child ended with status {status:#x}"
        );
        false
    }

    fn continue_if_stopped(&mut self) {
        if self.is_alive && self.has_stopped() {
            self.go_on();
        }
    }

    /// Lets the child go on, up to the next begin or end of a system call.
    fn go_on(&self) {
        // SAFETY: the child is in a stop, and the addresses are unused.
        let done = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.pid, 0, 0) };
        assert_eq!(done, 0);
    }

    fn kill(&self) {
        // SAFETY: no pointers. The child is this process's, and was not waited for.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if self.is_alive {
            self.kill();
            // SAFETY: the child is this process's; a null pointer says that no status is wanted.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// The worker of this process, and what it knows of the traced peer.
struct Hub {
    shm: Shm,
    peer: Option<PeerId>,
    is_up: bool,
    is_down: bool,
}

impl Hub {
    /// Polls once, and greets the traced peer when it is connected. Returns a message.
    fn attend(&mut self, traced: &Address) -> Option<Vec<u8>> {
        match poll(&mut self.shm)? {
            Owned::Message(_, _, bytes) => return Some(bytes),
            Owned::Up(peer, _) if self.shm.peer_address(peer) == Some(*traced) => {
                assert!(!self.is_up && *self.peer.get_or_insert(peer) == peer);
                self.is_up = true;
                // It may have died by now.
                let _ = self.shm.send(peer, message(b"welcome"));
            }
            Owned::Down(peer, _) if self.peer == Some(peer) => {
                assert!(!self.is_down);
                self.is_down = true;
            }
            Owned::Up(..) | Owned::Down(..) => {}
            other @ (Owned::ReadDone(..) | Owned::AccessDone(..)) => panic!("{other:?}"),
        }
        None
    }

    /// Takes a new peer and a message of that peer.
    fn serve_another(&mut self, traced: &Address) {
        let mut another = shm(ShmConfig::default());
        let to_hub = another.connect(&self.shm.address()).unwrap();
        let start = Instant::now();
        let mut received = None;
        while received.is_none() {
            assert!(start.elapsed() < PATIENCE, "the hub serves no other peer");
            received = self.attend(traced);
            match poll(&mut another) {
                None => {}
                Some(Owned::Up(peer, _)) if peer == to_hub => {
                    another.send(to_hub, message(b"from another")).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(received.unwrap(), b"from another");
    }
}

/// The program of the traced process: it connects or accepts, and ends when it has a message.
fn traced_program(role: Role, mut line: UnixStream, hub: &Address) {
    let mut device = shm(ShmConfig::default());
    let own = device.address();
    line.write_all(own.to_string().as_bytes()).unwrap();
    drop(line);
    if let Role::Connects = role {
        device.connect(hub).unwrap();
    }
    wait_for(&mut [&mut device], "a message", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert_eq!(bytes, b"welcome");
            Some(())
        }
        Owned::Up(..) => None,
        other => panic!("{other:?}"),
    });
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lets the peer come as far as the begin or end of one of its system calls, counted from when it
/// has told its address. Returns whether it came so far.
fn meets(role: Role, fate: Fate, at: usize) -> bool {
    // What a dead peer leaves is noticed, and not only forgotten after a time.
    let config = ShmConfig::default().connect_timeout(10 * PATIENCE);
    let mut hub = Hub { shm: shm(config), peer: None, is_up: false, is_down: false };
    let hub_address = hub.shm.address();
    let (mut line, end_of_child) = UnixStream::pair().unwrap();
    line.set_nonblocking(true).unwrap();
    let mut traced = Traced::fork(|| traced_program(role, end_of_child, &hub_address));
    traced.go_on();
    let mut text = Vec::new();
    let mut part = [0; 256];
    loop {
        traced.continue_if_stopped();
        match line.read(&mut part) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&part[..length]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    let address: Address = std::str::from_utf8(&text).unwrap().parse().unwrap();
    let open_before = open_descriptors();
    if let Role::Accepts = role {
        hub.peer = Some(hub.shm.connect(&address).unwrap());
    }

    let start = Instant::now();
    let first = traced.stops;
    while traced.is_alive && traced.stops < first + at {
        traced.continue_if_stopped();
        hub.attend(&address);
        assert!(start.elapsed() < PATIENCE, "no connection");
    }
    let came_so_far = traced.is_alive;
    if came_so_far {
        // The hub has seen all that the peer has done so far.
        hub.serve_another(&address);
        if fate == Fate::Killed {
            traced.kill();
            hub.serve_another(&address);
        }
    }
    let start = Instant::now();
    let is_known = |hub: &Hub| hub.peer.is_none() || hub.is_down;
    while traced.is_alive || !is_known(&hub) || open_descriptors() != open_before {
        traced.continue_if_stopped();
        assert_eq!(hub.attend(&address), None);
        assert!(
            start.elapsed() < PATIENCE,
            "{} descriptors before, {} now; down: {}",
            open_before,
            open_descriptors(),
            hub.is_down
        );
    }
    assert!(hub.is_up || fate == Fate::Killed);
    came_so_far
}

/// Meets the peer at the begin of each of its system calls, which is the end of the one before.
fn meets_at_each_call(role: Role, fate: Fate) {
    let _alone = Descriptors::alone();
    let stops = (1..2000).step_by(2).find(|at| !meets(role, fate, *at)).expect("an end");
    assert!(stops > 40, "it connected with {stops} stops");
}

#[test]
fn a_peer_that_connects_is_killed_at_each_of_its_calls() {
    meets_at_each_call(Role::Connects, Fate::Killed);
}

#[test]
fn a_peer_that_accepts_is_killed_at_each_of_its_calls() {
    meets_at_each_call(Role::Accepts, Fate::Killed);
}

#[test]
fn a_peer_that_connects_is_stopped_at_each_of_its_calls() {
    meets_at_each_call(Role::Connects, Fate::Stopped);
}

#[test]
fn a_peer_that_accepts_is_stopped_at_each_of_its_calls() {
    meets_at_each_call(Role::Accepts, Fate::Stopped);
}
