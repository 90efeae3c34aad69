//! Copies of messages whose callers don't wait for their ends.

use std::collections::BTreeMap;

/// Bytes that a copy counts with, beside its message: its request and its place in a backlog.
const OVERHEAD_BYTES: u64 = 64;

/// How many bytes the copies take that wait to be sent, by the lines of their requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    by_line: BTreeMap<u32, u64>,
    bytes: u64,
}

impl Copies {
    /// Whether another copy may wait, if all together may take `bytes_max`. One may always wait, so
    /// that no message is too long for ever.
    pub(crate) fn allow(&self, length: usize, bytes_max: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(cost(length)) <= bytes_max
    }

    pub(crate) fn add(&mut self, line: u32, length: usize) {
        let before = self.by_line.insert(line, cost(length));
        self.bytes = self.bytes.saturating_add(cost(length)).saturating_sub(before.unwrap_or(0));
    }

    /// The request of this line has ended; nothing changes if it has no copy.
    pub(crate) fn remove(&mut self, line: u32) {
        self.bytes = self.bytes.saturating_sub(self.by_line.remove(&line).unwrap_or(0));
    }
}

fn cost(length: usize) -> u64 {
    OVERHEAD_BYTES.saturating_add(length as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_taken_up_to_the_bound_and_one_always() {
        let mut copies = Copies::default();
        assert!(copies.allow(1 << 40, 0), "the first, whatever its length");
        copies.add(7, 36);
        assert!(copies.allow(36, 200) && !copies.allow(37, 200) && !copies.allow(0, 0));
        copies.add(8, 36);
        assert!(!copies.allow(0, 200));
        copies.remove(3);
        assert!(!copies.allow(0, 200), "no copy of that line");
        copies.remove(7);
        assert!(copies.allow(36, 200));
        copies.remove(8);
        assert!(copies.allow(usize::MAX, 0));
    }
}
