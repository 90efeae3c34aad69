//! The fields of a [`Tag`]: how context, source and MPI tag share its 64 bits.

use thiserror::Error;

use crate::tag::{Pattern, Tag, TagMask};

/// Widths of the three fields, context highest, tag lowest.
///
/// A layout always says which bits are the source, since a receive that names its sender may be
/// matched in places where an any-source receive may not.
///
/// ```
/// # mod tagmatch { pub use tagmatch_soft as soft; }
/// use tagmatch::soft::{SourceId, TagLayout};
///
/// let layout = TagLayout::MPI;
/// let tag = layout.pack(1, 42, 7)?;
/// assert_eq!(layout.unpack(tag), (1, 42, 7));
/// let any_source = layout.pattern(1, None, Some(7))?;
/// assert!(any_source.matches(tag, SourceId(0)));
/// # Ok::<(), tagmatch_soft::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagLayout {
    context_bits: u32,
    source_bits: u32,
    tag_bits: u32,
}

/// An error of a layout that is wider than a tag, or of a value that is wider than its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The three fields together are wider than a tag.
    #[error("fields of {context_bits} + {source_bits} + {tag_bits} bits don't fit in 64 bits")]
    TooWide {
        /// Width asked for the context.
        context_bits: u32,
        /// Width asked for the source.
        source_bits: u32,
        /// Width asked for the tag.
        tag_bits: u32,
    },
    /// The value is larger than its field can hold.
    #[error("{field} {value} doesn't fit in {bits} bits")]
    OutOfRange {
        /// "context", "source" or "tag".
        field: &'static str,
        /// The value given.
        value: u64,
        /// The width of its field.
        bits: u32,
    },
}

/// The lowest `bits` bits.
const fn ones(bits: u32) -> u64 {
    match bits {
        0 => 0,
        1..64 => u64::MAX >> (64 - bits),
        _ => u64::MAX,
    }
}

/// `value << bits`, and zero for a shift of 64, which occurs above a field of full width.
const fn up(value: u64, bits: u32) -> u64 {
    if bits < 64 { value << bits } else { 0 }
}

/// `value >> bits`, and zero for a shift of 64.
const fn down(value: u64, bits: u32) -> u64 {
    if bits < 64 { value >> bits } else { 0 }
}

fn check(field: &'static str, value: u64, bits: u32) -> Result<u64, LayoutError> {
    if value <= ones(bits) {
        Ok(value)
    } else {
        Err(LayoutError::OutOfRange { field, value, bits })
    }
}

impl TagLayout {
    /// MPI's envelope: 16 bits of context, 24 of source, 24 of tag.
    pub const MPI: TagLayout = TagLayout { context_bits: 16, source_bits: 24, tag_bits: 24 };

    /// A layout with these widths. Bits that no field covers stay zero.
    ///
    /// # Errors
    /// `LayoutError::TooWide` if they add up to more than 64.
    pub const fn new(
        context_bits: u32,
        source_bits: u32,
        tag_bits: u32,
    ) -> Result<Self, LayoutError> {
        // Each width is checked separately first, so that the sum can't wrap.
        let fits = context_bits <= 64
            && source_bits <= 64
            && tag_bits <= 64
            && context_bits + source_bits + tag_bits <= 64;
        if fits {
            Ok(TagLayout { context_bits, source_bits, tag_bits })
        } else {
            Err(LayoutError::TooWide { context_bits, source_bits, tag_bits })
        }
    }

    /// Width of the context.
    #[must_use]
    pub const fn context_bits(&self) -> u32 {
        self.context_bits
    }

    /// Width of the source.
    #[must_use]
    pub const fn source_bits(&self) -> u32 {
        self.source_bits
    }

    /// Width of the tag.
    #[must_use]
    pub const fn tag_bits(&self) -> u32 {
        self.tag_bits
    }

    /// The bits that are the context.
    #[must_use]
    pub const fn context_mask(&self) -> TagMask {
        TagMask(up(ones(self.context_bits), self.source_bits + self.tag_bits))
    }

    /// The bits that are the source.
    #[must_use]
    pub const fn source_mask(&self) -> TagMask {
        TagMask(up(ones(self.source_bits), self.tag_bits))
    }

    /// The bits that are the tag.
    #[must_use]
    pub const fn tag_mask(&self) -> TagMask {
        TagMask(ones(self.tag_bits))
    }

    /// Whether the pattern compares every bit of the source, so that at most one sender can match.
    #[must_use]
    pub const fn pins_source(&self, pattern: &Pattern) -> bool {
        let source = self.source_mask().0;
        pattern.mask().0 & source == source && source != 0
    }

    /// The tag that a message of this envelope carries.
    ///
    /// # Errors
    /// `LayoutError::OutOfRange` for the first value that is wider than its field.
    pub fn pack(&self, context: u64, source: u64, tag: u64) -> Result<Tag, LayoutError> {
        let context = check("context", context, self.context_bits)?;
        let source = check("source", source, self.source_bits)?;
        let tag = check("tag", tag, self.tag_bits)?;
        Ok(Tag(up(context, self.source_bits + self.tag_bits) | up(source, self.tag_bits) | tag))
    }

    /// Context, source and tag; bits that no field covers are ignored.
    #[must_use]
    pub const fn unpack(&self, tag: Tag) -> (u64, u64, u64) {
        let Tag(bits) = tag;
        (
            down(bits, self.source_bits + self.tag_bits) & ones(self.context_bits),
            down(bits, self.tag_bits) & ones(self.source_bits),
            bits & ones(self.tag_bits),
        )
    }

    /// The pattern of a receive in this context; `None` is any source or any tag. `Worker::recv`
    /// and the probes of `tagmatch` take it in the place of a `Match`.
    ///
    /// Bits that no field covers must be zero in the message, as [`pack`](Self::pack) leaves them,
    /// so a pattern that names all three fields is exact.
    ///
    /// # Errors
    /// `LayoutError::OutOfRange` for the first value that is wider than its field.
    pub fn pattern(
        &self,
        context: u64,
        source: Option<u64>,
        tag: Option<u64>,
    ) -> Result<Pattern, LayoutError> {
        let mut mask = TagMask::EXACT.0;
        if source.is_none() {
            mask &= !self.source_mask().0;
        }
        if tag.is_none() {
            mask &= !self.tag_mask().0;
        }
        let packed = self.pack(context, source.unwrap_or(0), tag.unwrap_or(0))?;
        Ok(Pattern::new(packed, TagMask(mask)))
    }
}
