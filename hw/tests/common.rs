//! What the tests of the device share: owned events, and other processes.

#![allow(
    dead_code,
    missing_docs,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tagmatch_device::{
    Address, Buffer, Device, DownReason, Event, Outgoing, PeerId, ReadError, Refused,
};

/// An event that borrows nothing.
#[derive(Debug)]
pub enum Owned {
    Message(PeerId, Option<u32>, Vec<u8>),
    ReadDone(u64, Buffer, Result<(), ReadError>),
    Up(PeerId, usize),
    Down(PeerId, DownReason),
}

pub fn poll<D: Device>(device: &mut D) -> Option<Owned> {
    Some(match device.poll()? {
        Event::Message(m) => Owned::Message(m.peer, m.immediate, m.bytes.to_vec(0)),
        Event::ReadDone { token, into, result } => Owned::ReadDone(token, into, result),
        Event::Tag(_) => unreachable!("a device without a tag list"),
        Event::PeerUp { peer, limits } => Owned::Up(peer, limits.message_max),
        Event::PeerDown { peer, reason } => Owned::Down(peer, reason),
    })
}

/// The device, once it has reported itself up.
pub fn up<D: Device>(mut device: D) -> D {
    assert!(matches!(poll(&mut device), Some(Owned::Up(PeerId::ONESELF, _))));
    device
}

/// A limit on each wait, so that a hang is a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The next event of one of the devices that is wanted; other events are dropped.
pub fn wait_for<D: Device, T>(
    devices: &mut [&mut D],
    what: &str,
    mut wanted: impl FnMut(usize, Owned) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        for (index, device) in devices.iter_mut().enumerate() {
            if let Some(event) = poll(*device)
                && let Some(out) = wanted(index, event)
            {
                return out;
            }
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

/// Connects two devices of this process; gives each one's number for the other.
pub fn connect<D: Device>(a: &mut D, b: &mut D) -> (PeerId, PeerId) {
    let address = b.address();
    let to_b = a.connect(&address).unwrap();
    let (mut up, mut to_a) = (false, None);
    wait_for(&mut [a, b], "a connection", |index, event| {
        match (index, event) {
            (0, Owned::Up(peer, _)) if peer == to_b => up = true,
            (1, Owned::Up(peer, _)) => to_a = Some(peer),
            (_, other) => panic!("{other:?}"),
        }
        (up && to_a.is_some()).then_some(())
    });
    (to_b, to_a.unwrap())
}

pub fn message(payload: &[u8]) -> Outgoing<'_> {
    Outgoing { header: &[], payload, immediate: None }
}

/// Bytes that depend on the seed and on where they are.
pub fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(97) ^ (at >> 8)) as u8).collect()
}

/// Sends, polling both devices while the way is full; events are given to `seen`.
pub fn send<D: Device>(
    from: &mut D,
    peer: PeerId,
    outgoing: Outgoing<'_>,
    mut progress: impl FnMut(),
) {
    let start = Instant::now();
    loop {
        match from.send(peer, outgoing) {
            Ok(()) => return,
            Err(Refused::Full) => progress(),
            Err(other) => panic!("{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "no room");
    }
}

/// Another process, running one part of this test binary.
pub struct Other {
    child: Child,
    pub input: ChildStdin,
    pub output: BufReader<ChildStdout>,
}

/// Name of the variable that says which part a spawned process plays.
pub const ROLE: &str = "TAGMATCH_TEST_ROLE";

/// The part that this process is to play, if it is a spawned one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

impl Other {
    /// Runs the test `test` of this binary in a process of its own, as `role`.
    pub fn spawn(test: &str, role: &str) -> Other {
        Self::run(Command::new(std::env::current_exe().unwrap()), test, role)
    }

    /// The same in a new pid namespace; `None` where that can't be made.
    pub fn spawn_in_pid_namespace(test: &str, role: &str) -> Option<Other> {
        Self::spawn_in_namespace(&["--pid", "--fork", "--kill-child"], test, role)
    }

    /// The same in a new user namespace, in which no user has a number; `None` where that can't be made.
    pub fn spawn_in_user_namespace(test: &str, role: &str) -> Option<Other> {
        Self::spawn_in_namespace(&["--user"], test, role)
    }

    fn spawn_in_namespace(arguments: &[&str], test: &str, role: &str) -> Option<Other> {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(arguments);
            command
        };
        let can = unshare().arg("true").status().is_ok_and(|status| status.success());
        can.then(|| {
            let mut command = unshare();
            command.arg(std::env::current_exe().unwrap());
            Self::run(command, test, role)
        })
    }

    fn run(mut command: Command, test: &str, role: &str) -> Other {
        let mut child = command
            .args([test, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Other { child, input, output }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// What follows `> ` on the next such line; the test harness prints lines of its own.
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, said)) = line.trim_end().split_once("> ") {
                return said.to_owned();
            }
        }
    }

    pub fn hear_address(&mut self) -> Address {
        self.hear().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn wait(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the process that has spawned us.
pub fn say(text: impl std::fmt::Display) {
    println!("> {text}");
    std::io::stdout().flush().unwrap();
}

pub fn hear_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
