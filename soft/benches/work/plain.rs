//! A plain list, as MPICH has it: doubly linked, searched from the front, tag compared under the mask.
//! Nodes come from a pool, last in, first out, as requests do there.

use tagmatch_soft::{Pattern, SourceId, Tag};

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    tag: u64,
    mask: u64,
    source: u32,
    source_mask: u32,
    value: u32,
    prev: u32,
    next: u32,
}

/// One list; a message is an entry with every bit in its mask.
pub(crate) struct PlainList {
    nodes: Vec<Node>,
    first: u32,
    last: u32,
    free: u32,
}

impl PlainList {
    pub(crate) fn new() -> Self {
        PlainList { nodes: Vec::new(), first: NIL, last: NIL, free: NIL }
    }

    #[inline]
    pub(crate) fn post(&mut self, pattern: &Pattern, value: u32) {
        let (source, source_mask) = pattern.source().map_or((0, 0), |source| (source.0, u32::MAX));
        self.append(pattern.tag().0, pattern.mask().0, source, source_mask, value);
    }

    #[inline]
    pub(crate) fn push(&mut self, tag: Tag, source: SourceId, value: u32) {
        self.append(tag.0, u64::MAX, source.0, u32::MAX, value);
    }

    /// The first posted receive that accepts the message; it leaves.
    #[inline]
    pub(crate) fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<u32> {
        self.take_first(|node| {
            (node.tag ^ tag.0) & node.mask == 0 && (node.source ^ source.0) & node.source_mask == 0
        })
    }

    /// The first message that the receive accepts; it leaves.
    #[inline]
    pub(crate) fn take(&mut self, pattern: &Pattern) -> Option<u32> {
        let (wanted, mask) = (pattern.tag().0, pattern.mask().0);
        let (source, source_mask) = pattern.source().map_or((0, 0), |source| (source.0, u32::MAX));
        self.take_first(|node| {
            (node.tag ^ wanted) & mask == 0 && (node.source ^ source) & source_mask == 0
        })
    }

    #[inline]
    fn append(&mut self, tag: u64, mask: u64, source: u32, source_mask: u32, value: u32) {
        let prev = self.last;
        let node = Node { tag, mask, source, source_mask, value, prev, next: NIL };
        let mut at = self.free;
        if let Some(free) = self.nodes.get_mut(at as usize) {
            self.free = free.next;
            *free = node;
        } else {
            at = u32::try_from(self.nodes.len()).expect("small");
            self.nodes.push(node);
        }
        match self.nodes.get_mut(prev as usize) {
            Some(last) => last.next = at,
            None => self.first = at,
        }
        self.last = at;
    }

    #[inline]
    fn take_first(&mut self, accepts: impl Fn(&Node) -> bool) -> Option<u32> {
        let mut at = self.first;
        while let Some(&node) = self.nodes.get(at as usize) {
            if accepts(&node) {
                match self.nodes.get_mut(node.prev as usize) {
                    Some(prev) => prev.next = node.next,
                    None => self.first = node.next,
                }
                match self.nodes.get_mut(node.next as usize) {
                    Some(next) => next.prev = node.prev,
                    None => self.last = node.prev,
                }
                self.nodes[at as usize].next = self.free;
                self.free = at;
                return Some(node.value);
            }
            at = node.next;
        }
        None
    }
}
