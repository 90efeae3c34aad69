//! The position of an entry in a list, without a walk to it: a Fenwick tree over all ids.

use crate::format::Id;

/// The entries of one list. A trace's ids are numbered in order of definition, which is the order
/// in which entries are added to a list. So the position of an entry is how many entries have an id
/// that is not greater.
#[derive(Debug)]
pub(crate) struct Positions {
    /// At n: how many of the ids in (n - (n & -n), n] are in the list, ids being counted from 1.
    tree: Vec<u32>,
    len: u64,
}

impl Positions {
    /// An empty list, for ids below `ids`.
    pub(crate) fn new(ids: usize) -> Self {
        Self { tree: vec![0; ids + 1], len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn add(&mut self, id: Id) {
        self.len += 1;
        self.change(id, 1);
    }

    /// Removes an entry; gives the position that it had.
    pub(crate) fn remove(&mut self, id: Id) -> u64 {
        let position = self.position(id);
        self.len -= 1;
        self.change(id, u32::MAX);
        position
    }

    /// The position of an entry, from 1 on: how many entries a walk from the front looks at.
    pub(crate) fn position(&self, id: Id) -> u64 {
        let mut at = id.index() + 1;
        let mut position = 0;
        while at > 0 {
            position += u64::from(self.tree[at]);
            at -= at & at.wrapping_neg();
        }
        position
    }

    /// Adds `by` modulo 2^32 to the count of an id, so that `u32::MAX` subtracts 1.
    fn change(&mut self, id: Id, by: u32) {
        let mut at = id.index() + 1;
        while let Some(count) = self.tree.get_mut(at) {
            *count = count.wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_in_a_list() {
        let mut positions = Positions::new(100);
        let mut list = Vec::new();
        for id in 0..100 {
            positions.add(Id(id));
            list.push(id);
            if id % 3 == 2 {
                let at = usize::try_from(id).unwrap() * 7 % list.len();
                let gone = list.remove(at);
                assert_eq!(positions.remove(Id(gone)), at as u64 + 1);
            }
            for (at, id) in (1..).zip(&list) {
                assert_eq!(positions.position(Id(*id)), at);
            }
            assert_eq!(positions.len(), list.len() as u64);
        }
    }
}
