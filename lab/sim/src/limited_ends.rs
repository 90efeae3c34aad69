//! A caller's list of ends.

use tagmatch_fallback::{End, EndList, EndedBuffer, Status};

/// How many ends a worker takes at once.
pub(crate) const ROOMS: [usize; 4] = [0, 1, 2, 64];

/// A list that takes a limited number of ends.
pub(crate) struct LimitedEnds<'a> {
    pub(crate) ends: &'a mut Vec<End>,
    pub(crate) room: usize,
}

impl EndList for LimitedEnds<'_> {
    fn has_room(&self) -> bool {
        self.room > 0
    }

    fn done(&mut self, context: u64, status: Status, buffer: impl EndedBuffer) {
        assert!(self.room > 0, "more ends than were asked for");
        self.room -= 1;
        self.ends.done(context, status, buffer);
    }

    fn rare(&mut self, end: End) {
        self.room -= 1;
        self.ends.rare(end);
    }
}
