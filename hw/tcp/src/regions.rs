//! The regions of this worker that peers put bytes into and get bytes from.
//!
//! A region's memory belongs to the engine. The device uses it only inside its own calls, between
//! [`Device::publish`](tagmatch_device::Device::publish) and
//! [`Device::unpublish`](tagmatch_device::Device::unpublish): the kernel copies between the socket
//! and the region during a system call, and no other process reaches the memory. So nothing has to
//! be waited for when a region is closed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;

use tagmatch_device::{Buffer, PublishedRegion, RegionPlace, Room};

use super::frame::RegionBytes;

/// The regions of this worker, by their keys.
#[derive(Debug, Default)]
pub(crate) struct PublishedRegions(BTreeMap<u64, OpenRegion>);

#[derive(Debug)]
struct OpenRegion {
    /// Refers to the memory of the engine's buffer.
    memory: Buffer,
    /// The number that peers have for the first byte.
    base: u64,
    reads: bool,
    writes: bool,
}

impl PublishedRegions {
    /// See [`Device::publish`](tagmatch_device::Device::publish).
    pub(crate) fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        let PublishedRegion { key, base, memory, reads, writes, .. } = *region;
        let writes = writes && memory.is_writable();
        let start = NonNull::new(memory.as_ptr().cast_mut());
        let Some(start) = start.filter(|_| reads || writes) else { return RegionPlace::default() };
        // SAFETY: the memory stays where it is until `unpublish`, which drops this buffer. It is
        // used inside of calls of the device, during which its owner doesn't use it: the engine
        // makes these calls, and gives nobody the memory meanwhile.
        let memory = unsafe { Buffer::from_raw(start, memory.len(), writes) };
        let base = base.unwrap_or_default();
        self.0.insert(key, OpenRegion { memory, base, reads, writes });
        RegionPlace::BY_KEY
    }

    /// See [`Device::unpublish`](tagmatch_device::Device::unpublish).
    pub(crate) fn unpublish(&mut self, key: u64) {
        self.0.remove(&key);
    }

    /// Bytes that a peer gets; `None` if it may not have all of them.
    pub(crate) fn bytes(&self, of: RegionBytes) -> Option<&[u8]> {
        let region = self.0.get(&of.key).filter(|region| region.reads)?;
        region.memory.get(region.range(of)?)
    }

    /// The place of bytes that a peer puts; `None` if it may not write all of them.
    pub(crate) fn room(&mut self, of: RegionBytes) -> Option<Room<'_>> {
        let region = self.0.get_mut(&of.key).filter(|region| region.writes)?;
        let range = region.range(of)?;
        region.memory.room()?.part(range)
    }
}

impl OpenRegion {
    /// The place of the bytes in the region.
    fn range(&self, of: RegionBytes) -> Option<Range<usize>> {
        let start = usize::try_from(of.offset.checked_sub(self.base)?).ok()?;
        Some(start..start.checked_add(usize::try_from(of.length).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_region_are_those_inside_that_its_rights_allow() {
        let memory = Buffer::from(vec![1, 2, 3, 4]);
        let mut regions = PublishedRegions::default();
        for (key, reads, writes) in [(1, true, false), (2, false, true), (3, false, false)] {
            let place = regions.publish(&PublishedRegion {
                key,
                base: None,
                memory: &memory,
                reads,
                writes,
                changes: false,
            });
            assert_eq!(place.is_none(), key == 3);
        }
        let at = |key, offset, length| RegionBytes { key, offset, length };
        assert_eq!(regions.bytes(at(1, 1, 3)), Some(&[2, 3, 4][..]));
        assert_eq!(regions.room(at(2, 1, 3)).map(|room| room.len()), Some(3));
        for (offset, length) in [(1, 4), (5, 0), (0, u64::MAX), (u64::MAX, 1), (u64::MAX, 2)] {
            assert!(regions.bytes(at(1, offset, length)).is_none(), "{offset} {length}");
            assert!(regions.room(at(2, offset, length)).is_none(), "{offset} {length}");
        }
        assert!(regions.bytes(at(2, 0, 1)).is_none() && regions.room(at(1, 0, 1)).is_none());
        regions.unpublish(1);
        assert!(regions.bytes(at(1, 0, 1)).is_none() && regions.bytes(at(3, 0, 1)).is_none());
    }

    #[test]
    fn memory_that_can_only_be_read_is_not_written() {
        let memory = Buffer::from(std::sync::Arc::<[u8]>::from(vec![0; 8]));
        let mut regions = PublishedRegions::default();
        let region = PublishedRegion {
            key: 1,
            base: None,
            memory: &memory,
            reads: false,
            writes: true,
            changes: false,
        };
        assert!(regions.publish(&region).is_none());
        assert!(regions.room(RegionBytes { key: 1, offset: 0, length: 1 }).is_none());
    }
}
