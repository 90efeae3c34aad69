//! What the promises share.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use tagmatch_device::matching::{
    CompleteWhen, Envelope, MatchingDevice, MatchingEvent, OperationError, TagPattern, TagSend,
};
use tagmatch_device::{Buffer, DownReason, PeerId};

use super::fixture::{Fixture, Settings};
use crate::device::PATIENCE;
pub use crate::device::pattern as bytes_of;

/// The error number of a connection that nobody takes.
pub const REFUSED: i32 = Errno::CONNREFUSED.raw_os_error();

/// A device whose being up to itself has been reported.
pub fn up_with<F: Fixture>(way: &str, settings: Settings) -> F::Device {
    let mut device = F::make(way, settings);
    let first = device.poll();
    assert!(matches!(first, Some(MatchingEvent::PeerUp { peer: PeerId::ONESELF })), "{first:?}");
    device
}

/// The same, with the usual settings.
pub fn up<F: Fixture>(way: &str) -> F::Device {
    up_with::<F>(way, Settings::default())
}

/// The first event of one of the devices that is wanted; other events are dropped.
pub fn wait<D: MatchingDevice, T>(
    devices: &mut [&mut D],
    what: &str,
    mut wanted: impl FnMut(usize, MatchingEvent) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        for (index, device) in devices.iter_mut().enumerate() {
            if let Some(event) = device.poll()
                && let Some(found) = wanted(index, event)
            {
                return found;
            }
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

/// Polls both devices until `b` finds a message with this tag.
pub fn arrives<D: MatchingDevice>(a: &mut D, b: &mut D, tag: u64) {
    wait_until(&mut [a, b], "the message", |both| both[1].probe(exactly(tag)).unwrap().is_some());
}

/// Polls all devices, which have nothing to tell but ends of sends, until `is_there`.
pub fn wait_until<D: MatchingDevice>(
    devices: &mut [&mut D],
    what: &str,
    is_there: impl Fn(&mut [&mut D]) -> bool,
) {
    let start = Instant::now();
    while !is_there(devices) {
        for device in devices.iter_mut() {
            match device.poll() {
                None | Some(MatchingEvent::Sent { result: Ok(()), .. }) => {}
                Some(other) => panic!("{other:?}"),
            }
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

/// Connects two devices of this process; gives each one's number for the other.
pub fn connect<D: MatchingDevice>(a: &mut D, b: &mut D) -> (PeerId, PeerId) {
    let to_b = a.connect(&b.address()).unwrap();
    let mut is_up = false;
    let mut to_a = None;
    wait(&mut [a, b], "a connection", |index, event| {
        match (index, event) {
            (0, MatchingEvent::PeerUp { peer }) if peer == to_b => is_up = true,
            (1, MatchingEvent::PeerUp { peer }) => to_a = Some(peer),
            (_, other) => panic!("{other:?}"),
        }
        (is_up && to_a.is_some()).then_some(())
    });
    (to_b, to_a.unwrap())
}

/// Two connected devices of this process, with the number of each on the other.
pub fn pair<F: Fixture>(way: &str) -> (F::Device, F::Device, PeerId, PeerId) {
    let mut a = up::<F>(way);
    let mut b = up::<F>(way);
    let (to_b, to_a) = connect(&mut a, &mut b);
    (a, b, to_b, to_a)
}

/// What a receive matches.
pub fn pattern_of(tag: u64, mask: u64, source: Option<PeerId>) -> TagPattern {
    TagPattern { tag, mask, source }
}

/// A pattern that takes exactly this tag, from anyone.
pub fn exactly(tag: u64) -> TagPattern {
    pattern_of(tag, !0, None)
}

/// A send whose token is its tag.
pub fn send_of(peer: PeerId, tag: u64, bytes: &[u8]) -> TagSend {
    let buffer = Buffer::from(bytes.to_vec());
    let complete_when = CompleteWhen::Reusable;
    TagSend { peer, tag, immediate: None, buffer, complete_when, token: tag }
}

/// The same, complete when it is matched.
pub fn synchronous(peer: PeerId, tag: u64, bytes: &[u8]) -> TagSend {
    TagSend { complete_when: CompleteWhen::Matched, ..send_of(peer, tag, bytes) }
}

/// Posts a receive.
pub fn receive<D: MatchingDevice>(device: &mut D, pattern: TagPattern, length: usize, token: u64) {
    device.receive(pattern, Buffer::zeroed(length), token).unwrap();
}

/// How a receive ended.
pub type End = Result<Envelope, OperationError>;

/// How the receive with this token ended, and its buffer.
pub fn end_of(event: MatchingEvent, wanted: u64) -> Option<(End, Vec<u8>)> {
    match event {
        MatchingEvent::Received { token, buffer, result } if token == wanted => {
            Some((result, buffer.into_vec()))
        }
        _ => None,
    }
}

/// The facts of the message that the receive with this token got, and its bytes.
pub fn message_of(event: MatchingEvent, wanted: u64) -> Option<(Envelope, Vec<u8>)> {
    let (result, mut bytes) = end_of(event, wanted)?;
    let envelope = result.unwrap();
    bytes.truncate(usize::try_from(envelope.length).unwrap());
    Some((envelope, bytes))
}

/// How the send with this token ended.
pub fn sent_of(event: MatchingEvent, wanted: u64) -> Option<Result<(), OperationError>> {
    match event {
        MatchingEvent::Sent { token, result, .. } if token == wanted => Some(result),
        _ => None,
    }
}

/// The message of `b`'s receive, while both are polled.
pub fn expect<D: MatchingDevice>(a: &mut D, b: &mut D, token: u64) -> (Envelope, Vec<u8>) {
    wait(
        &mut [a, b],
        "a message",
        |index, event| {
            if index == 1 { message_of(event, token) } else { None }
        },
    )
}

/// Why the peer of the device with this index went down, while all are polled.
pub fn down<D: MatchingDevice>(devices: &mut [&mut D], of: usize, wanted: PeerId) -> DownReason {
    wait(devices, "a peer's end", |index, event| match event {
        MatchingEvent::PeerDown { peer, reason } if index == of && peer == wanted => Some(reason),
        _ => None,
    })
}

/// Polls for so long; there is nothing to tell.
pub fn poll_for<D: MatchingDevice>(device: &mut D, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        let event = device.poll();
        assert!(event.is_none(), "{event:?}");
    }
}

/// Polls for a while; events are dropped.
pub fn drain<D: MatchingDevice>(device: &mut D) {
    let mut idle = 0;
    while idle < 300 {
        idle = if device.poll().is_none() { idle + 1 } else { 0 };
    }
}
