//! Receives that the NIC has matched, until everything about them is known.
//!
//! Data, and the companion of a rendezvous request that has one, come in any order. The receive
//! ends when both are there.

use std::hash::{Hash, Hasher};

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{OrBug, PeerId, RemoteSpan};

use crate::credit::Amount;
use crate::error::{Fault, PeerFault};
use crate::requests::request::{RequestId, Status};
use crate::state::{CutShort, MatchedRendezvous, ProtocolState};
use crate::todo::Todo;
use crate::wire::{AppCtx, WireError};

/// A receive that the NIC has matched.
#[derive(Clone, Debug)]
pub(super) struct Landing {
    pub(super) request: RequestId,
    /// As the entry's.
    pub(super) named: Option<PeerId>,
    pub(super) status: Status,
    pub(super) app_ctx: AppCtx,
    /// Its companion isn't here yet.
    pub(super) lacks_companion: bool,
    pub(super) data: MatchedData,
}

/// What the NIC said of a matched message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchedData {
    /// Nothing yet.
    Due,
    /// The NIC has written so many bytes to the buffer; or more than fit, if it was bounced.
    Here { written: u64 },
    /// It doesn't fit: software must read what does.
    Remote { va: u64, rkey: u32 },
}

impl Landing {
    fn is_known(&self) -> bool {
        !self.lacks_companion && self.data != MatchedData::Due
    }

    /// The fault of a receive whose message is of another sender than the one that it names.
    fn wrong_sender(&self) -> Option<Fault> {
        let sender = self.status.source;
        let named = self.named.filter(|named| *named != sender)?;
        Some(Fault::WrongSender { named, sender })
    }
}

/// All matched receives.
#[derive(Clone, Debug, Default)]
pub(super) struct Landings(Slab<Landing>);

impl Landings {
    /// The senders that receives name.
    pub(super) fn named(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.0.iter().filter_map(|landing| landing.named)
    }

    pub(super) fn insert(&mut self, landing: Landing) -> Option<Key> {
        self.0.insert(landing, u32::MAX).ok()
    }

    /// Notes a fact about a receive, and ends it if nothing else is to come.
    pub(super) fn learn(
        &mut self,
        state: &mut ProtocolState,
        key: Key,
        note: impl FnOnce(&mut Landing),
    ) {
        // A landing ends early if the peer that it waits for goes down.
        let Some(landing) = self.0.get_mut(key) else { return };
        note(landing);
        if landing.is_known()
            && let Some(landing) = self.0.remove(key)
        {
            conclude(state, &landing);
        }
    }

    /// Ends a receive whose data, or whose companion, will never come. The NIC says so before the
    /// device tells why the peer is down, so the receive may have to wait for the reason.
    pub(super) fn fail(&mut self, state: &mut ProtocolState, key: Key) {
        let Some(landing) = self.0.remove(key) else { return };
        let Landing { request, status: Status { source, .. }, .. } = landing;
        match landing.wrong_sender() {
            Some(fault) => state.requests.fail(request, fault),
            None if state.is_down(source) => state.requests.fail(request, state.down(source)),
            None => {
                state.cut_short.extend(state.requests.take_buffer(request).map(|buffer| CutShort {
                    peer: source,
                    request,
                    buffer,
                }))
            }
        }
    }

    /// A peer is down: companions that it has not sent won't come. Receives without their data are
    /// not ended here, since the NIC ends these. There may be several without a companion: those of
    /// a peer that was broken with are not taken in any more.
    pub(super) fn lose_companions(&mut self, state: &mut ProtocolState, peer: PeerId) {
        let is_lost = |landing: &Landing| {
            landing.status.source == peer
                && landing.lacks_companion
                && landing.data != MatchedData::Due
        };
        for key in self.0.keys_where(is_lost) {
            self.fail(state, key);
        }
    }

    pub(super) fn hash_state(&self, key: Option<Key>, state: &mut impl Hasher) {
        let facts = |landing: &Landing| {
            let Landing { status, app_ctx, lacks_companion, .. } = *landing;
            (status.source, status.tag, app_ctx.0, lacks_companion)
        };
        key.and_then(|key| self.0.get(key)).map(facts).hash(state);
    }
}

/// Ends a receive that the NIC has matched: everything about it is known. Only now is its cost
/// known, too, which its sender has paid with the credit that it was granted.
fn conclude(state: &mut ProtocolState, landing: &Landing) {
    let Landing { request, mut status, app_ctx, data, .. } = *landing;
    let peer = status.source;
    state.observer.tell(|observer| observer.length(request.index(), status.length));
    let cost =
        if app_ctx.is_rendezvous() { Amount::RENDEZVOUS } else { Amount::of_eager(status.length) };
    if state.peer_mut(peer).grant.arrived(cost) {
        state.freed(peer, cost);
    } else {
        let error = WireError::Credit { bytes: cost.bytes };
        state.todo.push(Todo::Break(peer, PeerFault::Protocol(error)));
    }
    if let Some(fault) = landing.wrong_sender() {
        return drop_message(state, landing, fault);
    }
    let line = state.requests.get_mut(request).or_bug("the receive that a NIC has matched waits");
    let line = match line {
        Ok(line) => line,
        Err(bug) => return state.todo.push(Todo::Break(peer, PeerFault::Bug(bug))),
    };
    let buffer = std::mem::take(&mut line.buffer);
    state.counters.hardware += 1;
    match data {
        MatchedData::Remote { va, rkey } => {
            let span = RemoteSpan { address: va, key: rkey, length: status.length };
            let operation = app_ctx.operation();
            state.pull(MatchedRendezvous { request, status, span, operation, buffer });
        }
        MatchedData::Here { .. } | MatchedData::Due => {
            if let MatchedData::Here { written } = data
                && written < buffer.len() as u64
            {
                // A companion may have told of more bytes than the NIC has written.
                status.length = written;
            }
            let wants_fin = app_ctx.ack_wanted() && !app_ctx.is_rendezvous();
            state.received(request, status, buffer);
            state.acknowledge(peer, wants_fin.then(|| app_ctx.operation()));
        }
    }
}

/// Ends a receive whose message is not of the sender that it names. The sender of a rendezvous that
/// the NIC has read has its FIN; any other sender that waits is told that its message was not
/// taken.
#[cold]
fn drop_message(state: &mut ProtocolState, landing: &Landing, fault: Fault) {
    let Landing { request, status, app_ctx, data, .. } = *landing;
    let waits = if app_ctx.is_rendezvous() {
        !matches!(data, MatchedData::Here { .. })
    } else {
        app_ctx.ack_wanted()
    };
    if waits {
        state.abort(status.source, app_ctx.operation(), 0);
    }
    state.requests.fail(request, fault);
}
