//! The rules that devices keep, however they are used: the oracle knows all messages that each
//! device has accepted, and checks all events that each reports.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tagmatch_device::{
    AccessEnd, AccessKind, Address, Buffer, Device, DownReason, EventDescriptor, ExposureId, Flush,
    PeerId, ReadError,
};
use tagmatch_testkit::device::Owned;

use crate::World;

/// A machine that is off is noticed within this time.
pub(crate) const SOON: Duration = Duration::from_secs(40);
/// Workers meet within this time, though each host of a peer is tried for up to a minute.
const MEETING_TIME: Duration = Duration::from_secs(300);
/// A machine that is switched off in the middle of a handshake is noticed when the kernel gives up.
const SEND_AGAIN_TIME: Duration = Duration::from_secs(1000);

/// A fact for which a scenario waits.
pub(crate) struct Missing {
    pub(crate) what: String,
    /// It is there within this time.
    pub(crate) within: Duration,
}

/// Whether a worker lives, and how it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It lives.
    Here,
    /// It was dropped in order.
    Left,
    /// Its process was killed: the kernel has closed its sockets.
    Killed,
    /// Its machine is off.
    Off,
}

/// A message that was accepted and hasn't arrived.
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) immediate: Option<u32>,
}

/// The messages from one worker to another.
#[derive(Default)]
pub(crate) struct Way {
    pub(crate) under_way: VecDeque<Sent>,
    pub(crate) accepted: u64,
    pub(crate) arrived: u64,
    /// So many first messages reach the receiver whatever becomes of the sender.
    pub(crate) flushed: u64,
    /// The mark of a flush that is under way, and how many messages were accepted when it began.
    pub(crate) flush: Option<(Option<u64>, u64)>,
    /// A message that was refused for want of room.
    pub(crate) waiting: Option<Sent>,
}

/// The state of another worker, as a worker knows it.
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    pub(crate) is_up: bool,
    pub(crate) down: Option<DownReason>,
}

impl Link {
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up && self.down.is_none()
    }
}

/// A read that is under way.
pub(crate) struct Read {
    pub(crate) owner: usize,
    pub(crate) expected: Vec<u8>,
    pub(crate) exposure: ExposureId,
    pub(crate) is_withdrawn: bool,
}

/// A put or a get that is under way.
pub(crate) struct RegionUse {
    pub(crate) owner: usize,
    pub(crate) key: u64,
    pub(crate) kind: AccessKind,
    /// The bytes that are put, or that are in the region.
    pub(crate) bytes: Vec<u8>,
}

/// A region for one access: its bytes are those of the access with a zero on either side.
pub(crate) struct SharedRegion {
    pub(crate) memory: Buffer,
    /// The memory as it was when the region was closed.
    pub(crate) closed: Option<Vec<u8>>,
}

/// A worker, and what is known of it.
pub(crate) struct Worker<D> {
    pub(crate) device: Option<D>,
    pub(crate) address: Address,
    pub(crate) life: Life,
    /// By the number of the other worker; its own number stands for itself.
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) ways: Vec<Way>,
    /// Its reads, by their tokens.
    pub(crate) reads: BTreeMap<u64, Read>,
    /// Its puts and gets, in their order.
    pub(crate) accesses: VecDeque<RegionUse>,
    /// Workers that this one has disconnected.
    pub(crate) disconnected: Vec<bool>,
    /// Workers to which the connection has ended because a call failed.
    broken: Vec<bool>,
    pub(crate) is_armed: bool,
}

/// All workers.
pub(crate) struct Workers<D> {
    pub(crate) all: Vec<Worker<D>>,
    pub(crate) next_token: u64,
    /// By their keys. Dropped after the devices.
    pub(crate) regions: BTreeMap<u64, SharedRegion>,
    rules: Rules,
}

/// The rules that a scenario suspends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Workers that leave don't wait for all that they have sent.
    pub(crate) is_impatient: bool,
    /// A call fails in a way that doesn't pass: a connection may end for it.
    pub(crate) may_break: bool,
    /// Workers try addresses at which nobody is.
    pub(crate) has_dead_hosts: bool,
}

