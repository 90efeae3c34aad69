//! Plain linked lists, as most MPI libraries have them: what tagmatch's lists are compared with.
//!
//! This is a yardstick, which is timed, so it is as fast as such lists are. The reference that
//! tests compare results with is the oracle of `tagmatch-testkit`, which is as plain as possible
//! instead.

use tagmatch_soft::{Pattern, SourceId, Tag};

use crate::format::Id;
use crate::matcher::Matcher;

/// In place of a node: behind the last one, or before the first one.
const END: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K> {
    key: K,
    /// `None` while the node is not in the queue.
    id: Option<Id>,
    next: u32,
}

/// A singly linked list as in MPICH: a search walks from the head and unlinks the entry that it
/// finds. All nodes are in one array, so they lie closer together than the requests of a library
/// do.
#[derive(Debug)]
pub struct PlainQueue<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    head: u32,
    tail: u32,
    entries_walked: u64,
}

impl<K> Default for PlainQueue<K> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), head: END, tail: END, entries_walked: 0 }
    }
}

impl<K> PlainQueue<K> {
    /// Adds an entry behind all others; gives its node.
    #[inline]
    pub fn push(&mut self, key: K, id: Id) -> u32 {
        let node = Node { key, id: Some(id), next: END };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("ids are fewer than 2^32")
            }
        };
        match self.nodes.get_mut(self.tail as usize) {
            Some(tail) => tail.next = at,
            None => self.head = at,
        }
        self.tail = at;
        at
    }

    /// Removes the first entry whose key is `wanted`.
    #[inline]
    pub fn take(&mut self, wanted: impl Fn(&K) -> bool) -> Option<Id> {
        let (before, at) = self.search(|_, node| wanted(&node.key))?;
        self.unlink(before, at)
    }

    /// Walks to the first node that is `wanted`; gives the node before it, too.
    #[inline]
    fn search(&mut self, wanted: impl Fn(u32, &Node<K>) -> bool) -> Option<(u32, u32)> {
        let mut before = END;
        let mut at = self.head;
        while let Some(node) = self.nodes.get(at as usize) {
            self.entries_walked += 1;
            if wanted(at, node) {
                return Some((before, at));
            }
            (before, at) = (at, node.next);
        }
        None
    }

    #[inline]
    fn unlink(&mut self, before: u32, at: u32) -> Option<Id> {
        let node = &mut self.nodes[at as usize];
        let id = node.id.take();
        let next = node.next;
        match self.nodes.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        if next == END {
            self.tail = before;
        }
        self.free.push(at);
        id
    }
}

/// A posted receive, as the request that a program holds: its node, and which receive it is, since
/// the node may belong to a later receive by now.
#[derive(Clone, Copy, Debug)]
pub struct PlainHandle {
    at: u32,
    recv: Id,
}

/// A posted list and an unexpected list, searched from the front.
#[derive(Debug, Default)]
pub struct PlainLists {
    posted: PlainQueue<Pattern>,
    unexpected: PlainQueue<(Tag, SourceId)>,
}

impl Matcher for PlainLists {
    type Handle = PlainHandle;

    #[inline]
    fn post(&mut self, pattern: &Pattern, recv: Id) -> PlainHandle {
        PlainHandle { at: self.posted.push(*pattern, recv), recv }
    }

    #[inline]
    fn take_posted(&mut self, tag: Tag, source: SourceId) -> Option<Id> {
        self.posted.take(|pattern| pattern.matches(tag, source))
    }

    /// A request knows whether it is complete, so only a posted receive is walked to.
    #[inline]
    fn cancel(&mut self, PlainHandle { at, recv }: PlainHandle) -> bool {
        if self.posted.nodes[at as usize].id != Some(recv) {
            return false;
        }
        let found = self.posted.search(|node, _| node == at);
        found.is_some_and(|(before, at)| self.posted.unlink(before, at).is_some())
    }

    #[inline]
    fn push(&mut self, tag: Tag, source: SourceId, msg: Id) {
        self.unexpected.push((tag, source), msg);
    }

    #[inline]
    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Id> {
        let (_, at) = self.unexpected.search(|_, node| pattern.matches(node.key.0, node.key.1))?;
        self.unexpected.nodes[at as usize].id
    }

    #[inline]
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Id> {
        self.unexpected.take(|&(tag, source)| pattern.matches(tag, source))
    }

    /// No library searches for this, so it isn't counted as a search.
    fn remove_unexpected(&mut self, msg: Id) -> bool {
        let walked = self.unexpected.entries_walked;
        let found = self.unexpected.search(|_, node| node.id == Some(msg));
        self.unexpected.entries_walked = walked;
        found.is_some_and(|(before, at)| self.unexpected.unlink(before, at).is_some())
    }

    #[inline]
    fn entries_walked(&self) -> u64 {
        self.posted.entries_walked + self.unexpected.entries_walked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_its_order_whichever_entry_leaves() {
        let mut queue = PlainQueue::default();
        let left = |queue: &PlainQueue<u32>| {
            let mut at = queue.head;
            let mut ids = Vec::new();
            while let Some(node) = queue.nodes.get(at as usize) {
                ids.push(node.id.unwrap().0);
                at = node.next;
            }
            ids
        };
        for id in 0..5 {
            queue.push(id, Id(id));
        }
        // The first, the last and one between. Each costs the nodes up to it, and no other moves.
        for (id, walked) in [(0, 1), (4, 5), (2, 7)] {
            assert_eq!(queue.take(|key| *key == id), Some(Id(id)));
            assert_eq!(queue.entries_walked, walked);
        }
        assert_eq!(queue.take(|key| *key == 9), None);
        assert_eq!((left(&queue), queue.entries_walked), (vec![1, 3], 9));
        for id in 5..8 {
            queue.push(id, Id(id));
        }
        assert_eq!((left(&queue), queue.nodes.len()), (vec![1, 3, 5, 6, 7], 5));
        for id in [7, 6, 1, 3, 5] {
            assert_eq!(queue.take(|key| *key == id), Some(Id(id)));
        }
        queue.push(8, Id(8));
        assert_eq!(left(&queue), [8]);
    }
}
