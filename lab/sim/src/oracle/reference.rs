//! Matching by plain lists: the result if software decides each match, when a message arrives and
//! when a receive is posted.

use tagmatch_soft::{SourceId, Tag};
use tagmatch_testkit::oracle::PlainMatching;

use super::wanted::{NONE, Wanted};
use crate::violation::{Verdict, ensure};

/// The lists of all workers, and the message that each receive must get.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// The receives and messages of each worker.
    lists: Vec<PlainMatching<u32, u32>>,
    /// The message that each receive must get, or [`NONE`].
    takes: Vec<u32>,
    /// The messages that were matched by their first fragments and have not arrived.
    begun: Vec<u32>,
}

impl Reference {
    fn lists(&mut self, node: u32) -> &mut PlainMatching<u32, u32> {
        if self.lists.len() <= node as usize {
            self.lists.resize_with(node as usize + 1, PlainMatching::default);
        }
        &mut self.lists[node as usize]
    }

    fn must_take(&mut self, receive: u32, message: u32) {
        if self.takes.len() <= receive as usize {
            self.takes.resize(receive as usize + 1, NONE);
        }
        self.takes[receive as usize] = message;
    }

    /// The first fragment of a message has come. If the oldest receive that matches names the
    /// sender, it is matched now.
    pub(super) fn began(&mut self, at: u32, message: u32, tag: u64, from: u32) {
        let tag = Tag(tag);
        let source = SourceId(from);
        let posted = &mut self.lists(at).posted;
        let names = |receive: u32| {
            let mut receives = posted.receives().iter();
            receives.any(|(pattern, other)| *other == receive && pattern.source().is_some())
        };
        if posted.first_match(tag, source).is_some_and(|&receive| names(receive))
            && let Some(receive) = posted.take_match(tag, source)
        {
            self.must_take(receive, message);
            self.begun.push(message);
        }
    }

    /// A message has arrived at a worker.
    pub(super) fn arrived(&mut self, at: u32, message: u32, tag: u64, from: u32) {
        if let Some(begun) = self.begun.iter().position(|&begun| begun == message) {
            self.begun.swap_remove(begun);
            return;
        }
        if let Some(receive) = self.lists(at).arrive(Tag(tag), SourceId(from), message) {
            self.must_take(receive, message);
        }
    }

    /// A sender is down for a worker: only its eager messages stay.
    pub(super) fn down(&mut self, at: u32, from: u32, is_eager: impl Fn(u32) -> bool) {
        let from = SourceId(from);
        let lists = self.lists(at);
        lists.posted.take_all(|pattern, _| pattern.source() == Some(from));
        lists.unexpected.retain(|_, source, message| source != from || is_eager(*message));
    }

    /// A receive is about to be posted.
    pub(super) fn post(&mut self, at: u32, wanted: Wanted, receive: u32) {
        let message = self.lists(at).receive(wanted.pattern(), receive);
        self.must_take(receive, message.unwrap_or(NONE));
    }

    /// Takes the oldest message that matches. Returns it, or [`NONE`].
    pub(super) fn take(&mut self, at: u32, wanted: &Wanted) -> u32 {
        self.lists(at).unexpected.take(&wanted.pattern()).unwrap_or(NONE)
    }

    /// The oldest message that matches, or [`NONE`].
    pub(super) fn probe(&mut self, at: u32, wanted: &Wanted) -> u32 {
        self.lists(at).unexpected.find(&wanted.pattern()).copied().unwrap_or(NONE)
    }

    /// A receive is not posted any more.
    pub(super) fn withdraw(&mut self, at: u32, receive: u32) {
        self.lists(at).posted.take(|_, posted| *posted == receive);
    }

    /// Checks the message, or [`NONE`], with which a receive has ended.
    pub(super) fn ended(&self, receive: u32, message: u32) -> Verdict {
        let expected = self.takes[receive as usize];
        ensure!(
            expected == message,
            Reference,
            "r{receive} took {}, but plain lists give it {}",
            Named(message),
            Named(expected)
        );
        Ok(())
    }

    /// The message that a receive must get.
    pub(super) fn takes(&self, receive: u32) -> u32 {
        self.takes[receive as usize]
    }

    /// Checks that no receive is posted any more.
    pub(super) fn is_empty_of_receives(&self) -> Verdict {
        for lists in &self.lists {
            let left = lists.posted.receives().first();
            ensure!(
                left.is_none(),
                Lost,
                "r{} is still posted after all requests have ended",
                left.map_or(0, |(_, receive)| *receive)
            );
        }
        Ok(())
    }

    /// A worker has ended.
    pub(super) fn gone(&mut self, at: u32) {
        *self.lists(at) = PlainMatching::default();
    }
}

/// A message, or [`NONE`], as texts name it.
struct Named(u32);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == NONE { f.write_str("nothing") } else { write!(f, "m{}", self.0) }
    }
}
