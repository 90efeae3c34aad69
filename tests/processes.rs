//! What the public API promises between processes, also when one of them dies by SIGKILL at any
//! stage.
//!
//! Each test starts this program again with a role in its environment. The test `role` plays that
//! role; without one it does nothing.
//!
//! With `TAGMATCH_TEST_NAMESPACE`, the other processes run in that network namespace, which is
//! another machine for all devices. The job's secret must be in the environment then.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tagmatch::shm::{ReadPolicy, ShmConfig};
use tagmatch::{Address, Config, DeviceConfig, Error, Match, Output, Peer, PeerFault, Request};
use tagmatch::{SendMode, SendOptions, WaitPolicy, Worker};
use tagmatch_testkit::process::{Signal, send_signal};

const ROLE: &str = "TAGMATCH_TEST_ROLE";
const PARENT: &str = "TAGMATCH_TEST_PARENT";
const NAMESPACE: &str = "TAGMATCH_TEST_NAMESPACE";
/// The limit on each wait: what a death holds up for longer would hang.
const PATIENCE: Duration = Duration::from_secs(20);
/// The tag of the message after which a silent process makes no more progress.
const MET: u64 = u64::MAX;
/// Messages of a process that ends as soon as they are sent.
const LAST_WORDS: u64 = 1500;
const HUGE: usize = 256 << 20;

/// Another process, and a worker here that is connected to its worker.
struct Other {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, parent: &Address) -> Self {
        Self::start_in(std::env::var(NAMESPACE).ok(), role, parent)
    }

    /// A process in a network namespace, or in that of this process.
    fn start_in(namespace: Option<String>, role: &str, parent: &Address) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let mut process = command
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(PARENT, parent.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Other { process, input, output }
    }

    /// The next line of the role's output that begins with this word.
    fn hear(&mut self, word: &str) -> String {
        for line in self.output.by_ref().lines() {
            let line = line.unwrap();
            // The test runner prints before the first line.
            if let Some(at) = line.find(&format!("@{word}")) {
                return line[at + word.len() + 1..].trim().to_string();
            }
        }
        panic!("the other process ended without saying {word}");
    }

    fn address(&mut self) -> Address {
        self.hear("address").parse().unwrap()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn finish(mut self) {
        drop(self.input);
        assert!(self.process.wait().unwrap().success());
    }
}

fn say(word: &str, rest: impl std::fmt::Display) {
    println!("@{word} {rest}");
    std::io::stdout().flush().unwrap();
}

fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_string()
}

/// Plays a role, if there is one.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let parent: Address = std::env::var(PARENT).unwrap().parse().unwrap();
    let config = match role.as_str() {
        "half" => fragmenting(),
        // The parent of a leaver may be slow.
        "leaver" => Config::default().drain_timeout(Duration::from_secs(60)),
        _ => Config::default(),
    };
    let worker = Worker::new(config).unwrap();
    say("address", worker.address());
    let parent = worker.connect(&parent).unwrap();
    match role.as_str() {
        "mute" => drop(listen()),
        "silent" => {
            worker.recv(Match::tag(MET), vec![]).wait().unwrap();
            drop(listen());
        }
        "sender" => sender(&worker, parent),
        "echo" => echo(&worker, parent),
        "flood" => flood(&worker, parent),
        "leaver" => {
            // It sends its messages and exits without waiting for anything.
            for tag in 0..LAST_WORDS {
                worker.inject(parent, tag, &vec![tag as u8; tag as usize]).unwrap();
            }
            drop(worker.send(parent, LAST_WORDS, vec![7; 1 << 20]));
        }
        "half" => half(&worker, parent),
        "asleep" => drop(worker.recv(Match::tag(1).from(parent), vec![0; 8]).wait()),
        other => panic!("no role {other}"),
    }
}

/// Sends one message of every kind and never sees them received.
fn sender(worker: &Worker, parent: Peer) {
    for tag in 0..10u64 {
        worker.send(parent, tag, vec![tag as u8; 100]).wait().unwrap();
    }
    let large: Vec<_> = (20..23u64).map(|tag| worker.send(parent, tag, vec![1; 100_000])).collect();
    let sync = worker.send_sync(parent, 30, vec![1; 10]);
    let huge = worker.send(parent, 40, vec![7; HUGE]);
    // A last message tells it, too: when that arrives, all earlier ones have arrived.
    worker.send(parent, 50, vec![0; 1]).wait().unwrap();
    say("sent", "");
    while worker.peer_fault(parent).unwrap().is_none() {
        worker.progress();
    }
    drop((large, sync, huge));
}