impl<D: Device + EventDescriptor> Workers<D> {
    /// Workers on these devices.
    #[must_use]
    pub(crate) fn new(devices: Vec<D>, rules: Rules) -> Self {
        let count = devices.len();
        let own = || Link { peer: PeerId::ONESELF, is_up: true, down: None };
        let worker = |(at, device): (usize, D)| Worker {
            address: device.address(),
            life: Life::Here,
            links: (0..count).map(|other| (other == at).then(own)).collect(),
            device: Some(device),
            ways: (0..count).map(|_| Way::default()).collect(),
            reads: BTreeMap::new(),
            accesses: VecDeque::new(),
            disconnected: vec![false; count],
            broken: vec![false; count],
            is_armed: false,
        };
        let all = devices.into_iter().enumerate().map(worker).collect();
        Workers { all, next_token: 1, regions: BTreeMap::new(), rules }
    }

    pub(crate) fn is_here(&self, at: usize) -> bool {
        self.all[at].life == Life::Here
    }

    /// Whether the link of a worker to another one can be used.
    pub(crate) fn is_usable(&self, at: usize, other: usize) -> bool {
        self.is_here(at) && self.all[at].links[other].as_ref().is_some_and(Link::is_usable)
    }

    /// Whether two workers have ended their connection, or one of them has lost it.
    pub(crate) fn have_disconnected(&self, at: usize, other: usize) -> bool {
        let has_ended = |one: usize, other: usize| {
            self.all[one].disconnected[other] || self.all[one].broken[other]
        };
        has_ended(at, other) || has_ended(other, at)
    }

