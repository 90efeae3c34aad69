//! Each call of libibverbs fails once, while two workers meet, exchange messages, read and part.

mod scripted;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use tagmatch_device::{
    Buffer, Device, DeviceError, DownReason, Flush, PeerId, ReadError, ReadRequest, Refused,
};
use tagmatch_testkit::device::{Owned, PATIENCE, message, pattern, poll};
use tagmatch_verbs::{Verbs, VerbsConfig};

use scripted::{Card, Failure, config, counts, fail, install, objects};

/// Too long to be carried in a work request.
const LONG: usize = 2000;
/// Bytes of a read: too many for the device's own buffers.
const READ: usize = 100_000;
const TOKEN: u64 = 7;

fn settings(device: &str) -> VerbsConfig {
    config(device)
        .connect_timeout(Duration::from_millis(300))
        .keepalive(Duration::from_millis(20))
        .ack_timeout(Some(10))
        .retry_count(Some(1))
}

/// One of the workers, and what it has reported of the other one.
struct Side {
    device: Verbs,
    up: Option<PeerId>,
    down: Option<DownReason>,
    received: Vec<Vec<u8>>,
    read: Option<Result<(), ReadError>>,
}

impl Side {
    fn new(mut device: Verbs) -> Self {
        assert!(matches!(poll(&mut device), Some(Owned::Up(PeerId::ONESELF, _))));
        Side { device, up: None, down: None, received: Vec::new(), read: None }
    }

