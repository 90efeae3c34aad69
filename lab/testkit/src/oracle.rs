//! The reference for matching: what MPI's rules say, in the plainest code that says it.
//!
//! MPI-4.1, section 3.5: if two posted receives accept a message, the one posted first gets it; if
//! a receive accepts two messages, it gets the one that came first. So there are two lists, both in
//! order, and each search starts at the front and takes the first entry that fits. Every search
//! takes time in proportion to the list. That is slow, and easy to check by reading.
//!
//! A test runs the same operations through the code under test and through this, and compares what
//! each operation found.

use tagmatch_soft::{Pattern, SourceId, Tag};

/// Whether a receive or a probe for `pattern` accepts a message: the tags agree in all bits of the
/// mask, and the pattern names the message's source or none.
#[inline]
#[must_use]
pub fn accepts(pattern: &Pattern, tag: Tag, source: SourceId) -> bool {
    let differing_bits = pattern.tag().0 ^ tag.0;
    differing_bits & pattern.mask().0 == 0 && pattern.source().is_none_or(|named| named == source)
}

/// Posted receives in the order in which they were posted. A test says with `R` which one is which.
#[derive(Clone, Debug)]
pub struct PlainPosted<R> {
    receives: Vec<(Pattern, R)>,
}

impl<R> Default for PlainPosted<R> {
    fn default() -> Self {
        Self { receives: Vec::new() }
    }
}

impl<R> PlainPosted<R> {
    /// Adds a receive behind all others.
    pub fn post(&mut self, pattern: Pattern, receive: R) {
        self.receives.push((pattern, receive));
    }

    /// The receive posted first that accepts the message.
    #[must_use]
    pub fn first_match(&self, tag: Tag, source: SourceId) -> Option<&R> {
        let found = self.receives.iter().find(|(pattern, _)| accepts(pattern, tag, source));
        found.map(|(_, receive)| receive)
    }

    /// Removes the receive posted first that accepts the message.
    pub fn take_match(&mut self, tag: Tag, source: SourceId) -> Option<R> {
        self.take(|pattern, _| accepts(pattern, tag, source))
    }

    /// Removes the first receive that is `wanted`, for example because it is cancelled.
    pub fn take(&mut self, wanted: impl Fn(&Pattern, &R) -> bool) -> Option<R> {
        let at = self.receives.iter().position(|(pattern, receive)| wanted(pattern, receive))?;
        Some(self.receives.remove(at).1)
    }

    /// Removes all receives that are `wanted`, for example because their source has failed; gives
    /// them in order.
    pub fn take_all(&mut self, wanted: impl Fn(&Pattern, &R) -> bool) -> Vec<R> {
        let (taken, kept) =
            self.receives.drain(..).partition(|(pattern, receive)| wanted(pattern, receive));
        self.receives = kept;
        Vec::into_iter(taken).map(|(_, receive)| receive).collect()
    }

    /// All receives, the one posted first in front.
    #[must_use]
    pub fn receives(&self) -> &[(Pattern, R)] {
        &self.receives
    }
}

/// Unexpected messages in the order in which they came. A test says with `M` which one is which.
#[derive(Clone, Debug)]
pub struct PlainUnexpected<M> {
    messages: Vec<(Tag, SourceId, M)>,
}

impl<M> Default for PlainUnexpected<M> {
    fn default() -> Self {
        Self { messages: Vec::new() }
    }
}

impl<M> PlainUnexpected<M> {
    /// Adds a message behind all others.
    pub fn push(&mut self, tag: Tag, source: SourceId, message: M) {
        self.messages.push((tag, source, message));
    }

    /// The message that came first of those that `pattern` accepts.
    #[must_use]
    pub fn find(&self, pattern: &Pattern) -> Option<&M> {
        let found = self.messages.iter().find(|(tag, source, _)| accepts(pattern, *tag, *source));
        found.map(|(.., message)| message)
    }

    /// Removes the message that came first of those that `pattern` accepts.
    pub fn take(&mut self, pattern: &Pattern) -> Option<M> {
        self.remove(|tag, source, _| accepts(pattern, tag, source))
    }

    /// Removes the first message that is `wanted`.
    pub fn remove(&mut self, wanted: impl Fn(Tag, SourceId, &M) -> bool) -> Option<M> {
        let at = self.messages.iter().position(|(tag, source, m)| wanted(*tag, *source, m))?;
        Some(self.messages.remove(at).2)
    }

