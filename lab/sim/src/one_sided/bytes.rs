//! Which values the bytes of a region may have.
//!
//! A write takes effect at some moment between its begin and its end. One write comes before
//! another one if both are of one worker, which began it first, or if it has ended before the other
//! began. A look finds in each byte the value of a write that has begun and that no write replaces
//! for certain: one that comes after it and before the look.

/// A set of values of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    fn add(&mut self, value: u8) {
        self.0[usize::from(value / 64)] |= 1 << (value % 64);
    }

    pub(super) fn contains(&self, value: u8) -> bool {
        self.0[usize::from(value / 64)] >> (value % 64) & 1 == 1
    }
}

/// A write of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteStamp {
    /// The number of the operation. Later operations have higher numbers.
    pub(super) id: u64,
    /// The worker that writes by operations. `None`: the region's owner writes by itself.
    pub(super) by: Option<usize>,
    pub(super) began: u64,
    pub(super) ended: Option<u64>,
}

impl WriteStamp {
    fn is_before(&self, later: &WriteStamp) -> bool {
        let is_in_order = self.by.is_some() && self.by == later.by && self.id < later.id;
        is_in_order || self.ended.is_some_and(|ended| ended < later.began)
    }
}

/// All bytes of a region, each with the writes that a look may find there.
#[derive(Clone, Debug)]
pub(super) struct WrittenBytes(Vec<Vec<(WriteStamp, u8)>>);

impl WrittenBytes {
    /// Bytes that are 0.
    pub(super) fn new(length: usize) -> Self {
        let first = WriteStamp { id: 0, by: None, began: 0, ended: Some(0) };
        WrittenBytes(vec![vec![(first, 0)]; length])
    }

    pub(super) fn begin(&mut self, at: usize, values: &[u8], stamp: WriteStamp) {
        for (cell, value) in self.0[at..].iter_mut().zip(values) {
            cell.push((stamp, *value));
            if stamp.ended.is_some() {
                cell.retain(|(other, _)| !other.is_before(&stamp));
            }
        }
    }

    /// A write is known to have taken effect.
    pub(super) fn end(&mut self, (at, length): (usize, usize), id: u64, now: u64) {
        for cell in &mut self.0[at..at + length] {
            let Some((stamp, _)) = cell.iter_mut().find(|(stamp, _)| stamp.id == id) else {
                continue;
            };
            stamp.ended.get_or_insert(now);
            let stamp = *stamp;
            cell.retain(|(other, _)| !other.is_before(&stamp));
        }
    }

    /// The values that a look may find that begins now: a get of this worker, or of nobody, a look
    /// of the owner.
    pub(super) fn values(
        &self,
        (at, length): (usize, usize),
        by: Option<usize>,
    ) -> impl Iterator<Item = ByteSet> {
        self.0[at..at + length].iter().map(move |cell| {
            let mut set = ByteSet::default();
            for (stamp, value) in cell {
                let replaces = |(later, _): &(WriteStamp, u8)| {
                    by.is_some() && later.by == by && stamp.is_before(later)
                };
                if !cell.iter().any(replaces) {
                    set.add(*value);
                }
            }
            set
        })
    }
}

/// The bytes that a get may give, also by writes that begin while it is under way.
#[derive(Clone, Debug)]
pub(super) struct GetValues {
    pub(super) at: usize,
    sets: Vec<ByteSet>,
}

impl GetValues {
    pub(super) fn new(bytes: &WrittenBytes, (at, length): (usize, usize), by: usize) -> Self {
        GetValues { at, sets: bytes.values((at, length), Some(by)).collect() }
    }

    /// A write begins that the get may see.
    pub(super) fn may_see(&mut self, at: usize, values: &[u8]) {
        for (place, value) in (at..).zip(values) {
            let set = place.checked_sub(self.at).and_then(|index| self.sets.get_mut(index));
            if let Some(set) = set {
                set.add(*value);
            }
        }
    }

    /// The first byte that has a value which it may not have.
    pub(super) fn wrong(&self, got: &[u8]) -> Option<usize> {
        wrong_byte(self.sets.iter().copied(), got).map(|index| self.at + index)
    }
}

/// The first byte that is none of its set.
pub(super) fn wrong_byte(sets: impl Iterator<Item = ByteSet>, found: &[u8]) -> Option<usize> {
    found.iter().zip(sets).position(|(value, set)| !set.contains(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(id: u64, by: usize, began: u64) -> WriteStamp {
        WriteStamp { id, by: Some(by), began, ended: None }
    }

    fn finds(bytes: &WrittenBytes, by: Option<usize>, value: u8) -> bool {
        wrong_byte(bytes.values((0, 1), by), &[value]).is_none()
    }

    #[test]
    fn writes_of_two_workers_that_overlap_leave_either_value() {
        let mut bytes = WrittenBytes::new(1);
        bytes.begin(0, &[10], stamp(1, 1, 1));
        bytes.begin(0, &[20], stamp(2, 2, 2));
        assert!([0, 10, 20].iter().all(|value| finds(&bytes, None, *value)));
        bytes.end((0, 1), 2, 3);
        assert!(!finds(&bytes, None, 0) && finds(&bytes, None, 10) && finds(&bytes, None, 20));
        bytes.begin(0, &[30], stamp(3, 2, 4));
        bytes.end((0, 1), 3, 5);
        assert!(finds(&bytes, None, 10), "the first has not ended");
        assert!(!finds(&bytes, None, 20) && finds(&bytes, None, 30));
    }

    #[test]
    fn a_get_sees_the_puts_of_its_worker_and_perhaps_later_ones() {
        let mut bytes = WrittenBytes::new(1);
        bytes.begin(0, &[10], stamp(1, 1, 1));
        bytes.begin(0, &[20], stamp(2, 1, 2));
        assert!(finds(&bytes, Some(2), 10) && !finds(&bytes, Some(1), 10));
        let mut get = GetValues::new(&bytes, (0, 1), 1);
        assert_eq!((get.wrong(&[10]), get.wrong(&[30])), (Some(0), Some(0)));
        get.may_see(0, &[30]);
        assert_eq!((get.wrong(&[20]), get.wrong(&[30])), (None, None));
    }

    #[test]
    fn what_the_owner_writes_replaces_what_has_ended_alone() {
        let mut bytes = WrittenBytes::new(1);
        bytes.begin(0, &[10], stamp(1, 1, 1));
        bytes.begin(0, &[20], WriteStamp { id: 2, by: None, began: 2, ended: Some(2) });
        assert!(!finds(&bytes, None, 0) && finds(&bytes, None, 10) && finds(&bytes, None, 20));
    }
}
