//! How many connections one remote process or machine may have.

use std::collections::HashMap;
use std::fmt::Debug;
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

    /// For tests: the error in the counts; none in a device without a bug. `connections`: the
    /// origins of all connections that were added and have not ended, one for each.
    pub fn audit(&self, connections: impl Iterator<Item = K>) -> Option<String>
    where
        K: Debug,
    {
        let mut there: HashMap<K, u32> = HashMap::new();
        connections.for_each(|origin| *there.entry(origin).or_default() += 1);
        let counts = &self.counts;
        (there != *counts)
            .then(|| format!("quotas count these connections: {counts:?}, there are {there:?}"))
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
        assert_eq!(quota.audit([1, 2, 1, 1].into_iter()), None);
        assert!(quota.audit([1, 2, 1, 2].into_iter()).is_some(), "another one's place");
        quota.remove(&1);
        assert!(quota.has_room(&1));
        quota.add(1);
        for origin in [1, 1, 1, 2] {
            quota.remove(&origin);
        }
        assert!(quota.counts.is_empty());
    }
}