    /// Removes all messages that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(Tag, SourceId, &M) -> bool) {
        self.messages.retain(|(tag, source, message)| keep(*tag, *source, message));
    }

    /// All messages, the one that came first in front.
    #[must_use]
    pub fn messages(&self) -> &[(Tag, SourceId, M)] {
        &self.messages
    }
}

/// Both lists of a process. At no time does one hold a receive that accepts a message of the other.
#[derive(Clone, Debug)]
pub struct PlainMatching<R, M> {
    /// Receives that have met no message.
    pub posted: PlainPosted<R>,
    /// Messages that have met no receive.
    pub unexpected: PlainUnexpected<M>,
}

impl<R, M> Default for PlainMatching<R, M> {
    fn default() -> Self {
        Self { posted: PlainPosted::default(), unexpected: PlainUnexpected::default() }
    }
}

impl<R, M> PlainMatching<R, M> {
    /// Gives a receive the message that came first of those that it accepts, or posts it.
    pub fn receive(&mut self, pattern: Pattern, receive: R) -> Option<M> {
        let message = self.unexpected.take(&pattern);
        if message.is_none() {
            self.posted.post(pattern, receive);
        }
        message
    }

    /// Gives a message to the receive posted first that accepts it, or keeps it as unexpected.
    pub fn arrive(&mut self, tag: Tag, source: SourceId, message: M) -> Option<R> {
        let receive = self.posted.take_match(tag, source);
        if receive.is_none() {
            self.unexpected.push(tag, source, message);
        }
        receive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tagmatch_soft::TagMask;

    const ANNA: SourceId = SourceId(1);
    const BOB: SourceId = SourceId(2);

    #[test]
    fn a_pattern_accepts_by_the_bits_of_its_mask_and_by_its_source() {
        let low_byte = Pattern::new(Tag(0x105), TagMask(0xff));
        assert!(accepts(&low_byte, Tag(0x205), ANNA) && !accepts(&low_byte, Tag(0x106), ANNA));
        let from_anna = low_byte.from_source(ANNA);
        assert!(accepts(&from_anna, Tag(5), ANNA) && !accepts(&from_anna, Tag(5), BOB));
    }

    #[test]
    fn the_oldest_that_fits_is_taken() {
        let any = Pattern::new(Tag(0), TagMask::ANY);
        let five = Pattern::new(Tag(5), TagMask::EXACT);
        let mut lists = PlainMatching::default();
        assert_eq!(lists.receive(five, "five"), None);
        assert_eq!(lists.receive(any, "any"), None);
        assert_eq!(lists.arrive(Tag(6), ANNA, 1), Some("any"));
        assert_eq!(lists.arrive(Tag(7), ANNA, 2), None);
        assert_eq!(lists.arrive(Tag(5), BOB, 3), Some("five"));
        assert_eq!(lists.arrive(Tag(5), BOB, 4), None);
        assert_eq!(lists.unexpected.find(&any), Some(&2));
        assert_eq!(lists.receive(five, "another"), Some(4));
        assert_eq!(lists.unexpected.messages(), [(Tag(7), ANNA, 2)]);
        assert!(lists.posted.receives().is_empty());
    }

    #[test]
    fn removal_by_name_keeps_the_order_of_the_others() {
        let five = Pattern::new(Tag(5), TagMask::EXACT);
        let mut posted = PlainPosted::default();
        for receive in 0..6 {
            posted.post(five.from_source(if receive % 3 == 0 { ANNA } else { BOB }), receive);
        }
        assert_eq!(posted.take(|_, receive| *receive == 2), Some(2));
        assert_eq!(posted.take(|_, receive| *receive == 2), None);
        assert_eq!(posted.take_all(|pattern, _| pattern.source() == Some(ANNA)), [0, 3]);
        assert_eq!(posted.first_match(Tag(5), BOB), Some(&1));
        assert!(posted.receives().iter().map(|(_, receive)| *receive).eq([1, 4, 5]));
        let mut unexpected = PlainUnexpected::default();
        for message in 0..4 {
            unexpected.push(Tag(5), ANNA, message);
        }
        unexpected.retain(|_, _, message| message % 2 == 1);
        assert_eq!(unexpected.remove(|_, _, message| *message == 3), Some(3));
        assert_eq!(unexpected.take(&five), Some(1));
    }
}
