//! What the device keeps of a peer.

use std::collections::VecDeque;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys::fi_addr_t;

use super::endpoint::Lane;

/// What the device keeps of a peer beside what the handshake does.
#[derive(Default)]
pub struct OfiLink {
    /// The provider's address of it.
    pub(super) address: Option<fi_addr_t>,
    /// The same for this device's own packets.
    pub(super) side: fi_addr_t,
    /// It is up, and that is reported once the provider has a connection to it.
    pub(super) is_rising: bool,
    /// The marks among messages, and those among packets.
    pub(super) messages: Marks,
    pub(super) packets: Marks,
    /// What is to go out to it, in order: libfabric had no room, or the peer isn't up yet.
    pub(super) waiting: VecDeque<Key>,
    /// Messages that were sent to it. A mark that is complete has counted so many.
    pub(super) sent: u32,
    /// The count up to which marks have flushed the messages: the audit compares.
    pub(super) flushed: u32,
    /// The count when the mark that is under way was sent.
    pub(super) mark: Option<u32>,
    /// While the peer is ending: when the device gives up waiting for its operations.
    pub(super) until: Option<std::time::Instant>,
}

/// The marks in one lane by which both ends make sure of the provider's connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks {
    /// One has to go before the peer is reported, and hasn't gone.
    pub(super) is_due: bool,
    /// One of the peer has arrived.
    pub(super) has_arrived: bool,
}

impl OfiLink {
    pub(super) fn marks(&mut self, lane: Lane) -> &mut Marks {
        match lane {
            Lane::Messages => &mut self.messages,
            Lane::Packets => &mut self.packets,
        }
    }
}