/// Sends everything back, until a message of one byte.
fn echo(worker: &Worker, parent: Peer) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let received = match worker.recv(Match::any().from(parent), buffer).wait() {
            Ok(received) => received,
            Err(_) => return,
        };
        let length = received.data().len();
        if length == 1 {
            return;
        }
        let tag = received.status.tag;
        let reply = received.data().to_vec();
        buffer = received.buffer.into_vec();
        if worker.send(parent, tag, reply).wait().is_err() {
            return;
        }
    }
}

/// Sends and receives all sizes in all modes, as fast as it can.
fn flood(worker: &Worker, parent: Peer) {
    let modes = [SendMode::Standard, SendMode::Synchronous, SendMode::Delivered];
    let mut sends = std::collections::VecDeque::new();
    let mut receives = std::collections::VecDeque::new();
    for i in 0usize.. {
        let size = [0, 8, 100, 5000, 20_000, 300_000][i % 6];
        let options = SendOptions::default().mode(modes[i % 3]).immediate(None);
        sends.push_back(worker.send_with(parent, (i % 4) as u64, vec![1; size], options));
        receives.push_back(worker.recv(Match::any(), vec![0; 300_000]));
        while sends.len() > 20 || receives.len() > 20 {
            worker.progress();
            if worker.peer_fault(parent).unwrap().is_some() {
                return;
            }
            sends.retain_mut(|send| send.test().is_none());
            receives.retain_mut(|receive| receive.test().is_none());
        }
    }
}

const HALF: u64 = 60;
const HALF_LENGTH: usize = 64 << 10;

/// A worker that copies sends messages in fragments, however quick a read would be.
fn fragmenting() -> Config {
    let shm = ShmConfig::default().read(ReadPolicy::Copied);
    let device = DeviceConfig::Shm(shm);
    Config::default().device(device).fragmented_max(HALF_LENGTH)
}

/// Sends a message that doesn't fit into the ring of its receiver.
fn half(worker: &Worker, parent: Peer) {
    worker.recv(Match::tag(HALF).from(parent), vec![]).wait().unwrap();
    let _message = worker.send(parent, HALF, vec![7; HALF_LENGTH]);
    assert_eq!((worker.unsent().len(), worker.counters().rendezvous_sent), (1, 0));
    say("half", "");
    drop(listen());
}

/// The request must end, with success or with an error.
fn ends<T: Output>(request: Request<T>) -> Result<T, Error> {
    let start = Instant::now();
    let result = request.wait();
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
    Ok(result?)
}

fn is_down<T>(result: Result<T, Error>, who: Peer) {
    match result {
        Err(Error::PeerDown { peer, .. }) => assert_eq!(peer, who),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("succeeded with a dead peer"),
    }
}

/// A worker and another process that is playing `role`, connected and known to be alive.
fn with_role(role: &str) -> (Worker, Other, Peer) {
    let worker = Worker::new(Config::default()).unwrap();
    let mut other = Other::start(role, &worker.address());
    let peer = worker.connect(&other.address()).unwrap();
    if role == "silent" {
        worker.send_sync(peer, MET, vec![]).wait().unwrap();
    }
    (worker, other, peer)
}

#[test]
fn two_processes_exchange_every_size() {
    let (worker, other, peer) = with_role("echo");
    for round in 0..3usize {
        for size in [0, 2, 8, 41, 8192, 8193, 70_000, 1 << 20] {
            let message: Vec<u8> = (0..size).map(|i| (i * 31 + round) as u8).collect();
            let receive = worker.recv(Match::tag(size as u64).from(peer), vec![0; 1 << 20]);
            worker.send(peer, size as u64, message.clone()).wait().unwrap();
            assert_eq!(receive.wait().unwrap().data(), message);
        }
    }
    worker.send(peer, 0, vec![0; 1]).wait().unwrap();
    other.finish();
}

