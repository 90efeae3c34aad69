//! Copied reads: reading a peer's memory through the rings, where the kernel does not allow a
//! direct read.
//!
//! The reader sends a request. The owner of the memory looks up the span in its table of exposed
//! buffers, sends the bytes in fragments, and then an end. These messages share the rings with the
//! messages of the engine and use at most half of a ring. A peer answers reads in the order in
//! which they were requested, so a fragment of another read breaks the rules.

use std::collections::VecDeque;

use tagmatch_device::{Buffer, Bytes, ReadError, Readable, RemoteSpan};

use super::read_message::ReadMessage;
use super::ring::{Producer, PushError};

/// Most reads that a peer is asked for at a time. Further reads wait in the reader.
const REQUESTS_MAX: usize = 64;

/// A read of this worker: its request was sent, or will be.
struct OwnRead {
    id: u32,
    remote: RemoteSpan,
    into: Buffer,
    token: u64,
    received: usize,
}

/// A read that the peer has requested.
struct PeerRead {
    id: u32,
    span: RemoteSpan,
    sent: u64,
}

/// The copied reads on one connection, in both directions.
#[derive(Default)]
pub(crate) struct CopiedReads {
    /// In the order of their requests.
    own_reads: VecDeque<OwnRead>,
    /// How many requests were sent: those of the first reads in `own_reads`.
    requested: usize,
    next_id: u32,
    peer_reads: VecDeque<PeerRead>,
    /// How often in a row less than half of the ring was free.
    waited: u32,
}

/// Token, buffer and result of a read that has ended.
pub(crate) type EndedRead = (u64, Buffer, Result<(), ReadError>);

impl CopiedReads {
    /// Begins a read. The caller has checked that the bytes fit into the buffer.
    pub(crate) fn start(&mut self, remote: RemoteSpan, into: Buffer, token: u64) {
        self.own_reads.push_back(OwnRead { id: self.next_id, remote, into, token, received: 0 });
        self.next_id = self.next_id.wrapping_add(1);
    }

    /// Whether requests, fragments or ends are to be sent.
    pub(crate) fn has_to_send(&self) -> bool {
        !self.peer_reads.is_empty() || self.requested < self.own_reads.len().min(REQUESTS_MAX)
    }

    /// Takes back the reads of this worker, with token and buffer, when the peer is down.
    pub(crate) fn take_reads(&mut self) -> impl Iterator<Item = (u64, Buffer)> + use<> {
        let own_reads = std::mem::take(&mut self.own_reads);
        own_reads.into_iter().map(|read| (read.token, read.into))
    }

    /// Takes a message from the peer; returns the read that it ended, if any.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn receive(
        &mut self,
        bytes: &Bytes<'_>,
        readable: Readable<'_>,
    ) -> Result<Option<EndedRead>, &'static str> {
        match ReadMessage::parse(bytes)? {
            ReadMessage::Request { id, span } => {
                readable.check(span)?;
                if self.peer_reads.len() >= REQUESTS_MAX {
                    return Err("a peer requests more reads at a time than allowed");
                }
                self.peer_reads.push_back(PeerRead { id, span, sent: 0 });
                Ok(None)
            }
            // The caller takes offers.
            ReadMessage::Offer { .. } => Ok(None),
            ReadMessage::Fragment { id, offset } => {
                let read = self.current(id)?;
                let count = bytes.len() - ReadMessage::HEADER_BYTES;
                let start = read.received;
                if offset != start as u64 {
                    return Err("a fragment of a read is out of order");
                }
                let length = usize::try_from(read.remote.length).unwrap_or(0);
                if count > length - start {
                    return Err("a read was sent more bytes than requested");
                }
                let into = read.into.room().and_then(|all| all.part(start..start + count));
                bytes.copy_to_room(ReadMessage::HEADER_BYTES, into.unwrap_or_default());
                read.received += count;
                Ok(None)
            }
            ReadMessage::End { id, is_good } => {
                let read = self.current(id)?;
                if is_good && read.received as u64 != read.remote.length {
                    return Err("a read was sent fewer bytes than requested");
                }
                self.requested -= 1;
                let read = self.own_reads.pop_front();
                let result = if is_good { Ok(()) } else { Err(ReadError::BadSpan) };
                Ok(read.map(|read| (read.token, read.into, result)))
            }
        }
    }

    /// The oldest requested read, if `id` is its number.
    fn current(&mut self, id: u32) -> Result<&mut OwnRead, &'static str> {
        let requested = self.requested;
        self.own_reads
            .front_mut()
            .filter(|read| requested > 0 && read.id == id)
            .ok_or("a read was answered that was not requested")
    }

    /// Writes requests, and one fragment or end, into the ring, as far as half of the ring is free.
    pub(crate) fn push(
        &mut self,
        producer: &mut Producer,
        readable: Readable<'_>,
    ) -> Result<(), PushError> {
        while self.requested < REQUESTS_MAX
            && let Some(read) = self.own_reads.get(self.requested)
            && may_push(producer, &mut self.waited)?
        {
            let (id, span) = (read.id, read.remote);
            let request = ReadMessage::Request { id, span };
            producer.push_internal(&request.emit(), &[])?;
            self.requested += 1;
        }
        if let Some(read) = self.peer_reads.front_mut()
            && may_push(producer, &mut self.waited)?
        {
            let id = read.id;
            let bytes = readable.bytes(read.span);
            let rest = bytes.map(|all| {
                // `sent` counts bytes of this span.
                all.get(usize::try_from(read.sent).unwrap_or(usize::MAX)..).unwrap_or(&[])
            });
            match rest {
                Some(rest) if !rest.is_empty() => {
                    let most = producer.long_geometry().fragment_max() as usize;
                    let part = &rest[..rest.len().min(most)];
                    let offset = read.sent;
                    let header = ReadMessage::Fragment { id, offset }.emit();
                    producer.push_internal(&header, part)?;
                    read.sent += part.len() as u64;
                }
                rest => {
                    let is_good = rest.is_some();
                    let header = ReadMessage::End { id, is_good }.emit();
                    producer.push_internal(&header, &[])?;
                    self.peer_reads.pop_front();
                }
            }
        }
        Ok(())
    }
}

/// After so many attempts without half of the ring free, any room is used: an engine that keeps the
/// ring full must not keep reads from ending.
const WAITS_MAX: u32 = 64;

fn may_push(producer: &mut Producer, waited: &mut u32) -> Result<bool, PushError> {
    if producer.has_half_free()? {
        *waited = 0;
        return Ok(true);
    }
    *waited = (*waited + 1) % WAITS_MAX;
    Ok(*waited == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tagmatch_device::{Exposures, PeerId};

    #[test]
    fn a_peer_requests_64_reads_at_a_time_and_no_more() {
        let (mut copied, exposures) = (CopiedReads::default(), Exposures::default());
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        let mut ask = |id| {
            let request = ReadMessage::Request { id, span }.emit();
            let readable = exposures.readable_by(PeerId(1));
            copied
                .receive(&Bytes::from_slice(&request), readable)
                .map(|ended| assert!(ended.is_none()))
        };
        for id in 0..64 {
            assert_eq!(ask(id), Ok(()));
        }
        assert!(ask(64).is_err());
    }
}
