//! How two devices meet, where each call fails once (`lab/world`).

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};
use std::{fs, io};

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{Address, DeviceError, DownReason, PeerId, Shortage};
use tagmatch_fabric::handshake::{
    Hello, Layout, Meeting, MeetingConfig, MeetingHost, MeetingKind, Refusal, break_with, look,
    start_connect, tend_leaving,
};
use tagmatch_world::{Audit, Call, Failure, Faults, Settings, World};

const KIND: MeetingKind = MeetingKind {
    magic: *b"TMte",
    socket_prefix: "tagmatch-test-",
    protocol: b"tagmatch test",
    another_address: "not the address of a test",
    another_layout: "it carries tags in another way",
    worker_min: 9,
};
/// The limit on each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A device that has nothing but its meeting.
struct Host {
    meeting: Meeting<()>,
    events: VecDeque<MatchingEvent>,
    /// The host that the rest is about.
    other: Option<Address>,
    up: Option<PeerId>,
    down: Option<DownReason>,
}

impl Host {
    fn new() -> Result<Self, DeviceError> {
        let meeting = Meeting::open(
            MeetingConfig {
                kind: &KIND,
                layout: Layout { used: 0xff, source: 0xf, own_source: None, number_max: 0xf },
                worker: vec![1; 9],
                secret: None,
                listen: &[Ipv4Addr::LOCALHOST.into()],
                connect_timeout: Duration::from_secs(2),
                keepalive: Duration::from_secs(1),
            },
            (),
        )?;
        Ok(Host { meeting, events: VecDeque::new(), other: None, up: None, down: None })
    }

    /// Takes the next event.
    fn hear(&mut self) {
        look(self, Instant::now());
        tend_leaving(self, false);
        let is_of_other = |peer| {
            let entry = self.meeting.peers.find(peer);
            entry.map(|entry| entry.address) == self.other
        };
        match self.events.pop_front() {
            None => {}
            Some(MatchingEvent::PeerUp { peer } | MatchingEvent::PeerDown { peer, .. })
                if !is_of_other(peer) => {}
            Some(MatchingEvent::PeerUp { peer }) => {
                assert!(self.up.is_none() && self.down.is_none(), "up a second time");
                self.up = Some(peer);
            }
            Some(MatchingEvent::PeerDown { reason, .. }) => {
                let is_no_fault =
                    !matches!(reason, DownReason::Bug(_) | DownReason::Misbehaved { .. });
                assert!(is_no_fault && self.down.is_none(), "{reason:?}");
                self.down = Some(reason);
            }
            Some(_) => panic!("an event of a message"),
        }
    }
}

impl MeetingHost for Host {
    type Link = ();

    fn meeting(&self) -> &Meeting<()> {
        &self.meeting
    }

    fn meeting_mut(&mut self) -> &mut Meeting<()> {
        &mut self.meeting
    }

    fn adopt(&mut self, _: PeerId, hello: &Hello) -> Result<(), Refusal> {
        assert_eq!(hello.worker, [1; 9]);
        Ok(())
    }

    fn launch_waiting(&mut self, _: PeerId) {}

    fn tell(&mut self, event: MatchingEvent) {
        self.events.push_back(event);
    }

    fn is_drained(&mut self, _: PeerId) -> bool {
        true
    }

    fn cut_off(&mut self, _: PeerId) {}

    fn is_let_go(&mut self, _: PeerId) -> bool {
        true
    }
}

fn drive(hosts: &mut [Host; 2], what: &str, is_so: impl Fn(&[Host; 2]) -> bool) {
    let start = Instant::now();
    while !is_so(hosts) {
        assert!(start.elapsed() < PATIENCE, "{what}");
        hosts.iter_mut().for_each(Host::hear);
    }
    // What was taken is given back, whatever has failed.
    for host in hosts {
        assert_eq!(host.meeting.audit(), Vec::<String>::new(), "{what}");
    }
}

/// Whether the reason names an error.
fn names(reason: DownReason, errno: i32) -> bool {
    reason == DownReason::Unreachable { errno }
        || Shortage::of_errno(errno).is_some_and(|lack| reason == DownReason::Shortage(lack))
}

