//! What the transport keeps of a peer.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;

use tagmatch_device::slab::Key;

use super::operations::Fault;
use super::worker::PeerEndpoint;

/// What the transport keeps of a peer beside what the handshake does.
#[derive(Default)]
pub struct UcxLink {
    pub(super) endpoint: Option<PeerEndpoint>,
    pub(super) fault: Option<Rc<Fault>>,
    /// UCX's request that flushes the messages sent to the peer.
    pub(super) draining: Option<*mut c_void>,
    /// Sends that wait until the peer is up.
    pub(super) waiting: VecDeque<Key>,
}
