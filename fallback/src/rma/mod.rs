//! One-sided operations: a worker puts bytes into, gets bytes from, and changes
//! elements of memory that another worker has exposed, without a receive there.
//!
//! 1. The owner exposes a region ([`regions`]) and tells its key by any means.
//! 2. The initiator sends the operation ([`initiator`]). A long put goes out in pieces, and tagged
//!    messages to the same peer go out between its pieces.
//! 3. The owner carries the operation out when its message arrives, and answers ([`owner`]). An
//!    operation has ended when its answer has arrived, so its bytes are visible to the owner's
//!    processors then.
//!
//! **Without messages.** A device may do puts and gets by itself ([`Device::access`]). It gets them
//! in their order, and only while none to this peer is under way by messages; no message of
//! another operation goes out to the peer until they have ended. What it does in one call
//! ([`Device::access_at_once`]) has no place among the operations at all, and is done only while
//! none to the peer is under way. So the order below holds as if these operations were messages
//! whose answers have come. A device that is given an operation while it does another one keeps the
//! order among them ([`AccessLimits`]). What the device can't do, or finds anything wrong with,
//! messages do: the owner says what is wrong. A put with a notice, an atomic operation that isn't
//! done in one call, and an operation without bytes are messages always.
//!
//! [`AccessLimits`]: tagmatch_device::AccessLimits
//!
//! **Order.** The operations of one initiator to one owner are done in the order in which they
//! began, except that the bytes of a get are read while its answer goes out, which may be after
//! later operations: a fence holds these back. No order exists between peers, and none between
//! one-sided operations and tagged messages, but that both are sent on the same connection: a
//! message that is sent after a put has *ended* arrives after the put's bytes.
//!
//! **Nothing is trusted.** The owner looks at key, right and bounds of each message; what is wrong
//! is an error of that operation alone. A message that no initiator of ours sends is a peer fault.

pub(crate) mod initiator;
mod owner;
pub(crate) mod regions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use tagmatch_device::{
    AccessEnd, Buffer, Bytes, Device, Outgoing, PeerId, QuickAccess, Refused, RegionSpan,
};

use crate::error::Fault;
use crate::peers::peer::Peer;
use crate::requests::request::RequestId;
use crate::requests::table::Requests;
use crate::rma::initiator::{InitiatorSide, RemoteOperation, RmaSent};
use crate::rma::owner::{ALL_NOTICES_MAX, OwnerSide, PutPiece};
use crate::rma::regions::{ExposedRegions, RegionKey, RegionUse};
use crate::wire::{RmaHeader, TMH_BYTES, WireError};

/// The most bytes of one message.
const MESSAGE_MAX: usize = 65536;

/// Bytes after which tagged messages to the same peer have their turn.
const TURN_BYTES: usize = 65536;

/// A peer has put bytes into a region, and tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineNotice {
    /// The peer that wrote.
    pub peer: PeerId,
    /// The number that the peer gave with its put.
    pub value: u64,
    /// Bytes of the put.
    pub length: u64,
}

/// The state of one-sided operations with a peer, in both directions.
#[derive(Clone, Debug, Default)]
struct RmaPeer {
    initiator: InitiatorSide,
    owner: OwnerSide,
}

/// The state of one-sided operations.
#[derive(Clone, Debug)]
pub(crate) struct Rma {
    pub(crate) regions: ExposedRegions,
    /// The peers with which any are under way.
    peers: BTreeMap<PeerId, RmaPeer>,
    notices: VecDeque<EngineNotice>,
    /// Operations that the device has done without a message.
    pub(crate) direct: u64,
}

/// Whether something is left to send to a peer after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmaTurn {
    /// Nothing, or it waits for answers.
    Over,
    /// There is more.
    More,
    /// There is more, and the device has no room.
    NoRoom,
    /// The peer takes no messages that are long enough.
    TooShort,
}

impl Rma {
    pub(crate) fn new(seed: u64) -> Self {
        let regions = ExposedRegions::new(seed);
        Rma { regions, peers: BTreeMap::new(), notices: VecDeque::new(), direct: 0 }
    }

