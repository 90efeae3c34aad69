//! Reading a peer's memory through the rings, where the kernel does not let us do it directly.
//!
//! The reader sends a request; the owner of the memory checks it against its table of exposed
//! buffers and sends the bytes in fragments, then an end. These messages share the ring with those
//! of the engine and keep to half of it. Reads from one peer are answered in the order in which
//! they were asked for, so that a fragment out of turn is known to be wrong.

use std::collections::VecDeque;

use super::Shm;
use super::bell::BellBit;
use super::exposure::Exposures;
use super::lane::Link;
use super::progress::Queued;
use super::ring::slot::Shape;
use super::ring::{Producer, PushError};
use tagmatch_device::{Buffer, Bytes, DownReason, PeerId, ReadError, RemoteSpan};

/// Requests that a peer answers at a time; more wait with the one who asks.
const REQUESTS_MAX: usize = 64;

/// A message of the device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// Send me these bytes.
    Request {
        /// Number of the read.
        id: u32,
        /// What to read.
        span: RemoteSpan,
    },
    /// Some of them: what follows the header.
    Fragment {
        /// Number of the read.
        id: u32,
        /// Where in the read they belong.
        offset: u64,
    },
    /// That was all.
    End {
        /// Number of the read.
        id: u32,
        /// Whether the span was one that may be read.
        is_good: bool,
    },
}

const REQUEST: u32 = 1;
const FRAGMENT: u32 = 2;
const END: u32 = 3;

impl Internal {
    const HEADER_BYTES: usize = 32;

    /// Header of the message.
    pub fn emit(self) -> [u8; Self::HEADER_BYTES] {
        let (kind, id, small, first, second) = match self {
            Internal::Request { id, span } => (REQUEST, id, span.key, span.address, span.length),
            Internal::Fragment { id, offset } => (FRAGMENT, id, 0, offset, 0),
            Internal::End { id, is_good } => (END, id, u32::from(is_good), 0, 0),
        };
        let mut out = [0; Self::HEADER_BYTES];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&id.to_le_bytes());
        out[8..12].copy_from_slice(&small.to_le_bytes());
        out[16..24].copy_from_slice(&first.to_le_bytes());
        out[24..32].copy_from_slice(&second.to_le_bytes());
        out
    }

    /// Reads a message of a peer's device.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, &'static str> {
        let header: [u8; Self::HEADER_BYTES] =
            bytes.array(0).ok_or("an internal message that is too short")?;
        let small = super::name::u32_at(&header, 8);
        let id = super::name::u32_at(&header, 4);
        let first = super::name::u64_at(&header, 16);
        let has_bytes = bytes.len() > Self::HEADER_BYTES;
        match super::name::u32_at(&header, 0) {
            REQUEST if !has_bytes => Ok(Internal::Request {
                id,
                span: RemoteSpan {
                    address: first,
                    key: small,
                    length: super::name::u64_at(&header, 24),
                },
            }),
            FRAGMENT if has_bytes => Ok(Internal::Fragment { id, offset: first }),
            END if !has_bytes && small <= 1 => Ok(Internal::End { id, is_good: small == 1 }),
            _ => Err("an internal message of no known kind"),
        }
    }
}

/// A read that we have asked for, or will.
struct Import {
    id: u32,
    remote: RemoteSpan,
    into: Buffer,
    token: u64,
    received: usize,
}

/// A read that a peer has asked for.
struct Export {
    id: u32,
    span: RemoteSpan,
    sent: u64,
}

/// Copied reads on one connection, both ways.
#[derive(Default)]
pub(crate) struct Copied {
    /// In the order in which they were, or will be, asked for.
    imports: VecDeque<Import>,
    /// How many of them the peer knows of: the first ones.
    requested: usize,
    next_id: u32,
    exports: VecDeque<Export>,
    /// How often in a row half the ring was not free.
    waited: u32,
}

/// A read that has ended.
type Ended = (u64, Buffer, Result<(), ReadError>);

impl Copied {
    /// Begins a read; the caller has checked that the bytes fit.
    pub(crate) fn start(&mut self, remote: RemoteSpan, into: Buffer, token: u64) {
        self.imports.push_back(Import { id: self.next_id, remote, into, token, received: 0 });
        self.next_id = self.next_id.wrapping_add(1);
    }

    /// Whether there is something to send.
    pub(crate) fn has_to_send(&self) -> bool {
        !self.exports.is_empty() || self.requested < self.imports.len().min(REQUESTS_MAX)
    }

    /// Takes all our reads back, when the peer is down.
    pub(crate) fn take_reads(&mut self) -> impl Iterator<Item = (u64, Buffer)> + use<> {
        let imports = std::mem::take(&mut self.imports);
        imports.into_iter().map(|import| (import.token, import.into))
    }

