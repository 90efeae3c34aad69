//! The plain lists that most MPI libraries walk, to compare with.

use tagmatch::soft::{Pattern, Tag};

use super::matcher::{Matcher, SOURCE};
use crate::trace::Index;

/// No node: past the last, before the first.
const END: u32 = u32::MAX;

struct Node<K> {
    key: K,
    /// `None` while it is in no queue.
    id: Option<Index>,
    next: u32,
}

/// A singly linked list, as MPICH's queues: a search walks from the head, and what it finds is
/// unhooked there and then. Nodes come from one slab, so that they lie closer than requests do.
struct Queue<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    head: u32,
    tail: u32,
    /// Nodes looked at so far.
    walked: u64,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), head: END, tail: END, walked: 0 }
    }
}

impl<K> Queue<K> {
    fn push(&mut self, key: K, id: Index) -> u32 {
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

    /// Walks to the first node that is `wanted`; that and the one before it.
    fn find(&mut self, wanted: impl Fn(u32, &Node<K>) -> bool) -> Option<(u32, u32)> {
        let (mut before, mut at) = (END, self.head);
        while let Some(node) = self.nodes.get(at as usize) {
            self.walked += 1;
            if wanted(at, node) {
                return Some((before, at));
            }
            (before, at) = (at, node.next);
        }
        None
    }

    fn take(&mut self, wanted: impl Fn(u32, &Node<K>) -> bool) -> Option<Index> {
        let (before, at) = self.find(wanted)?;
        let node = &mut self.nodes[at as usize];
        let (id, next) = (node.id.take(), node.next);
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

/// A posted receive, as the request that its owner holds: where it was put, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Request {
    at: u32,
    recv: Index,
}

/// Two linked lists, walked from the front.
#[derive(Default)]
pub(super) struct Plain {
    posted: Queue<Pattern>,
    unexpected: Queue<Tag>,
}

impl Matcher for Plain {
    type Handle = Request;

    fn post(&mut self, pattern: &Pattern, recv: Index) -> Request {
        Request { at: self.posted.push(*pattern, recv), recv }
    }

    fn take_posted(&mut self, tag: Tag) -> Option<Index> {
        self.posted.take(|_, node| node.key.matches(tag, SOURCE))
    }

    fn cancel(&mut self, request: Request) -> bool {
        // A request knows that it is complete; only one that is not is walked to.
        self.posted.nodes[request.at as usize].id == Some(request.recv)
            && self.posted.take(|at, _| at == request.at).is_some()
    }

    fn push(&mut self, tag: Tag, msg: Index) {
        self.unexpected.push(tag, msg);
    }

    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        let (_, at) = self.unexpected.find(|_, node| pattern.matches(node.key, SOURCE))?;
        self.unexpected.nodes[at as usize].id
    }

    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        self.unexpected.take(|_, node| pattern.matches(node.key, SOURCE))
    }

    fn work(&self) -> u64 {
        self.posted.walked + self.unexpected.walked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_its_order_whoever_leaves() {
        let mut queue = Queue::default();
        let left = |queue: &Queue<u32>| {
            let (mut at, mut ids) = (queue.head, Vec::new());
            while let Some(node) = queue.nodes.get(at as usize) {
                ids.push(node.id.unwrap().0);
                at = node.next;
            }
            ids
        };
        for id in 0..5 {
            queue.push(id, Index(id));
        }
        // The first, the last, one between; each costs the nodes up to it, and nothing moves.
        for (id, walked) in [(0, 1), (4, 5), (2, 7)] {
            assert_eq!(queue.take(|_, node| node.key == id), Some(Index(id)));
            assert_eq!(queue.walked, walked);
        }
        assert_eq!(queue.take(|_, node| node.key == 9), None);
        assert_eq!((left(&queue), queue.walked), (vec![1, 3], 9));
        for id in 5..8 {
            queue.push(id, Index(id));
        }
        assert_eq!((left(&queue), queue.nodes.len()), (vec![1, 3, 5, 6, 7], 5));
        for id in [7, 6, 1, 3, 5] {
            assert_eq!(queue.take(|_, node| node.key == id), Some(Index(id)));
        }
        queue.push(8, Index(8));
        assert_eq!(left(&queue), [8]);
    }
}
