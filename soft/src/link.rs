//! First-in-first-out chains of entries that are stored elsewhere.
//!
//! A chain is identified by its first entry. The `prev` of the first entry is the last one, so that
//! appending needs no second word per chain. The `next` of the last entry is [`NIL`]. So an entry
//! is the first one exactly if the `next` of its `prev` is [`NIL`], and unlinking in the middle
//! doesn't read the first entry at all.

/// No entry.
pub(crate) const NIL: u32 = u32::MAX;

/// An entry's neighbours in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainLink {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl ChainLink {
    /// The link of an entry that is a chain of one.
    #[inline]
    pub(crate) const fn alone(entry: u32) -> ChainLink {
        ChainLink { prev: entry, next: NIL }
    }
}

/// The storage of the links of a chain's entries.
///
/// `prev` and `next` are read and written separately: reading both as one word right after two
/// separate writes would have to wait until both reach the cache.
pub(crate) trait Links {
    fn link(&self, entry: u32) -> &ChainLink;
    fn link_mut(&mut self, entry: u32) -> &mut ChainLink;

    #[inline]
    fn prev(&self, entry: u32) -> u32 {
        self.link(entry).prev
    }

    #[inline]
    fn next(&self, entry: u32) -> u32 {
        self.link(entry).next
    }

    #[inline]
    fn set_prev(&mut self, entry: u32, prev: u32) {
        self.link_mut(entry).prev = prev;
    }

    #[inline]
    fn set_next(&mut self, entry: u32, next: u32) {
        self.link_mut(entry).next = next;
    }
}

/// Appends `entry` to the chain that begins with `first`.
#[inline]
pub(crate) fn append(links: &mut impl Links, first: u32, entry: u32) {
    let last = links.prev(first);
    links.set_prev(entry, last);
    links.set_next(entry, NIL);
    links.set_next(last, entry);
    links.set_prev(first, entry);
}

/// Whether `entry` is the first of its chain.
#[inline]
pub(crate) fn is_first(links: &impl Links, entry: u32) -> bool {
    links.next(links.prev(entry)) == NIL
}

/// Takes out the first entry. Returns the new first one, or [`NIL`] if the chain is now empty.
#[inline]
pub(crate) fn remove_first(links: &mut impl Links, first: u32) -> u32 {
    let next = links.next(first);
    if next != NIL {
        let last = links.prev(first);
        links.set_prev(next, last);
    }
    next
}

/// Takes out an entry that is not the first. `first` is used only if `entry` is the last.
#[inline]
pub(crate) fn remove_later(links: &mut impl Links, first: u32, entry: u32) {
    let prev = links.prev(entry);
    let next = links.next(entry);
    links.set_next(prev, next);
    let behind = if next == NIL { first } else { next };
    links.set_prev(behind, prev);
}
