//! What the tests of the libfabric device share.

use std::time::Instant;

use tagmatch_device::matching::{
    CompleteWhen, MatchingDevice, MatchingEvent, OperationError, TagPattern, TagSend,
};
use tagmatch_device::{Buffer, PeerId};
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_testkit::device::{PATIENCE, loopback_of};

pub fn config(provider: &str) -> OfiConfig {
    let listen = vec![loopback_of(provider)];
    OfiConfig { provider: Some(provider.into()), listen, ..OfiConfig::default() }
}

pub fn providers() -> Vec<String> {
    let named = std::env::var("TAGMATCH_TEST_OFI");
    let named = named.as_deref().unwrap_or("tcp;ofi_rxm");
    named.split_whitespace().map(Into::into).collect()
}

pub fn ofi(provider: &str) -> Ofi {
    let mut ofi = Ofi::new(config(provider)).unwrap();
    let first = ofi.poll();
    assert!(matches!(first, Some(MatchingEvent::PeerUp { peer: PeerId::ONESELF })), "{first:?}");
    ofi
}

/// The first event of one of the devices that is wanted; other events are dropped.
pub fn wait<T>(
    devices: &mut [&mut Ofi],
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

/// Two devices of this process, connected; with each one's number for the other.
pub fn pair(provider: &str) -> (Ofi, Ofi, PeerId, PeerId) {
    let (mut a, mut b) = (ofi(provider), ofi(provider));
    let to_b = a.connect(&b.address()).unwrap();
    let (mut is_up, mut to_a) = (false, None);
    wait(&mut [&mut a, &mut b], "a connection", |index, event| {
        match (index, event) {
            (0, MatchingEvent::PeerUp { peer }) if peer == to_b => is_up = true,
            (1, MatchingEvent::PeerUp { peer }) => to_a = Some(peer),
            (_, other) => panic!("{other:?}"),
        }
        (is_up && to_a.is_some()).then_some(())
    });
    (a, b, to_b, to_a.unwrap())
}

/// A pattern that takes exactly this tag.
pub fn exactly(tag: u64, source: Option<PeerId>) -> TagPattern {
    TagPattern { tag, mask: !0, source }
}

/// A send whose token is its tag, complete when it is matched.
pub fn synchronous(peer: PeerId, tag: u64, buffer: Buffer) -> TagSend {
    let complete_when = CompleteWhen::Matched;
    TagSend { peer, tag, immediate: None, buffer, complete_when, token: tag }
}

/// The same, complete when the buffer can be used again.
pub fn send_of(peer: PeerId, tag: u64, bytes: &[u8]) -> TagSend {
    let buffer = Buffer::from(bytes.to_vec());
    TagSend { complete_when: CompleteWhen::Reusable, ..synchronous(peer, tag, buffer) }
}

/// How the receive with this token ended, and its buffer.
pub fn received(
    event: MatchingEvent,
    wanted: u64,
) -> Option<(Result<u64, OperationError>, Buffer)> {
    match event {
        MatchingEvent::Received { token, buffer, result } if token == wanted => {
            Some((result.map(|envelope| envelope.length), buffer))
        }
        _ => None,
    }
}
