//! An audit of the transport's books, for tests: what was taken is back, and what is written down
//! twice agrees.

use std::collections::{HashMap, HashSet};

use tagmatch_device::PeerId;
use tagmatch_device::slab::Key;
use tagmatch_fabric::handshake::Sent;

use super::OfiTransport;
use super::operations::{Kind, OfiOperation};
use super::sending::takes_messages;

impl OfiTransport {
    /// The errors in the books, one line each; none in a transport without a bug.
    pub(super) fn audit_books(&self) -> Vec<String> {
        let mut wrong = self.queues();
        let ids = self.core.meeting.peers.ids();
        wrong.extend(ids.filter_map(|id| self.marked(id)));
        wrong.extend(self.pieces());
        wrong
    }

    /// What waits is in one queue, and libfabric doesn't have it. A peer is blocked if something
    /// waits for room on the way to it.
    fn queues(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut blocked = HashSet::new();
        let twice = self.blocked.iter().filter(|peer| !blocked.insert(**peer));
        wrong.extend(twice.map(|peer| format!("{peer:?} is blocked twice")));
        let mut queued: Vec<Key> = self.unposted.iter().copied().collect();
        queued.extend(&self.early.queue);
        for id in self.core.meeting.peers.ids() {
            let Some(peer) = self.core.meeting.peers.find(id) else { continue };
            let waiting = &peer.link.waiting;
            queued.extend(waiting);
            let waits_for_room = !waiting.is_empty() && takes_messages(peer.state);
            if waits_for_room && !peer.link.is_rising && !blocked.contains(&id) {
                wrong.push(format!("{} wait for {id:?}, which isn't blocked", waiting.len()));
            }
        }
        let mut seen = HashSet::new();
        for key in queued {
            let is_right = seen.insert(key.to_bits())
                && self.core.operations.get(key).is_some_and(|waiting| !waiting.is_begun);
            if !is_right {
                wrong.push(format!("{key:?} waits twice, or has begun, or has ended"));
            }
        }
        wrong
    }

    /// A peer is flushed if a mark has gone behind its last message.
    fn marked(&self, id: PeerId) -> Option<String> {
        let peer = self.core.meeting.peers.find(id)?;
        let sent = peer.link.sent;
        let flushed = peer.link.flushed;
        let is_unflushed = peer.sent == Sent::Unflushed;
        (is_unflushed != (sent != flushed)).then(|| {
            format!("{sent} messages were sent to {id:?}, {flushed} flushed: {:?}", peer.sent)
        })
    }

    /// Each long message counts its pieces, and the write that its receiver waits for.
    fn pieces(&self) -> Vec<String> {
        let mut pieces: HashMap<u64, u32> = HashMap::new();
        for parent in self.core.operations.iter().filter_map(|operation| operation.parent) {
            *pieces.entry(parent.to_bits()).or_default() += 1;
        }
        let is_long = |operation: &OfiOperation| {
            let is_callers = matches!(operation.kind, Kind::Send | Kind::Receive);
            is_callers && !operation.is_told
        };
        let wrong = self.core.operations.keys(is_long).into_iter().filter_map(|key| {
            let long = self.core.operations.get(key)?.long.as_ref()?;
            let found = pieces.get(&key.to_bits()).copied().unwrap_or(0);
            let out = long.out;
            let is_right = out == found + u32::from(long.region.is_some());
            (!is_right).then(|| format!("{key:?} has {found} pieces, {out} are counted"))
        });
        wrong.collect()
    }
}