/// One host connects to the other one, or both do at once, and one disconnects. What ends is told
/// to both.
fn meet(hosts: &mut [Host; 2], both_call: bool, failure: Option<Failure>) {
    let addresses = hosts.each_ref().map(|host| host.meeting.address);
    (hosts[0].other, hosts[1].other) = (Some(addresses[1]), Some(addresses[0]));
    start_connect(&mut hosts[0], &addresses[1]).unwrap();
    if both_call {
        start_connect(&mut hosts[1], &addresses[0]).unwrap();
    }
    drive(hosts, "neither a connection nor an end", |[a, b]| {
        let has_b_heard = b.up.is_some() || b.down.is_some();
        a.down.is_some() && !both_call || (a.down.is_some() || a.up.is_some()) && has_b_heard
    });
    if let Some(reason) = hosts[0].down
        && hosts[0].up.is_none()
    {
        let failure = failure.expect("no call has failed");
        // The other end may have taken the first connection, and refuses a second one.
        let is_told = names(reason, failure.errno)
            || names(reason, libc::ECONNRESET)
            || reason == DownReason::Gone;
        assert!(!failure.passes() && is_told, "{reason:?}");
    }
    if let (Some(peer), None) = (hosts[0].up, hosts[0].down) {
        break_with(&mut hosts[0], peer, DownReason::Disconnected);
    }
    drive(hosts, "an end is not told", |hosts| {
        hosts.iter().all(|host| host.down.is_some() || host.up.is_none())
    });
    let reasons = hosts.each_ref().map(|host| host.down);
    let is_in_order = reasons == [Some(DownReason::Disconnected), Some(DownReason::Left)];
    assert!(is_in_order || failure.is_some(), "{reasons:?}");
}

/// Both are reached by others.
fn others_are_served(hosts: [Host; 2]) {
    for host in hosts {
        let address = host.meeting.address;
        let mut pair = [Host::new().unwrap(), Host { up: None, down: None, ..host }];
        pair[0].other = Some(address);
        pair[1].other = Some(pair[0].meeting.address);
        start_connect(&mut pair[0], &address).unwrap();
        drive(&mut pair, "another is not served", |pair| pair.iter().all(|host| host.up.is_some()));
    }
}

fn run(both_call: bool, failure: Option<Failure>) -> Audit {
    let world = World::enter(Settings {
        seed: 1,
        has_network: false,
        faults: Faults { failure, ..Faults::default() },
        sent_max: 0,
        received_max: 0,
        acknowledgement_time: Duration::ZERO,
    });
    match (Host::new(), Host::new()) {
        (Ok(a), Ok(b)) => {
            let mut hosts = [a, b];
            meet(&mut hosts, both_call, failure);
            let audit = world.leave();
            others_are_served(hosts);
            audit
        }
        (Err(error), _) | (_, Err(error)) => {
            let errno = failure.expect("no call has failed").errno;
            let cause = io::Error::from_raw_os_error(errno).to_string();
            let text = error.to_string();
            assert!(text.contains(&cause) || text.contains("limit"), "{cause}: {text}");
            world.leave()
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// An error that passes changes nothing. Another one keeps a device from being made, ends an
/// attempt, or makes it go another way. Nothing is left open, and others are served.
#[test]
fn each_call_of_a_meeting_may_fail_once() {
    run(false, None);
    let before = descriptors();
    // Most looks find nothing.
    let max = |call| if call == Call::EpollWait { 10 } else { 40 };
    let is_tried = |failure: &Failure| failure.number < max(failure.call);
    for both_call in [false, true] {
        let failures = run(both_call, None).failures(true);
        assert!(failures.len() > 50, "{failures:?}");
        for failure in failures.into_iter().filter(is_tried) {
            let done = catch_unwind(|| run(both_call, Some(failure)));
            assert!(done.is_ok(), "{both_call} {failure:?}");
            let start = Instant::now();
            while descriptors() > before {
                assert!(start.elapsed() < PATIENCE, "{failure:?}: descriptors are left");
            }
        }
    }
}
