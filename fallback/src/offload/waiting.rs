//! Messages that wait for what the NIC says: did it match the receive that they hit?

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use tagmatch_device::PeerId;
use tagmatch_device::slab::Key;

/// A message that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingMessage {
    pub(super) message: Key,
    /// The NIC has counted it: software's count is to follow once it has its place.
    pub(super) through_list: bool,
}

/// All messages that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingMessages {
    /// Messages that wait for a delete, by the index of the receive that they hit.
    for_receive: BTreeMap<u32, VecDeque<WaitingMessage>>,
    /// Messages behind one that waits, by the sender of both. An empty queue holds up the sender's
    /// next one.
    behind: BTreeMap<PeerId, VecDeque<WaitingMessage>>,
}

impl WaitingMessages {
    /// Whether a message of this sender waits, so that its next ones must.
    pub(super) fn holds_up(&self, peer: PeerId) -> bool {
        self.behind.contains_key(&peer)
    }

    /// Has a message wait until it is known whether the NIC matched the receive with this index.
    pub(super) fn wait_for(&mut self, index: u32, peer: PeerId, message: WaitingMessage) {
        self.for_receive.entry(index).or_default().push_back(message);
        self.behind.entry(peer).or_default();
    }

    /// Has a message wait behind an earlier one of its sender.
    pub(super) fn wait_behind(&mut self, peer: PeerId, message: WaitingMessage) {
        self.behind.entry(peer).or_default().push_back(message);
    }

    /// The first message that waits for a receive.
    pub(super) fn take_first(&mut self, index: u32) -> Option<WaitingMessage> {
        self.for_receive.get_mut(&index)?.pop_front()
    }

    /// All messages that wait for a receive.
    pub(super) fn take_all(&mut self, index: u32) -> VecDeque<WaitingMessage> {
        self.for_receive.remove(&index).unwrap_or_default()
    }

    /// The next message behind one that has found its place; if there is none, the sender is not
    /// held up any more.
    pub(super) fn next_behind(&mut self, peer: PeerId) -> Option<WaitingMessage> {
        let next = self.behind.get_mut(&peer)?.pop_front();
        if next.is_none() {
            self.behind.remove(&peer);
        }
        next
    }

    /// Removes the messages behind another one of this sender that are lost.
    pub(super) fn remove_behind(
        &mut self,
        peer: PeerId,
        is_lost: impl Fn(&WaitingMessage) -> bool,
    ) -> Vec<WaitingMessage> {
        let Some(queue) = self.behind.get_mut(&peer) else { return Vec::new() };
        let lost = queue.iter().filter(|message| is_lost(message)).copied().collect();
        queue.retain(|message| !is_lost(message));
        lost
    }

    /// The number of messages that wait.
    pub(super) fn len(&self) -> usize {
        let queues = self.for_receive.values().chain(self.behind.values());
        queues.map(VecDeque::len).sum()
    }

    /// Feeds the messages to a hasher; `message` adds what is known of one.
    pub(super) fn hash_state<H: Hasher>(&self, state: &mut H, message: impl Fn(Key, &mut H)) {
        let each = |queue: &VecDeque<WaitingMessage>, state: &mut H| {
            queue.len().hash(state);
            for waiting in queue {
                waiting.through_list.hash(state);
                message(waiting.message, state);
            }
        };
        for (index, queue) in &self.for_receive {
            index.hash(state);
            each(queue, state);
        }
        for (peer, queue) in &self.behind {
            peer.hash(state);
            each(queue, state);
        }
    }
}
