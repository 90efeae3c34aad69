//! What came of the whole stack, held against what must come of the lists.

use super::engine::Event;
use super::matcher::Left;
use super::stack::Outcome;
use crate::failure::Failure;

/// Goes through both side by side.
pub(super) struct Agreement<'a> {
    by_nic: &'a Outcome,
    at: usize,
    differs_at: Option<usize>,
}

impl<'a> Agreement<'a> {
    pub(super) fn new(by_nic: &'a Outcome) -> Self {
        Self { by_nic, at: 0, differs_at: None }
    }

    /// Takes in what the next operation must come to, and gives what it has come to.
    pub(super) fn see(&mut self, wanted: Option<Event>) -> Option<Event> {
        let came = self.by_nic.events[self.at];
        if came != wanted {
            self.differs_at.get_or_insert(self.at);
        }
        self.at += 1;
        came
    }

    /// Compares what is left as well.
    pub(super) fn end(self, left: &Left) -> Result<(), Failure> {
        let differs = match self.differs_at {
            Some(at) => format!("operation {} comes to something else", at + 1),
            None if self.by_nic.left != *left => "something else is left at the end".into(),
            None => return Ok(()),
        };
        Err(Failure::Measurement(format!("with the NIC {differs}: this is a defect of tagmatch")))
    }
}
