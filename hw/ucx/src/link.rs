//! What the device keeps of a peer.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;

use super::operations::{Fault, Index};
use super::worker::Endpoint;

/// What the device keeps of a peer beside what the handshake does.
#[derive(Default)]
pub struct UcxLink {
    pub(super) endpoint: Option<Endpoint>,
    pub(super) fault: Option<NonNull<Fault>>,
    /// UCX's request that flushes the messages sent to the peer.
    pub(super) draining: Option<*mut c_void>,
    /// Sends that wait until the peer is up.
    pub(super) waiting: VecDeque<Index>,
}
