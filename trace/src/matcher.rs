//! What a trace is run through: tagmatch's own lists, or others to compare them with.

use tagmatch_soft::{
    Pattern, PostedHandle, PostedList, SourceId, Tag, UnexpectedHandle, UnexpectedList,
};

use crate::format::Id;

/// A posted list and an unexpected list.
pub trait Matcher {
    /// Names a posted receive, for its cancellation.
    type Handle: Copy;

    /// Adds a receive to the posted list.
    fn post(&mut self, pattern: &Pattern, recv: Id) -> Self::Handle;
    /// Removes the receive posted first of those that accept this tag and source.
    fn take_posted(&mut self, tag: Tag, source: SourceId) -> Option<Id>;
    /// Removes a receive from the posted list; false if it has left the list before.
    fn cancel(&mut self, handle: Self::Handle) -> bool;
    /// Adds a message to the unexpected list.
    fn push(&mut self, tag: Tag, source: SourceId, msg: Id);
    /// The message that came first of those that the pattern accepts.
    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Id>;
    /// Removes the message that came first of those that the pattern accepts.
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Id>;
    /// Removes a message from the unexpected list; false if it isn't there. Linear in the list.
    fn remove_unexpected(&mut self, msg: Id) -> bool;
    /// How many entries all searches so far have looked at, if the searches walk.
    fn entries_walked(&self) -> u64 {
        0
    }
}

/// What is in both lists at the end of a trace, oldest first: posted receives, unexpected messages.
pub type Leftover = (Vec<Id>, Vec<Id>);

/// The lists of `tagmatch-soft`.
#[derive(Debug)]
pub struct IndexedLists {
    posted: PostedList<Id>,
    unexpected: UnexpectedList<Id>,
}

impl IndexedLists {
    /// What is in the lists.
    #[must_use]
    pub fn leftover(&self) -> Leftover {
        let posted = self.posted.iter_in_order().map(|(_, _, recv)| recv).collect();
        let unexpected = self.unexpected.iter_in_order().map(|(.., msg)| msg).collect();
        (posted, unexpected)
    }
}

impl Default for IndexedLists {
    /// Empty lists, with hash seeds that the author of a trace does not know.
    fn default() -> Self {
        let seed = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8);
        Self { posted: PostedList::new(seed()), unexpected: UnexpectedList::new(seed()) }
    }
}

impl Matcher for IndexedLists {
    type Handle = PostedHandle;

    #[inline]
    fn post(&mut self, pattern: &Pattern, recv: Id) -> PostedHandle {
        self.posted.post(*pattern, recv)
    }

    #[inline]
    fn take_posted(&mut self, tag: Tag, source: SourceId) -> Option<Id> {
        self.posted.take_match(tag, source)
    }

    #[inline]
    fn cancel(&mut self, handle: PostedHandle) -> bool {
        self.posted.cancel(handle).is_ok()
    }

    #[inline]
    fn push(&mut self, tag: Tag, source: SourceId, msg: Id) {
        let _: UnexpectedHandle = self.unexpected.push(tag, source, msg);
    }

    #[inline]
    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Id> {
        let handle = self.unexpected.find(pattern)?;
        self.unexpected.get(handle).map(|(.., msg)| msg)
    }

    #[inline]
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Id> {
        self.unexpected.take(pattern)
    }

    fn remove_unexpected(&mut self, msg: Id) -> bool {
        let handle = self.unexpected.iter_in_order().find(|(.., id)| *id == msg);
        handle.is_some_and(|(handle, ..)| self.unexpected.remove(handle).is_ok())
    }
}
