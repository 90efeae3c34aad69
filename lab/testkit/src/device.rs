//! For the tests of devices: events that borrow nothing, waiting for them, and other processes.
//!
//! Every wait ends after [`PATIENCE`] with a panic, so that a hang is a failure.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use tagmatch_device::{
    AccessEnd, Address, Buffer, Device, DeviceError, DownReason, Event, EventDescriptor, Outgoing,
    PeerId, ReadError, Refused, Shortage,
};

use crate::process::Descriptors;

/// An event that borrows nothing.
#[derive(Debug)]
pub enum Owned {
    /// A message: its sender, immediate data and bytes.
    Message(PeerId, Option<u32>, Vec<u8>),
    /// The end of a read: its token, buffer and result.
    ReadDone(u64, Buffer, Result<(), ReadError>),
    /// The end of an access to a region.
    AccessDone(AccessEnd),
    /// A peer is connected, with the longest message that it receives.
    Up(PeerId, usize),
    /// A peer is down.
    Down(PeerId, DownReason),
}

/// The next event of a device that has no tag list.
///
/// # Panics
/// If the device reports an event of a tag list.
pub fn poll<D: Device>(device: &mut D) -> Option<Owned> {
    Some(match device.poll()? {
        Event::Message(m) => Owned::Message(m.peer, m.immediate, m.bytes.to_vec(0)),
        Event::ReadDone { token, into, result } => Owned::ReadDone(token, into, result),
        Event::AccessDone(end) => Owned::AccessDone(end),
        Event::Tag(_) => unreachable!("a device without a tag list"),
        Event::PeerUp { peer, limits } => Owned::Up(peer, limits.message_max),
        Event::PeerDown { peer, reason } => Owned::Down(peer, reason),
    })
}

/// The device, after it has reported that it is connected to itself.
///
/// # Panics
/// If its first event is another one.
pub fn up<D: Device>(mut device: D) -> D {
    assert!(matches!(poll(&mut device), Some(Owned::Up(PeerId::ONESELF, _))));
    device
}

/// The peer that may read what a test exposes: the first that connects.
pub const READER: PeerId = PeerId(1);

/// The limit on each wait.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls the devices until `wanted` returns something for an event of one of them, given with the
/// index of the device. Events for which it returns `None` are dropped.
///
/// # Panics
/// After [`PATIENCE`].
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
        assert!(start.elapsed() < PATIENCE, "no event in time: {what}");
    }
}

/// Polls a device that connects to another one, which lacks descriptors for as long as connecting
/// may take: the one that lacks them reports so, and the one that connects is refused.
///
/// # Panics
/// If either reports something else.
pub fn accepting_end_reports_its_shortage<D: Device>(a: &mut D, b: &mut D, to_b: PeerId) {
    let mut of_a = None;
    let mut of_b = None;
    wait_for(&mut [a, b], "both reports", |index, event| {
        match (index, event) {
            (0, Owned::Down(peer, reason)) if peer == to_b => of_a = Some(reason),
            (1, Owned::Down(peer, reason)) => of_b = Some((peer, reason)),
            other => panic!("{other:?}"),
        }
        (of_a.is_some() && of_b.is_some()).then_some(())
    });
    let (peer, reason) = of_b.unwrap();
    assert_eq!(reason, DownReason::Shortage(Shortage::Descriptors));
    assert_eq!(b.peer_address(peer), Some(a.address()));
    let errno = rustix::io::Errno::MFILE.raw_os_error();
    assert_eq!(of_a, Some(DownReason::Unreachable { errno }));
}

/// The address of this machine over which a provider of libfabric reaches itself. In a guest with
/// soft-RoCE, a provider of verbs reaches only the address of its device.
///
/// # Panics
/// If the guest's variable has no address.
#[must_use]
pub fn loopback_of(provider: &str) -> IpAddr {
    let rxe = std::env::var("RXE_ADDRESS").ok().filter(|_| provider.starts_with("verbs"));
    rxe.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.parse().expect("an address"))
}

