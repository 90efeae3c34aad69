//! What the device keeps of a peer.

use std::collections::VecDeque;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys::fi_addr_t;

/// What the device keeps of a peer beside what the handshake does.
#[derive(Default)]
pub struct OfiLink {
    /// The provider's address of it.
    pub(super) address: Option<fi_addr_t>,
    /// The same for this device's own packets.
    pub(super) side: fi_addr_t,
    /// It is up, and that is reported once the provider has a connection to it.
    pub(super) is_rising: bool,
    /// For messages and for packets: whether a mark that has to go before that hasn't, and whether
    /// one of the peer has come.
    pub(super) unmarked: [bool; 2],
    pub(super) has_marked: [bool; 2],
    /// What is to go out to it, in order: libfabric had no room, or the peer isn't up yet.
    pub(super) waiting: VecDeque<Key>,
    /// Messages that were sent to it. A mark that is complete has counted so many.
    pub(super) sent: u32,
    /// The count when the mark that is under way was sent.
    pub(super) mark: Option<u32>,
    /// When its operations are given up, of a peer that is ending.
    pub(super) until: Option<std::time::Instant>,
}
