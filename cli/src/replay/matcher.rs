//! The two matchers that a trace is run through: tagmatch's own, and the plain list that most
//! MPI libraries walk, to compare with.

use tagmatch::soft::{
    Pattern, PostedHandle, PostedList, SourceId, Tag, UnexpectedHandle, UnexpectedList,
};

use serde::Serialize;

use crate::trace::Index;

/// The source is in the tag, under the mask, so every message comes from the same one.
const SOURCE: SourceId = SourceId(0);

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
    /// Entries that were looked at or moved so far, if it is a matcher that has to.
    fn work(&self) -> u64 {
        0
    }
}

/// What searches through plain lists looked at, by what searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Walks {
    pub(super) searches: u64,
    pub(super) entries_by_messages: u64,
    /// Receives and matched probes.
    pub(super) entries_by_receives: u64,
    pub(super) entries_by_probes: u64,
    pub(super) entries_by_cancels: u64,
}

impl Walks {
    pub(super) fn entries(&self) -> u64 {
        self.by_kind().iter().map(|(_, entries)| entries).sum()
    }

    pub(super) fn by_kind(&self) -> [(&'static str, u64); 4] {
        [
            ("messages seeking a posted receive", self.entries_by_messages),
            ("receives seeking an unexpected message", self.entries_by_receives),
            ("probes", self.entries_by_probes),
            ("cancels", self.entries_by_cancels),
        ]
    }
}

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

    /// What is left, oldest first.
    pub(super) fn left(&self) -> (Vec<Index>, Vec<Index>) {
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

/// Two arrays in order, walked from the front: quicker than the linked lists it stands for.
#[derive(Default)]
pub(super) struct Plain {
    posted: Vec<(Pattern, Index)>,
    unexpected: Vec<(Tag, Index)>,
    pub(super) walks: Walks,
    /// Entries that closed the gap behind one that left.
    moved: u64,
}

/// Entries looked at until one was found.
fn walked(found: Option<usize>, list_len: usize) -> u64 {
    found.map_or(list_len, |at| at + 1) as u64
}

impl Plain {
    fn take<T>(list: &mut Vec<T>, moved: &mut u64, at: usize) -> T {
        *moved += (list.len() - at) as u64;
        list.remove(at)
    }
}

impl Matcher for Plain {
    type Handle = Index;

    fn post(&mut self, pattern: &Pattern, recv: Index) -> Index {
        self.posted.push((*pattern, recv));
        recv
    }

    fn take_posted(&mut self, tag: Tag) -> Option<Index> {
        let found = self.posted.iter().position(|(pattern, _)| pattern.matches(tag, SOURCE));
        self.walks.searches += 1;
        self.walks.entries_by_messages += walked(found, self.posted.len());
        found.map(|at| Self::take(&mut self.posted, &mut self.moved, at).1)
    }

    fn cancel(&mut self, handle: Index) -> bool {
        let found = self.posted.iter().position(|&(_, recv)| recv == handle);
        self.walks.searches += 1;
        self.walks.entries_by_cancels += walked(found, self.posted.len());
        found.map(|at| Self::take(&mut self.posted, &mut self.moved, at)).is_some()
    }

    fn push(&mut self, tag: Tag, msg: Index) {
        self.unexpected.push((tag, msg));
    }

    fn find_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        let found = self.unexpected.iter().position(|&(tag, _)| pattern.matches(tag, SOURCE));
        self.walks.searches += 1;
        self.walks.entries_by_probes += walked(found, self.unexpected.len());
        found.map(|at| self.unexpected[at].1)
    }

    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Index> {
        let found = self.unexpected.iter().position(|&(tag, _)| pattern.matches(tag, SOURCE));
        self.walks.searches += 1;
        self.walks.entries_by_receives += walked(found, self.unexpected.len());
        found.map(|at| Self::take(&mut self.unexpected, &mut self.moved, at).1)
    }

    fn work(&self) -> u64 {
        self.walks.entries() + self.moved
    }
}
