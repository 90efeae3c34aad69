//! Looks for messages that wait, and those that such a look has taken.
//!
//! A provider answers a look by a completion: most at once, `cxi` later. Whatever else has ended by
//! then is handled meanwhile, so its events wait for the next poll.

use std::time::{Duration, Instant};

use tagmatch_device::Buffer;
use tagmatch_device::matching::{Envelope, HeldId, TagPattern, Unfit};
use tagmatch_device::slab::Key;
use tagmatch_fabric::handshake::come_up;

use super::Ofi;
use super::carrier::Wire;
use super::endpoint::{Begun, Completion};
use super::operations::{Kind, Operation};
use super::receiving::WirePattern;

/// Messages of unknown senders that one look drops at most.
const STRAY_MAX: usize = 64;
/// How long an answer is waited for. A look without one is given up: there is no message then. One
/// that takes a message is waited for longer, since its message was there a moment before.
const LOOK_MAX: Duration = Duration::from_millis(5);
const TAKE_MAX: Duration = Duration::from_secs(1);

impl Ofi {
    /// The oldest message that matches, of a peer that was reported as up. If it is taken, the key
    /// is that of the message.
    pub(super) fn look_for(
        &mut self,
        pattern: TagPattern,
        takes: bool,
    ) -> Result<Option<(Key, Envelope)>, Unfit> {
        let wire = self.wire_pattern(pattern)?;
        if !self.provider.finds {
            return Err(NO_LOOKS);
        }
        if takes && !self.provider.takes {
            return Err(NO_TAKING);
        }
        self.post_waiting();
        if !self.unposted.is_empty() || self.early.has_any {
            return Ok(None);
        }
        for _ in 0..STRAY_MAX {
            let Some((key, found)) = self.ask(wire, false) else { return Ok(None) };
            self.operations.remove(key);
            let carried = self.carrier.read(Wire { tag: found.tag, data: found.data });
            let Some(source) = self.source_of(carried.number) else {
                // The sender is not known, so the message can't be reported: it is dropped.
                if let Some((key, _)) = self.ask(wire, true) {
                    self.drop_taken(key);
                }
                continue;
            };
            // A message of a peer that was not reported as up yet is not found yet.
            if self.meeting.is_up_unreported(source) {
                come_up(self, source);
                self.has_risen(source);
                return Ok(None);
            }
            if self.meeting.peers.find(source).is_some_and(|peer| peer.link.is_rising) {
                self.has_risen(source);
                return Ok(None);
            }
            let length = carried.length.map_or(found.length as u64, u64::from);
            let envelope =
                Envelope { source, tag: carried.tag, length, immediate: carried.immediate };
            if !takes {
                return Ok(Some((key, envelope)));
            }
            // The same message: nothing was received between the two.
            let exactly = WirePattern { tag: found.tag, ignored: 0, ..wire };
            return Ok(self.ask(exactly, true).map(|(key, _)| (key, envelope)));
        }
        Ok(None)
    }

    /// Whether there is a message for a receive of a peer that is ending.
    pub(super) fn is_there(&mut self, wire: WirePattern) -> bool {
        if !self.provider.finds {
            return false;
        }
        let Some((key, _)) = self.ask(wire, false) else { return false };
        self.operations.remove(key);
        true
    }

    /// Asks the provider, and waits for its answer.
    fn ask(&mut self, wire: WirePattern, takes: bool) -> Option<(Key, Completion)> {
        let from = wire.from?;
        let operation = Operation { kind: Kind::Look, ..Operation::default() };
        let key = self.operations.enter(operation).ok()?;
        let (operation, context) = self.operations.with_context(key)?;
        let asked = (wire.tag, wire.ignored);
        // SAFETY: the table keeps the context until the look has ended, and if it has taken a
        // message, until that was received or the endpoint is gone.
        match unsafe { self.endpoint.look(from, asked, takes, context) } {
            Begun::Yes => operation.is_begun = true,
            Begun::Again | Begun::Failed(_) => {
                self.operations.remove(key);
                return None;
            }
        }
        let limit = if takes { TAKE_MAX } else { LOOK_MAX };
        let mut since = None;
        while self.answer.is_none_or(|(of, _)| of != key) {
            self.advance();
            if since.get_or_insert_with(Instant::now).elapsed() > limit {
                // Its answer drops it.
                if let Some(operation) = self.operations.at(key) {
                    operation.is_told = true;
                }
                return None;
            }
        }
        let (_, answer) = self.answer.take()?;
        if answer.errno != 0 {
            self.operations.remove(key);
            return None;
        }
        if let Some(operation) = self.operations.at(key) {
            operation.wire = Wire { tag: answer.tag, data: 0 };
        }
        Some((key, answer))
    }

    /// A look was answered.
    pub(super) fn looked(&mut self, key: Key, completion: &Completion) {
        self.answer = Some((key, *completion));
    }

    /// See
    /// [`MatchingDevice::receive_held`](tagmatch_device::matching::MatchingDevice::receive_held).
    pub(super) fn take_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        if !buffer.is_writable() {
            return Err((buffer, Unfit::ReadOnly));
        }
        let key = Key::from_bits(message.0);
        if !self.held.remove(&message.0) {
            return Err((buffer, Unfit::NoSuchMessage));
        }
        let tag = self.operations.at(key).map_or(0, |operation| operation.wire.tag);
        let with_room = self.with_room(Wire { tag, data: 0 });
        let Some(operation) = self.operations.at(key) else {
            return Err((buffer, Unfit::NoSuchMessage));
        };
        let kind = Kind::Receive;
        *operation = Operation { kind, token, buffer, is_claimed: true, ..with_room };
        self.tokens.insert(token, key);
        self.post_or_wait(key);
        Ok(())
    }

    /// See
    /// [`MatchingDevice::discard_held`](tagmatch_device::matching::MatchingDevice::discard_held).
    pub(super) fn drop_held(&mut self, message: HeldId) -> bool {
        let is_held = self.held.remove(&message.0);
        if is_held {
            self.drop_taken(Key::from_bits(message.0));
        }
        is_held
    }

    /// Receives a message without keeping its bytes, so that it is freed and its send ends. Some
    /// providers refuse `FI_DISCARD`, so none is asked for it.
    fn drop_taken(&mut self, key: Key) {
        let tag = self.operations.at(key).map_or(0, |operation| operation.wire.tag);
        let mut with_room = self.with_room(Wire { tag, data: 0 });
        if with_room.own.is_empty() {
            // What doesn't fit is cut off by the provider.
            with_room.own = vec![0; 1];
        }
        if let Some(operation) = self.operations.at(key) {
            *operation = Operation { kind: Kind::Discard, is_claimed: true, ..with_room };
            self.post_or_wait(key);
        }
    }
}

const NO_LOOKS: Unfit = Unfit::NotCarried(
    "this provider doesn't find messages that wait (FI_PEEK); post a receive, or use another provider",
);
const NO_TAKING: Unfit = Unfit::NotCarried(
    "this provider doesn't take messages that wait (FI_CLAIM); probe and receive, or use another \
     provider",
);
