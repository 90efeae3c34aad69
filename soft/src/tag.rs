//! Tags, masks, sources, and the pattern of a receive.

use std::fmt;

/// The 64 bits that a message carries and a receive asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// The bits of a tag that a receive compares: a set bit must be equal, a clear bit may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagMask(pub u64);

/// The sender of a message, as the receiver numbers its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub u32);

impl TagMask {
    /// Every bit of the tag must be equal.
    pub const EXACT: TagMask = TagMask(u64::MAX);
    /// Every tag is accepted.
    pub const ANY: TagMask = TagMask(0);
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Self {
        Tag(tag)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl fmt::Display for TagMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TagMask::EXACT => f.write_str("exact"),
            TagMask::ANY => f.write_str("any"),
            TagMask(bits) => write!(f, "{bits:#018x}"),
        }
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}", self.0)
    }
}

/// The messages that a receive accepts: those with some bits of the tag, from one source or any.
///
/// A message with tag `t` is accepted if and only if `(t ^ tag) & mask == 0`, and it comes from the
/// pattern's source, if the pattern names one. Bits of the tag outside the mask are cleared on
/// construction, so two patterns are equal exactly if they accept the same messages.
///
/// ```
/// # mod tagmatch { pub use tagmatch_soft as soft; }
/// use tagmatch::soft::{Pattern, SourceId, Tag, TagMask};
///
/// let low_byte = Pattern::new(Tag(0x1234), TagMask(0xff));
/// assert!(low_byte.matches(Tag(0x9934), SourceId(7)));
/// assert!(!low_byte.from_source(SourceId(1)).matches(Tag(0x9934), SourceId(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    tag: Tag,
    mask: TagMask,
    source: Option<SourceId>,
}

impl Pattern {
    /// Accepts `tag` under `mask`, from any source.
    #[inline]
    #[must_use]
    pub const fn new(tag: Tag, mask: TagMask) -> Self {
        Pattern { tag: Tag(tag.0 & mask.0), mask, source: None }
    }

    /// The same pattern, from this source only.
    #[inline]
    #[must_use]
    pub const fn from_source(self, source: SourceId) -> Self {
        Pattern { source: Some(source), ..self }
    }

    /// The tag; bits outside the mask are zero.
    #[inline]
    #[must_use]
    pub const fn tag(&self) -> Tag {
        self.tag
    }

    /// The bits of the tag that must be equal.
    #[inline]
    #[must_use]
    pub const fn mask(&self) -> TagMask {
        self.mask
    }

    /// The source, or `None` for any.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> Option<SourceId> {
        self.source
    }

    /// Whether a message with this tag from this source is accepted.
    #[inline]
    #[must_use]
    pub fn matches(&self, tag: Tag, source: SourceId) -> bool {
        (tag.0 ^ self.tag.0) & self.mask.0 == 0 && self.source.is_none_or(|named| named == source)
    }

    /// Whether some message is accepted by both patterns.
    ///
    /// The answer is exact: the tags must agree in the bits that both masks compare, and the
    /// sources must be equal, unless a pattern accepts any. The relation is symmetric, and every
    /// pattern overlaps itself.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_soft as soft; }
    /// use tagmatch::soft::{Pattern, Tag, TagMask};
    ///
    /// let high = Pattern::new(Tag(0xa0), TagMask(0xf0));
    /// assert!(high.overlaps(&Pattern::new(Tag(0x0b), TagMask(0x0f))));
    /// assert!(!high.overlaps(&Pattern::new(Tag(0xbb), TagMask::EXACT)));
    /// ```
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let tags_agree = (self.tag.0 ^ other.tag.0) & self.mask.0 & other.mask.0 == 0;
        let is_other = |source| other.source.is_none_or(|other| other == source);
        tags_agree && self.source.is_none_or(is_other)
    }
}
