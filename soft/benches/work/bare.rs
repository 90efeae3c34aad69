//! A bare hash: exact keys only, no wildcards, no order, no handles. It shows the least that a
//! lookup costs.

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    key: u64,
    value: u64,
    next: u32,
    _pad: [u32; 3],
}

const _: () = assert!(size_of::<Node>() == 32);

/// A chained table with as many heads as keys. Nodes are in one array; the node freed last is used
/// next.
pub(crate) struct BareHash {
    heads: Vec<u32>,
    nodes: Vec<Node>,
    free: u32,
    shift: u32,
}

impl BareHash {
    pub(crate) fn new(depth: usize) -> Self {
        let heads = depth.next_power_of_two().max(2);
        let heads = vec![NIL; heads];
        let shift = 64 - heads.len().trailing_zeros();
        BareHash { heads, nodes: Vec::new(), free: NIL, shift }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift).expect("a head")
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: u64, value: u64) {
        let home = self.home(key);
        let node = Node { key, value, next: self.heads[home], _pad: [0; 3] };
        let at = self.free;
        if let Some(free) = self.nodes.get_mut(at as usize) {
            self.free = free.next;
            *free = node;
            self.heads[home] = at;
        } else {
            self.heads[home] = u32::try_from(self.nodes.len()).expect("small");
            self.nodes.push(node);
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, key: u64) -> Option<u64> {
        let home = self.home(key);
        let mut before = NIL;
        let mut at = self.heads[home];
        while let Some(&node) = self.nodes.get(at as usize) {
            if node.key == key {
                match self.nodes.get_mut(before as usize) {
                    Some(before) => before.next = node.next,
                    None => self.heads[home] = node.next,
                }
                self.nodes[at as usize].next = self.free;
                self.free = at;
                return Some(node.value);
            }
            before = at;
            at = node.next;
        }
        None
    }
}
