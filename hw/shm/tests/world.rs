//! How two workers meet over shared memory, where each call fails once (`lab/world`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use std::{fs, io};

use tagmatch_device::{Device, DownReason, PeerId};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::device::{Owned, PATIENCE, connect, message, poll, up};
use tagmatch_testkit::process::limit_descriptors;
use tagmatch_world::{Audit, Failure, Faults, Settings, World};

/// Peers that stay.
const PEERS: usize = 5;
/// Most descriptors of this process, and of each thread that has a table of its own.
const DESCRIPTORS: u64 = 112;

/// The events that a worker has reported of the other one.
#[derive(Default)]
struct Reports {
    peer: Option<PeerId>,
    down: Option<DownReason>,
    messages: usize,
}

impl Reports {
    /// Takes the next event.
    fn hear(&mut self, device: &mut Shm) {
        match poll(device) {
            None => {}
            Some(Owned::Up(peer, _)) => {
                assert!(self.peer.is_none() && self.down.is_none(), "up a second time");
                self.peer = Some(peer);
            }
            Some(Owned::Message(peer, _, bytes)) => {
                assert_eq!((Some(peer), &bytes[..]), (self.peer, &b"there"[..]));
                assert!(self.down.is_none(), "a message of a peer that is down");
                self.messages += 1;
            }
            Some(Owned::Down(_, reason)) => {
                assert!(self.down.is_none(), "down a second time");
                assert!(!matches!(reason, DownReason::Bug(_)), "{reason:?}");
                self.down = Some(reason);
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.messages == 1 || self.down.is_some()
    }
}

fn config() -> ShmConfig {
    ShmConfig::default().connect_timeout(Duration::from_secs(1))
}

/// Threads, their descriptors, and mappings of shared memory that this process has. A thread may
/// have a table of descriptors of its own.
fn held() -> [usize; 3] {
    let threads: Vec<_> = fs::read_dir("/proc/self/task").unwrap().collect();
    // A thread may end meanwhile.
    let count = |thread: &io::Result<fs::DirEntry>| {
        let path = thread.as_ref().ok()?.path().join("fd");
        Some(fs::read_dir(path).ok()?.count())
    };
    let descriptors = threads.iter().filter_map(count).sum();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:")).count();
    [threads.len(), descriptors, mappings]
}

/// Waits until the thread that watches peers has the descriptors of all that stay: on their way,
/// they are in no table.
fn wait_until_watched() {
    let start = Instant::now();
    let is_watching = |thread: io::Result<fs::DirEntry>| {
        let path = thread.ok()?.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let count = fs::read_dir(path.join("fd")).ok()?.count();
        Some(name.trim_end() == "tagmatch-ends" && count >= 2 * PEERS)
    };
    while !fs::read_dir("/proc/self/task").unwrap().filter_map(is_watching).any(|is_one| is_one) {
        assert!(start.elapsed() < PATIENCE, "no thread watches the peers");
        std::thread::yield_now();
    }
}

/// Waits until this process holds no more than before: a thread closes descriptors of peers.
fn wait_until_held(before: [usize; 3]) {
    let start = Instant::now();
    while held().iter().zip(before).any(|(now, before)| *now > before) {
        assert!(start.elapsed() < PATIENCE, "{before:?} before, {:?} left", held());
        std::thread::yield_now();
    }
}

/// Another worker meets this one, they send each other a message, and the other one leaves.
fn meet(staying: &mut Shm, calls_first: bool, failure: Option<Failure>) -> Audit {
    let may_break = failure.is_some_and(|failure| !failure.passes());
    let world = World::enter(Settings {
        seed: 1,
        has_network: false,
        faults: Faults { failure, ..Faults::default() },
        sent_max: 0,
        received_max: 0,
        acknowledgement_time: Duration::ZERO,
    });
    let mut reports = [Reports::default(), Reports::default()];
    let mut called = None;
    match Shm::new(config()).map(up) {
        Err(error) => {
            let errno = failure.expect("no call has failed").errno;
            let cause = io::Error::from_raw_os_error(errno).to_string();
            let text = error.to_string();
            assert!(text.contains(&cause) || text.contains("limit"), "{cause}: {text}");
        }
        Ok(mut coming) => {
            let begun = if calls_first {
                coming.connect(&staying.address())
            } else {
                staying.connect(&coming.address())
            };
            let is_begun = begun.is_ok();
            called = begun.as_ref().ok().copied().filter(|_| !calls_first);
            assert!(is_begun || may_break, "{begun:?}");
            let start = Instant::now();
            let mut has_sent = [false; 2];
            while is_begun && !reports.iter().all(Reports::is_done) {
                assert!(start.elapsed() < PATIENCE, "neither a message nor an end");
                for (at, device) in [&mut *staying, &mut coming].into_iter().enumerate() {
                    reports[at].hear(device);
                    if let Some(peer) = reports[at].peer
                        && !has_sent[at]
                    {
                        has_sent[at] = device.send(peer, message(b"there")).is_ok();
                    }
                }
                let is_broken = reports.iter().any(|reports| reports.down.is_some());
                assert!(!is_broken || may_break, "{:?}", reports.map(|reports| reports.down));
                // The end that has called and got nowhere tells nobody.
                if is_broken && reports.iter().any(|reports| reports.peer.is_none()) {
                    break;
                }
            }
        }
    }
    let audit = world.leave();
    let start = Instant::now();
    // A worker that has called hears how that ends, in any case.
    while (reports[0].peer.is_some() || called.is_some()) && reports[0].down.is_none() {
        assert!(start.elapsed() < PATIENCE, "the end of the other worker is not told");
        reports[0].hear(staying);
    }
    if let Some(peer) = reports[0].peer.or(called) {
        staying.forget(peer);
    }
    audit
}

/// A call that fails ends an attempt, or keeps a worker from being made, with an error that says
/// what was wrong. Nothing of it is left in a worker that stays, which meets others afterwards.
#[test]
fn each_call_of_a_meeting_may_fail_once() {
    // A worker has room for few peers, and so has a thread that watches them: it is used up soon
    // unless it is given back. With so many peers, a worker leaves the watch over them to a thread.
    limit_descriptors(DESCRIPTORS);
    let places = config().peers_max(u32::try_from(PEERS + 2).unwrap());
    let mut staying = up(Shm::new(places).unwrap());
    let mut peers: Vec<Shm> = (0..PEERS).map(|_| up(Shm::new(config()).unwrap())).collect();
    for peer in &mut peers {
        connect(&mut staying, peer);
    }
    for calls_first in [true, false] {
        // After this, the process has all that it makes only once.
        meet(&mut staying, calls_first, None);
        wait_until_watched();
        let before = held();
        let failures = meet(&mut staying, calls_first, None).failures(true);
        wait_until_held(before);
        assert!(failures.len() > 20, "{failures:?}");
        for failure in failures {
            let done = catch_unwind(AssertUnwindSafe(|| {
                meet(&mut staying, calls_first, Some(failure));
                wait_until_held(before);
            }));
            assert!(done.is_ok(), "{calls_first} {failure:?}");
        }
        meet(&mut staying, calls_first, None);
    }
}