    /// The descriptors of the workers that sleep.
    pub(crate) fn sleepers(&self) -> Vec<BorrowedFd<'_>> {
        let sleeping = self.all.iter().filter(|worker| worker.is_armed);
        sleeping.filter_map(|worker| Some(worker.device.as_ref()?.event_descriptor())).collect()
    }

    /// The workers that sleep and whose descriptors are readable.
    pub(crate) fn woken(&self, world: &World) -> Vec<usize> {
        let is_woken = |worker: &Worker<D>| {
            let device = worker.device.as_ref().filter(|_| worker.is_armed);
            device.is_some_and(|device| world.is_readable(device.event_descriptor()))
        };
        (0..self.all.len()).filter(|at| is_woken(&self.all[*at])).collect()
    }

    /// Polls a worker once. `false` if there was nothing.
    pub(crate) fn poll(&mut self, at: usize) -> bool {
        let Some(device) = &mut self.all[at].device else { return false };
        match tagmatch_testkit::device::poll(device) {
            Some(event) => {
                self.take(at, event);
                true
            }
            None => false,
        }
    }

    fn number_of(&self, at: usize, peer: PeerId) -> usize {
        let device = self.all[at].device.as_ref().expect("it lives");
        let address = device.peer_address(peer).expect("the address of a peer that is reported");
        self.all.iter().position(|worker| worker.address == address).expect("a worker")
    }

    fn take(&mut self, at: usize, event: Owned) {
        match event {
            Owned::Up(peer, _) => {
                let other = self.number_of(at, peer);
                let link = self.all[at].links[other].get_or_insert(Link {
                    peer,
                    is_up: false,
                    down: None,
                });
                assert_eq!(link.peer, peer, "{at}: another number of {other}");
                assert!(!link.is_up && link.down.is_none(), "{at}: {other} is up a second time");
                link.is_up = true;
            }
            Owned::Message(peer, immediate, bytes) => {
                let other = self.number_of(at, peer);
                assert!(self.is_usable(at, other), "{at}: a message of {other}, which is not up");
                let way = &mut self.all[other].ways[at];
                let sent = way.under_way.pop_front();
                let sent = sent.unwrap_or_else(|| {
                    panic!("{at}: a message that {other} hasn't sent: {bytes:?}")
                });
                way.arrived += 1;
                let number = way.arrived;
                assert_eq!(immediate, sent.immediate, "{at}: immediate {number} of {other}");
                assert!(bytes == sent.bytes, "{at}: message {number} of {other} is another one");
            }
            Owned::ReadDone(token, into, result) => self.end_read(at, token, &into, result),
            Owned::AccessDone(end) => self.end_access(at, &end),
            Owned::Down(peer, reason) => self.note_down(at, peer, reason),
        }
    }

    fn end_read(&mut self, at: usize, token: u64, into: &Buffer, result: Result<(), ReadError>) {
        let read = self.all[at].reads.remove(&token).expect("a read that is under way");
        let owner = read.owner;
        match result {
            Ok(()) => assert!(into[..] == read.expected, "{at}: other bytes of {owner}"),
            Err(ReadError::PeerDown) => {
                let is_right = !self.is_here(owner) || self.have_disconnected(at, owner);
                assert!(
                    is_right || self.rules.may_break,
                    "{at}: a read of {owner}, which is there: it is down"
                );
            }
            Err(other) => assert!(read.is_withdrawn, "{at}: a read of {owner}: {other:?}"),
        }
        let reader = self.all[owner].links[at].as_ref().map(|link| link.peer);
        if let (Some(device), Some(reader), false) =
            (&mut self.all[owner].device, reader, read.is_withdrawn)
        {
            let back = device.withdraw(reader, read.exposure).expect("an exposed buffer");
            assert!(back[..] == read.expected, "an exposed buffer was changed");
        }
    }

    /// Accesses to one worker end in their order.
    fn end_access(&mut self, at: usize, end: &AccessEnd) {
        let owner = self.number_of(at, end.peer);
        let is_its = |access: &RegionUse| access.owner == owner;
        let place = self.all[at].accesses.iter().position(is_its);
        let access = place.and_then(|place| self.all[at].accesses.remove(place));
        let RegionUse { key, kind, bytes, .. } = access.expect("an access that is under way");
        let SharedRegion { memory, closed } = self.regions.remove(&key).expect("its region");
        let has_ended = !self.is_here(owner) || self.have_disconnected(at, owner);
        let may_fail = closed.is_some() || has_ended || self.rules.may_break;
        assert!(end.is_done || may_fail, "{at}: a {kind:?} of {owner}, which is there");
        if end.is_done {
            let inside = &memory[1..=bytes.len()];
            assert!(end.buffer[..] == bytes && inside == bytes, "{at}: other bytes of {owner}");
        }
        let beside = [memory.first(), memory.last()];
        assert_eq!(beside, [Some(&0); 2], "{at}: bytes beside those of a {kind:?}");
        let is_left_alone = closed.as_ref().is_none_or(|closed| memory[..] == closed[..]);
        assert!(is_left_alone, "{at}: {owner} has closed a region, which has changed");
        if let Some(device) = &mut self.all[owner].device {
            assert!(device.unpublish(key));
        }
    }

    fn note_down(&mut self, at: usize, peer: PeerId, reason: DownReason) {
        let other = self.number_of(at, peer);
        let is_right = !self.is_here(other) || self.have_disconnected(at, other);
        assert!(
            is_right || self.rules.may_break,
            "{at}: {other} is there, and is down: {reason:?}"
        );
        let is_fault = matches!(reason, DownReason::Bug(_) | DownReason::Misbehaved { .. });
        assert!(!is_fault, "{at}: {other} is down: {reason:?}");
        self.all[at].broken[other] |= !is_right;
        let is_own = self.all[at].disconnected[other];
        let link = self.all[at].links[other].as_mut().expect("a peer");
        assert!(link.down.is_none(), "{at}: {other} is down a second time");
        link.down = Some(reason);
        let was_up = link.is_up;
        let has_been_up = self.all[other].links[at].as_ref().is_some_and(|link| link.is_up);
        assert!(
            self.all[at].reads.values().all(|read| read.owner != other || other == at),
            "{at}: a read of {other} has not ended"
        );
        let has_access = self.all[at].accesses.iter().any(|access| access.owner == other);
        assert!(!has_access, "{at}: an access to {other} has not ended");
        let life = self.all[other].life;
        let has_left = match life {
            Life::Here => self.all[other].disconnected[at],
            Life::Left => true,
            Life::Killed | Life::Off => false,
        };
        let way = &mut self.all[other].ways[at];
        let lost = way.under_way.len();
        if is_own {
            way.under_way.clear();
        } else if has_left && at != other {
            let may_lose = self.rules.is_impatient || self.rules.may_break;
            assert!(
                lost == 0 || may_lose,
                "{at}: {lost} messages that {other} sent before it left"
            );
            way.under_way.clear();
            // A worker that leaves before it knows that it is connected tells nobody.
            if was_up && has_been_up && !may_lose {
                assert_eq!(reason, DownReason::Left, "{at}: how {other} has left");
            }
        } else {
            let [arrived, flushed] = [way.arrived, way.flushed];
            assert!(arrived >= flushed, "{at}: {flushed} of {other} flushed, {arrived} arrived");
            way.under_way.clear();
        }
    }

    /// Asks how a flush stands. `true` if it has ended.
    pub(crate) fn flush(&mut self, at: usize, other: usize) -> bool {
        let is_other_here = self.is_here(other);
        let is_ending = !is_other_here || self.have_disconnected(at, other);
        let may_break = self.rules.may_break;
        let worker = &mut self.all[at];
        let (Some(device), Some(link)) = (&mut worker.device, &worker.links[other]) else {
            return true;
        };
        let way = &mut worker.ways[other];
        let accepted = way.accepted;
        let (mark, until) = way.flush.get_or_insert((None, accepted));
        let until = *until;
        match device.flush(link.peer, mark) {
            Flush::Done => {
                way.flush = None;
                if is_other_here {
                    way.flushed = way.flushed.max(until);
                }
                true
            }
            Flush::Pending { messages } => {
                let most = usize::try_from(accepted).unwrap_or(usize::MAX).max(1);
                assert!(
                    (1..=most).contains(&messages),
                    "{at}: {messages} of {accepted} to {other}"
                );
                false
            }
            Flush::Lost { messages } => {
                let is_right = is_ending || may_break;
                assert!(is_right, "{at}: lost to {other}, which is there");
                assert!(messages > 0);
                way.flush = None;
                true
            }
        }
    }

    /// Gives the numbers of peers back that are down. What doesn't give one back yet.
    pub(crate) fn forget(&mut self) -> Option<Missing> {
        let mut missing = None;
        for (at, worker) in self.all.iter_mut().enumerate() {
            let Some(device) = &mut worker.device else { continue };
            for (other, link) in worker.links.iter_mut().enumerate() {
                let is_down = |link: &&mut Link| link.down.is_some() && other != at;
                let Some(down) = link.as_mut().filter(is_down) else { continue };
                if crate::run_as(at, || device.forget(down.peer)) {
                    *link = None;
                } else {
                    let what = format!("{at}: the last bytes to {other}, which it has left");
                    missing = Some(Missing { what, within: SOON });
                }
            }
        }
        missing
    }

    /// A fact that is still missing, though it must come if all workers that live go on for long
    /// enough.
    #[must_use]
    pub(crate) fn missing(&self) -> Option<Missing> {
        for (at, worker) in self.all.iter().enumerate() {
            if worker.life != Life::Here {
                continue;
            }
            let soon = |what: String| Some(Missing { what: format!("{at}: {what}"), within: SOON });
            if let Some(read) = worker.reads.values().next() {
                return soon(format!("the end of a read of {}", read.owner));
            }
            if let Some(access) = worker.accesses.front() {
                return soon(format!("the end of an access to {}", access.owner));
            }
            for (other, link) in worker.links.iter().enumerate() {
                let Some(link) = link else { continue };
                let ended = self.all[other].life != Life::Here || self.have_disconnected(at, other);
                let waiting = self.all[other].ways[at].under_way.len();
                if ended && link.down.is_none() {
                    let within = if link.is_up { SOON } else { SEND_AGAIN_TIME };
                    return Some(Missing { what: format!("{at}: the end of {other}"), within });
                }
                if !ended && !link.is_up {
                    let within = if self.rules.has_dead_hosts { MEETING_TIME } else { SOON };
                    let what = format!("{at}: the connection to {other}");
                    return Some(Missing { what, within });
                }
                if !ended && worker.ways[other].waiting.is_some() {
                    return soon(format!("room for a message to {other}"));
                }
                if !ended && waiting > 0 {
                    return soon(format!("{waiting} messages of {other}"));
                }
            }
        }
        None
    }
}