/// Makes a device with ever more free descriptors, so that each call that needs one fails in turn.
/// Each error names the limit, and leaves no descriptor open.
///
/// # Panics
/// If one doesn't, or if no number of descriptors is enough.
pub fn a_device_without_descriptors_names_the_limit<D>(make: impl Fn() -> Result<D, DeviceError>) {
    let descriptors = Descriptors::alone();
    // What a process opens once is open after this.
    drop(make());
    let mut failed = 0;
    for free in 0..60 {
        let held = descriptors.leave(free);
        let made = make().map(drop);
        // The same number is free as before.
        let left = descriptors.leave(0);
        assert_eq!(left.len(), free, "after {made:?}");
        drop((held, left));
        match made {
            Ok(()) => {
                assert!(failed > 0, "no call has failed");
                return;
            }
            Err(error) => assert!(error.to_string().contains("ulimit -n"), "{free} free: {error}"),
        }
        failed += 1;
    }
    panic!("{failed} descriptors are not enough");
}

/// Connects two devices of this process, and returns the number of each on the other.
///
/// # Panics
/// If they can't connect.
pub fn connect<D: Device>(a: &mut D, b: &mut D) -> (PeerId, PeerId) {
    let address = b.address();
    let to_b = a.connect(&address).unwrap();
    let mut up = false;
    let mut to_a = None;
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

/// Waits for the next event of a device.
///
/// # Panics
/// After [`PATIENCE`].
pub fn next_event<D: Device>(devices: &mut [&mut D]) -> Owned {
    wait_for(devices, "an event", |_, event| Some(event))
}

/// Waits until a peer is connected, and returns its number.
///
/// # Panics
/// If there is another event, or after [`PATIENCE`].
pub fn next_up<D: Device>(device: &mut D) -> PeerId {
    match next_event(&mut [device]) {
        Owned::Up(peer, _) => peer,
        other => panic!("{other:?}"),
    }
}

/// Waits until this peer is connected.
///
/// # Panics
/// If there is another event, or after [`PATIENCE`].
pub fn wait_up<D: Device>(device: &mut D, peer: PeerId) {
    assert_eq!(next_up(device), peer);
}

/// Waits until a peer is down, and returns why.
///
/// # Panics
/// If there is another event, or after [`PATIENCE`].
pub fn next_down<D: Device>(device: &mut D) -> (PeerId, DownReason) {
    match next_event(&mut [device]) {
        Owned::Down(peer, reason) => (peer, reason),
        other => panic!("{other:?}"),
    }
}

/// Waits for a message, and returns its bytes.
///
/// # Panics
/// If there is another event, or after [`PATIENCE`].
pub fn next_message<D: Device>(devices: &mut [&mut D]) -> Vec<u8> {
    match next_event(devices) {
        Owned::Message(_, _, bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Waits for the end of a read, and returns its buffer and result.
///
/// # Panics
/// If there is another event, or after [`PATIENCE`].
pub fn read_end<D: Device>(devices: &mut [&mut D]) -> (Buffer, Result<(), ReadError>) {
    match next_event(devices) {
        Owned::ReadDone(_, into, result) => (into, result),
        other => panic!("{other:?}"),
    }
}

/// A message without a header.
#[must_use]
pub fn message(payload: &[u8]) -> Outgoing<'_> {
    Outgoing { header: &[], payload, immediate: None }
}

/// Bytes that depend on the seed and on their position.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "takes the lowest byte")]
pub fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(97) ^ (at >> 8)) as u8).collect()
}

/// Sends a message; calls `progress` while there is no room.
///
/// # Panics
/// If the message is refused for another reason, or after [`PATIENCE`].
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

