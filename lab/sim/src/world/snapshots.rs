//! Comparing an engine's snapshot with what the owner of its requests and the oracle know.

use std::collections::HashMap;

use tagmatch_fallback::{MatchEngine, RequestId, Snapshot, Status};

use super::World;
use crate::adapter::Adapter;
use crate::violation::{Verdict, ensure};
use crate::worker::Purpose;

/// More than any list of a run has.
const MOST: usize = 1 << 20;

impl<A: Adapter> World<'_, A> {
    /// A snapshot names each request that is under way once, in the list of its kind, and describes
    /// it. To be asked when nothing moves any more.
    pub(super) fn snapshot_agrees(&self, at: usize) -> Verdict {
        let worker = &self.workers[at];
        let Some(engine) = &worker.engine else { return Ok(()) };
        let node = worker.node;
        let snapshot = engine.snapshot(MOST);
        let counters = engine.counters();
        let counted = (counters.posted_now, counters.unexpected_now);
        let listed = (snapshot.posted.len() as u64, snapshot.unexpected.len() as u64);
        ensure!(counted == listed, Leak, "n{node} counts {counted:?}, its snapshot {listed:?}");
        let mut named = self.receives_agree(at, &snapshot)?;
        for send in &snapshot.sends.first {
            self.send_agrees(at, send.request, &send.envelope)?;
            *named.entry(send.request).or_default() += 1;
        }
        for request in worker.requests.all() {
            let is_under_way = u32::from(!engine.requests().is_over(request));
            let times = named.get(&request).copied().unwrap_or(0);
            let what = worker.requests.what(request);
            ensure!(
                times == is_under_way,
                Leak,
                "n{node}: the snapshot names {what:?} {times} times; it is under way: \
                 {is_under_way}"
            );
        }
        for message in &snapshot.unexpected.first {
            self.oracle.identify(
                node,
                self.node_of(at, message.status.source)?,
                &message.status,
            )?;
        }
        Ok(())
    }

    fn receives_agree(
        &self,
        at: usize,
        snapshot: &Snapshot,
    ) -> Result<HashMap<RequestId, u32>, crate::Violation> {
        let worker = &self.workers[at];
        let node = worker.node;
        let mut named = HashMap::new();
        let mut latest = None;
        for receive in &snapshot.posted.first {
            let what = worker.requests.what(receive.request);
            let Some(Purpose::Receive(number)) = what else {
                ensure!(what.is_none(), Leak, "n{node}: the snapshot has {what:?} on the list");
                continue;
            };
            let (tag, mask) = self.oracle.wanted(number);
            let told = (receive.pattern.tag().0, receive.pattern.mask().0);
            ensure!(
                (tag & mask, mask) == (told.0 & told.1, told.1) && latest < Some(number),
                Leak,
                "n{node}: r{number} wants {tag:#x}/{mask:#x}, the snapshot says {told:x?} after \
                 {latest:?}"
            );
            latest = Some(number);
            *named.entry(receive.request).or_default() += 1;
        }
        for receive in &snapshot.arriving.first {
            *named.entry(receive.request).or_default() += 1;
        }
        Ok(named)
    }

    fn send_agrees(&self, at: usize, request: RequestId, envelope: &Status) -> Verdict {
        let worker = &self.workers[at];
        match worker.requests.what(request) {
            Some(Purpose::Send(message)) => {
                let to = self.node_of(at, envelope.source)?;
                self.oracle.is_sent(message, to, envelope)
            }
            // Nobody waits for the end of a message that was copied.
            what => {
                let node = worker.node;
                ensure!(what.is_none(), Leak, "n{node}: the snapshot calls {what:?} a send");
                Ok(())
            }
        }
    }
}
