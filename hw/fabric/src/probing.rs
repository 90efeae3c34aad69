//! Receives, and looks for messages that wait.

use tagmatch_device::Buffer;
use tagmatch_device::matching::{Envelope, HeldId, TagPattern, Unfit};
use tagmatch_device::slab::Key;

use crate::transport::{TagTransport, report_up};

/// Messages of unknown senders that one look discards at most.
const STRAY_MAX: usize = 64;

/// A message that was found, and how it is received if it was taken.
type FoundMessage<T> = (Option<<T as TagTransport>::Taken>, Envelope);

/// See [`MatchingDevice::receive`](tagmatch_device::matching::MatchingDevice::receive).
#[inline]
pub(crate) fn post_receive<T: TagTransport>(
    transport: &mut T,
    pattern: TagPattern,
    buffer: Buffer,
    token: u64,
) -> Result<(), (Buffer, Unfit)> {
    if !buffer.is_writable() {
        return Err((buffer, Unfit::ReadOnly));
    }
    let wire = match transport.wire_pattern(pattern) {
        Ok(wire) => wire,
        Err(unfit) => return Err((buffer, unfit)),
    };
    let source = pattern.source;
    let meeting = &transport.core().meeting;
    let is_down =
        source.and_then(|peer| meeting.peers.find(peer)).is_some_and(|peer| peer.is_leaving());
    // Messages of the peer that are complete can still be received.
    if meeting.is_closed || is_down && !is_there(transport, wire) {
        return Err((buffer, Unfit::Down));
    }
    let operation = transport.receive_operation(source, wire, buffer, token);
    let core = transport.core_mut();
    let key = core.operations.enter(operation).map_err(|buffer| (buffer, Unfit::Exhausted))?;
    core.depends_on(source);
    core.tokens.insert(token, key);
    transport.post(key, wire).map_err(|unfit| {
        let core = transport.core_mut();
        core.forget_token(token, key);
        let buffer = core.retire(key).map(|(_, buffer)| buffer).unwrap_or_default();
        (buffer, unfit)
    })
}

/// Whether a message is there for a receive of a peer that is ending.
#[cold]
fn is_there<T: TagTransport>(transport: &mut T, wire: T::Pattern) -> bool {
    let found = transport.look(wire, false);
    found.map(|found| transport.leave(found)).is_some()
}

/// The oldest message that matches, of a peer that was reported as up. If it `takes`, the message
/// is taken.
pub(crate) fn look_for<T: TagTransport>(
    transport: &mut T,
    pattern: TagPattern,
    takes: bool,
) -> Result<Option<FoundMessage<T>>, Unfit> {
    let wire = transport.wire_pattern(pattern)?;
    if !transport.may_look(takes)? {
        return Ok(None);
    }
    for _ in 0..STRAY_MAX {
        // A message of a peer that was not reported as up yet is not found yet.
        let may_take = takes && transport.core().meeting.peers.unconfirmed == 0;
        let Some(found) = transport.look(wire, may_take) else { return Ok(None) };
        let Some(envelope) = transport.envelope(&found) else {
            // The sender is not known, so the message can't be reported: it is discarded.
            if let Some(taken) = transport.take(wire, found) {
                transport.discard(taken);
            }
            continue;
        };
        if report_up(transport, envelope.source) {
            transport.leave(found);
            return Ok(None);
        }
        if takes {
            return Ok(transport.take(wire, found).map(|taken| (Some(taken), envelope)));
        }
        transport.leave(found);
        return Ok(Some((None, envelope)));
    }
    Ok(None)
}

/// See [`MatchingDevice::matched_probe`](tagmatch_device::matching::MatchingDevice::matched_probe).
pub(crate) fn hold<T: TagTransport>(
    transport: &mut T,
    pattern: TagPattern,
) -> Result<Option<(HeldId, Envelope)>, Unfit> {
    let found = look_for(transport, pattern, true)?;
    // The table can't be full: it has room for 2^32 messages.
    Ok(found.and_then(|(taken, envelope)| {
        let key = transport.core_mut().held.insert(taken?, u32::MAX).ok()?;
        Some((HeldId(key.to_bits()), envelope))
    }))
}

/// See [`MatchingDevice::receive_held`](tagmatch_device::matching::MatchingDevice::receive_held).
pub(crate) fn receive_held<T: TagTransport>(
    transport: &mut T,
    message: HeldId,
    buffer: Buffer,
    token: u64,
) -> Result<(), (Buffer, Unfit)> {
    if !buffer.is_writable() {
        return Err((buffer, Unfit::ReadOnly));
    }
    let key = Key::from_bits(message.0);
    let Some(taken) = transport.core().held.get(key).copied() else {
        return Err((buffer, Unfit::NoSuchMessage));
    };
    transport.receive_taken(taken, buffer, token)?;
    transport.core_mut().held.remove(key);
    Ok(())
}

/// See [`MatchingDevice::discard_held`](tagmatch_device::matching::MatchingDevice::discard_held).
pub(crate) fn discard_held<T: TagTransport>(transport: &mut T, message: HeldId) -> bool {
    let taken = transport.core_mut().held.remove(Key::from_bits(message.0));
    taken.map(|taken| transport.discard(taken)).is_some()
}