/// Polls a device until it has nothing to do and is asleep. There must be no event.
///
/// # Panics
/// If there is an event, or after [`PATIENCE`].
pub fn fall_asleep<D: Device>(device: &mut D) {
    let start = Instant::now();
    while !device.arm(&[]) {
        assert!(poll(device).is_none());
        assert!(start.elapsed() < PATIENCE, "it always has something to do");
    }
}

/// Sleeps until the device has something to do. `false` if it has nothing to do for `limit`.
///
/// # Panics
/// If its descriptor is none.
pub fn sleep<D: EventDescriptor>(device: &D, limit: Duration) -> bool {
    let fd = device.event_descriptor();
    let limit = Timespec::try_from(limit).unwrap();
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

/// The next event. The device sleeps until there is one.
///
/// # Panics
/// After [`PATIENCE`] without an event.
pub fn sleep_for_event<D: Device + EventDescriptor>(device: &mut D) -> Owned {
    let start = Instant::now();
    loop {
        if let Some(event) = poll(device) {
            return event;
        }
        // Arming an armed device changes nothing.
        if device.arm(&[]) && device.arm(&[]) {
            let is_awake = sleep(device, PATIENCE);
            device.disarm();
            assert!(is_awake, "nothing woke the worker");
        }
        assert!(start.elapsed() < 2 * PATIENCE, "woken for nothing");
    }
}

/// Another process, which runs a test of this test binary.
#[derive(Debug)]
pub struct Other {
    child: Child,
    /// Its standard input.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: BufReader<ChildStdout>,
}

/// The environment variable that gives a spawned process its role.
pub const ROLE: &str = "TAGMATCH_TEST_ROLE";

/// The role of this process, if it was spawned by [`Other`] or by [`again`].
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs a test of this program once more, in a process of its own that has a [`role`] and these
/// variables. Gives what that process prints.
///
/// # Panics
/// If the test fails there.
pub fn again(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--include-ignored", "--nocapture", "-q"]);
    let output = command.env(ROLE, "child").envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{variables:?}: {text}");
    text
}

impl Other {
    /// Runs the test `test` of this binary in a process of its own, with a role.
    ///
    /// # Panics
    /// If it can't be started.
    #[must_use]
    pub fn spawn(test: &str, role: &str) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), test, role)
    }

    /// Runs a test in a new pid namespace; `None` where none can be made.
    #[must_use]
    pub fn spawn_in_pid_namespace(test: &str, role: &str) -> Option<Self> {
        Self::spawn_in_namespace(&["--pid", "--fork", "--kill-child"], test, role)
    }

    /// Runs a test in a new user namespace, in which no user has a number; `None` where none can be
    /// made.
    #[must_use]
    pub fn spawn_in_user_namespace(test: &str, role: &str) -> Option<Self> {
        Self::spawn_in_namespace(&["--user"], test, role)
    }

    fn spawn_in_namespace(arguments: &[&str], test: &str, role: &str) -> Option<Self> {
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

    fn run(mut command: Command, test: &str, role: &str) -> Self {
        let mut child = command
            .args([test, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// If it has ended.
    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// The next text that it has printed with [`say`]. Other lines are skipped: the test harness
    /// prints lines, too.
    ///
    /// # Panics
    /// If it has ended.
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, text)) = line.trim_end().split_once("> ") {
                return text.to_owned();
            }
        }
    }

    /// The next text that it has printed, as an address.
    ///
    /// # Panics
    /// If the text is no address.
    pub fn hear_address(&mut self) -> Address {
        self.hear().parse().unwrap()
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    ///
    /// # Panics
    /// If that fails.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it has ended, in whatever way.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If its test has failed.
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

/// Prints a text for the process that has spawned this one, see [`Other::hear`].
///
/// # Panics
/// If standard output is closed.
#[allow(clippy::print_stdout, reason = "the process is one of a test")]
pub fn say(text: impl std::fmt::Display) {
    println!("> {text}");
    std::io::stdout().flush().unwrap();
}

/// The next line on standard input, see [`Other::say`].
///
/// # Panics
/// If standard input can't be read.
pub fn hear_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
