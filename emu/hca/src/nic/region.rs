//! Memory that programs have registered.

use std::collections::BTreeMap;

use crate::abi::access;
use crate::wqe::Segment;

/// A registered span of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) pd: u32,
    /// Where the memory is.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The address that requests use for its start.
    pub(crate) named: u64,
    pub(crate) access: u32,
}

/// The lower bits of each key: a constant, as keys of a driver that never uses them have.
const KEY_BITS: u32 = 0x11;
/// Keys that a program may have at once: `max_mr` of the device.
const REGIONS_MAX: usize = 32768;

/// The memory that a program has registered, by key.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    regions: BTreeMap<u32, Region>,
    last: u32,
}

impl Regions {
    /// The key of a new region; `None` if there are too many.
    pub(crate) fn add(&mut self, region: Region) -> Option<u32> {
        if self.regions.len() >= REGIONS_MAX {
            return None;
        }
        loop {
            self.last = (self.last + 1) & 0xff_ffff;
            let key = self.last << 8 | KEY_BITS;
            if self.last != 0 && !self.regions.contains_key(&key) {
                self.regions.insert(key, region);
                return Some(key);
            }
        }
    }

    /// Takes a region back whose removal was undone.
    pub(crate) fn restore(&mut self, key: u32, region: Region) {
        self.regions.insert(key, region);
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<Region> {
        self.regions.remove(&key)
    }

    pub(crate) fn uses(&self, pd: u32) -> bool {
        self.regions.values().any(|region| region.pd == pd)
    }

    /// Where the memory of a key is, if the key covers it and allows all of `wanted`.
    pub(crate) fn find(&self, pd: u32, key: u32, at: u64, length: u64, wanted: u32) -> Option<u64> {
        let region = self.regions.get(&key)?;
        let offset = at.checked_sub(region.named)?;
        let fits = offset.checked_add(length)? <= region.length;
        let may = region.pd == pd && region.access & wanted == wanted;
        (fits && may).then(|| region.start + offset)
    }

    /// Where `length` bytes from `offset` of a list of segments are: (address, length) each.
    /// `None`: a key doesn't allow it. Fewer bytes than asked for: the list is too short.
    pub(crate) fn locate(
        &self,
        pd: u32,
        segments: &[Segment],
        offset: u64,
        length: u64,
        wanted: u32,
    ) -> Option<Vec<(u64, usize)>> {
        let (mut skip, mut left) = (offset, length);
        let mut found = Vec::with_capacity(segments.len());
        for segment in segments {
            let whole = u64::from(segment.length);
            if skip >= whole {
                skip -= whole;
                continue;
            }
            let part = (whole - skip).min(left);
            if part == 0 {
                break;
            }
            let at = self.find(pd, segment.lkey, segment.at.checked_add(skip)?, part, wanted)?;
            found.push((at, usize::try_from(part).ok()?));
            (skip, left) = (0, left - part);
        }
        Some(found)
    }
}

/// The access that the kernel refuses: `ib_check_mr_access`.
pub(crate) fn is_valid_access(flags: u32) -> bool {
    const KNOWN: u32 = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::OPTIONAL;
    let needs_local = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
    flags & !KNOWN == 0 && (flags & needs_local == 0 || flags & access::LOCAL_WRITE != 0)
}
