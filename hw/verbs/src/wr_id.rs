//! The upper bits of a `wr_id`: they tell what a completion is about. A `wr_id` with none of these bits is a request on
//! a peer's queue pair; the number of the queue pair is in the upper half then.

/// A message of a peer, in the receive queue's buffer of this number.
pub(super) const RECEIVE: u64 = 1 << 63;
/// A datagram of the connection set-up has arrived.
pub(super) const GREETED: u64 = 1 << 62;
/// A datagram of the connection set-up was sent.
pub(super) const GREETING: u64 = 1 << 61;
/// A FIN of a rendezvous that the peer's NIC has matched, in the FIN queue's buffer of this number.
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
