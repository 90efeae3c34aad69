//! Searches through all requests, for what is rare.

use crate::requests::line::RequestPhase;
use crate::requests::request::RequestId;
use crate::requests::table::Requests;

impl Requests {
    /// All requests that are not over. Linear in the table.
    pub(crate) fn under_way(&self) -> Vec<RequestId> {
        let lines = (0..).zip(self.lines.iter());
        let under_way =
            lines.filter(|(_, line)| line.phase != RequestPhase::Free && !line.is_over());
        under_way.map(|(index, line)| RequestId::new(index, line.generation)).collect()
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