    /// Takes the next event.
    fn hear(&mut self) {
        match poll(&mut self.device) {
            None => {}
            Some(Owned::Up(peer, _)) => {
                assert!(self.up.is_none() && self.down.is_none(), "up a second time");
                self.up = Some(peer);
            }
            Some(Owned::Message(peer, None, bytes)) => {
                assert_eq!((Some(peer), self.down), (self.up, None));
                self.received.push(bytes);
            }
            Some(Owned::ReadDone(TOKEN, into, result)) => {
                assert!(result.is_err() || into[..] == pattern(1, READ), "other bytes");
                assert!(self.read.replace(result).is_none(), "a read has ended twice");
            }
            Some(Owned::Down(_, reason)) => {
                let is_no_fault =
                    !matches!(reason, DownReason::Bug(_) | DownReason::Misbehaved { .. });
                assert!(is_no_fault && self.down.is_none(), "{reason:?}");
                self.down = Some(reason);
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    /// The peer, while it is up.
    fn peer(&self) -> Option<PeerId> {
        self.up.filter(|_| self.down.is_none())
    }

    fn has_heard(&self) -> bool {
        self.up.is_some() || self.down.is_some()
    }
}

/// Polls both until something holds.
fn drive(sides: &mut [Side; 2], what: &str, is_so: impl Fn(&[Side; 2]) -> bool) {
    let start = Instant::now();
    while !is_so(sides) {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sides.iter_mut().for_each(Side::hear);
    }
}

/// Sends a message, unless the peer is down.
fn send(sides: &mut [Side; 2], from: usize, bytes: &[u8]) {
    let start = Instant::now();
    while let Some(peer) = sides[from].peer() {
        match sides[from].device.send(peer, message(bytes)) {
            Ok(()) => return,
            Err(Refused::Full | Refused::Down) => sides.iter_mut().for_each(Side::hear),
            Err(other) => panic!("{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "no room");
    }
}

/// The error names the call that has failed, or its cause.
fn assert_told(error: &DeviceError, failure: Option<Failure>) {
    let Some(Failure { call, errno, .. }) = failure else { panic!("{error}") };
    let text = error.to_string();
    let cause = std::io::Error::from_raw_os_error(errno).to_string();
    assert!(text.contains(call) || text.contains(&cause), "{cause}: {text}");
}

/// The first worker reads memory of the other one.
fn read(sides: &mut [Side; 2], failure: Option<Failure>) {
    let [a, b] = sides;
    let (Some(to_b), Some(to_a)) = (a.peer(), b.peer()) else { return };
    let exposed = b.device.expose(to_a, Buffer::from(pattern(1, READ)));
    let exposure = match exposed {
        Ok(exposure) => exposure,
        Err((_, error)) => return assert_told(&error, failure),
    };
    let into = Buffer::zeroed(READ);
    let begun =
        a.device.read(ReadRequest { peer: to_b, remote: exposure.span, into, token: TOKEN });
    match begun {
        Ok(()) => drive(sides, "a read does not end", |[a, _]| a.read.is_some()),
        Err((into, error)) => {
            let errno = failure.expect("no call has failed").errno;
            // The end of a connection may have yet to be told.
            let is_told = [ReadError::Failed { errno }, ReadError::PeerDown].contains(&error);
            assert!(is_told && into.len() == READ, "{error:?}");
        }
    }
    let [a, b] = sides;
    assert!(a.read != Some(Err(ReadError::BadSpan)), "the memory is exposed");
    assert!(b.device.withdraw(to_a, exposure.id).is_some(), "the memory comes back");
}

/// Two workers meet, exchange messages and part. What ends is told to both.
fn meet(sides: &mut [Side; 2], failure: Option<Failure>) {
    let [a, b] = sides;
    match a.device.connect(&b.device.address()) {
        Ok(_) => {}
        Err(error) => return assert_told(&error, failure),
    }
    drive(sides, "no connection and no end", |[a, b]| {
        a.down.is_some() || a.up.is_some() && b.has_heard()
    });
    let texts = [vec![1; 8], pattern(2, LONG), Vec::new()];
    for text in &texts {
        send(sides, 0, text);
        send(sides, 1, text);
    }
    drive(sides, "messages are missing", |sides| {
        let is_whole = sides.iter().all(|side| side.received.len() == texts.len());
        is_whole || sides.iter().any(|side| side.down.is_some())
    });
    for side in &*sides {
        assert!(texts.starts_with(&side.received), "{:?}", side.received);
    }
    read(sides, failure);
    let mut mark = None;
    let mut flush = Flush::Pending { messages: 1 };
    let start = Instant::now();
    while matches!(flush, Flush::Pending { .. })
        && let Some(peer) = sides[0].peer()
    {
        assert!(start.elapsed() < PATIENCE, "a flush does not end");
        flush = sides[0].device.flush(peer, &mut mark);
        sides.iter_mut().for_each(Side::hear);
    }
    if let Some(peer) = sides[1].peer() {
        sides[1].device.disconnect(peer);
    }
    drive(sides, "an end is not told", |sides| {
        sides.iter().all(|side| side.down.is_some() || side.up.is_none())
    });
    let reasons = sides.each_ref().map(|side| side.down);
    let in_order = [Some(DownReason::Left), Some(DownReason::Disconnected)];
    assert!(failure.is_some() || reasons == in_order, "{reasons:?}");
}

/// A worker whose call has failed serves others, and is connected to by them.
fn others_go_on(sides: &mut [Side; 2]) {
    for side in sides {
        for calls in [true, false] {
            let mut pair = [&mut side.device, &mut Verbs::new(settings("b")).unwrap()];
            let address = pair[usize::from(calls)].address();
            pair[usize::from(!calls)].connect(&address).unwrap();
            let start = Instant::now();
            let mut ups = Vec::new();
            while ups.len() < 2 {
                assert!(start.elapsed() < PATIENCE, "no other worker is reached");
                for (at, device) in pair.iter_mut().enumerate() {
                    match poll(*device) {
                        Some(Owned::Up(peer, _)) if peer != PeerId::ONESELF => ups.push((at, peer)),
                        Some(Owned::Down(_, DownReason::Left)) | None => {}
                        Some(Owned::Up(..)) => {}
                        Some(other) => panic!("{other:?}"),
                    }
                }
            }
        }
    }
}

/// The second worker may not have heard of the first one, which it can call now.
fn call_back(sides: &mut [Side; 2]) {
    let [a, b] = sides;
    if !b.has_heard() {
        b.device.connect(&a.device.address()).unwrap();
        drive(sides, "neither a connection nor an end", |[_, b]| b.has_heard());
    }
}

/// The calls that were made, each with its count.
fn run(failure: Option<Failure>) -> BTreeMap<&'static str, usize> {
    install(&[Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 0)]);
    fail(failure);
    let made_calls;
    match (Verbs::new(settings("a")), Verbs::new(settings("b"))) {
        (Ok(a), Ok(b)) => {
            let mut sides = [Side::new(a), Side::new(b)];
            meet(&mut sides, failure);
            made_calls = counts();
            fail(None);
            call_back(&mut sides);
            others_go_on(&mut sides);
        }
        (Err(error), _) | (_, Err(error)) => {
            assert_told(&error, failure);
            made_calls = counts();
        }
    }
    assert_eq!(objects(), 0, "objects are left");
    made_calls
}

/// A worker isn't made, or a connection ends, with an error that says what has failed. Nothing is
/// left of either, and others are served.
#[test]
fn each_call_may_fail_once() {
    let calls = run(None);
    let mut failures = 0;
    for (call, count) in calls {
        for number in (0..count).filter(|number| *number < 20 || number.is_power_of_two()) {
            let errno = if number.is_multiple_of(2) { libc::ENOMEM } else { libc::ETIMEDOUT };
            let failure = Failure { call, number, errno };
            let done = catch_unwind(|| run(Some(failure)));
            assert!(done.is_ok(), "{failure:?}");
            failures += 1;
        }
    }
    assert!(failures > 100, "{failures} failures");
}
