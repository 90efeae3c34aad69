//! Why a device can't go on with a peer.

use crate::{Bug, Shortage};

/// Why a peer went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// Its process ended, or its connection broke.
    Gone,
    /// It ended the connection in order: its worker was dropped, or disconnected from this one.
    Left,
    /// It could not be reached. `ECONNREFUSED` means that there is no worker at this address,
    /// `EUSERS` that it has as many peers as it may have, `EMFILE` that its process has no
    /// descriptors left for a connection.
    Unreachable {
        /// `errno` of the last attempt; 0 if there is none.
        errno: i32,
    },
    /// This worker could not make the connection, since its process or its machine has run out of
    /// something. It tried for as long as a connection may take. The peer may live, and may be
    /// reached by others.
    Shortage(Shortage),
    /// This worker's end of the connection failed: its device, or what it asked the device for. It
    /// says nothing about the peer, which may live.
    Failed {
        /// What failed.
        what: &'static str,
        /// `errno` of the call that failed; 0 if it was no call.
        errno: i32,
    },
    /// It broke a rule of the device's protocol.
    Misbehaved {
        /// The rule that was broken.
        what: &'static str,
    },
    /// [`Device::disconnect`](crate::Device::disconnect) was called.
    Disconnected,
    /// This worker met a state that can't be, so it can't go on with this peer.
    Bug(Bug),
}

impl DownReason {
    /// Why a system call of this process that was to reach the peer failed: what the process lacks,
    /// or that the peer can't be reached.
    pub fn of_failed_call(errno: i32) -> Self {
        Shortage::of_errno(errno).map_or(DownReason::Unreachable { errno }, DownReason::Shortage)
    }
}
