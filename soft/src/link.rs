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
    pub(crate) const NONE: Link = Link {
        prev: NIL,
        next: NIL,
    };
}

/// Where the links of a chain's entries live.
pub(crate) trait Links {
    fn link(&self, entry: u32) -> Link;
    fn link_mut(&mut self, entry: u32) -> &mut Link;
}

impl Links for Vec<Link> {
    #[inline]
    fn link(&self, entry: u32) -> Link {
        self[entry as usize]
    }

    #[inline]
    fn link_mut(&mut self, entry: u32) -> &mut Link {
        &mut self[entry as usize]
    }
}

/// Makes `entry` a chain of its own.
#[inline]
pub(crate) fn start(links: &mut impl Links, entry: u32) {
    *links.link_mut(entry) = Link {
        prev: entry,
        next: NIL,
    };
}

/// Puts `entry` behind the last of the chain that begins with `first`.
#[inline]
pub(crate) fn append(links: &mut impl Links, first: u32, entry: u32) {
    let last = links.link(first).prev;
    links.link_mut(last).next = entry;
    *links.link_mut(entry) = Link {
        prev: last,
        next: NIL,
    };
    links.link_mut(first).prev = entry;
}

/// Whether `entry` is the first of its chain.
#[inline]
pub(crate) fn is_first(links: &impl Links, entry: u32) -> bool {
    links.link(links.link(entry).prev).next == NIL
}

/// Takes the first entry out; the new first one, or [`NIL`] if the chain is now empty.
#[inline]
pub(crate) fn remove_first(links: &mut impl Links, first: u32) -> u32 {
    let Link { prev: last, next } = links.link(first);
    if next != NIL {
        links.link_mut(next).prev = last;
    }
    next
}

/// Takes an entry out that is not the first. `first` is looked at only if `entry` is the last.
#[inline]
pub(crate) fn remove_later(links: &mut impl Links, first: u32, entry: u32) {
    let Link { prev, next } = links.link(entry);
    links.link_mut(prev).next = next;
    let behind = if next == NIL { first } else { next };
    links.link_mut(behind).prev = prev;
}
