//! The memory that the program has registered, and copies into it.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::engine::{Denied, Segment};

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRegion {
    pub(crate) address: usize,
    pub(crate) length: usize,
    /// Its protection domain.
    pub(crate) domain: usize,
    /// Local writes are allowed.
    pub(crate) is_writable: bool,
}

impl KeyedRegion {
    /// The address of a segment in this process, if all of it lies in this region and may be
    /// written.
    fn find(&self, segment: &Segment, domain: usize) -> Option<usize> {
        let address = usize::try_from(segment.address).ok()?;
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(segment.length as usize)?;
        let is_allowed = self.is_writable && self.domain == domain && end <= self.length;
        is_allowed.then(|| self.address.wrapping_add(offset))
    }
}

/// All regions of a device, by `lkey`.
#[derive(Debug, Default)]
pub(crate) struct Regions(RwLock<BTreeMap<u32, KeyedRegion>>);

impl Regions {
    /// Memory was registered.
    pub(crate) fn insert(&self, lkey: u32, region: KeyedRegion) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(lkey, region);
    }

    /// Removes a region. Blocks while a copy into registered memory is under way.
    pub(crate) fn remove(&self, lkey: u32) -> Option<KeyedRegion> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&lkey)
    }

    /// Copies bytes into segments, which together are at least as long. If one of the segments that
    /// would be written is not writable, nothing is written.
    ///
    /// # Safety
    /// Every region is memory that stays mapped while it is registered here, and that no Rust
    /// reference covers.
    pub(crate) unsafe fn scatter(
        &self,
        domain: usize,
        to: &[Segment],
        bytes: &[u8],
    ) -> Result<(), Denied> {
        let regions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let find = |segment: &Segment| {
            regions.get(&segment.lkey).and_then(|region| region.find(segment, domain)).ok_or(Denied)
        };
        let used = used_parts(to, bytes.len());
        for (segment, _) in used.clone() {
            find(segment)?;
        }
        for (segment, part) in used {
            let address = find(segment)?;
            let part = &bytes[part];
            // SAFETY: the target lies within a region, which can't be removed while the lock is
            // held. The program may write there at the same time, as it may while hardware does;
            // that is the program's own mistake.
            unsafe {
                let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
                std::ptr::copy(part.as_ptr(), target, part.len());
            }
        }
        Ok(())
    }
}

/// The segments that `total` bytes reach, each with the range of bytes that goes there.
fn used_parts(
    to: &[Segment],
    total: usize,
) -> impl Iterator<Item = (&Segment, std::ops::Range<usize>)> + Clone {
    to.iter().scan(0, move |at, segment| {
        let start = *at;
        *at = total.min(start + segment.length as usize);
        (start < total).then_some((segment, start..*at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Regions, Vec<u8>) {
        let mut bytes = vec![0; 64];
        let regions = Regions::default();
        let address = bytes.as_mut_ptr().expose_provenance();
        let region = KeyedRegion { address, length: 64, domain: 7, is_writable: true };
        regions.insert(1, region);
        regions.insert(2, KeyedRegion { is_writable: false, ..region });
        (regions, bytes)
    }

    fn segment(address: u64, length: u32, lkey: u32) -> Segment {
        Segment { address, length, lkey }
    }

    #[test]
    fn bytes_go_where_segments_say() {
        let (regions, bytes) = memory();
        let base = bytes.as_ptr().addr() as u64;
        let to = [segment(base, 2, 1), segment(base + 0x20, 8, 1), segment(0, 100, 9)];
        // SAFETY: the region is `bytes`, which is alive.
        unsafe { regions.scatter(7, &to, b"abcdef") }.unwrap();
        assert_eq!((&bytes[..3], &bytes[32..37]), (&b"ab\0"[..], &b"cdef\0"[..]));
    }

    #[test]
    fn nothing_is_written_outside_of_what_is_registered() {
        let (regions, bytes) = memory();
        let base = bytes.as_ptr().addr() as u64;
        for wrong in [
            segment(base - 1, 8, 1),
            segment(base + 0x39, 8, 1),
            segment(u64::MAX - 2, 8, 1),
            segment(base, 8, 2),
            segment(base, 8, 3),
        ] {
            let to = [segment(base, 4, 1), wrong];
            // SAFETY: the region is `bytes`, which is alive.
            assert_eq!(unsafe { regions.scatter(7, &to, b"abcdef") }, Err(Denied), "{wrong:?}");
        }
        let to = [segment(base, 8, 1)];
        // SAFETY: the region is `bytes`, which is alive.
        assert_eq!(unsafe { regions.scatter(8, &to, b"abcdef") }, Err(Denied));
        assert_eq!(regions.remove(1).map(|region| region.domain), Some(7));
        // SAFETY: the region is `bytes`, which is alive.
        assert_eq!(unsafe { regions.scatter(7, &to, b"abcdef") }, Err(Denied));
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
