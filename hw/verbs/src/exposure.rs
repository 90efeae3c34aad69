//! The exposed buffers, which peers may read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Buffer, DeviceError, Exposure, ExposureId, PeerId, RemoteSpan};
use tagmatch_rdma_core_sys as sys;

use super::object::Pd;
use super::region::Region;

/// An error of memory registration.
pub(super) fn registration_error(source: std::io::Error) -> DeviceError {
    let hint = match source.raw_os_error() {
        Some(libc::ENOMEM) => "; raise the limit on locked memory (ulimit -l unlimited)",
        _ => "",
    };
    DeviceError::System { call: "ibv_reg_mr", source, hint }
}

/// The key of buffers that aren't registered. Where a NIC gives out this key as well, the buffer is
/// read by messages though it need not be.
pub(super) const UNREGISTERED_KEY: u32 = u32::MAX;

/// What becomes of a buffer that can't be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unregistered {
    /// The peer's device asks for its bytes by messages.
    Copied,
    /// It isn't exposed: the peer's NIC would read it by itself.
    Refused,
}

/// The peer to which a buffer is exposed.
#[derive(Clone, Copy)]
pub(super) struct ExposedTo {
    /// The peer that may ask for the bytes by messages. NICs don't look at it.
    pub(super) reader: PeerId,
    /// A place for a FIN is kept until the buffer is withdrawn.
    pub(super) awaits_fin: bool,
}

struct ExposedBuffer {
    // Drop order: the region is unregistered before the buffer is freed. `None` for an empty
    // buffer, and one that can't be registered.
    region: Option<Region>,
    buffer: Buffer,
    to: ExposedTo,
    key: u32,
}

/// The table of exposed buffers. A buffer in the user's own memory is registered for exactly as
/// long as it is exposed (plus the linger time, if one is set). After that, its key is of no use to
/// a peer.
#[derive(Default)]
pub(super) struct Exposures {
    entries: Slab<ExposedBuffer>,
    /// Remote key, first byte and entry of each buffer that isn't empty. Several buffers may have
    /// one key: parts of memory that stays registered.
    spans: BTreeSet<(u32, u64, ExposureId)>,
    /// Regions of withdrawn buffers that linger, and since when; the oldest first.
    withdrawn: VecDeque<(Instant, Region)>,
}

impl Exposures {
    /// Registers a buffer for peers to read.
    pub(super) fn expose(
        &mut self,
        pd: &Arc<Pd>,
        buffer: Buffer,
        to: ExposedTo,
        unregistered: Unregistered,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        let Some(key) = self.entries.vacant(Key::SHORT_MAX) else {
            return Err((buffer, DeviceError::too_many_exposed()));
        };
        let region = if buffer.is_empty() {
            None
        } else {
            let length = buffer.len();
            let access = sys::IBV_ACCESS_REMOTE_READ;
            // SAFETY: the buffer is kept, and nobody writes it, while it is exposed. A region that
            // lingers keeps its own lock on the pages, and only peers read through it.
            match unsafe { Region::new(pd, &buffer, length, access) } {
                Ok(region) => Some(region),
                Err(_) if unregistered == Unregistered::Copied => None,
                Err(source) => return Err((buffer, registration_error(source))),
            }
        };
        let remote_key = region.as_ref().map_or(UNREGISTERED_KEY, |region| region.rkey);
        let span = RemoteSpan::of(&buffer, remote_key);
        let id = ExposureId(key.to_short());
        if !buffer.is_empty() {
            self.spans.insert((span.key, span.address, id));
        }
        self.entries.fill(key, ExposedBuffer { region, buffer, to, key: span.key });
        Ok(Exposure { id, span })
    }

    /// Returns an exposed buffer. It is unregistered; or, with `lingers`, stays registered until
    /// [`Exposures::unregister_expired`]. Also returns whether a place for a FIN was kept for it.
    pub(super) fn withdraw(&mut self, id: ExposureId, lingers: bool) -> Option<(Buffer, bool)> {
        let key = self.entries.key_of_short(id.0)?;
        let ExposedBuffer { region, buffer, key, to } = self.entries.remove(key)?;
        self.spans.remove(&(key, RemoteSpan::of(&buffer, key).address, id));
        if let Some(region) = region
            && lingers
        {
            // The pages stay locked, whoever owns the buffer, and are only read through the region.
            self.withdrawn.push_back((Instant::now(), region));
        }
        Some((buffer, to.awaits_fin))
    }

