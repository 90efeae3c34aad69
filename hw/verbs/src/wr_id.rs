//! The upper bits of a `wr_id`, which tell what a completion is about. A `wr_id` with none of these
//! bits belongs to a request on a peer's queue pair; it has the peer's index in its upper half and
//! the request's number in its lower half.

/// A message from a peer, in the receive buffer of this number.
pub(super) const RECEIVE: u64 = 1 << 63;
/// A datagram of the handshake was received.
pub(super) const DATAGRAM_RECEIVED: u64 = 1 << 62;
/// A datagram of the handshake was sent.
pub(super) const DATAGRAM_SENT: u64 = 1 << 61;
/// A FIN of a rendezvous that the peer's NIC has matched, in the FIN buffer of this number.
pub(super) const FIN: u64 = 1 << 60;
/// An entry of the NIC's list has received a message.
pub(super) const ENTRY: u64 = 1 << 59;
/// The NIC has added an entry to its list.
pub(super) const ADDED: u64 = 1 << 58;
/// The NIC has deleted an entry from its list, or found that it was consumed.
pub(super) const DELETED: u64 = 1 << 57;
/// The NIC has taken the count of unexpected messages.
pub(super) const SYNCED: u64 = 1 << 56;
/// Any operation on the NIC's list.
pub(super) const OPERATION: u64 = ADDED | DELETED | SYNCED;