#[test]
fn a_process_killed_before_it_was_met_fails_what_depends_on_it() {
    for connect_first in [true, false] {
        let worker = Worker::new(Config::default()).unwrap();
        let mut other = Other::start("mute", &worker.address());
        let address = other.address();
        let early = connect_first.then(|| worker.connect(&address).unwrap());
        let early = early.map(|peer| worker.send(peer, 1, vec![0; 8]));
        for _ in 0..100_000 {
            worker.progress();
        }
        other.kill();
        let peer = worker.connect(&address).unwrap();
        if let Some(send) = early {
            is_down(ends(send), peer);
        }
        is_down(ends(worker.send(peer, 1, vec![0; 8])), peer);
        is_down(ends(worker.recv(Match::any().from(peer), vec![0; 8])), peer);
    }
}

#[test]
fn a_killed_sender_leaves_what_was_complete_and_nothing_else() {
    let (worker, mut other, peer) = with_role("sender");
    let any = worker.recv(Match::tag(99), vec![0; 8]);
    worker.recv(Match::tag(50), vec![0; 1]).wait().unwrap();
    let held = worker.mprobe(Match::tag(21)).unwrap().unwrap();
    let named = worker.recv(Match::tag(98).from(peer), vec![0; 8]);
    // Kill it in the middle of the huge message, which takes at least 60 ms: 4 GB/s at most.
    let reading = worker.recv(Match::tag(40), vec![0; HUGE]);
    worker.progress();
    other.kill();
    match ends(reading) {
        Ok(received) => assert!(received.data().iter().all(|&b| b == 7)),
        Err(error) => assert!(matches!(error, Error::PeerDown { .. }), "{error}"),
    }
    is_down(ends(named), peer);
    is_down(ends(held.recv(vec![0; 100_000])), peer);
    for tag in [20, 22, 30u64] {
        assert!(
            worker.probe(Match::tag(tag)).unwrap().is_none(),
            "{tag} can't be received any more"
        );
    }
    assert!(worker.counters().lost_rendezvous >= 4);
    for tag in 0..10u64 {
        let received = ends(worker.recv(Match::tag(tag).from(peer), vec![0; 100])).unwrap();
        assert_eq!(received.data(), [tag as u8; 100]);
    }
    is_down(ends(worker.recv(Match::tag(0).from(peer), vec![0; 100])), peer);
    // Any-source receives stay, and the worker goes on.
    let me = worker.oneself();
    worker.send(me, 99, vec![5; 8]).wait().unwrap();
    assert_eq!(ends(any).unwrap().data(), [5; 8]);
}

#[test]
fn a_killed_receiver_fails_the_sends_that_wait_for_it() {
    let (worker, mut other, peer) = with_role("silent");
    let eager = ends(worker.send(peer, 1, vec![0; 8]));
    assert!(eager.is_ok(), "a standard send is complete when its buffer is free");
    let waiting = [
        worker.send(peer, 1, vec![0; 100_000]),
        worker.send_sync(peer, 1, vec![0; 8]),
        worker.send_delivered(peer, 1, vec![0; 8]),
    ];
    let flood: Vec<_> = (0..20_000).map(|_| worker.send(peer, 2, vec![0; 1000])).collect();
    other.kill();
    for send in waiting {
        is_down(ends(send), peer);
    }
    for send in flood {
        // Sends that were under way may have succeeded; none may hang.
        let _ = ends(send);
    }
}

#[test]
fn a_process_killed_in_the_middle_of_a_message_has_not_sent_it() {
    for names in [true, false] {
        let shm = ShmConfig::default().ring_bytes(16 << 10).message_max(4096);
        let config = Config::default().device(DeviceConfig::Shm(shm));
        let worker = Worker::new(config).unwrap();
        let mut other = Other::start("half", &worker.address());
        let peer = worker.connect(&other.address()).unwrap();
        let pattern = Match::tag(HALF);
        let pattern = if names { pattern.from(peer) } else { pattern };
        let receive = worker.recv(pattern, vec![0; HALF_LENGTH]);
        worker.send(peer, HALF, vec![]).wait().unwrap();
        other.hear("half");
        // Some fragments are taken; the rest was never written.
        for _ in 0..1000 {
            worker.progress();
        }
        assert!(worker.probe(Match::any()).unwrap().is_none());
        other.kill();
        if names {
            assert!(matches!(ends(receive), Err(Error::PeerDown { peer: who, .. }) if who == peer));
        } else {
            let start = Instant::now();
            while worker.peer_fault(peer).unwrap().is_none() {
                worker.progress();
                assert!(start.elapsed() < PATIENCE);
            }
            worker.inject(worker.oneself(), HALF, b"another").unwrap();
            assert_eq!(ends(receive).unwrap().data(), b"another");
        }
        assert_eq!(worker.counters().unexpected_bytes_now, 0);
    }
}

