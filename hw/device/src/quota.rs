//! How many connections one remote process or machine may have.

use std::collections::HashMap;
use std::hash::Hash;

/// Limits the connections that one origin, a process or a machine, makes to a worker, so that one
/// origin can't use up the connections of all. It has an entry for each origin that has connections
/// now.
#[derive(Debug)]
pub struct Quota<K> {
    counts: HashMap<K, u32>,
    max: u32,
}

impl<K: Eq + Hash> Quota<K> {
    /// Allows `max` connections of one origin at a time.
    pub fn new(max: u32) -> Self {
        Quota { counts: HashMap::new(), max }
    }

    /// Whether an origin may have another connection.
    pub fn has_room(&self, origin: &K) -> bool {
        self.counts.get(origin).is_none_or(|count| *count < self.max)
    }

    /// Counts a new connection.
    pub fn add(&mut self, origin: K) {
        *self.counts.entry(origin).or_default() += 1;
    }

    /// How many connections are counted, of all origins.
    pub fn total(&self) -> usize {
        self.counts.values().map(|count| *count as usize).sum()
    }

    /// Counts the end of a connection that was added.
    pub fn remove(&mut self, origin: &K) {
        if let Some(count) = self.counts.get_mut(origin) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_origin_has_its_quota_and_leaves_the_rest_to_others_and_nothing_behind() {
        let mut quota = Quota::new(3);
        for _ in 0..3 {
            assert!(quota.has_room(&1));
            quota.add(1);
        }
        assert!(!quota.has_room(&1) && quota.has_room(&2));
        quota.add(2);
        quota.remove(&1);
        assert!(quota.has_room(&1));
        quota.add(1);
        for origin in [1, 1, 1, 2] {
            quota.remove(&origin);
        }
        assert!(quota.counts.is_empty());
    }
}