    /// Takes a message of the peer's device. Gives the read that it ended, if it did.
    fn hear(&mut self, bytes: &Bytes<'_>) -> Result<Option<Ended>, &'static str> {
        match Internal::parse(bytes)? {
            Internal::Request { id, span } => {
                if self.exports.len() >= REQUESTS_MAX {
                    return Err("more reads at a time than allowed");
                }
                self.exports.push_back(Export { id, span, sent: 0 });
                Ok(None)
            }
            Internal::Fragment { id, offset } => {
                let import = self.expected(id)?;
                let count = bytes.len() - Internal::HEADER_BYTES;
                let start = import.received;
                if offset != start as u64 {
                    return Err("a fragment of a read out of order");
                }
                let length = usize::try_from(import.remote.length).unwrap_or(0);
                if count > length - start {
                    return Err("more bytes of a read than were asked for");
                }
                let into = import.into.as_mut_slice().and_then(|all| all.get_mut(start..));
                let into = into.and_then(|rest| rest.get_mut(..count));
                bytes.copy_to(Internal::HEADER_BYTES, into.unwrap_or(&mut []));
                import.received += count;
                Ok(None)
            }
            Internal::End { id, is_good } => {
                let import = self.expected(id)?;
                if is_good && import.received as u64 != import.remote.length {
                    return Err("fewer bytes of a read than were asked for");
                }
                self.requested -= 1;
                let import = self.imports.pop_front();
                let result = if is_good { Ok(()) } else { Err(ReadError::BadSpan) };
                Ok(import.map(|import| (import.token, import.into, result)))
            }
        }
    }

    /// The read whose turn it is, if that is the one that the peer speaks of.
    fn expected(&mut self, id: u32) -> Result<&mut Import, &'static str> {
        let requested = self.requested;
        self.imports
            .front_mut()
            .filter(|import| requested > 0 && import.id == id)
            .ok_or("an answer to a read that was not asked for")
    }
}

/// After so many polls without half a ring free, any room is taken: an engine that always has
/// something to send must not keep reads from ending.
const WAITS_MAX: u32 = 64;

fn may_push(producer: &mut Producer, waited: &mut u32) -> Result<bool, PushError> {
    if producer.has_half_free()? {
        *waited = 0;
        return Ok(true);
    }
    *waited = (*waited + 1) % WAITS_MAX;
    Ok(*waited == 0)
}

impl Link {
    /// Sends requests, and a fragment or an end, as far as half the ring allows.
    fn push_copied(&mut self, exposures: &Exposures) -> Result<(), PushError> {
        let copied = &mut self.copied;
        while copied.requested < REQUESTS_MAX
            && let Some(import) = copied.imports.get(copied.requested)
            && may_push(&mut self.producer, &mut copied.waited)?
        {
            let (id, span) = (import.id, import.remote);
            let request = Internal::Request { id, span };
            self.producer.push(&request.emit(), &[], None, true)?;
            copied.requested += 1;
        }
        if let Some(export) = copied.exports.front_mut()
            && may_push(&mut self.producer, &mut copied.waited)?
        {
            let id = export.id;
            let bytes = exposures.bytes(export.span);
            let rest = bytes.map(|all| {
                // `sent` counts bytes of this very span.
                all.get(usize::try_from(export.sent).unwrap_or(usize::MAX)..).unwrap_or(&[])
            });
            match rest {
                Some(rest) if !rest.is_empty() => {
                    let most = self.producer.geometry().fragment_max() as usize;
                    let part = &rest[..rest.len().min(most)];
                    let offset = export.sent;
                    let header = Internal::Fragment { id, offset }.emit();
                    self.producer.push(&header, part, None, true)?;
                    export.sent += part.len() as u64;
                }
                rest => {
                    let is_good = rest.is_some();
                    let header = Internal::End { id, is_good }.emit();
                    self.producer.push(&header, &[], None, true)?;
                    copied.exports.pop_front();
                }
            }
        }
        Ok(())
    }
}

impl Shm {
    /// Takes a message of the device's own.
    pub(crate) fn hear(
        &mut self,
        peer: PeerId,
        bit: BellBit,
        shape: Shape,
    ) -> Result<(), &'static str> {
        let Some(taken) = self.inboxes.take(bit, shape) else {
            return Ok(());
        };
        // From a peer that is gone: its reads are given back when its ring is empty.
        let Some(link) = self.lanes.get_mut(peer.index()).and_then(|lane| lane.link_mut()) else {
            return Ok(());
        };
        if let Some((token, into, result)) = link.copied.hear(&taken.bytes)? {
            let done = Queued::ReadDone(token, into, result);
            self.events.push_back(done);
        }
        if link.copied.has_to_send() && !self.copying.contains(&peer) {
            self.copying.push(peer);
        }
        self.needs_attention = true;
        Ok(())
    }

    /// Pushes copied reads on, one step for each peer.
    pub(crate) fn push_copied_reads(&mut self) {
        let mut at = 0;
        while let Some(peer) = self.copying.get(at).copied() {
            let Some(link) = self.lanes.get_mut(peer.index()).and_then(|lane| lane.link_mut())
            else {
                self.copying.swap_remove(at);
                continue;
            };
            let result = link.push_copied(&self.exposures);
            link.notify();
            let has_more = link.copied.has_to_send();
            if let Err(PushError::Broken(what)) = result {
                // Takes the peer out of the list.
                self.finish(peer, DownReason::Misbehaved { what });
            } else if has_more {
                at += 1;
            } else {
                self.copying.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_asks_for_so_many_reads_and_no_more() {
        let mut copied = Copied::default();
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        let mut ask = |id| {
            let request = Internal::Request { id, span }.emit();
            copied.hear(&Bytes::from_slice(&request)).map(|ended| assert!(ended.is_none()))
        };
        for id in 0..64 {
            assert_eq!(ask(id), Ok(()));
        }
        assert!(ask(64).is_err());
    }
}