#[test]
fn a_process_that_ends_in_order_leaves_all_its_messages_and_is_no_fault() {
    let worker = Worker::new(Config::default()).unwrap();
    for _ in 0..3 {
        let mut other = Other::start("leaver", &worker.address());
        let peer = worker.connect(&other.address()).unwrap();
        for tag in 0..LAST_WORDS {
            let received = worker.recv(Match::tag(tag).from(peer), vec![0; 2000]).wait().unwrap();
            assert_eq!(received.data(), vec![tag as u8; tag as usize]);
        }
        let last = worker.recv(Match::tag(LAST_WORDS).from(peer), vec![0; 1 << 20]).wait();
        assert_eq!(last.unwrap().data(), vec![7; 1 << 20]);
        assert!(worker.recv(Match::any().from(peer), vec![0; 8]).wait().is_err());
        assert_eq!(worker.peer_fault(peer).unwrap(), Some(PeerFault::Left));
        other.finish();
    }
    assert_eq!(worker.counters().peer_faults, 0);
    let mut other = Other::start("silent", &worker.address());
    let peer = worker.connect(&other.address()).unwrap();
    worker.send_sync(peer, MET, vec![]).wait().unwrap();
    other.kill();
    is_down(ends(worker.recv(Match::any().from(peer), vec![0; 8])), peer);
    assert_eq!(worker.peer_fault(peer).unwrap(), Some(PeerFault::Gone));
    assert_eq!(worker.counters().peer_faults, 1);
}

#[test]
fn a_death_leaves_the_other_peers_of_this_machine_and_of_others_alone() {
    for dies_elsewhere in [true, false] {
        let worker = Worker::new(Config::default()).unwrap();
        let mut near = Other::start_in(None, "echo", &worker.address());
        let mut far = Other::start("echo", &worker.address());
        let to_near = worker.connect(&near.address()).unwrap();
        let to_far = worker.connect(&far.address()).unwrap();
        let echo = |peer, size: usize| {
            let receive = worker.recv(Match::tag(7).from(peer), vec![0; size]);
            worker.send(peer, 7, vec![3; size]).wait()?;
            receive.wait()
        };
        for size in [2, 100_000] {
            assert!(echo(to_near, size).is_ok() && echo(to_far, size).is_ok());
        }
        let (mut dead, to_dead, alive, to_alive) = if dies_elsewhere {
            (far, to_far, near, to_near)
        } else {
            (near, to_near, far, to_far)
        };
        let lost = worker.recv(Match::tag(8).from(to_dead), vec![0; 8]);
        dead.kill();
        is_down(ends(lost), to_dead);
        for size in [2, 100_000] {
            assert_eq!(echo(to_alive, size).unwrap().data(), vec![3; size]);
        }
        assert_eq!(worker.peer_fault(to_alive).unwrap(), None);
        worker.send(to_alive, 0, vec![0; 1]).wait().unwrap();
        alive.finish();
    }
}

#[test]
fn a_worker_can_be_dropped_while_its_peer_is_stopped_or_killed() {
    for (signal, drain_timeout) in
        [(Signal::STOP, Duration::from_millis(300)), (Signal::KILL, Duration::MAX)]
    {
        let worker = Worker::new(Config::default().drain_timeout(drain_timeout)).unwrap();
        let mut other = Other::start("silent", &worker.address());
        let peer = worker.connect(&other.address()).unwrap();
        worker.send_sync(peer, MET, vec![]).wait().unwrap();
        for _ in 0..20_000 {
            worker.inject(peer, 1, &[0; 1000]).unwrap();
        }
        drop(worker.send(peer, 2, vec![0; 1 << 20]));
        let pid = other.process.id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            send_signal(pid, signal);
        });
        drop(worker);
        killer.join().unwrap();
        other.kill();
    }
}

