//! The numbers of a communicator's collective operations. They tell apart the messages of
//! operations under way.
//!
//! A tag has room for the low bits of a number. The messages of two operations with equal low bits
//! must not mix. So a process begins to send and receive for the later operation only when the
//! earlier one has ended in this process. This rule takes no messages, and no call fails or blocks
//! because of it:
//!
//! 1. In each process an operation receives all messages that others send it there. An operation
//!    that has ended leaves no message.
//! 2. A sender that has begun the later operation has ended the earlier one, and so has sent all of
//!    its messages.
//! 3. Messages of one sender with one tag are received in the order in which they were sent. So a
//!    receive of the earlier operation never takes a message of the later one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch::TagLayout;

use crate::net::Sleeper;

/// The number of collective operations of one communicator that a tag can tell apart: a power of
/// two.
pub(crate) fn numbers(tags: TagLayout) -> u32 {
    1 << (tags.tag_bits() - 2)
}

/// Which tags belong to some numbers of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TagPart {
    All,
    /// The even tags, or the odd ones. Members stop at different calls to take numbers for
    /// operations in shared memory, so these operations have numbers of their own.
    Half {
        is_odd: bool,
    },
}

/// The numbers of one communicator. The first one is arbitrary, and they wrap.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: AtomicU32,
    /// The lowest number whose operation has not ended. All operations before it have ended.
    lowest: AtomicU32,
    /// The higher numbers whose operations have ended. At most as many as operations under way.
    ended: Mutex<BTreeSet<u32>>,
    /// Whether an operation waits until another one has ended.
    is_awaited: AtomicBool,
    part: TagPart,
}

impl Numbers {
    pub(crate) fn new(first: u32, part: TagPart) -> Self {
        Numbers {
            next: AtomicU32::new(first),
            lowest: AtomicU32::new(first),
            ended: Mutex::default(),
            is_awaited: AtomicBool::new(false),
            part,
        }
    }

    fn take(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn is_within(&self, number: u32, most: u32) -> bool {
        number.wrapping_sub(self.lowest.load(Ordering::SeqCst)) < most
    }

    fn end(&self, number: u32) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lowest = self.lowest.load(Ordering::Relaxed);
        if number != lowest {
            ended.insert(number);
            return;
        }
        lowest = lowest.wrapping_add(1);
        while ended.remove(&lowest) {
            lowest = lowest.wrapping_add(1);
        }
        self.lowest.store(lowest, Ordering::SeqCst);
    }
}

/// The number of one operation. The operation ends when this is dropped, or earlier by
/// [`end`](Self::end).
pub(crate) struct Turn {
    numbers: Arc<Numbers>,
    number: AtomicU32,
    is_over: AtomicBool,
    /// The sleeper of a thread that may wait for the end.
    sleeper: Option<Arc<dyn Sleeper>>,
}

impl Turn {
    /// The next number. All members take it at the same call.
    pub(crate) fn next(numbers: &Arc<Numbers>, sleeper: Option<Arc<dyn Sleeper>>) -> Self {
        let number = AtomicU32::new(numbers.take());
        Turn { numbers: Arc::clone(numbers), number, is_over: AtomicBool::new(false), sleeper }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// The low bits of the tags of the operation's messages.
    pub(crate) fn tag(&self, tags: TagLayout) -> u32 {
        let number = match self.numbers.part {
            TagPart::All => self.number(),
            TagPart::Half { is_odd } => self.number() << 1 | u32::from(is_odd),
        };
        number & (numbers(tags) - 1)
    }

    /// Whether the operation may begin: no operation with the same tag is under way.
    pub(crate) fn has_come(&self, tags: TagLayout) -> bool {
        let all = numbers(tags);
        self.is_within(if matches!(self.numbers.part, TagPart::All) { all } else { all / 2 })
    }

    /// Whether no operation that is `most` or more numbers earlier is under way.
    fn is_within(&self, most: u32) -> bool {
        let number = self.number();
        self.numbers.is_within(number, most) || {
            // Look again after setting the flag: an operation that ends at this moment either sees
            // the flag, or its end is seen here.
            self.numbers.is_awaited.store(true, Ordering::SeqCst);
            self.numbers.is_within(number, most)
        }
    }

    /// Marks the operation as ended.
    pub(crate) fn end(&self) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.numbers.end(self.number());
        if self.numbers.is_awaited.load(Ordering::SeqCst)
            && self.numbers.is_awaited.swap(false, Ordering::SeqCst)
            && let Some(sleeper) = &self.sleeper
        {
            sleeper.ring();
        }
    }

    /// Ends the operation, and takes the next number for another one.
    pub(crate) fn renew(&self) {
        self.end();
        self.number.store(self.numbers.take(), Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Turn").field(&self.number()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_turn_when_all_of_the_same_bits_have_ended() {
        // Across the wrap.
        let numbers = Arc::new(Numbers::new(u32::MAX - 2, TagPart::All));
        let turns: Vec<Turn> = (0..8).map(|_| Turn::next(&numbers, None)).collect();
        let come = |turns: &[Turn]| turns.iter().filter(|turn| turn.is_within(4)).count();
        assert_eq!(come(&turns), 4);
        turns[2].end();
        turns[1].end();
        assert_eq!(come(&turns[3..]), 1);
        turns[0].end();
        turns[0].end();
        assert_eq!(come(&turns[3..]), 4);
        turns[3].renew();
        assert_eq!((come(&turns[4..]), turns[3].is_within(4)), (4, false));
        drop(turns);
        assert!(numbers.ended.lock().unwrap().is_empty());
        assert!(Turn::next(&numbers, None).is_within(1));
    }
}
