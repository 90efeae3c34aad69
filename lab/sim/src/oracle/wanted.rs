//! The envelope that a receive or a probe asks for.

use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};
use tagmatch_testkit::oracle::accepts;

/// Stands for a source: any source.
pub(crate) const ANY: u32 = u32::MAX;
/// Stands for a message or a receive: there is none.
pub(crate) const NONE: u32 = u32::MAX;

/// The envelope that a receive or a probe asks for. Its source is a worker of the network, or
/// [`ANY`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) tag: u64,
    pub(crate) mask: u64,
    pub(crate) source: u32,
}

impl Wanted {
    /// Whether a message with this tag and source matches.
    pub(crate) fn accepts(&self, tag: u64, source: u32) -> bool {
        accepts(&self.pattern(), Tag(tag), SourceId(source))
    }

    pub(super) fn pattern(&self) -> Pattern {
        let pattern = Pattern::new(Tag(self.tag), TagMask(self.mask));
        if self.source == ANY { pattern } else { pattern.from_source(SourceId(self.source)) }
    }
}
