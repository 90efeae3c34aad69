//! Memory that programs have registered.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::abi::access;
use crate::wqe::{RemoteAddress, Segment};

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

    pub(crate) fn get(&self, key: u32) -> Option<Region> {
        self.regions.get(&key).copied()
    }

    /// Puts a region in the place of the one with a key, or takes one back whose removal was
    /// undone.
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
    pub(crate) fn find(&self, pd: u32, of: RemoteAddress, length: u64, wanted: u32) -> Option<u64> {
        let region = self.regions.get(&of.rkey)?;
        let offset = of.at.checked_sub(region.named)?;
        let fits = offset.checked_add(length)? <= region.length;
        let may = region.pd == pd && region.access & wanted == wanted;
        (fits && may).then(|| region.start + offset)
    }

    /// Where these bytes of a list of segments are: (address, length) each. `None`: a key doesn't
    /// allow it. Fewer bytes than asked for: the list is too short.
    pub(crate) fn locate(
        &self,
        pd: u32,
        segments: &[Segment],
        bytes: Range<u64>,
        wanted: u32,
    ) -> Option<Vec<(u64, usize)>> {
        let mut skip = bytes.start;
        let mut left = bytes.end.saturating_sub(bytes.start);
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
            let of = RemoteAddress { at: segment.at.checked_add(skip)?, rkey: segment.lkey };
            found.push((self.find(pd, of, part, wanted)?, usize::try_from(part).ok()?));
            skip = 0;
            left -= part;
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;

    fn region(pd: u32) -> Region {
        Region { pd, start: 1000, length: 50, named: 7000, access: ALL }
    }

    #[test]
    fn keys_are_given_again_late_and_none_twice_at_a_time() {
        let mut regions = Regions::default();
        assert_eq!([(); 3].map(|()| regions.add(region(1)).unwrap()), [0x111, 0x211, 0x311]);
        regions.remove(0x211).unwrap();
        assert_eq!(regions.add(region(1)), Some(0x411));
        // The last one; the number 0 is left out, and the number 1 is in use.
        regions.last = 0xff_fffe;
        let keys = [(); 3].map(|()| regions.add(region(1)).unwrap());
        assert_eq!(keys, [0xffff_ff11, 0x211, 0x511]);
    }

    #[test]
    fn a_domain_is_in_use_while_it_has_a_region() {
        let mut regions = Regions::default();
        let key = regions.add(region(1)).unwrap();
        let start = RemoteAddress { at: 7000, rkey: key };
        assert!(regions.uses(1) && !regions.uses(2));
        let removed = regions.remove(key).unwrap();
        assert!(!regions.uses(1) && regions.find(1, start, 1, 0).is_none());
        regions.restore(key, removed);
        assert!(regions.uses(1) && regions.find(1, start, 1, 0).is_some());
    }

    #[test]
    fn a_key_covers_its_bytes_for_what_it_allows() {
        let mut regions = Regions::default();
        let key = regions.add(region(1)).unwrap();
        let of = |at| RemoteAddress { at, rkey: key };
        let find = |at, length, wanted| regions.find(1, of(at), length, wanted);
        assert_eq!(find(7000, 50, ALL), Some(1000));
        assert_eq!((find(7010, 40, 0), find(7050, 0, 0)), (Some(1010), Some(1050)));
        assert_eq!(
            (find(7010, 41, 0), find(6999, 1, 0), find(7001, u64::MAX, 0)),
            (None, None, None)
        );
        assert_eq!(find(7000, 1, access::REMOTE_READ), Some(1000));
        assert_eq!(find(7000, 1, access::REMOTE_READ | access::REMOTE_ATOMIC), None);
        assert_eq!(regions.find(2, of(7000), 1, 0), None, "of another domain");
        assert_eq!(regions.find(1, RemoteAddress { rkey: key ^ 0x100, ..of(7000) }, 1, 0), None);
    }

    #[test]
    fn a_part_of_a_list_lies_in_its_segments() {
        let mut regions = Regions::default();
        let lkey = regions.add(region(1)).unwrap();
        let segment = |at, length| Segment { at, length, lkey };
        let list = [segment(7000, 10), segment(7030, 0), segment(7020, 20)];
        let locate = |start, length| regions.locate(1, &list, start..start + length, 0);
        assert_eq!(locate(0, 10), Some(vec![(1000, 10)]));
        assert_eq!(locate(4, 10), Some(vec![(1004, 6), (1020, 4)]));
        assert_eq!(locate(10, 5), Some(vec![(1020, 5)]));
        assert_eq!(locate(13, 99), Some(vec![(1023, 17)]), "the list is too short");
        assert_eq!((locate(0, 0), locate(30, 1)), (Some(vec![]), Some(vec![])));
        let wrong = [segment(7000, 10), segment(7045, 10)];
        assert_eq!(regions.locate(1, &wrong, 0..11, 0), Some(vec![(1000, 10), (1045, 1)]));
        assert_eq!(regions.locate(1, &wrong, 0..16, 0), None);
    }

    #[test]
    fn who_lets_others_write_has_to_write_himself() {
        use access::*;
        for flags in [0, REMOTE_READ, MW_BIND, OPTIONAL, LOCAL_WRITE, 15] {
            assert!(is_valid_access(flags), "{flags:#x}");
        }
        for flags in [REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_READ | REMOTE_ATOMIC, 1 << 5, 1 << 30] {
            assert!(!is_valid_access(flags), "{flags:#x}");
        }
    }
}
