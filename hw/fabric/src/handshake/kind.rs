//! What tells the handshake of one kind of device from that of another.

/// A kind of device.
#[derive(Debug)]
pub struct MeetingKind {
    /// The first bytes of each address and of each connection.
    pub magic: [u8; 4],
    /// The name of a device's socket in the abstract namespace, but for its random end.
    pub socket_prefix: &'static str,
    /// The name under which the key for this handshake is taken from the job's secret.
    pub protocol: &'static [u8],
    /// The error for an address of another kind of device.
    pub another_address: &'static str,
    /// The error for a peer with another layout of tags.
    pub another_layout: &'static str,
    /// The fewest bytes of [`Hello::worker`](super::Hello::worker).
    pub worker_min: usize,
}

#[cfg(test)]
pub(crate) const KIND: MeetingKind = MeetingKind {
    magic: *b"TMte",
    socket_prefix: "tagmatch-test-",
    protocol: b"tagmatch test",
    another_address: "not the address of a test",
    another_layout: "it carries tags in another way",
    worker_min: 9,
};
