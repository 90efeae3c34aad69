//! First-in-first-out chains through entries that are stored elsewhere.
//!
//! A chain is named by its first entry. The first entry's `prev` is the last one, so that appending
//! needs no second word per chain; the last entry's `next` is [`NIL`]. So an entry is first exactly
//! if its `prev` has no `next`, and unlinking in the middle needs no look at the first one at all.

/// No entry.
pub(crate) const NIL: u32 = u32::MAX;

/// An entry's neighbours in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Link {
    /// That of an entry which is a chain of its own.
    #[inline]
    pub(crate) const fn alone(entry: u32) -> Link {
        Link { prev: entry, next: NIL }
    }
}

/// Where the links of a chain's entries live.
///
/// Each half is read and written by itself: a word read right after its halves were written would
/// have to wait for both to reach the cache.
pub(crate) trait Links {
    fn prev(&self, entry: u32) -> u32;
    fn next(&self, entry: u32) -> u32;
    fn set_prev(&mut self, entry: u32, prev: u32);
    fn set_next(&mut self, entry: u32, next: u32);
}

impl Links for Vec<Link> {
    #[inline]
    fn prev(&self, entry: u32) -> u32 {
        self[entry as usize].prev
    }

    #[inline]
    fn next(&self, entry: u32) -> u32 {
        self[entry as usize].next
    }

    #[inline]
    fn set_prev(&mut self, entry: u32, prev: u32) {
        self[entry as usize].prev = prev;
    }

    #[inline]
    fn set_next(&mut self, entry: u32, next: u32) {
        self[entry as usize].next = next;
    }
}

/// Puts `entry` behind the last of the chain that begins with `first`.
#[inline]
pub(crate) fn append(links: &mut impl Links, first: u32, entry: u32) {
    let last = links.prev(first);
    links.set_prev(entry, last);
    links.set_next(entry, NIL);
    append_linked(links, first, entry, last);
}

/// The same of an entry that has its links already: it comes behind `last`.
#[inline]
pub(crate) fn append_linked(links: &mut impl Links, first: u32, entry: u32, last: u32) {
    links.set_next(last, entry);
    links.set_prev(first, entry);
}

/// Whether `entry` is the first of its chain.
#[inline]
pub(crate) fn is_first(links: &impl Links, entry: u32) -> bool {
    links.next(links.prev(entry)) == NIL
}

/// Takes the first entry out; the new first one, or [`NIL`] if the chain is now empty.
#[inline]
pub(crate) fn remove_first(links: &mut impl Links, first: u32) -> u32 {
    let next = links.next(first);
    if next != NIL {
        let last = links.prev(first);
        links.set_prev(next, last);
    }
    next
}

/// Takes an entry out that is not the first. `first` is looked at only if `entry` is the last.
#[inline]
pub(crate) fn remove_later(links: &mut impl Links, first: u32, entry: u32) {
    let (prev, next) = (links.prev(entry), links.next(entry));
    links.set_next(prev, next);
    let behind = if next == NIL { first } else { next };
    links.set_prev(behind, prev);
}
