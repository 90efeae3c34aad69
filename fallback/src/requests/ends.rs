//! The completion queue: the ends that nobody has taken yet, oldest first, as a list through the
//! lines of the table of requests. Adding an end and taking one cost the same however many requests
//! there are, and need no memory of their own.

use tagmatch_device::Buffer;
use tagmatch_device::chunks::Chunks;

use crate::requests::line::{Line, NO_LINE};
use crate::requests::request::{Completion, End, Status};

/// The buffer of an operation that has ended, wherever it lies.
pub trait EndedBuffer {
    /// Takes the buffer from there.
    fn take_buffer(self) -> Buffer;
}

impl EndedBuffer for Buffer {
    #[inline(always)]
    fn take_buffer(self) -> Buffer {
        self
    }
}

/// Where a caller puts the ends that it takes out of the completion queue.
pub trait EndList {
    /// Whether it takes another end.
    fn has_room(&self) -> bool;

    /// Adds an operation that ended with success. `buffer` may still be in the table of requests. A
    /// list that has to make room does so before it takes the buffer.
    fn done(&mut self, context: u64, status: Status, buffer: impl EndedBuffer);

    /// Adds any other end.
    fn rare(&mut self, end: End);
}

impl EndList for Vec<End> {
    fn has_room(&self) -> bool {
        true
    }

    fn done(&mut self, context: u64, status: Status, buffer: impl EndedBuffer) {
        let completion = Completion { result: Ok(status), buffer: buffer.take_buffer() };
        self.push(End::Operation { context, completion });
    }

    fn rare(&mut self, end: End) {
        self.push(end);
    }
}

/// The list of a caller that takes no ends.
pub(crate) struct NoEnds;

impl EndList for NoEnds {
    #[inline(always)]
    fn has_room(&self) -> bool {
        false
    }

    fn done(&mut self, _: u64, _: Status, buffer: impl EndedBuffer) {
        drop(buffer.take_buffer());
    }

    fn rare(&mut self, _: End) {}
}

/// The first and the last line of the list, and what callers want to be told with each end.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// [`NO_LINE`]: there is no end.
    first: u32,
    /// Meaningless without a first one.
    last: u32,
    /// By line: the context of the queued request that uses it, unless the line has it
    /// ([`Line::context`]). As long as the highest such line, so an engine without queued requests
    /// pays nothing.
    contexts: Chunks<u64>,
    /// Whether the next end wakes the threads and tasks that wait for one.
    pub(crate) is_watched: bool,
}

impl Ends {
    pub(crate) fn new() -> Self {
        Ends { first: NO_LINE, last: NO_LINE, contexts: Chunks::default(), is_watched: false }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NO_LINE
    }

    /// Adds a line, which is over. Its `word` is the list's from now on.
    #[inline(always)]
    pub(crate) fn push(&mut self, lines: &mut Chunks<Line>, index: u32) {
        if self.is_empty() {
            self.first = index;
        } else {
            lines[self.last as usize].word = index.into();
        }
        self.last = index;
    }

    /// Takes the oldest line off the list.
    #[inline(always)]
    pub(crate) fn pop(&mut self, lines: &Chunks<Line>) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let index = self.first;
        #[expect(clippy::cast_possible_truncation, reason = "was put in as 32 bits")]
        let next = lines[index as usize].word as u32;
        self.first = if index == self.last { NO_LINE } else { next };
        Some(index)
    }

    #[inline(always)]
    pub(crate) fn set_context(&mut self, index: u32, context: u64) {
        if index as usize >= self.contexts.len() {
            self.grow(index);
        }
        self.contexts[index as usize] = context;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, index: u32) {
        while self.contexts.len() <= index as usize {
            self.contexts.push(0);
        }
    }

    #[inline(always)]
    pub(crate) fn context(&self, index: u32) -> u64 {
        self.contexts[index as usize]
    }
}
