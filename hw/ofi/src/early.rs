//! Receives that libfabric can't take yet, because they name a peer whose address isn't known.
//!
//! Only a provider that names peers beside the tag (`cxi`) needs the address; the others have the
//! peer's number in the tag. A receive that names a peer matches nothing before the peer is there,
//! so the receive waits here, and receives that name other peers are posted past the receive that
//! waits. A later receive from any source isn't: both match the first message of that peer, which
//! belongs to the receive that was posted first (MPI 4.1, section 3.5). Everything
//! that is posted after such a receive waits behind it.

use tagmatch_device::slab::Key;

use super::OfiTransport;
use super::carrier::CqData;
use super::operations::Kind;

impl OfiTransport {
    /// Keeps a receive that has to wait for a peer; `false` if it doesn't have to.
    pub(super) fn keep_early(&mut self, key: Key) -> bool {
        let Some(operation) = self.core.operations.at(key) else { return false };
        let is_asked = operation.kind == Kind::Receive && !operation.is_claimed;
        if self.carrier.data != CqData::Sender || !is_asked {
            return false;
        }
        let waits = match operation.peer {
            None => !self.early.queue.is_empty(),
            Some(peer) => {
                let entry = self.core.meeting.peers.find(peer);
                self.early.has_any || entry.is_some_and(|entry| entry.link.address.is_none())
            }
        };
        if waits {
            self.early.has_any |= operation.peer.is_none();
            self.early.queue.push(key);
        }
        waits
    }

    /// Posts the early receives that need not wait any more, because the address of a peer is known
    /// now, or because an early receive has ended.
    pub(super) fn post_early(&mut self) {
        for key in std::mem::take(&mut self.early).queue {
            self.post_or_wait(key);
        }
    }

    /// Takes a receive that isn't posted out of the queue that it waits in.
    pub(super) fn take_unposted(&mut self, key: Key) {
        self.unposted.retain(|waiting| *waiting != key);
        let before = self.early.queue.len();
        self.early.queue.retain(|waiting| *waiting != key);
        if self.early.queue.len() < before && self.early.has_any {
            self.post_early();
        }
    }
}
