//! The engine's state for who explores all states: what later matching depends on, and no more.

use std::hash::{Hash, Hasher};

use tagmatch_device::Device;
use tagmatch_soft::{Pattern, Tag, TagMask};

use crate::engine::Engine;
use crate::message::Message;
use crate::slab::Key;

impl<D: Device> Engine<D> {
    /// Feeds all that later matching depends on to a hasher, so that states which differ in nothing else
    /// are the same: the lists in their order, requests, and what is known of the NIC's list. Not in it:
    /// the device, counters, credit (which says who may send, not who matches), and sends. `name`
    /// makes of a NIC's handle what stays the same when it is used again.
    pub fn hash_state(&self, state: &mut impl Hasher, name: impl Fn(u32) -> usize) {
        let core = &self.core;
        core.requests.hash_state(state, |handle, state| {
            let posted = core.posted.get(handle);
            posted.map(|(pattern, id)| (pattern.tag(), pattern.mask(), id)).hash(state);
        });
        self.hash_unexpected(state);
        let Some(nic) = &core.nic else { return };
        nic.shadow.hash_state(state, name);
        nic.hash_state(state, |message, state| self.hash_message(Some(message), state));
    }

    /// The same of the messages alone that no receive was found for, oldest first.
    pub fn hash_unexpected(&self, state: &mut impl Hasher) {
        let any = Pattern::new(Tag(0), TagMask::ANY);
        let mut unexpected = self.core.unexpected.clone();
        while let Some(index) = unexpected.take(&any) {
            self.hash_message(self.core.messages.key_at(index), state);
        }
    }

    fn hash_message(&self, key: Option<Key>, state: &mut impl Hasher) {
        let status = key.and_then(|key| self.core.messages.get(key)).map(Message::status);
        status.map(|s| (s.source, s.tag, s.length, s.immediate)).hash(state);
    }
}