#[test]
fn a_sleeping_worker_is_woken_by_a_death() {
    let wait = WaitPolicy::SLEEP;
    let worker = Worker::new(Config::default().wait(wait)).unwrap();
    let mut other = Other::start("silent", &worker.address());
    let peer = worker.connect(&other.address()).unwrap();
    worker.send_sync(peer, MET, vec![]).wait().unwrap();
    let receive = worker.recv(Match::any().from(peer), vec![0; 8]);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.kill();
        Instant::now()
    });
    is_down(receive.wait().map_err(Error::from), peer);
    let killed = killer.join().unwrap();
    assert!(killed.elapsed() < PATIENCE, "{:?}", killed.elapsed());
}

#[test]
fn a_death_at_any_moment_of_a_flood_hangs_nobody() {
    let seed = std::process::id() as usize;
    for round in 0..25 {
        let (worker, mut other, peer) = with_role("flood");
        let life = Duration::from_micros(((seed + round * 7919) % 30_000) as u64);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(life);
            other.kill();
            Instant::now()
        });
        flood(&worker, peer);
        let killed = killer.join().unwrap();
        assert!(killed.elapsed() < PATIENCE, "noticed after {:?}", killed.elapsed());
        assert!(worker.peer_fault(peer).unwrap().is_some());
        // The dead peer has left nothing behind, and this worker goes on as before.
        let me = worker.oneself();
        let send = worker.send(me, 777, vec![3; 100_000]);
        assert_eq!(ends(worker.recv(Match::tag(777), vec![0; 100_000])).unwrap().data()[0], 3);
        ends(send).unwrap();
    }
}

#[test]
fn a_process_whose_parent_dies_ends_too() {
    // Here a child sleeps while it waits for a worker, and that worker goes away.
    let (worker, mut other, peer) = with_role("asleep");
    worker.send(peer, 9, vec![0; 1]).wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(worker);
    let start = Instant::now();
    while other.process.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "the child still waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_outlives_a_crash() {
    let shared = || {
        let names = std::fs::read_dir("/dev/shm").unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("tagmatch")).count()
    };
    let sockets = |name: &str| {
        let text = std::fs::read_to_string("/proc/net/unix").unwrap();
        text.lines().filter(|line| line.contains(name)).count()
    };
    let before = shared();
    let (worker, mut other, peer) = with_role("echo");
    worker.send(peer, 5, vec![0; 5]).wait().unwrap();
    worker.recv(Match::tag(5), vec![0; 5]).wait().unwrap();
    let address = worker.peer_address(peer).unwrap().to_string();
    // The socket's name holds the random part of the address.
    let line = std::fs::read_to_string("/proc/net/unix").unwrap();
    let name = line
        .lines()
        .filter_map(|l| l.rsplit('-').next())
        .find(|n| n.len() >= 14 && n.bytes().all(|b| b.is_ascii_hexdigit()) && address.contains(n));
    let name = name.expect("a socket of the other worker").to_string();
    assert!(sockets(&name) > 0);
    other.kill();
    is_down(ends(worker.recv(Match::any().from(peer), vec![0; 1])), peer);
    assert_eq!((shared(), sockets(&name)), (before, 0));
}

#[test]
fn four_busy_processes_share_two_cores() {
    for wait in [WaitPolicy::default(), WaitPolicy::default().spin(0)] {
        let worker = Worker::new(Config::default().wait(wait)).unwrap();
        let mut others: Vec<_> = (0..4).map(|_| Other::start("echo", &worker.address())).collect();
        let peers: Vec<_> =
            others.iter_mut().map(|other| worker.connect(&other.address()).unwrap()).collect();
        let start = Instant::now();
        for round in 0..500u64 {
            let receives: Vec<_> = peers
                .iter()
                .map(|&peer| {
                    worker.inject(peer, round, &round.to_le_bytes()).unwrap();
                    worker.recv(Match::tag(round).from(peer), vec![0; 8])
                })
                .collect();
            for receive in receives {
                assert_eq!(receive.wait().unwrap().data(), round.to_le_bytes());
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "starved");
        for (other, &peer) in others.into_iter().zip(&peers) {
            worker.send(peer, 0, vec![0; 1]).wait().unwrap();
            other.finish();
        }
    }
}

#[test]
fn a_told_process_answers() {
    // Checks the harness: a role that listens ends when it is told to.
    let (_worker, mut other, _) = with_role("silent");
    other.tell("end");
    other.finish();
}
