//! Searches through all requests, for what is rare.

use crate::requests::line::RequestPhase;
use crate::requests::request::{RequestId, Status};
use crate::requests::table::Requests;

impl Requests {
    /// All requests that are not over. Linear in the table.
    pub(crate) fn under_way(&self) -> Vec<RequestId> {
        let lines = (0..).zip(self.lines.iter());
        let under_way =
            lines.filter(|(_, line)| line.phase != RequestPhase::Free && !line.is_over());
        under_way.map(|(index, line)| RequestId::new(index, line.generation)).collect()
    }

    /// The receive whose line this is: its request, and the length of its buffer in bytes.
    pub(crate) fn receive_at(&self, index: u32) -> (RequestId, u64) {
        let line = &self.lines[index as usize];
        (RequestId::new(index, line.generation), line.buffer.total_len() as u64)
    }

    /// Receives that have their message, whose bytes are to come, with its envelope. Linear in the
    /// table.
    pub(crate) fn reading(&self) -> impl Iterator<Item = (RequestId, Status)> + '_ {
        (0..).zip(self.lines.iter()).filter_map(|(index, line)| {
            let (status, _) = line.reading()?;
            Some((RequestId::new(index, line.generation), status))
        })
    }

    fn context(&self, index: u32) -> u64 {
        self.lines[index as usize].context().unwrap_or_else(|| self.ends.context(index))
    }

    /// A queued request that is under way and whose context is wanted, if there is one. Linear in
    /// the table.
    pub fn find_queued(&self, is_wanted: impl Fn(u64) -> bool) -> Option<RequestId> {
        let is_found = |request: &RequestId| {
            self.is_queued(*request) && is_wanted(self.context(request.index()))
        };
        self.under_way().into_iter().find(is_found)
    }
}
