//! A list so short that walking it is the fastest way to search it.
//!
//! Recorded applications rarely have more than a dozen receives posted. Walking so few lines, in post
//! order and all in a row, takes less than one look into a hash table; there is nothing to hash when a
//! receive is posted, and nothing to unlink when it is matched.

use crate::class::{Envelope, Shape};

/// Most receives that are walked. Measured: beyond it the tables of the classes are faster.
pub(crate) const SHORT_MAX: usize = 12;

/// What a receive accepts, beside its place in the slab.
#[derive(Clone, Copy, Debug)]
struct Line {
    tag: u64,
    mask: u64,
    source: u32,
    /// All ones if the source is looked at, else zero.
    source_mask: u32,
    entry: u32,
}

impl Line {
    const NONE: Line = Line { tag: 0, mask: 0, source: 0, source_mask: 0, entry: 0 };

    #[inline]
    fn accepts(&self, message: Envelope) -> bool {
        let tag = (self.tag ^ message.tag) & self.mask;
        let source = (self.source ^ message.source) & self.source_mask;
        tag | u64::from(source) == 0
    }

    fn shape(&self) -> Shape {
        let source_mask = if self.source_mask == 0 { 0 } else { u64::MAX };
        Shape { mask: self.mask, source_mask }
    }
}

/// Up to [`SHORT_MAX`] receives in post order.
#[derive(Clone, Debug)]
pub(crate) struct Short {
    lines: [Line; SHORT_MAX],
    len: usize,
}

impl Short {
    pub(crate) const fn new() -> Self {
        Short { lines: [Line::NONE; SHORT_MAX], len: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn lines(&self) -> &[Line] {
        self.lines.get(..self.len).unwrap_or(&self.lines)
    }

    /// Adds the youngest; `false` if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: u32, envelope: Envelope, shape: Shape) -> bool {
        let Some(line) = self.lines.get_mut(self.len) else { return false };
        let source_mask = if shape.source_mask == 0 { 0 } else { u32::MAX };
        let Envelope { tag, source } = envelope;
        *line = Line { tag, mask: shape.mask, source, source_mask, entry };
        self.len += 1;
        true
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len < SHORT_MAX
    }

    /// Where the oldest is that accepts the message.
    #[inline]
    pub(crate) fn find(&self, message: Envelope) -> Option<usize> {
        self.lines().iter().position(|line| line.accepts(message))
    }

    /// Where an entry is.
    pub(crate) fn position(&self, entry: u32) -> Option<usize> {
        self.lines().iter().position(|line| line.entry == entry)
    }

    /// The entry at a position.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> u32 {
        self.lines[at].entry
    }

    /// Takes one out; the others keep their order.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) -> u32 {
        let entry = self.lines[at].entry;
        self.lines.copy_within(at + 1..self.len, at);
        self.len -= 1;
        entry
    }

    /// What an entry looks at.
    pub(crate) fn shape_of(&self, entry: u32) -> Option<Shape> {
        self.position(entry).map(|at| self.lines[at].shape())
    }

    /// Empties the list: entries and what they look at, in post order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u32, Shape)> + use<> {
        let lines = self.lines;
        let len = std::mem::take(&mut self.len);
        lines.into_iter().take(len).map(|line| (line.entry, line.shape()))
    }

    /// How many different shapes there are.
    pub(crate) fn shapes(&self) -> usize {
        let lines = self.lines();
        let is_first = |&(at, line): &(usize, &Line)| {
            lines[..at].iter().all(|earlier| earlier.shape() != line.shape())
        };
        lines.iter().enumerate().filter(is_first).count()
    }
}
