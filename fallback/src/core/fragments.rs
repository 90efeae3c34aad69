//! Messages that come in fragments, on the receiving side.
//!
//! Until a message is whole, no probe and no receive that is posted meanwhile finds it: it arrives
//! with its last fragment, and its bytes are put together in the store. There is one exception,
//! which saves a copy. If the oldest receive that matches the first fragment names the sender, the
//! message is matched at once, and its bytes go straight into the buffer of that receive. No other
//! message could have that receive: a sender sends nothing else to be matched between two fragments
//! of a message.
//!
//! | while fragments are missing | the message is matched | it isn't |
//! |---|---|---|
//! | the receive is cancelled | too late: it ends with the message | |
//! | the receive is dropped | the message is received and dropped | |
//! | another message comes that the receive would match | it goes on to the next receive | it is matched first |
//! | the sender goes down | the receive ends with that fault | the message never was |
//!
//! The first fragment is charged for the whole message, so what is put together is within the
//! credit that the sender was granted.
//!
//! # Why there are fragments
//! **Messages of middle size go out in fragments.** A read out of the sender's memory costs system
//! calls, 1 to 5 microseconds in all, before the first byte moves. Through the ring, the receiver
//! copies one fragment while the sender writes the next one. Which is faster depends on the
//! machine, so the handshake times a short read of the peer's memory, and messages of up to 16
//! bytes for each nanosecond of it (48 where runs are written past the cache) go out in fragments
//! at first. From there on the device learns it for each class of lengths from 8 to 128 KiB
//! (`Device::sends_fragments`; `Limits::fragmented_max` and `Config::fragmented_max` bound it). The
//! first fragment is charged for the whole message, so a receiver can always take the rest. A
//! message arrives with its last fragment: until then no probe and no any-source receive finds it,
//! and a sender that stops or dies in the middle holds up nobody else. If the oldest matching
//! receive names the sender, the bytes go straight into its buffer; no other message could have had
//! that receive. MPI allows no change to the buffer of a cancelled receive (MPI-4.1 section 3.8.4),
//! so a cancel comes too late then, as during a read. A worker with a NIC's list takes no
//! fragments: later messages of their sender would overtake them in the list.

use tagmatch_device::{Incoming, PeerId};
use tagmatch_soft::SourceId;

use crate::credit::Amount;
use crate::error::Fault;
use crate::receiving::arriving::{FragmentPlace, PartialMessage};
use crate::receiving::unexpected::{Body, UnexpectedMessage};
use crate::requests::request::{RequestId, Status};
use crate::slices;
use crate::state::ProtocolState;
use crate::store::Stored;
use crate::wire::{AppCtx, Fragment, WireError};

/// The longest message that may come in fragments, as for [`crate::EngineConfig::fragmented_max`].
const LENGTH_MAX: u64 = 1 << 30;

/// Takes in a fragment. A worker with a NIC's list takes none: a message in fragments doesn't pass
/// the list, so later messages of its sender would overtake it there.
///
/// # Errors
/// The rule that the peer broke.
pub(crate) fn take_in(
    state: &mut ProtocolState,
    takes_fragments: bool,
    incoming: &Incoming<'_>,
    fragment: Fragment,
) -> Result<(), WireError> {
    let peer = incoming.peer;
    if !takes_fragments {
        return Err(WireError::Fragment("for a NIC's list, which takes none"));
    }
    let whole = arrived(state, incoming, fragment)?;
    let Some((status, stored)) = whole else { return Ok(()) };
    let message = UnexpectedMessage::new(&status, AppCtx::default(), Body::Stored(stored));
    let matched = state.posted.take_match(status.tag, SourceId(peer.0));
    if let Some(matched) = matched.and_then(|index| state.requests.matched(index)) {
        let request = matched.request();
        let buffer = std::mem::take(&mut matched.line.buffer);
        state.counters.posted += 1;
        state.observer.tell(|observer| observer.matched(request.index(), &status, false));
        state.fill(request, message, buffer);
    } else {
        state.push_unexpected(message);
        state.grant_credit(peer);
    }
    Ok(())
}