    /// Unregisters the regions that have lingered for the linger time.
    pub(super) fn unregister_expired(&mut self, now: Instant, linger: Duration) {
        while let Some((since, _)) = self.withdrawn.front()
            && now.duration_since(*since) >= linger
        {
            self.withdrawn.pop_front();
        }
    }

    /// When [`Exposures::unregister_expired`] has something to do next.
    pub(super) fn next_expiry(&self, linger: Duration) -> Option<Instant> {
        self.withdrawn.front().map(|(since, _)| *since + linger)
    }

    /// The bytes that a span names, if all of them are exposed to this peer.
    pub(super) fn bytes(&self, reader: PeerId, span: RemoteSpan) -> Option<&[u8]> {
        if span.length == 0 {
            return Some(&[]);
        }
        // Usually the first of these starts where the span does.
        let before = (span.key, 0, ExposureId(0))..=(span.key, span.address, ExposureId(u32::MAX));
        self.spans.range(before).rev().find_map(|(_, _, id)| {
            let key = self.entries.key_of_short(id.0)?;
            let exposed = self.entries.get(key).filter(|exposed| exposed.to.reader == reader)?;
            span.bytes_in(&exposed.buffer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_asks_by_messages_for_what_is_exposed_to_it_alone() {
        let mut exposures = Exposures::default();
        let buffer = Buffer::from(vec![1, 2, 3]);
        let span = RemoteSpan::of(&buffer, UNREGISTERED_KEY);
        let reader = PeerId(1);
        let to = ExposedTo { reader, awaits_fin: false };
        let exposed = ExposedBuffer { region: None, buffer, to, key: span.key };
        let key = exposures.entries.insert(exposed, 1).ok().unwrap();
        let id = ExposureId(key.to_short());
        exposures.spans.insert((span.key, span.address, id));
        let part = RemoteSpan { address: span.address + 1, length: 2, ..span };
        assert_eq!(exposures.bytes(reader, part), Some(&[2, 3][..]));
        assert_eq!(exposures.bytes(PeerId(2), part), None);
        assert_eq!(exposures.bytes(reader, RemoteSpan { key: 7, ..part }), None);
        assert_eq!(exposures.bytes(reader, RemoteSpan { length: 3, ..part }), None);
        assert_eq!(exposures.withdraw(id, true).unwrap().0.len(), 3);
        assert!(exposures.spans.is_empty() && exposures.bytes(reader, part).is_none());
    }

    #[test]
    fn a_region_is_unregistered_once_it_has_lingered_and_not_before() {
        let mut exposures = Exposures::default();
        let withdraw = |exposures: &mut Exposures, rkey, lingers| {
            // A region of memory that stays registered needs no device.
            let region = Some(Region::kept(rkey, rkey));
            let buffer = Buffer::zeroed(1);
            let to = ExposedTo { reader: PeerId(1), awaits_fin: false };
            let exposed = ExposedBuffer { region, buffer, to, key: rkey };
            let key = exposures.entries.insert(exposed, 1).ok().unwrap();
            assert!(exposures.withdraw(ExposureId(key.to_short()), lingers).is_some());
        };
        let linger = Duration::from_secs(1);
        withdraw(&mut exposures, 1, false);
        assert_eq!(exposures.withdrawn.len(), 0);
        withdraw(&mut exposures, 2, true);
        withdraw(&mut exposures, 3, true);
        let first = exposures.withdrawn[0].0;
        let last = exposures.withdrawn[1].0;
        exposures.unregister_expired(first, linger);
        assert_eq!(exposures.withdrawn.len(), 2);
        exposures.unregister_expired(last + linger, linger);
        assert_eq!(exposures.withdrawn.len(), 0);
        withdraw(&mut exposures, 4, true);
        let since = exposures.withdrawn[0].0;
        exposures.withdrawn.push_back((since + linger, Region::kept(5, 5)));
        exposures.unregister_expired(since + linger, linger);
        assert_eq!(exposures.withdrawn.len(), 1, "each region has its own time");
    }
}
