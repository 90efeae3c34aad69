//! What a trace is run through: tagmatch's own lists, or those of [`super::plain`].

use tagmatch::soft::{
    Pattern, PostedHandle, PostedList, SourceId, Tag, UnexpectedHandle, UnexpectedList,
};

use crate::trace::Index;

/// The source is in the tag, under the mask, so every message comes from the same one.
pub(super) const SOURCE: SourceId = SourceId(0);

/// A posted list and an unexpected list.
pub(super) trait Matcher {
    /// Names a posted receive, for its cancellation.
    type Handle: Copy;

    fn post(&mut self, pattern: &Pattern, recv: Index) -> Self::Handle;
    /// The receive posted first that takes a message with this tag; it leaves the list.
    fn take_posted(&mut self, tag: Tag) -> Option<Index>;
    /// Whether the receive was still posted; it leaves the list.
    fn cancel(&mut self, handle: Self::Handle) -> bool;
    fn push(&mut self, tag: Tag, msg: Index);
    /// The message arrived first that the pattern accepts.
    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Index>;
    /// The same; it leaves the list.
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Index>;
    /// Entries that were looked at so far, if it is a matcher that has to.
    fn work(&self) -> u64 {
        0
    }
}

/// What is left in both, oldest first: receives posted, messages unexpected.
pub(super) type Left = (Vec<Index>, Vec<Index>);

/// tagmatch's lists, as they ship.
pub(super) struct Indexed {
    posted: PostedList<Index>,
    unexpected: UnexpectedList<Index>,
}

impl Indexed {
    pub(super) fn new() -> Self {
        // The hash's seed only has to be unknown to whoever chose the tags.
        let seed = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8);
        Self { posted: PostedList::new(seed()), unexpected: UnexpectedList::new(seed()) }
    }

    pub(super) fn left(&self) -> Left {
        let posted = self.posted.iter_in_order().map(|(_, _, recv)| recv).collect();
        let unexpected = self.unexpected.iter_in_order().map(|(.., msg)| msg).collect();
        (posted, unexpected)
    }
}

impl Matcher for Indexed {
    type Handle = PostedHandle;

    fn post(&mut self, pattern: &Pattern, recv: Index) -> PostedHandle {
        self.posted.post(*pattern, recv)
    }

    fn take_posted(&mut self, tag: Tag) -> Option<Index> {
        self.posted.take_match(tag, SOURCE)
    }

    fn cancel(&mut self, handle: PostedHandle) -> bool {
        self.posted.cancel(handle).is_ok()
    }

    fn push(&mut self, tag: Tag, msg: Index) {
        let _: UnexpectedHandle = self.unexpected.push(tag, SOURCE, msg);
    }

    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        let handle = self.unexpected.find(pattern)?;
        self.unexpected.get(handle).map(|(.., msg)| msg)
    }

    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        self.unexpected.take(pattern)
    }
}
