//! Telling another crate of each change of the matching lists, in order.

use std::fmt::{self, Debug, Formatter};

use tagmatch_soft::{Pattern, TagMask};

use crate::requests::request::Status;

/// Is told of each change of the posted list and of the unexpected list, and of each probe, in the
/// order in which they happen: `MatchEngine::observe`.
///
/// Plain lists that go through the same changes in the same order give each message to the same
/// receive. What the engine only waits for is not told: a message that waits for an answer of the
/// NIC is told of once its receive is known.
///
/// `receive` is a number that no two receives have at the same time, `message` one that no two
/// unexpected messages have. Both are used again. The observer is called with the engine locked, so
/// it must not call the engine.
pub trait ListObserver: Send {
    /// The bits of a tag that name its sender; zero if tags don't name it. Told once, before
    /// anything else. Which receives a NIC may have depends on it.
    fn source_bits(&mut self, bits: TagMask);

    /// No unexpected message matched a receive, so it joined the posted list. `length`: of its
    /// buffer in bytes. `is_sole`: only the source that the pattern names sends such messages.
    fn posted(&mut self, receive: u32, pattern: &Pattern, length: u64, is_sole: bool);

    /// A receive took the oldest unexpected message that its pattern matches.
    fn found(&mut self, message: u32, pattern: &Pattern, length: u64, is_sole: bool);

    /// A message matched a posted receive, which left the list. If the NIC has matched it, the
    /// length is 0, and comes by [`length`](Self::length).
    fn matched(&mut self, receive: u32, status: &Status, by_nic: bool);

    /// A message matched no posted receive, so it joined the unexpected list.
    fn unexpected(&mut self, message: u32, status: &Status);

    /// A posted receive left the list, and its message is not known yet, or whether it has one:
    /// [`matched`](Self::matched) or [`withdrawn`](Self::withdrawn) follows. May be told again
    /// until then. `has_message`: the NIC has matched it, and first tells of what it matched
    /// before.
    fn taken(&mut self, receive: u32, has_message: bool);

    /// The length of the message that the NIC matched to this receive last.
    fn length(&mut self, receive: u32, length: u64);

    /// A posted receive left the list without a message: it was cancelled, or the peer that it
    /// names is down.
    fn withdrawn(&mut self, receive: u32);

    /// A posted receive was to be cancelled, but the NIC had matched it.
    fn cancelled_late(&mut self, receive: u32);

    /// A probe looked for a message.
    fn probed(&mut self, message: Option<u32>, pattern: &Pattern);

    /// A matched probe took a message off the unexpected list, if it found one.
    fn held(&mut self, message: Option<u32>, pattern: &Pattern);

    /// A message that a matched probe held was received into so many bytes.
    fn received(&mut self, message: u32, length: u64);

    /// A message that a matched probe held was discarded.
    fn discarded(&mut self, message: u32);

    /// An unexpected message left the list without a receive: its sender is down.
    fn lost(&mut self, message: u32);
}

/// An engine's observer, if it has one. A clone of the engine has none.
#[derive(Default)]
pub(crate) struct Observer(pub(crate) Option<Box<dyn ListObserver>>);

impl Observer {
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Calls the observer, if there is one.
    #[inline]
    pub(crate) fn tell(&mut self, tell: impl FnOnce(&mut dyn ListObserver)) {
        if let Some(observer) = &mut self.0 {
            tell(&mut **observer);
        }
    }
}

impl Clone for Observer {
    fn clone(&self) -> Self {
        Observer(None)
    }
}

impl Debug for Observer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({})", self.is_on())
    }
}
