//! Matching by plain lists: what software must do that decides at arrival and at post.

use super::{NONE, Wanted};
use crate::violation::{Verdict, ensure};

#[derive(Debug, Default)]
struct Lists {
    posted: Vec<(Wanted, u32)>,
    /// Message, tag and sender, in the order of arrival.
    unexpected: Vec<(u32, u64, u32)>,
}

/// The lists of all workers, and what each receive must get.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    lists: Vec<Lists>,
    /// By receive.
    takes: Vec<u32>,
}

impl Reference {
    fn lists(&mut self, node: u32) -> &mut Lists {
        if self.lists.len() <= node as usize {
            self.lists.resize_with(node as usize + 1, Lists::default);
        }
        &mut self.lists[node as usize]
    }

    fn must_take(&mut self, receive: u32, message: u32) {
        if self.takes.len() <= receive as usize {
            self.takes.resize(receive as usize + 1, NONE);
        }
        self.takes[receive as usize] = message;
    }

    pub(super) fn arrived(&mut self, at: u32, message: u32, tag: u64, from: u32) {
        let lists = self.lists(at);
        match lists.posted.iter().position(|(wanted, _)| wanted.accepts(tag, from)) {
            Some(index) => {
                let (_, receive) = lists.posted.remove(index);
                self.must_take(receive, message);
            }
            None => lists.unexpected.push((message, tag, from)),
        }
    }

    pub(super) fn down(&mut self, at: u32, from: u32, is_eager: impl Fn(u32) -> bool) {
        let lists = self.lists(at);
        lists.posted.retain(|(wanted, _)| wanted.source != from);
        lists.unexpected.retain(|&(message, _, source)| source != from || is_eager(message));
    }

    fn find(&mut self, at: u32, wanted: &Wanted) -> Option<usize> {
        let unexpected = &self.lists(at).unexpected;
        unexpected.iter().position(|&(_, tag, source)| wanted.accepts(tag, source))
    }

    /// A receive is about to be posted.
    pub(super) fn post(&mut self, at: u32, wanted: Wanted, receive: u32) {
        let message = self.take(at, &wanted);
        self.must_take(receive, message);
        if message == NONE {
            self.lists(at).posted.push((wanted, receive));
        }
    }

    /// The oldest message that matches, which is taken; or [`NONE`].
    pub(super) fn take(&mut self, at: u32, wanted: &Wanted) -> u32 {
        self.find(at, wanted).map_or(NONE, |index| self.lists(at).unexpected.remove(index).0)
    }

    /// The oldest message that matches; or [`NONE`].
    pub(super) fn probe(&mut self, at: u32, wanted: &Wanted) -> u32 {
        self.find(at, wanted).map_or(NONE, |index| self.lists(at).unexpected[index].0)
    }

    /// A receive is not posted any more.
    pub(super) fn withdraw(&mut self, at: u32, receive: u32) {
        self.lists(at).posted.retain(|&(_, posted)| posted != receive);
    }

    /// A receive ended with a message, or without one.
    pub(super) fn ended(&self, receive: u32, message: u32) -> Verdict {
        let expected = self.takes[receive as usize];
        ensure!(
            expected == message,
            Reference,
            "r{receive} took {}, by plain lists {}",
            Named(message),
            Named(expected)
        );
        Ok(())
    }

    /// What a receive must get.
    pub(super) fn takes(&self, receive: u32) -> u32 {
        self.takes[receive as usize]
    }

    pub(super) fn is_empty_of_receives(&self) -> Verdict {
        for lists in &self.lists {
            let left = lists.posted.first();
            ensure!(
                left.is_none(),
                Lost,
                "r{} is posted when all has ended",
                left.map_or(0, |l| l.1)
            );
        }
        Ok(())
    }

    pub(super) fn gone(&mut self, at: u32) {
        *self.lists(at) = Lists::default();
    }
}

struct Named(u32);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == NONE { f.write_str("nothing") } else { write!(f, "m{}", self.0) }
    }
}
