//! At which place of a list an entry stands, without a walk to it: a Fenwick tree over all ids.

use crate::trace::Index;

/// The entries of one list. Ids are dealt in order of definition, so that they tell who came first.
pub(super) struct Ranks {
    /// At n, how many of the ids (n - (n & -n), n] are in the list, ids counted from 1.
    tree: Vec<u32>,
    len: u64,
}

impl Ranks {
    /// Of an empty list, for so many ids.
    pub(super) fn new(ids: usize) -> Self {
        Self { tree: vec![0; ids + 1], len: 0 }
    }

    pub(super) fn enter(&mut self, id: Index) {
        self.len += 1;
        self.add(id, 1);
    }

    /// An entry leaves; the place that it had.
    pub(super) fn take(&mut self, id: Index) -> u64 {
        let place = self.place(id);
        self.len -= 1;
        self.add(id, u32::MAX);
        place
    }

    /// `more` modulo 2^32, since counts go down too.
    fn add(&mut self, id: Index, more: u32) {
        let mut at = id.at() + 1;
        while let Some(count) = self.tree.get_mut(at) {
            *count = count.wrapping_add(more);
            at += at & at.wrapping_neg();
        }
    }

    /// The place of an entry, the first being 1: as many as a walk that ends there looks at.
    pub(super) fn place(&self, id: Index) -> u64 {
        let (mut at, mut place) = (id.at() + 1, 0);
        while at > 0 {
            place += u64::from(self.tree[at]);
            at -= at & at.wrapping_neg();
        }
        place
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_in_a_list() {
        let (mut ranks, mut list) = (Ranks::new(100), Vec::new());
        for id in 0..100 {
            ranks.enter(Index(id));
            list.push(id);
            if id % 3 == 2 {
                let at = usize::try_from(id).unwrap() * 7 % list.len();
                let gone = list.remove(at);
                assert_eq!(ranks.take(Index(gone)), at as u64 + 1);
            }
            for (at, id) in (1..).zip(&list) {
                assert_eq!(ranks.place(Index(*id)), at);
            }
            assert_eq!(ranks.len(), list.len() as u64);
        }
    }
}
