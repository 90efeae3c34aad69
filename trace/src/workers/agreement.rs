//! Compares what came of the workers with what came of the lists.

use crate::matcher::Leftover;
use crate::result::OpResult;
use crate::workers::error::WorkersError;
use crate::workers::two_workers::WorkersRun;

/// Follows a run of the lists.
#[derive(Debug)]
pub struct Agreement<'a> {
    workers: &'a WorkersRun,
    next_op: usize,
    /// The first operation whose results differ, from 0 on.
    differs_at: Option<usize>,
}

impl<'a> Agreement<'a> {
    /// With a run through workers of the same trace.
    #[must_use]
    pub fn new(workers: &'a WorkersRun) -> Self {
        Self { workers, next_op: 0, differs_at: None }
    }

    /// Takes in the lists' result of the next operation; gives the workers' result.
    pub fn see(&mut self, wanted: Option<OpResult>) -> Option<OpResult> {
        let found = self.workers.results[self.next_op];
        if found != wanted {
            self.differs_at.get_or_insert(self.next_op);
        }
        self.next_op += 1;
        found
    }

    /// Compares what is left in the lists.
    ///
    /// # Errors
    ///
    /// [`WorkersError::Differs`] if that or the result of an operation differs.
    pub fn finish(self, left: &Leftover) -> Result<(), WorkersError> {
        let differs = match self.differs_at {
            Some(at) => format!("operation {} has another result", at + 1),
            None if self.workers.leftover != *left => "another entry is left at the end".into(),
            None => return Ok(()),
        };
        Err(WorkersError::Differs(differs))
    }
}