    /// Lets the device do an access in this call, if no operation to this peer is under way.
    #[inline]
    pub(crate) fn access_at_once<D: Device>(
        &mut self,
        device: &mut D,
        peer: PeerId,
        of: RegionSpan,
        access: QuickAccess<'_>,
    ) -> bool {
        let is_done = !of.place.is_none()
            && self.under_way(peer) == 0
            && device.access_at_once(peer, of, access);
        self.direct += u64::from(is_done);
        is_done
    }

    /// Begins an operation.
    pub(crate) fn begin(&mut self, request: RequestId, operation: RemoteOperation) {
        let peer = self.peers.entry(operation.peer).or_default();
        peer.initiator.begin(request, operation);
    }

    /// See [`InitiatorSide::fence`].
    pub(crate) fn fence(&mut self, peer: PeerId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.initiator.fence();
        }
    }

    /// Operations to a peer that have not ended.
    pub(crate) fn under_way(&self, peer: PeerId) -> usize {
        self.peers.get(&peer).map_or(0, |peer| peer.initiator.under_way())
    }

    /// Whether a peer would miss an operation or an answer if this worker were closed now.
    pub(crate) fn has_unsent(&self) -> bool {
        let others = self.peers.iter().filter(|(id, _)| **id != PeerId::ONESELF);
        others.into_iter().any(|(_, peer)| peer.initiator.has_unsent() || peer.owner.has_answers())
    }

    /// Takes in a message of a peer.
    pub(crate) fn arrived(
        &mut self,
        peer: PeerId,
        header: &RmaHeader,
        bytes: &Bytes<'_>,
        requests: &mut Requests,
    ) -> Result<(), WireError> {
        let Rma { regions, peers, .. } = self;
        let is_answer = matches!(header, RmaHeader::Data | RmaHeader::Done { .. });
        if is_answer && !peers.contains_key(&peer) {
            return Err(WireError::OneSided("an answer that answers no operation"));
        }
        let RmaPeer { initiator, owner } = peers.entry(peer).or_default();
        match *header {
            RmaHeader::Put { key, offset, left, notice } => {
                owner.put(regions, PutPiece { key, offset, left, notice }, bytes, header.byte_len())
            }
            RmaHeader::Get { key, offset, length } => owner.get(regions, key, offset, length),
            RmaHeader::Atomic { .. } => owner.atomic(regions, header, bytes),
            RmaHeader::Data => initiator.data(peer, bytes, requests),
            RmaHeader::Done { count, fault } => initiator.done(peer, count, fault, requests),
        }
    }

    /// The device has ended an access.
    pub(crate) fn accessed(&mut self, end: AccessEnd, requests: &mut Requests) {
        self.direct += u64::from(end.is_done);
        if let Some(RmaPeer { initiator, .. }) = self.peers.get_mut(&end.peer) {
            initiator.accessed(end, requests);
        }
    }

    /// Sends answers and operations to a peer in turn, until its turn is over. The device does an
    /// operation by itself if it can.
    pub(crate) fn send<D: Device>(&mut self, peer: &Peer, device: &mut D) -> RmaTurn {
        let id = peer.id;
        if let Some(RmaPeer { initiator, .. }) = self.peers.get_mut(&id) {
            let limits = device.access_limits(id);
            while let Some(access) = initiator.next_access(id, limits) {
                if let Err(buffer) = device.access(access) {
                    initiator.not_begun(buffer);
                    break;
                }
            }
        }
        let mut is_sent = false;
        let message_max = MESSAGE_MAX.min(peer.eager_max + TMH_BYTES);
        let turn = self.send_to(id, message_max, |header, payload| {
            device.send(id, Outgoing { header, payload, immediate: None })?;
            is_sent = true;
            Ok(())
        });
        if is_sent {
            device.note_one_sided(id);
        }
        turn
    }

    /// As [`Rma::send`], by any function, in messages of at most `message_max` bytes.
    fn send_to(
        &mut self,
        id: PeerId,
        message_max: usize,
        mut send: impl FnMut(&[u8], &[u8]) -> Result<(), Refused>,
    ) -> RmaTurn {
        let Rma { regions, peers, notices, .. } = self;
        let Some(RmaPeer { initiator, owner }) = peers.get_mut(&id) else { return RmaTurn::Over };
        if message_max < RmaHeader::MESSAGE_MIN {
            return RmaTurn::TooShort;
        }
        let mut bytes = 0;
        let mut turn = RmaTurn::Over;
        loop {
            let before = bytes;
            let has_room = notices.len() < ALL_NOTICES_MAX;
            let tell = |value, length| notices.push_back(EngineNotice { peer: id, value, length });
            let payload_max = message_max - RmaHeader::ANSWER_BYTES;
            if let Some(answer) = owner.next(regions, payload_max, has_room, tell) {
                let header = answer.header;
                let length = answer.payload.len();
                if send(&header.emit()[..header.byte_len()], answer.payload).is_err() {
                    turn = RmaTurn::NoRoom;
                    break;
                }
                if let Some(key) = owner.sent(header, length) {
                    regions.note(key, RegionUse::READ);
                }
                bytes += header.byte_len() + length;
            }
            match initiator.send_one(message_max, &mut send) {
                RmaSent::Nothing => {}
                RmaSent::Bytes(sent) => bytes += sent,
                RmaSent::Refused(Refused::Full) => {
                    turn = RmaTurn::NoRoom;
                    break;
                }
                // The device reports the end of the peer, which ends its operations.
                RmaSent::Refused(_) => break,
            }
            if bytes == before {
                break;
            }
            if bytes >= TURN_BYTES {
                turn = RmaTurn::More;
                break;
            }
        }
        self.forget_idle(id);
        turn
    }

    /// Forgets a peer with which nothing is under way.
    fn forget_idle(&mut self, id: PeerId) {
        let idle = |peer: &RmaPeer| peer.initiator.is_idle() && peer.owner.is_idle();
        if self.peers.get(&id).is_some_and(idle) {
            self.peers.remove(&id);
        }
    }

    /// The oldest notice that nobody has taken. With it comes a peer to which an answer can go out
    /// now, if there is one.
    pub(crate) fn take_notice(&mut self) -> Option<(EngineNotice, Option<PeerId>)> {
        let was_full = self.notices.len() >= ALL_NOTICES_MAX;
        let notice = self.notices.pop_front()?;
        let peer = notice.peer;
        let can_answer = self.peers.get_mut(&peer).is_some_and(|peer| peer.owner.notice_taken());
        self.forget_idle(peer);
        if can_answer || !was_full {
            return Some((notice, can_answer.then_some(peer)));
        }
        let waiting = self.peers.iter().find(|(_, peer)| peer.owner.waits_for_notices());
        Some((notice, waiting.map(|(id, _)| *id)))
    }

    /// A peer is down: its operations end. The notices that it has told stay.
    pub(crate) fn peer_down(&mut self, peer: PeerId, fault: Fault, requests: &mut Requests) {
        if let Some(RmaPeer { initiator, .. }) = self.peers.remove(&peer) {
            initiator.lose(fault, requests);
        }
    }

    /// Takes a region's memory back.
    pub(crate) fn close_region(&mut self, key: RegionKey) -> Option<Buffer> {
        self.regions.close(key)
    }

    /// The errors in the books, one line each.
    pub(crate) fn audit(&self, is_closed: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        if is_closed && !self.peers.is_empty() {
            wrong.push(format!("{} peers of a closed engine are left in RMA", self.peers.len()));
        }
        for (id, peer) in &self.peers {
            let unread = self.notices.iter().filter(|notice| notice.peer == *id).count();
            let errors = [peer.initiator.audit(), peer.owner.audit(unread)];
            wrong.extend(errors.into_iter().flatten().map(|error| format!("{id:?}: {error}")));
        }
        wrong
    }
}