/// A fragment came from a peer. Returns the envelope and the bytes of a message that is whole now
/// and has no receive yet.
///
/// # Errors
/// The rule that the peer broke.
fn arrived(
    state: &mut ProtocolState,
    incoming: &Incoming<'_>,
    fragment: Fragment,
) -> Result<Option<(Status, Stored)>, WireError> {
    let Incoming { peer, immediate, ref bytes, .. } = *incoming;
    let payload_length = bytes.len() - Fragment::BYTES;
    if payload_length == 0 {
        return Err(WireError::Fragment("without a payload"));
    }
    let mut arriving = match (fragment, state.peer_mut(peer).arriving.take()) {
        (Fragment::First { .. }, Some(unfinished)) => {
            state.peer_mut(peer).arriving = Some(unfinished);
            return Err(WireError::Fragment("begins a message before the last one is whole"));
        }
        (Fragment::First { tag, length }, None) => {
            let status = Status { source: peer, tag, length, truncated: false, immediate };
            begin(state, status)?
        }
        (Fragment::Next { .. }, None) => {
            return Err(WireError::Fragment("continues no message"));
        }
        (Fragment::Next { offset }, Some(arriving)) => {
            if offset != arriving.received as u64 {
                state.peer_mut(peer).arriving = Some(arriving);
                return Err(WireError::Fragment("isn't the next one"));
            }
            arriving
        }
    };
    let end = arriving.received + payload_length;
    if end as u64 > arriving.status.length {
        state.peer_mut(peer).arriving = Some(arriving);
        return Err(WireError::Fragment("goes beyond the end of its message"));
    }
    let room = match &mut arriving.place {
        FragmentPlace::Receive(request) => {
            state.requests.get_mut(*request).and_then(|l| l.buffer.room())
        }
        FragmentPlace::Store(stored) => Some(stored.bytes_mut().into()),
    };
    // A part of the message may lie beyond the end of a buffer that is too short.
    let rest = room.and_then(|room| {
        let length = room.len();
        room.part(arriving.received.min(length)..length)
    });
    bytes.copy_to_room(Fragment::BYTES, rest.unwrap_or_default());
    arriving.received = end;
    if (end as u64) < arriving.status.length {
        state.peer_mut(peer).arriving = Some(arriving);
        return Ok(None);
    }
    let cost = arriving.cost();
    let PartialMessage { status, place, .. } = *arriving;
    match place {
        FragmentPlace::Receive(request) => {
            if let Some(line) = state.requests.get_mut(request) {
                let mut buffer = std::mem::take(&mut line.buffer);
                buffer.unpack(end);
                state.received(request, status, buffer);
            }
            state.freed(peer, cost);
            Ok(None)
        }
        FragmentPlace::Store(stored) => Ok(Some((status, stored))),
    }
}

/// Charges a message and decides where to put its fragments.
fn begin(state: &mut ProtocolState, status: Status) -> Result<Box<PartialMessage>, WireError> {
    let Status { source, length, .. } = status;
    let too_long = WireError::Credit { bytes: length };
    if length > LENGTH_MAX {
        return Err(too_long);
    }
    let Ok(size) = usize::try_from(length) else { return Err(too_long) };
    let cost = Amount::eager(size);
    if !state.peer_mut(source).grant.arrived(cost) {
        return Err(WireError::Credit { bytes: cost.bytes });
    }
    let place = match take_receive(state, &status) {
        Some(request) => FragmentPlace::Receive(request),
        None => FragmentPlace::Store(state.unexpected.reserve(size)),
    };
    Ok(Box::new(PartialMessage { status, received: 0, place }))
}

/// Takes the oldest receive that matches a message off the posted list, if it names the sender.
fn take_receive(state: &mut ProtocolState, status: &Status) -> Option<RequestId> {
    let tag = status.tag;
    let source = SourceId(status.source.0);
    let (pattern, index) = state.posted.get(state.posted.first_match(tag, source)?)?;
    pattern.source()?;
    let line = state.requests.matched(index)?.line;
    // Several slices get memory in one run, which is copied to them at the end.
    let (buffer, has_memory) = match slices::room(std::mem::take(&mut line.buffer)) {
        Ok(buffer) => (buffer, true),
        Err(refused) => (refused.buffer, false),
    };
    line.buffer = buffer;
    if !has_memory {
        return None;
    }
    state.posted.take_match(tag, source)?;
    let request = state.requests.matched(index)?.request();
    state.requests.read(request, status, AppCtx::default());
    state.counters.posted += 1;
    state.observer.tell(|observer| observer.matched(index, status, false));
    Some(request)
}

/// Drops the message of a peer that will never be whole. The receive whose buffer it fills ends
/// with `fault`.
pub(crate) fn lose(state: &mut ProtocolState, peer: PeerId, fault: Fault) {
    let Some(arriving) = state.peer_mut(peer).arriving.take() else { return };
    let cost = arriving.cost();
    match arriving.place {
        FragmentPlace::Receive(request) => {
            if let Some(line) = state.requests.get_mut(request) {
                line.buffer.unpack(0);
            }
            state.requests.fail(request, fault);
        }
        FragmentPlace::Store(stored) => state.unexpected.free(cost, stored),
    }
    state.freed(peer, cost);
}
